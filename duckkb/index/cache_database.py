"""The cache of tokens, vectors and model answers on this machine: a SQLite file in the user's cache folder, shared
by all bases, clones and worktrees of the user.

    row      rows made here (`is_own`) and rows read from files of teams; named by kind, key and checksum
    file     files of teams by the hash of their bytes: `read`, `forged` or `damaged`; `made` files were written here
    held     which file holds which row, and whether a sample has verified it
    stamp    which file was hashed already, by path and file system status

A base may use a row if the row was made here, or is verified in a file that lies in this base. So rows that a
clone brought into a base never reach another base. A row whose checksum fails counts as missing. If the file is
unavailable or fails, the cache works in memory.

The rows of the cache, without the libraries that read and write the team's files."""

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b, file_digest, sha256
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from duckkb.store.cache_dirs import make_folder, make_home, room
from duckkb.store.store_database import Database, Schema, Unusable, describe_damage_untouched
from duckkb.types.records import Tokens
from duckkb.types.settings import CACHE_LIMIT

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["tokens", "vector", "answer"]
KINDS: tuple[Kind, ...] = ("tokens", "vector")
"""The kinds of rows that teams share. Answers of models (`answers`) stay on this machine."""
ALL_KINDS: tuple[Kind, ...] = (*KINDS, "answer")

CacheRow = tuple[bytes, bytes, str, bytes]
"""Key (16 bytes over fingerprint and text), content hash (16 bytes over the text), fingerprint, and the payload as bytes:
`fts_content` in UTF-8, the vector as little-endian float32, or an answer."""


class Damaged(ValueError):
    """A file is not a valid cache file. The message says what it is instead, `remedy` how to repair it."""

    def __init__(self, message: str, remedy: str = "duckkb index build") -> None:
        super().__init__(message)
        self.remedy = remedy


class Batch(Struct, frozen=True):
    """Valid rows of one kind from a file, and the number of faulty rows in their row group by problem."""

    kind: Kind
    rows: list[CacheRow]
    left_out: Counter[str]


_SAME_DIRECTION = 0.99
"""The least cosine at which a recomputed vector equals the stored vector: models differ a little between machines."""


def digest(data: bytes) -> str:
    """Return the digest of a file's bytes, used in a segment's name and in the store's record of it."""
    return sha256(data).hexdigest()


