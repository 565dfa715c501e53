"""Opens a SQLite file of derived state: creates it anew if it is damaged, works in memory if no file is available.

With a write-ahead log readers work beside a writer, and a power cut loses the last changes but never half of
one. Over a network, where processes of several machines share no memory, a rollback journal does the same for
one process at a time. An error of the file is never an error of the command: it is `Unusable`, and the caller
works without the file.

Processes that start at once share a file. A process creates or removes the file and its logs only while it
alone holds the lock of a file beside it, after a second check. A process opens the file while it holds that
lock shared. Otherwise a process that opened a file just before its removal would take the logs of the new file
for its own.

Counts how often memories were useful on this machine, in a file of the user's state folder, never in git.

The file holds only hashes, no names and no text. If it is deleted or damaged, counting begins anew."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b, sha256
from pathlib import Path
from threading import RLock
from typing import Any

from msgspec import Struct

from duckkb.storage import base_lock, clone_state
from duckkb.store.cache_dirs import BESIDE_DATABASE, Unusable, is_own
from duckkb.types.errors import Unavailable

__all__ = ["Database", "Schema", "Unusable"]

_APPLICATION = 0x6475636B  # "duck", SQLite's application_id
_BUSY_S = 5.0
_WAL_BYTES = 64 << 20
_PAGE_BYTES = 4096
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA})
_DRAFT = ".new"
_MAKING_S = 60.0
_ABANDONED: list[sqlite3.Connection] = []
"""Connections of the parent process of a fork: closing one here would remove its log there."""

AFTER_WRITING: list[Callable[[], None]] = []
"""Called after a file has changed; empty while no key is set."""

Value = int | float | str | bytes | None


class Schema(Struct, frozen=True):
    """The tables of a file and their format number: a file with another number is replaced. Programs of two
    versions would replace each other's file, so the file's name must contain the number as well. Long values
    need large pages.
    """

    version: int
    statements: tuple[str, ...]
    page_bytes: int = _PAGE_BYTES


class Database:
    """A file in a folder that `place` has made. It is in memory if the path is None or the file is unavailable,
    which `reason` then explains. Threads take turns; a forked process opens the file anew. If it `holds`, and
    there is a write-ahead log, it sees the state of its first `read` until `let_go` or its own next change.
    `states` counts the states seen: while it is unchanged, no change of another process is visible.
    """

    def __init__(
        self,
        path: Path | None,
        schema: Schema,
        *,
        busy_s: float = _BUSY_S,
        reason: str = "",
        holds: bool = False,
    ) -> None:
        self.path = path
        self.reason = reason
        self._schema, self._busy_s = schema, busy_s
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._inode = 0
        self.openings = self.states = 0
        self._holds, self._has_log = holds, False

    @property
    def is_lasting(self) -> bool:
        """Return whether writes go to a file."""
        with self._lock, suppress(Unusable):
            self._get_connection()
        return self.path is not None and not self.reason

    @property
    def is_in_place(self) -> bool:
        """Return whether the open file is the one that others find at its path; True in memory."""
        if self.path is None or self.reason:
            return True
        try:
            return self._connection is not None and self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def read(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            connection = self._get_connection()
            if not connection.in_transaction:
                self.states += 1
                if self._holds and self._has_log:
                    connection.execute("BEGIN")
            return connection.execute(statement, values).fetchall()

    def let_go(self) -> None:
        """Release the held state, so that changes of others become visible. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("COMMIT")

    @contextmanager
    def begin_write(self) -> Iterator[sqlite3.Connection]:
        """Change the file exclusively: everything, or nothing if the block raises. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            connection = self._get_connection()
            self.let_go()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite rolls back by itself if the disk is full
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        for call in AFTER_WRITING:
            call()

    def shrink(self) -> None:
        """Return unused space to the file system. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            connection = self._get_connection()
            self.let_go()
            connection.execute("PRAGMA temp_store=FILE")  # the copy may be larger than memory
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA temp_store=MEMORY"):
                connection.execute(statement)

    def drop(self) -> None:
        """Remove the open file, or the existing file if none is open, and start with an empty file at the next
        request. Processes that have it open keep it. A file that others have put in its place since stays.
        """
        with self._lock:
            if self.path is None:
                self.close()
                return
            with suppress(Unusable), self._lock_path(self.path, "exclusive"):
                # checked while it is open, so that no other file can have its inode
                is_other = self._inode and not self.is_in_place
                self.close()
                if not is_other:
                    _remove(self.path)
            self.close()

    def remove_if_damaged(self) -> bool:
        """Examine the whole file and remove it if it is damaged; return False if it is sound or busy."""
        if self.path is None or not os.path.lexists(self.path):
            return False
        with self._lock, suppress(Unusable), self._lock_path(self.path, "exclusive"):
            self.close()
            if self._problem(self.path)[1]:
                _remove(self.path)
                return True
        return False

    def take_over(self, path: Path) -> None:
        """Copy another file of this format into memory and leave it unchanged. Raises `Unusable`."""
        with self._lock, self._translate_errors(), closing(_connect_immutable(path)) as source:
            source.backup(self._get_connection())

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            self._inode = 0
            if connection is None:
                return
            if self._pid != os.getpid():
                _ABANDONED.append(connection)
                return
            with suppress(sqlite3.Error):
                connection.close()

    def problem(self) -> str | None:
        """Examine the whole existing file and describe its damage; None if it is sound or missing."""
        if self.path is None or not os.path.lexists(self.path):
            return None
        try:
            with self._lock_path(self.path, "shared"):
                return self._problem(self.path)[0]
        except Unusable as error:
            return str(error)

    def _problem(self, path: Path) -> tuple[str | None, bool]:
        """Describe the damage, and return whether it is of the file itself or only temporary."""
        try:
            connection = self._connect_and_verify(path)
        except (sqlite3.Error, OSError, Unusable) as error:
            return str(error), isinstance(error, Unusable) or _is_damage(error)
        try:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return (None, False) if verdict == "ok" else (str(verdict), True)
        except sqlite3.Error as error:
            return str(error), _is_damage(error)
        finally:
            connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as `Unusable`; remove a damaged file, so that nobody opens it again."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or _is_damage(error):
                self.drop()
            raise Unusable(str(error)) from error

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is not None and self._pid != os.getpid():
            _ABANDONED.append(self._connection)
            self._connection = None
        if self._connection is None:
            self._connection = self._open()
            self.openings += 1
            self._pid = os.getpid()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if self.path is not None and not self.reason:
            try:
                return self._open_file(self.path)
            except (sqlite3.Error, OSError, Unusable) as error:
                self.reason = f"{self.path} cannot be used: {error}"
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._create(connection)
        return connection

    def _open_file(self, path: Path) -> sqlite3.Connection:
        """Open the file; replace it if it is damaged, foreign or of another format."""
        with self._lock_path(path, "shared"):
            connection = self._try_connect(path)
        if connection is None:
            with self._lock_path(path, "exclusive"):
                connection = self._try_connect(path)  # another process may have created it meanwhile
                if connection is None:
                    _remove(path)
                    self._make(path)
                    connection = self._try_connect(path)
                if connection is None:
                    raise Unusable("it was made, and is not sound")
        return connection

    @contextmanager
    def _lock_path(self, path: Path, mode: base_lock.Mode) -> Iterator[None]:
        """Hold the lock to open the file (shared), or to create or remove it. Raises `Unusable`, which names the
        holder.
        """
        try:
            with base_lock.hold_lock_beside(path, mode, _MAKING_S):
                yield
        except Unavailable as error:
            raise Unusable(str(error).rstrip(".")) from error
        except OSError as error:
            raise Unusable(f"it cannot be locked: {error.strerror or error}") from error

    def _try_connect(self, path: Path) -> sqlite3.Connection | None:
        """Open the existing file; return None if it must be created. Raises sqlite3.Error, OSError."""
        try:
            connection = self._connect_and_verify(path)
            self._inode = path.lstat().st_ino
            return connection
        except FileNotFoundError:
            return None
        except (sqlite3.DatabaseError, Unusable) as error:
            if isinstance(error, sqlite3.Error) and not _is_damage(error) and os.path.lexists(path):
                raise
            return None

    def _connect_and_verify(self, path: Path) -> sqlite3.Connection:
        """Open the file without creating it. Raises `Unusable` for a foreign file, sqlite3.Error, OSError."""
        _refuse_foreign(path)
        connection = self._connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        try:
            connection.execute("BEGIN")  # reads everything at a single state of the file
            form = _read_pragma(connection, "user_version"), _read_pragma(connection, "application_id")
            connection.execute("COMMIT")
            if form != (self._schema.version, _APPLICATION):
                raise Unusable("a file of another program or version")
            self._prepare(connection, path)
        except BaseException as error:
            connection.close()
            if isinstance(error, UnicodeDecodeError):  # SQLite's message about damaged tables may not be UTF-8
                raise Unusable("its tables are damaged") from error
            raise
        return connection

    def _connect(self, name: str | Path, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=self._busy_s, isolation_level=None, check_same_thread=False, uri=uri)

    def _make(self, path: Path) -> None:
        """Create a complete new file while no other process has access. Raises sqlite3.Error, OSError."""
        draft = path.with_name(path.name + _DRAFT)
        _remove(draft)  # left by a process that was killed
        with closing(self._connect(draft)) as connection:
            connection.execute(f"PRAGMA page_size={self._schema.page_bytes}")
            self._set_journal_mode(connection, path)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                self._create(connection)
        draft.rename(path)

    def _prepare(self, connection: sqlite3.Connection, path: Path) -> None:
        self._set_journal_mode(connection, path)
        for pragma in ("trusted_schema=OFF", "temp_store=MEMORY", f"journal_size_limit={_WAL_BYTES}"):
            connection.execute(f"PRAGMA {pragma}")

    def _set_journal_mode(self, connection: sqlite3.Connection, path: Path) -> None:
        """Choose the journal. A write-ahead log loses at most the last changes at a power cut and never waits for
        the disk; a rollback journal must wait.
        """
        target_mode = "DELETE" if clone_state.is_remote(clone_state.file_system(path.parent)) else "WAL"
        (mode,) = connection.execute(f"PRAGMA journal_mode={target_mode}").fetchone()
        self._has_log = mode == "wal"
        connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")

    def _create(self, connection: sqlite3.Connection) -> None:
        for statement in self._schema.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={self._schema.version}")
        connection.execute(f"PRAGMA application_id={_APPLICATION}")


