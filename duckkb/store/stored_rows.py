"""The rows of the store as a process sees them: the lines of a part, and the index that finds a record.

If the store is damaged or a call fails, it is not read again: lines come from the files from which they were
read. If such a file has changed as well, `ports.Ahead` is raised and the base is loaded anew.

The store of a base: the lines of its parts as rows, and notes, in a SQLite file that changes as a whole.

SQLite finds what its own checks see. Each line is compared with its etag when it is read; all lines of a
canonical part are compared with the digest of its file."""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.ports import Ahead
from duckkb.storage.line import Limits
from duckkb.storage.part import (
    AS_STORED,
    Part,
    PartLines,
    PartRows,
    StoredRow,
    decode_row,
    encode_identity,
    etag,
    identity_of,
)
from duckkb.storage.read import read_part
from duckkb.storage.record_table import IndexLost, Key, KeyEntry
from duckkb.store.cache_dirs import Place
from duckkb.store.store_database import Database, Schema, Unusable, Value
from duckkb.types.records import Identity

FILE = "store-3.sqlite"
INDICES = {
    "record_id": "record (type, id)",
    "record_identity": "record (type, identity)",
    "record_part": "record (part, line_no, id)",
}
_TYPE = """CREATE TABLE type (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, state TEXT NOT NULL
)"""
_PART = """CREATE TABLE part (
    number INTEGER PRIMARY KEY AUTOINCREMENT, type INTEGER NOT NULL, path TEXT NOT NULL, stamp BLOB NOT NULL,
    digest TEXT NOT NULL, canonical INTEGER NOT NULL, sorted INTEGER NOT NULL, count INTEGER NOT NULL
)"""
_RECORD = """CREATE TABLE record (
    type INTEGER NOT NULL, part INTEGER NOT NULL, line_no INTEGER NOT NULL, id INTEGER NOT NULL,
    flags INTEGER NOT NULL, etag BLOB NOT NULL, identity BLOB NOT NULL, line BLOB NOT NULL
)"""
_NOTE = "CREATE TABLE note (name TEXT PRIMARY KEY, data BLOB NOT NULL)"
_INDICES = (f"CREATE INDEX {name} ON {columns}" for name, columns in INDICES.items())
_SCHEMA = Schema(2, (_TYPE, _PART, _RECORD, *_INDICES, _NOTE))
"""`type`: the stored types; `key` names everything that affects how its lines are read, `state` changes with each
change. `part`: numbers are never reused; `stamp` is JSON. `record`: `identity` is JSON, `etag` 8 bytes, `flags`
as of `PartLines`. `note`: JSON that nothing depends on.
"""


class BaseStore:
    """The store of a base; in memory if the user's cache folder is unavailable, which `reason` then explains. If
    it `holds`, it sees a single state of the file (`Database`).
    """

    def __init__(self, place: Place, *, holds: bool = False) -> None:
        self.place = place
        self._holds = holds
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """Return the database; create it at the first request."""
        if self._database is None:
            reason = ""
            try:
                self.place.make()
            except Unusable as problem:
                reason = str(problem)
            self._database = Database(self.place.own / FILE, _SCHEMA, reason=reason, holds=self._holds)
        return self._database

    @property
    def reason(self) -> str:
        """Return why nothing outlives this process; empty if the file is used or not opened yet."""
        return self._database.reason if self._database is not None else ""

    def build_damage_error(self, what: str) -> Unusable:
        """Drop the damaged file, so that nobody opens it again, and return the error to raise."""
        self.database.drop()
        return Unusable(f"{what} is damaged")

    def note(self, name: str) -> Any:
        """Return the JSON value noted under a name; None if nothing readable is there."""
        with suppress(Unusable, ValueError, TypeError, RecursionError):
            for (data,) in self.database.read("SELECT data FROM note WHERE name = ?", (name,)):
                return json.loads(data)
        return None

    def keep(self, name: str, note: Any) -> bool:
        """Note a value that nothing depends on; return False if that fails."""
        try:
            with self.database.begin_write() as connection:
                connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (name, json.dumps(note).encode()))
        except Unusable:
            return False
        return True

    @contextmanager
    def begin_write(self, busy_s: float) -> Iterator[sqlite3.Connection]:
        """Change the file; wait at most `busy_s` seconds for other processes. Raises `Unusable`."""
        self.database.let_go()
        self.database.read(f"PRAGMA busy_timeout={int(busy_s * 1000)}")
        with self.database.begin_write() as connection:
            yield connection

    def problem(self) -> str | None:
        """Examine the existing file with every line and describe its damage; None if it is sound or missing.
        Creates and removes no file.
        """
        if not os.path.lexists(self.place.own / FILE):
            return None
        if (problem := self.database.problem()) is not None:
            return problem
        lines = "SELECT etag, line FROM record WHERE part = ?"
        try:
            for number, path, count in self.database.read("SELECT number, path, count FROM part"):
                rows = self.database.read(lines, (number,))
                if len(rows) != count or not is_as_written(rows):
                    return f"its copy of {path} is damaged"
        except (Unusable, TypeError) as error:
            return str(error)
        finally:
            self.close()
        return None

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def is_as_written(rows: list[tuple[bytes, bytes]]) -> bool:
    """Return whether each etag matches its line."""
    return all(etag(line) == tag for tag, line in rows)


