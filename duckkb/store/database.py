"""One SQLite file of derived state: opened where it is sound, made anew where it is not, in memory where none can be had.

With a write-ahead log readers go on beside a writer, and a power cut takes away the last changes but never half of one;
over a network, where processes of several machines share no memory, a rollback journal does the same for one at a time.
No error of the file is one of the command: it is `Unusable`, and who asked does without.

Processes that begin at once make one file. It is made and removed, with its logs, by who holds the lock of a file beside it alone
and has judged it again, and it is opened by who holds that lock together with others: a process that had opened what is then
removed would take the logs of the new file for its own.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from msgspec import Struct

from duckkb.errors import Unavailable
from duckkb.store.place import BESIDE_DATABASE, Unusable, is_own
from duckkb.truth import state
from duckkb.truth.commit import lock

__all__ = ["Database", "Schema", "Unusable"]

_APPLICATION = 0x6475636B  # "duck", SQLite's application_id
_BUSY_S = 5.0
_WAL_BYTES = 64 << 20
_PAGE_BYTES = 4096
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA})
_DRAFT = ".new"
_MAKING_S = 60.0
_ABANDONED: list[sqlite3.Connection] = []
"""Connections of the process that this one was forked from: closing one here would take its log away there."""

AFTER_WRITING: list[Callable[[], None]] = []
"""What is called when a file has been changed; nothing while no key is set."""

Value = int | float | str | bytes | None


class Schema(Struct, frozen=True):
    """The tables of a file, and the number of their form: a file with another number is made anew. Programs of two versions
    would take it from each other, so that the number belongs into the file's name as well. Long values want long pages."""

    version: int
    statements: tuple[str, ...]
    page_bytes: int = _PAGE_BYTES