def describe_damage_untouched(path: Path) -> str | None:
    """Describe the damage as `Database.problem` does, without changing the file."""
    try:
        with closing(_connect_immutable(path)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return None if verdict == "ok" else str(verdict)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


def _connect_immutable(path: Path) -> sqlite3.Connection:
    """Open a file without the content of its log: SQLite would create other files beside it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def _read_pragma(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


def _is_damage(error: BaseException) -> bool:
    """Return whether the file differs from what was written, or lacks the tables that its number promises."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGED or (
        code == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column"))
    )


def _refuse_foreign(path: Path) -> None:
    """Refuse anything but a regular file: SQLite would follow a link, and wait for the other end of a FIFO."""
    for place in (path, *(path.with_name(path.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(FileNotFoundError):
            status = place.lstat()
            if not stat.S_ISREG(status.st_mode) or not is_own(status):
                raise Unusable(f"{place.name} is not a duckkb file")


def _remove(path: Path) -> None:
    """Remove a file and its logs, the file first: a log without its file has no effect."""
    for place in (path, *(path.with_name(path.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(OSError):
            if place.is_dir() and not place.is_symlink():
                from shutil import rmtree

                rmtree(place)
            else:
                place.unlink()


_SCHEMA = Schema(1, ("CREATE TABLE access (name BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID",))
_COUNTS_BUSY_S, _FEW_COUNTS = 30.0, 500
_ADD = "INSERT INTO access VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET times = times + 1 RETURNING times"
Name = tuple[str, str]
"""A scope and a key."""


class AccessCounts:
    """The access counts of the base in the folder `root`, kept in the state folder `home`. Concurrent processes
    lose no count.
    """

    def __init__(self, home: Path, root: Path) -> None:
        digest = sha256(os.fsencode(root.resolve())).hexdigest()[:32]
        self._path = home.expanduser() / "memory" / f"{digest}.v{_SCHEMA.version}.sqlite3"

    def add(self, names: Iterable[Name]) -> list[int]:
        """Count one more access for each name, all or none; return the new counts. Raises `errors.Unavailable`
        (E_IO).
        """
        database = Database(self._path, _SCHEMA, busy_s=_COUNTS_BUSY_S)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not database.is_lasting:
                raise Unusable(database.reason)
            with database.begin_write() as connection:
                return [connection.execute(_ADD, (_hash_name(name),)).fetchone()[0] for name in names]
        except (OSError, Unusable) as error:
            message = f"accesses cannot be counted in {self._path.parent}: {error}"
            raise Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base") from error
        finally:
            database.close()

    def read(self, names: Iterable[Name]) -> dict[Name, int] | None:
        """Return the count of each name; None if the file cannot be read."""
        if not self._path.exists():
            return dict.fromkeys(names, 0)
        database = Database(self._path, _SCHEMA, busy_s=_COUNTS_BUSY_S)
        try:
            if not database.is_lasting:
                return None
            digests = {name: _hash_name(name) for name in names}
            few = tuple(digests.values()) if len(digests) <= _FEW_COUNTS else ()
            condition = f" WHERE name IN ({','.join('?' * len(few))})" if few else ""
            counts: dict[bytes, int] = dict(database.read(f"SELECT name, times FROM access{condition}", few))
            return {name: counts.get(digest, 0) for name, digest in digests.items()}
        except Unusable:
            return None
        finally:
            database.close()


def _hash_name(name: Name) -> bytes:
    return blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=16).digest()