_WHOLE = 16
"""The most parts in memory that were read whole."""
_AT_ONCE = 500
_ID_BITS = 63
_TYPES = "SELECT name, state FROM type"
_ROWS = "SELECT id, identity, line, line_no, flags, etag FROM record WHERE part = ? ORDER BY line_no LIMIT ? OFFSET ?"


class StoredReader:
    """A reader of the store as it was when this process last looked (`look`) or wrote. `paths` maps the number of
    each part to its path; `recent` holds the parts that were read whole lately. `is_written` says that a change
    is under way, which an error undoes completely. Once it `is_lost`, the store is not read again.
    """

    def __init__(self, place: Place, limits: Limits) -> None:
        self.root, self.limits = Path(place.root), limits
        self.store = BaseStore(place, holds=True)
        self.is_written = self.is_lost = False
        self.paths: dict[int, str] = {}
        self.recent: dict[int, PartLines] = {}
        self._types: set[tuple[Any, ...]] = set()
        self._openings = self._state = 0

    def look(self) -> None:
        """Read the state of the file again. Raises `Unusable`."""
        self.paths, self.recent, self._types = {}, {}, set()
        self.is_lost = False
        if not self.is_written:
            self.store.database.let_go()
        self.note_state()

    def note_state(self) -> None:
        """Record the present state of the types as the one this process sees. Raises `Unusable`."""
        database = self.store.database
        self._types = {*database.read(_TYPES)}
        self._openings, self._state = database.openings, database.states

    @property
    def is_current(self) -> bool:
        """Return whether nobody has written a type since this process looked. Raises `Unusable`."""
        return {*self.store.database.read(_TYPES)} == self._types

    @property
    def is_dropped(self) -> bool:
        """Return whether the file was removed since it was opened, or could not be read."""
        database = self.store.database
        return self.is_lost or database.openings != self._openings or not database.is_in_place

    def read(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Return rows of the state that this process last looked at. Raises `Unusable`, and again at every later
        call.
        """
        if self.is_lost:
            raise Unusable("it could not be read")
        database = self.store.database
        try:
            rows = database.read(statement, values)
            if not self.is_written and database.states != self._state:
                if not self.is_current:
                    raise Unusable("others have gone on")
                self._state = database.states
        except Unusable:
            self.lose()
            raise
        return rows

    def path_of(self, number: int) -> str:
        """Return the path of a part. Raises `Unusable`."""
        if (path := self.paths.get(number)) is None:
            self.lose()
            raise Unusable(f"part {number} is of others")
        return path

    def hold(self, number: int, lines: PartLines) -> PartLines:
        """Keep a part that was read whole in memory, and release others."""
        if len(self.recent) >= _WHOLE and not self.is_lost:
            self.recent = {}
        self.recent[number] = lines
        return lines

    def lose(self) -> None:
        """Stop reading the store."""
        self.is_lost = True

    def drop_store(self, subject: str) -> Unusable:
        """Drop the damaged file and return the error to raise."""
        self.lose()
        self.recent = {}
        return self.store.build_damage_error(subject)

    @contextmanager
    def detect_damage(self, subject: str) -> Iterator[None]:
        """Treat nonsensical values as damage. Raises `Unusable`."""
        try:
            yield
        except (ValueError, TypeError) as problem:
            raise self.drop_store(subject) from problem


class StoredIndex:
    """Implements `table.KeyIndex` over a type of the store, by its number there."""

    def __init__(self, reader: StoredReader, kind: RecordType, type: int) -> None:
        self._reader, self._kind, self._type = reader, kind, type

    def find(self, key: Key, *, with_row: bool) -> KeyEntry | None:
        if isinstance(key, int) and key.bit_length() > _ID_BITS:
            return None
        more = ", line, line_no, flags, etag" if with_row else ""
        column = "id" if isinstance(key, int) else "identity"
        statement = f"SELECT part, id, identity{more} FROM record WHERE type = ? AND {column} = ?"
        try:
            with self._reader.detect_damage(self._kind.name):
                entries = [self._read_entry(*row) for row in self._reader.read(statement, (self._type, key))]
        except Unusable as problem:
            raise IndexLost from problem
        return entries[0] if entries else None

    def _read_entry(self, number: int, record_id: int, identity: bytes, line: bytes = b"", *more: Any) -> KeyEntry:
        path = self._reader.path_of(number)
        if not more:
            identity_of(identity)  # raises ValueError
            return KeyEntry(path, number, record_id, identity)
        line_no, flags, tag = more
        if not is_as_written([(tag, line)]):
            raise self._reader.drop_store(f"a line of {path}")
        row = decode_row(self._kind, path, PartLines([record_id], [identity], [line], [line_no], bytes([flags])), 0)
        if (row.record.id, encode_identity(row.record.identity)) != (record_id, identity):
            raise self._reader.drop_store(f"the index of {path}")
        return KeyEntry(path, number, record_id, identity, row)

    def find_holders(self, ids: Sequence[int], identities: Sequence[bytes]) -> set[tuple[str, int]]:
        numbers: set[int] = set()
        keys: dict[str, Sequence[Key]] = {"id": ids, "identity": identities}
        try:
            for column, values in keys.items():
                for start in range(0, len(values), _AT_ONCE):
                    batch = values[start : start + _AT_ONCE]
                    marks = ",".join("?" * len(batch))
                    statement = f"SELECT DISTINCT part FROM record WHERE type = ? AND {column} IN ({marks})"
                    numbers.update(number for (number,) in self._reader.read(statement, (self._type, *batch)))
            return {(self._reader.path_of(number), number) for number in numbers}
        except Unusable as problem:
            raise IndexLost from problem


class StoredRows(PartRows):
    """The rows of a part in the store. Rows that the store cannot give are read from the file if it is unchanged;
    otherwise every method raises `ports.Ahead`.
    """

    def __init__(self, reader: StoredReader, part: Part, number: int, count: int) -> None:
        self._reader, self._part, self._kind, self._path = reader, part, part.kind, part.path
        self.number, self._count = number, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> StoredRow:
        at = range(len(self))[index]
        return self._build_row(self.read(at, at + 1), 0)

    def names_at(self, at: int) -> tuple[int, bytes]:
        lines = self.read(at, at + 1)
        return lines.ids[0], lines.identities[0]

    @property
    def ids(self) -> Sequence[int]:
        with suppress(Unusable):
            return self._read_column("id")
        return self.read().ids

    @property
    def etags(self) -> Sequence[bytes]:
        with suppress(Unusable):
            return self._read_column("etag")
        return super().etags

    @property
    def identities(self) -> Sequence[Identity]:
        with suppress(Unusable), self._reader.detect_damage(self._path):
            return [identity_of(spelled) for spelled in self._read_column("identity")]
        return [identity_of(spelled) for spelled in self.read().identities]

    def _read_column(self, name: str) -> list[Any]:
        """Read a column of the rows. Raises `Unusable`."""
        statement = f"SELECT {name} FROM record WHERE part = ? ORDER BY line_no"
        values = [value for (value,) in self._reader.read(statement, (self.number,))]
        if len(values) != len(self):
            raise self._build_missing_error()
        return values

    def read(self, start: int = 0, stop: int | None = None) -> PartLines:
        lines = self._reader.recent.get(self.number)
        if lines is not None:
            return lines.cut(start, stop)
        try:
            with self._reader.detect_damage(self._path):
                lines = self._select(start, len(range(len(self))[start:stop]))
        except Unusable as problem:
            return self._hold_file(problem).cut(start, stop)
        return self._reader.hold(self.number, lines) if len(lines.ids) == len(self) else lines

    def _select(self, start: int, count: int) -> PartLines:
        """Read `count` rows from `start` on. Raises `Unusable`, ValueError, TypeError."""
        rows = self._reader.read(_ROWS, (self.number, count, start))
        if len(rows) != count:
            raise self._build_missing_error()
        ids, identities, texts, numbers, flags, tags = map(list, zip(*rows, strict=True)) if rows else ([],) * 6
        is_file = count == len(self) and self._part.canonical and self._kind.source is None
        lines = PartLines(ids, identities, texts, numbers, b"" if {*flags} <= {AS_STORED} else bytes(flags))
        if is_file:
            is_sound = sha256(lines.text).hexdigest() == self._part.digest
        else:
            is_sound = is_as_written(list(zip(tags, texts, strict=True)))
        if not is_sound:
            raise self._reader.drop_store(self._path)
        return lines

    def _build_missing_error(self) -> Unusable:
        """Build the error for missing rows: others removed the part, or the rows are lost."""
        if self._reader.read("SELECT 1 FROM part WHERE number = ?", (self.number,)):
            return self._reader.drop_store(self._path)
        self._reader.lose()
        return Unusable(f"part {self.number} was removed")

    def _hold_file(self, problem: Exception) -> PartLines:
        """Read all rows from the file if it is unchanged since it was read, and keep them. Raises `ports.Ahead`
        otherwise.
        """
        self._reader.lose()
        if not self._reader.is_written:
            part = read_part(self._reader.root, self._path, self._kind, self._reader.limits)
            if part is not None and not part.findings and part.digest == self._part.digest:
                return self._reader.hold(self.number, part.rows.read())
        raise Ahead(
            "What was read before is damaged or has been removed, and its file has changed since; it is read anew.",
            code="E_STALE",
            suggestion="repeat the command",
        ) from problem


def build_stored_part(reader: StoredReader, part: Part, number: int, count: int) -> Part:
    """Return a part without rows in memory that has this number and `count` rows in the store."""
    bare = replace(part, rows=PartRows.from_rows(part.kind, part.path))
    return replace(bare, rows=StoredRows(reader, bare, number, count))