class Database:
    """A file in a folder that `place` has made; in memory where that is None, or the file cannot be had, which `reason` then
    says. Calls from several threads take turns; a process that was forked opens the file anew. One that `holds` sees the
    state of its first `read` until `let_go` or its own next change, where there is a write-ahead log. `states` counts
    those that were looked at: while it is the same, nothing that others wrote is seen."""

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
        """Whether what is written goes to a file."""
        with self._lock, suppress(Unusable):
            self._opened()
        return self.path is not None and not self.reason

    @property
    def is_in_place(self) -> bool:
        """Whether the file that is open is the one that others find there; True where it is in memory."""
        if self.path is None or self.reason:
            return True
        try:
            return self._connection is not None and self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def read(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            connection = self._opened()
            if not connection.in_transaction:
                self.states += 1
                if self._holds and self._has_log:
                    connection.execute("BEGIN")
            return connection.execute(statement, values).fetchall()

    def let_go(self) -> None:
        """See what others have written since. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Change the file as the only one who does: all of it, or nothing where the block raises. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            connection = self._opened()
            self.let_go()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite has rolled back by itself where the disk was full
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        for call in AFTER_WRITING:
            call()

    def shrink(self) -> None:
        """Give back to the file system what is no longer used. Raises `Unusable`."""
        with self._lock, self._translate_errors():
            connection = self._opened()
            self.let_go()
            connection.execute("PRAGMA temp_store=FILE")  # it makes a copy, which may be larger than memory
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA temp_store=MEMORY"):
                connection.execute(statement)

    def drop(self) -> None:
        """Remove the file that is open here, or the one that lies there where none was opened, and begin with an empty one when
        it is next asked for; who has it open keeps it. One that others have made in its place since stays."""
        with self._lock:
            if self.path is None:
                self.close()
                return
            with suppress(Unusable), self._lock_path(self.path, "exclusive"):
                is_other = self._inode and not self.is_in_place  # asked while it is open, so that nobody has its inode
                self.close()
                if not is_other:
                    _remove(self.path)
            self.close()

    def remove_if_damaged(self) -> bool:
        """Remove the file where all of it is looked at and found damaged; False where it is sound, or busy."""
        if self.path is None or not os.path.lexists(self.path):
            return False
        with self._lock, suppress(Unusable), self._lock_path(self.path, "exclusive"):
            self.close()
            if self._problem(self.path)[1]:
                _remove(self.path)
                return True
        return False

    def take_over(self, path: Path) -> None:
        """Hold in memory what another file of this form holds, which is left as it lies. Raises `Unusable`."""
        with self._lock, self._translate_errors(), closing(_connect_immutable(path)) as source:
            source.backup(self._opened())

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
        """What is wrong with the file that lies there, where all of it is looked at; None: nothing, or there is none."""
        if self.path is None or not os.path.lexists(self.path):
            return None
        try:
            with self._lock_path(self.path, "shared"):
                return self._problem(self.path)[0]
        except Unusable as error:
            return str(error)

    def _problem(self, path: Path) -> tuple[str | None, bool]:
        """The same, and whether it is one of the file rather than of the moment."""
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
        """What SQLite raises as `Unusable`; a file that is damaged is removed, so that nobody opens it again."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or _is_damage(error):
                self.drop()
            raise Unusable(str(error)) from error

    def _opened(self) -> sqlite3.Connection:
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
        """The file, made anew where what lies there is damaged, foreign or of another form."""
        with self._lock_path(path, "shared"):
            connection = self._try_connect(path)
        if connection is None:
            with self._lock_path(path, "exclusive"):
                connection = self._try_connect(path)  # another process may have made it meanwhile
                if connection is None:
                    _remove(path)
                    self._make(path)
                    connection = self._try_connect(path)
                if connection is None:
                    raise Unusable("it was made, and is not sound")
        return connection

    @contextmanager
    def _lock_path(self, path: Path, mode: lock.Mode) -> Iterator[None]:
        """Open what lies there, together with others, or make or remove it. Raises `Unusable`, which names who was first."""
        try:
            with lock.hold_lock_beside(path, mode, _MAKING_S):
                yield
        except Unavailable as error:
            raise Unusable(str(error).rstrip(".")) from error
        except OSError as error:
            raise Unusable(f"it cannot be locked: {error.strerror or error}") from error

    def _try_connect(self, path: Path) -> sqlite3.Connection | None:
        """The file as it lies there; None where it has to be made. Raises sqlite3.Error, OSError."""
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
        """The file, which is not made. Raises `Unusable` for what is no file of ours, sqlite3.Error, OSError."""
        _refuse_foreign(path)
        connection = self._connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        try:
            connection.execute("BEGIN")  # all of it is read of one state of the file
            form = _read_pragma(connection, "user_version"), _read_pragma(connection, "application_id")
            connection.execute("COMMIT")
            if form != (self._schema.version, _APPLICATION):
                raise Unusable("a file of another program or version")
            self._prepare(connection, path)
        except BaseException as error:
            connection.close()
            if isinstance(error, UnicodeDecodeError):  # of the text that says what is wrong with damaged tables
                raise Unusable("its tables are damaged") from error
            raise
        return connection

    def _connect(self, name: str | Path, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=self._busy_s, isolation_level=None, check_same_thread=False, uri=uri)

    def _make(self, path: Path) -> None:
        """Put a new file there, whole, for who is alone. Raises sqlite3.Error, OSError."""
        draft = path.with_name(path.name + _DRAFT)
        _remove(draft)  # of a process that was killed
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
        """A write-ahead log loses the last changes with the power, no more, without waiting for the disk; a rollback journal
        has to wait for it."""
        target_mode = "DELETE" if state.is_remote(state.file_system(path.parent)) else "WAL"
        (mode,) = connection.execute(f"PRAGMA journal_mode={target_mode}").fetchone()
        self._has_log = mode == "wal"
        connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")

    def _create(self, connection: sqlite3.Connection) -> None:
        for statement in self._schema.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={self._schema.version}")
        connection.execute(f"PRAGMA application_id={_APPLICATION}")


def describe_damage_untouched(path: Path) -> str | None:
    """As `Database.problem`, for a file that is left as it lies."""
    try:
        with closing(_connect_immutable(path)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return None if verdict == "ok" else str(verdict)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


def _connect_immutable(path: Path) -> sqlite3.Connection:
    """A file without what its log holds: SQLite would make others beside it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def _read_pragma(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


def _is_damage(error: BaseException) -> bool:
    """Whether the file is not what was written, or has not the tables that its number promises."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGED or (
        code == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column"))
    )


def _refuse_foreign(path: Path) -> None:
    """SQLite would follow a link, and wait for the other end of a FIFO."""
    for place in (path, *(path.with_name(path.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(FileNotFoundError):
            status = place.lstat()
            if not stat.S_ISREG(status.st_mode) or not is_own(status):
                raise Unusable(f"{place.name} is no file of ours")


def _remove(path: Path) -> None:
    """Remove a file with its logs, the file first: a log without its file is nothing."""
    for place in (path, *(path.with_name(path.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(OSError):
            if place.is_dir() and not place.is_symlink():
                from shutil import rmtree

                rmtree(place)
            else:
                place.unlink()