def content_hash(text: str) -> bytes:
    """Hash a text, independent of what makes tokens or vectors of it."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def checksums(kind: Kind, rows: Iterable[CacheRow]) -> list[bytes]:
    """Compute 8 bytes over each whole row: they detect damage, but do not stop a forger (see `cache`)."""
    heads: dict[str, bytes] = {}
    digests = []
    for key, content, fingerprint, payload in rows:
        head = heads.get(fingerprint) or heads.setdefault(fingerprint, f"{kind}\0{fingerprint}\0".encode())
        digests.append(blake2b(b"".join((head, key, content, payload)), digest_size=8).digest())
    return digests


def pack_value(kind: Kind, value: Any) -> bytes:
    """Pack tokens or a vector as a payload."""
    if kind == "tokens":
        return fts_content(value).encode()
    payload: bytes = value.astype("<f4", copy=False).tobytes()
    return payload


def vector_of(payload: bytes) -> "np.ndarray":
    """Return the vector in a payload, float32 and read-only."""
    import numpy as np

    return np.frombuffer(payload, "<f4")


def fts_content(tokens: Tokens) -> str:
    """Return the words, and the sequence after a line feed if it differs."""
    return tokens.words if tokens.words == tokens.sequence else f"{tokens.words}\n{tokens.sequence}"


def tokens_of(payload: bytes) -> Tokens:
    words, split, sequence = payload.decode().partition("\n")
    return Tokens(words, sequence if split else words)


def same_direction(stored: "np.ndarray", made: "np.ndarray") -> bool:
    """Return whether two vectors, made on different machines, count as equal."""
    return stored.shape == made.shape and float(stored @ made) >= _SAME_DIRECTION


Item = TypeVar("Item")

FILE = "search_cache.sqlite"
_KEPT_SHARE = 0.8
_SCHEMA = Schema(
    1,
    (
        "CREATE TABLE row (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key BLOB NOT NULL, checksum BLOB NOT NULL,"
        " content_hash BLOB NOT NULL, fingerprint TEXT NOT NULL, is_own INTEGER NOT NULL, used_on INTEGER NOT NULL,"
        " payload BLOB NOT NULL)",
        "CREATE UNIQUE INDEX row_by_key ON row (kind, key, checksum)",
        "CREATE TABLE file (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, state TEXT NOT NULL, said TEXT NOT NULL)",
        "CREATE TABLE held (row INTEGER NOT NULL, file INTEGER NOT NULL, vouched INTEGER NOT NULL,"
        " PRIMARY KEY (row, file)) WITHOUT ROWID",
        "CREATE INDEX held_by_file ON held (file)",
        "CREATE TABLE stamp (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, hash TEXT NOT NULL)",
        "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        # Random, so that counts of a recreated file differ from the old file's
        "INSERT INTO counter VALUES ('added', abs(random() / 2)), ('gone', abs(random() / 2))",
    ),
)
_COLUMNS = "r.id, r.key, r.checksum, r.content_hash, CAST(r.fingerprint AS BLOB), r.is_own, r.used_on, r.payload"
_AT_ONCE = 500
"""The most values in a statement."""
_WRITTEN_AT_ONCE = 4096
_USED_DAYS = 7
"""Days after which the use of a row is recorded again, because a query should write nothing."""
_DAY = 86_400
_STAMPS = 2048
_GRANULARITY_NS = 2_000_000_000
"""A stamp proves that a file is unchanged only if the file had been untouched for so long: file times are that
coarse.
"""


class Stored(Struct, frozen=True):
    """A row with a valid checksum. `is_shared`: a file of the base holds it, and it is verified."""

    id: int
    row: CacheRow
    is_own: bool
    is_shared: bool


class Known(Struct, frozen=True):
    """The record of a file: `said` is the reason why it is damaged, or counts the rows left out by problem."""

    id: int
    state: str
    said: Any


class CacheStore:
    """The SQLite file as a base uses it. `present` holds the numbers of the team's files in the base. `limit` is
    in bytes, for all of the user's folder. With `looks` it works on a copy in memory, because SQLite makes
    files beside the file that it opens.
    """

    def __init__(self, folder: Path | None, *, limit: int = CACHE_LIMIT, looks: bool = False) -> None:
        self._folder, self._limit, self._looks = folder, limit, looks
        self._database: Database | None = None
        self.present: tuple[int, ...] = ()
        self._used: set[int] = set()
        self._damaged: set[int] = set()

    @property
    def database(self) -> Database:
        if self._database is None:
            self._database = Database(None if self._looks else _place(self._folder), _SCHEMA)
            if self._looks and self.path and self.is_there:
                with suppress(Unusable):
                    self._database.take_over(self.path)
        return self._database

    def rows(self, kind: Kind, keys: Iterable[bytes]) -> Iterator[Stored]:
        """Yield the usable rows of these keys, in any order."""
        for some in self._query_batches(self._usable, kind, keys):
            yield from self._iter_sound_rows(kind, some)

    def payloads(self, kind: Kind, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the payload of each key among the usable rows; rows made here take precedence."""
        found: dict[bytes, bytes] = {}
        for some in self._query_batches(self._usable, kind, keys):
            for _, key, _, _, _, is_own, _, payload, _ in self._check_rows(kind, some):
                if is_own or key not in found:
                    found[key] = payload
        return found

    def lengths(self, kind: Kind, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Return the bytes of the payload that `payloads` would return for each key, without reading it."""
        usable = f"r.kind = ? AND r.key IN (%s) AND (r.is_own OR {self._shared})"
        statement = f"SELECT r.key, length(r.payload) FROM row r WHERE {usable} ORDER BY r.is_own"
        return {key: length for some in self._query_batches(statement, kind, keys) for key, length in some}

    def iter_unverified_rows(self, kind: Kind, keys: Iterable[bytes], file: int | None = None) -> Iterator[Stored]:
        """Yield the unverified rows of these keys in the base's files, or in `file` alone."""
        files = self.present if file is None else (file,)
        statement = f"SELECT {_COLUMNS}, 0 FROM row r WHERE r.kind = ? AND r.key IN (%s) AND NOT r.is_own AND {_build_condition(files, 0)}"
        for some in self._query_batches(statement, kind, keys):
            yield from self._iter_sound_rows(kind, some)

    def list_keys(self, files: Sequence[int], *, vouched: bool = False) -> set[bytes]:
        """List the keys in some files; with `vouched` only those of usable rows."""
        counts, id_list = "AND (h.vouched OR r.is_own)" if vouched else "", ",".join(map(str, files))
        statement = f"SELECT r.key FROM held h JOIN row r ON r.id = h.row WHERE h.file IN ({id_list}) {counts}"
        return {key for (key,) in self._read(statement)}

    def fingerprints(self, files: Sequence[int]) -> Counter[str]:
        """Count the vectors in some files by the fingerprint of their model."""
        statement = (
            "SELECT r.fingerprint, count(*) FROM held h JOIN row r ON r.id = h.row"
            f" WHERE r.kind = 'vector' AND h.file IN ({','.join(map(str, files))}) GROUP BY 1"
        )
        return Counter(dict(self._read(statement)))

    def add(self, kind: Kind, rows: Iterable[CacheRow], file: int | None = None, *, vouched: bool = False) -> None:
        """Add rows that were made here, or read from a file by its number. Raises `Unusable`."""
        day, is_own = _compute_today(), file is None
        # Rows made here replace rows with the same key from others.
        conflict_action = (
            "UPDATE SET is_own = 1, payload = excluded.payload, used_on = excluded.used_on" if is_own else "NOTHING"
        )
        for some in _split_batches(rows, _WRITTEN_AT_ONCE):
            sums = checksums(kind, some)
            values = [
                (kind, row[0], checksum, *row[1:3], is_own, day, row[3])
                for row, checksum in zip(some, sums, strict=True)
            ]
            with self.database.begin_write() as connection:
                connection.executemany(
                    "INSERT INTO row (kind, key, checksum, content_hash, fingerprint, is_own, used_on, payload)"
                    f" VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, key, checksum) DO {conflict_action}",
                    values,
                )
                if file is None:
                    _replace_older_rows(connection, [value[:3] for value in values])
                else:
                    connection.executemany(
                        "INSERT OR IGNORE INTO held SELECT id, ?, ? FROM row WHERE kind = ? AND key = ? AND checksum = ?",
                        ((file, vouched, *value[:3]) for value in values),
                    )
                if kind in KINDS:  # only rows that lanes read make the survey of a base out of date, not answers
                    _count(connection, "added")

    def find_file(self, file_hash: str) -> Known | None:
        for number, state, details in self._read("SELECT id, state, said FROM file WHERE hash = ?", (file_hash,)):
            with suppress(ValueError):
                return Known(number, state, json.loads(details))
        return None

    def adopt(self, root: Path, files: Iterable[int]) -> None:
        """Let a base use files by their numbers although they do not lie in it. Raises `Unusable`."""
        file_ids = json.dumps(sorted({*self.list_adopted_files(root), *files}))
        with self.database.begin_write() as connection:
            connection.execute(
                "INSERT INTO file (hash, state, said) VALUES (?, 'adopted', ?)"
                " ON CONFLICT (hash) DO UPDATE SET said = excluded.said",
                (_name_adoption(root), file_ids),
            )
            _count(connection, "added")

    def list_adopted_files(self, root: Path) -> tuple[int, ...]:
        """Return the numbers of the usable files that a base has adopted."""
        file_record = self.find_file(_name_adoption(root))
        if file_record is None or not isinstance(file_record.said, list):
            return ()
        id_list = ",".join(str(int(number)) for number in file_record.said)
        return tuple(
            number for (number,) in self._read(f"SELECT id FROM file WHERE state = 'read' AND id IN ({id_list})")
        )

    def begin(self, file_hash: str) -> int:
        """Register a file before it is read and return its number. Raises `Unusable`."""
        with self.database.begin_write() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO file (hash, state, said) VALUES (?, 'begun', 'null')", (file_hash,)
            )
            return int(connection.execute("SELECT id FROM file WHERE hash = ?", (file_hash,)).fetchone()[0])

    def settle(self, file_hash: str, state: str, said: Any) -> int:
        """Record the state of a file; delete the rows of a forged or damaged file. Raises `Unusable`."""
        number = self.begin(file_hash)
        with self.database.begin_write() as connection:
            connection.execute("UPDATE file SET state = ?, said = ? WHERE id = ?", (state, json.dumps(said), number))
            if state in ("forged", "damaged"):
                connection.execute("DELETE FROM held WHERE file = ?", (number,))
                connection.execute(
                    "DELETE FROM row WHERE NOT is_own AND NOT EXISTS (SELECT 1 FROM held h WHERE h.row = row.id)"
                )
                _count(connection, "gone")
        return number

    def vouch(self, file: int, rows: Iterable[int]) -> None:
        """Mark rows of a file as verified, by their numbers."""
        with suppress(Unusable), self.database.begin_write() as connection:
            connection.executemany(
                "UPDATE held SET vouched = 1 WHERE row = ? AND file = ?", ((row, file) for row in rows)
            )
            _count(connection, "added")

    def hash_of(self, file: BufferedReader, path: Path) -> str:
        """Return the hash of a file that is open for reading; skip reading it if its stamp proves that it was
        hashed before.
        """
        read_ns, about = time.time_ns(), os.fstat(file.fileno())
        stamp = json.dumps(stamp_of(about))
        for (known_hash,) in self._read(
            "SELECT hash FROM stamp WHERE path = ? AND stamp = ?", (os.fspath(path), stamp)
        ):
            return str(known_hash)
        file.seek(0)
        file_hash = file_digest(file, "sha256").hexdigest()
        if max(about.st_mtime_ns, about.st_ctime_ns) <= min(read_ns, time.time_ns()) - _GRANULARITY_NS:
            with suppress(Unusable), self.database.begin_write() as connection:
                connection.execute("DELETE FROM stamp WHERE rowid <= (SELECT max(rowid) FROM stamp) - ?", (_STAMPS,))
                connection.execute("INSERT OR REPLACE INTO stamp VALUES (?, ?, ?)", (os.fspath(path), stamp, file_hash))
        return file_hash

    def counters(self) -> dict[str, int]:
        """Return how often rows were `added` and how often rows were deleted (`gone`); no two files share a
        number.
        """
        return dict(self._read("SELECT name, value FROM counter"))

    def flush(self) -> None:
        """Write what reading found out: which rows are damaged and which are in use."""
        used_ids, damaged_ids = self._used, self._damaged
        if not used_ids and not damaged_ids:
            return
        self._used, self._damaged = set(), set()
        with suppress(Unusable), self.database.begin_write() as connection:
            day = _compute_today()
            connection.executemany("UPDATE row SET used_on = ? WHERE id = ?", ((day, row) for row in used_ids))
            _forget(connection, damaged_ids)

    @property
    def path(self) -> Path | None:
        """Return the path of the file; None if everything is in memory."""
        return self._folder and self._folder / FILE

    @property
    def is_there(self) -> bool:
        """Return whether the file exists."""
        return self.path is not None and self.path.exists()

    def problem(self) -> str | None:
        """Examine the whole file and describe its damage; None if it is sound or missing."""
        if not self.is_there:
            return None
        message = describe_damage_untouched(self.path) if self._looks and self.path else self.database.problem()
        count = self._count_damage() if message is None else 0
        return f"{count} of its rows are damaged" if count else message

    def repair(self) -> int:
        """Keep the valid rows and drop the rest, the whole file if it is damaged itself. Returns how many rows
        were kept.
        """
        if self.database.remove_if_damaged():
            return 0
        self._count_damage()
        self.flush()
        return int(sum(count for (count,) in self._read("SELECT count(*) FROM row")))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Delete the rows of some keys, of every kind."""
        statement = "SELECT r.id FROM row r WHERE r.kind = ? AND r.key IN (%s)"
        with suppress(Unusable):
            self.let_go(
                [row for kind in ALL_KINDS for some in self._query_batches(statement, kind, keys) for (row,) in some]
            )

    def _count_damage(self) -> int:
        """Read every row and count the damaged ones, which are no longer used."""
        for kind in ALL_KINDS:
            statement = f"SELECT {_COLUMNS}, 0 FROM row r WHERE r.kind = ? AND r.id > ? ORDER BY r.id LIMIT {_AT_ONCE}"
            last = 0
            while rows := self._read(statement, (kind, last)):
                last = rows[-1][0]
                list(self._iter_sound_rows(kind, rows))
        return len(self._damaged)

    def trim(self) -> None:
        """Delete rows if the user's folder exceeds its limit."""
        if self._folder is not None and self.size > self._limit // 4:
            with suppress(Unusable):
                self.let_go(self.surplus(room(self._folder.parent, self._limit)))

    def surplus(self, most: int) -> dict[int, int]:
        """Return the least recently used rows, with about the bytes of each, so that the file without them is
        somewhat smaller than `most` bytes; empty if it is no larger already.
        """
        if self.size <= most:
            return {}
        oldest = (
            "SELECT id, bytes FROM (SELECT id, length(payload) + 200 AS bytes,"
            " sum(length(payload) + 200) OVER (ORDER BY used_on, is_own, id) AS upto FROM row) WHERE upto <= ?"
        )
        return dict(self._read(oldest, (self.size - int(_KEPT_SHARE * most),)))

    def count_rows_by_model(self) -> dict[str, dict[int, int]]:
        """Return the rows of vectors by the model's fingerprint, with about the bytes of each."""
        rows_by_model: dict[str, dict[int, int]] = {}
        statement = "SELECT CAST(fingerprint AS BLOB), id, length(payload) + 200 FROM row WHERE kind = 'vector'"
        for model, row, size in self._read(statement):
            rows_by_model.setdefault(model.decode(errors="replace"), {})[row] = size
        return rows_by_model

    def let_go(self, rows: Collection[int]) -> None:
        """Delete rows by their numbers. Raises `Unusable`."""
        if rows:
            with self.database.begin_write() as connection:
                _forget(connection, rows)

    @property
    def size(self) -> int:
        """Return the bytes in use."""
        return self._measure_pages("page_count - freelist_count")

    @property
    def unused(self) -> int:
        """Return the unused bytes of the file."""
        return self._measure_pages("freelist_count")

    def _measure_pages(self, pages: str) -> int:
        rows = self._read(
            f"SELECT ({pages}) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        )
        return int(rows[0][0]) if rows else 0

    def go_on_in_memory(self) -> None:
        """Stop using the file, which may be readable but cannot be written; continue in memory."""
        self.close()
        self._database = Database(None, _SCHEMA)
        self.present = ()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    @property
    def _shared(self) -> str:
        return _build_condition(self.present, 1)

    def _query_batches(self, statement: str, kind: Kind, keys: Iterable[bytes]) -> Iterator[list[tuple[Any, ...]]]:
        for some in _split_batches(dict.fromkeys(keys), _AT_ONCE):
            yield self._read(statement % ",".join("?" * len(some)), (kind, *some))

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self._database is None and not self.is_there:
            return []  # reading creates no file
        try:
            return self.database.read(statement, values)
        except Unusable:
            return []

    @property
    def _usable(self) -> str:
        shared_column = f"{self._shared} AS shared"
        return (
            f"SELECT {_COLUMNS}, {shared_column} FROM row r WHERE r.kind = ? AND r.key IN (%s) AND (r.is_own OR shared)"
        )

    def _iter_sound_rows(self, kind: Kind, raw_rows: list[tuple[Any, ...]]) -> Iterator[Stored]:
        for row in self._check_rows(kind, raw_rows):
            content = (row[1], row[3], row[4].decode(errors="replace"), row[7])
            yield Stored(row[0], content, bool(row[5]), bool(row[8]))

    def _check_rows(self, kind: Kind, raw_rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows with a valid checksum."""
        rows = [(row[1], row[3], row[4].decode(errors="replace"), row[7]) for row in raw_rows]
        oldest = _compute_today() - _USED_DAYS
        for row, checksum in zip(raw_rows, checksums(kind, rows), strict=True):
            if checksum != row[2]:
                self._damaged.add(row[0])
                continue
            if row[6] < oldest:
                self._used.add(row[0])
            yield row


def _replace_older_rows(connection: Any, row_keys: Sequence[tuple[Any, ...]]) -> None:
    """Keep only the newest own row of each key: a model may return other vectors than before, even of another
    length, under the same name.
    """
    older = "kind = ? AND key = ? AND checksum <> ? AND is_own"
    before = connection.total_changes
    connection.executemany(
        f"DELETE FROM row WHERE {older} AND NOT EXISTS (SELECT 1 FROM held h WHERE h.row = row.id)", row_keys
    )
    connection.executemany(f"UPDATE row SET is_own = 0 WHERE {older}", row_keys)
    if connection.total_changes > before:
        _count(connection, "gone")


def _name_adoption(root: Path) -> str:
    """Return the name that stands in place of a file's hash for adopted rows of a base."""
    return f"adopted {sha256(os.fsencode(root.resolve())).hexdigest()}"


def stamp_of(about: os.stat_result) -> tuple[int, ...]:
    """Return size, times in ns, inode and device, which change when a file changes."""
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev


def _place(folder: Path | None) -> Path | None:
    """Return the path of the file; None if there is no folder for it."""
    if folder is None:
        return None
    try:
        make_home(folder.parent)
        make_folder(folder)
    except Unusable:
        return None
    return folder / FILE


def _split_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while some := list(islice(source, size)):
        yield some


def _build_condition(files: Sequence[int], vouch_state: int) -> str:
    """Build the SQL condition that some of these files hold a row in this state of verification."""
    id_list = ",".join(map(str, files))
    if not id_list:
        return "0"
    return f"EXISTS (SELECT 1 FROM held h WHERE h.row = r.id AND h.vouched = {vouch_state} AND h.file IN ({id_list}))"


def _forget(connection: Any, rows: Iterable[int]) -> None:
    """Delete rows; files that held any of them are read again when they are next met."""
    numbers = [(row,) for row in rows]
    if not numbers:
        return
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS victim (row INTEGER PRIMARY KEY)")
    connection.execute("DELETE FROM victim")
    connection.executemany("INSERT OR IGNORE INTO victim VALUES (?)", numbers)
    connection.execute(
        "UPDATE file SET state = 'begun' WHERE state = 'read' AND id IN (SELECT file FROM held WHERE row IN victim)"
    )
    connection.execute("DELETE FROM held WHERE row IN victim")
    connection.execute("DELETE FROM row WHERE id IN victim")
    _count(connection, "gone")


def _count(connection: Any, name: str) -> None:
    connection.execute("UPDATE counter SET value = value + 1 WHERE name = ?", (name,))


def _compute_today() -> int:
    return int(time.time()) // _DAY
