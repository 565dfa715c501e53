"""The lines of a base as they were read last: a start opens them and parses nothing.

They are never truth. A part counts as unread unless its file is the one that was read (`tree.Stamp`, or its
digest if the stamp cannot tell). A type with duplicate records is left out, and so is a part with unreadable
lines. A reader keeps its state: a connection sees a single state of the file.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents.document import extractor
from duckkb.fast_json import orjson
from duckkb.ontology.model import Ontology, RecordType
from duckkb.storage.document_parts import type_at
from duckkb.storage.line import Limits
from duckkb.storage.part import Part, PartRows, Stamp, etag, pause_collector
from duckkb.storage.record_table import Table
from duckkb.storage.tree import Tree
from duckkb.store.cache_dirs import Place, remove
from duckkb.store.store_database import Unusable
from duckkb.store.stored_rows import FILE, INDICES, StoredIndex, StoredReader, build_stored_part

_FORMAT = 3
_INSERT = "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class StoredType(Struct):
    """A type in the store, with its parts by path. Parts with unreadable lines are left out."""

    number: int
    parts: dict[str, Part] = {}


class StoredLines:
    """The lines of a base as this process last read or wrote them."""

    def __init__(self, place: Place, ontology: Ontology, limits: Limits) -> None:
        self._ontology, self._limits, self._own = ontology, limits, place.own
        self._reader = StoredReader(place, limits)
        self._types: dict[str, StoredType] = {}
        self._writing: Connection | None = None
        self._is_left = False  # a write that began has not completed

    @classmethod
    def open(cls, place: Place, ontology: Ontology, limits: Limits) -> "StoredLines":
        """Open what exists and is usable, type by type; empty if there is nothing. No content of the file makes it
        raise.
        """
        stored_lines = cls(place, ontology, limits)
        stored_lines.reopen()
        return stored_lines

    def reopen(self) -> None:
        """Read the state of the file again."""
        self._types = {}
        try:
            self._reader.look()
            self._load()
        except Unusable:
            self._types = {}
        except (ValueError, TypeError):
            self._types = {}
            self._reader.store.build_damage_error("what it says of types and parts")

    def _load(self) -> None:
        """Load the types. Raises `Unusable`, ValueError and TypeError if they cannot be read."""
        read = self._reader.store.database.read
        kinds = {name_of(kind): kind for kind in self._ontology}
        by_number: dict[int, tuple[RecordType, StoredType]] = {}
        for number, name, key in read("SELECT number, name, key FROM type"):
            kind = kinds.get(name)
            if kind is not None and key_of(kind, self._limits) == key:
                self._types[name] = StoredType(number)
                by_number[number] = kind, self._types[name]
        for number, type, path, stamp, digest, canonical, is_sorted, count in read("SELECT * FROM part"):
            if type in by_number:
                kind, stored_type = by_number[type]
                if not (isinstance(path, str) and isinstance(digest, str) and isinstance(count, int)):
                    raise TypeError(path)
                rows, about = PartRows.from_rows(kind, path), (bool(canonical), bool(is_sorted))
                part = Part(path, kind, Stamp(*orjson.loads(stamp)), digest, rows, (), *about)
                self._add(stored_type, part, number, count)

    @property
    def reason(self) -> str:
        """Return why nothing outlives this process; empty if the file is used."""
        return self._reader.store.reason

    @property
    def is_behind(self) -> bool:
        """Return whether the file differs from what this process last saw: it was removed, could not be read or
        written, or others changed it.
        """
        return self._is_left or self._reader.is_dropped

    @property
    def holds(self) -> frozenset[str]:
        """Return the names of the types that are stored."""
        return frozenset(kind.name for kind in self._ontology if name_of(kind) in self._types)

    @pause_collector()
    def tree(self) -> Tree:
        """Return the tree as it was saved, with the parts of the stored types; other types have none."""
        parts: dict[str, Part] = {}
        tables = {}
        for kind in self._ontology:
            if (stored_type := self._types.get(name_of(kind))) is not None:
                tables[kind.name] = Table(stored_type.parts, self._build_index(kind, stored_type))
                parts |= stored_type.parts
        return Tree(self._ontology, self._limits, parts, [], tables)

    def folder(self, kind: RecordType) -> Path | None:
        """Return the folder for lanes over a type; None if the type is not stored."""
        name = name_of(kind)
        return self._own / name if name in self._types else None

    @contextmanager
    def begin_write(self, timeout: float) -> Iterator[bool]:
        """Change the file exclusively. Yields True if nobody wrote since this process last looked; otherwise call
        `reopen`.

        Raises `Unusable` if the file cannot be locked in time or written; the earlier content then stays.
        """
        reader, self._is_left = self._reader, True
        if reader.is_lost or not reader.store.database.is_lasting:
            raise Unusable(self.reason or "it could not be read")
        with reader.store.begin_write(timeout) as connection:
            self._writing, reader.is_written = connection, True
            try:
                is_current = reader.is_current
                reader.is_lost = not is_current  # the state that this process looked at is gone
                yield is_current
            finally:
                self._writing, reader.is_written = None, False

    def build(self, kinds: Iterable[RecordType], parts: Iterable[Part]) -> None:
        """Store types anew from their parts as they are read, in any order, in `begin_write`; `save` must follow.
        Types with duplicate records are left out: they need all records in memory.
        """
        connection, kinds = self._connection(), list(kinds)
        for kind in kinds:
            self._forget(name_of(kind))
            self._types[name_of(kind)] = self._insert_type(connection, kind)
        is_first = connection.execute("SELECT 1 FROM record LIMIT 1").fetchone() is None
        if is_first:  # indexing many rows after the insert takes half the time
            for name in INDICES:
                connection.execute(f"DROP INDEX {name}")
        for part in parts:
            self._insert(connection, self._types[name_of(part.kind)], part)
        if is_first:
            for name, columns in INDICES.items():
                connection.execute(f"CREATE INDEX {name} ON {columns}")
        for kind in kinds:
            if _has_repeated(connection, self._types[name_of(kind)].number):
                self._forget(name_of(kind))

    def save(self, tree: Tree, paths: Iterable[str]) -> None:
        """Store the tree after it took in the parts at these paths, in `begin_write`. Drops types that can no
        longer be stored, and stores types that now can be. After success call `lean`.

        Raises `Unusable`.
        """
        connection = self._connection()
        paths_by_type: dict[str, set[str]] = {}
        for path in paths:
            kind_at = type_at(self._ontology, path)
            paths_by_type.setdefault(name_of(kind_at) if kind_at else "", set()).add(path)
        for kind in self._ontology:
            name = name_of(kind)
            if name in self._types and not tree.is_stored(kind):
                self._forget(name)
            stored_type = self._types.get(name)
            if stored_type is not None and name in paths_by_type:
                for path in sorted(paths_by_type[name]):
                    self._replace(connection, stored_type, path, tree.parts.get(path))
                connection.execute("UPDATE type SET state = ? WHERE number = ?", (_new_state(), stored_type.number))
            elif stored_type is None and self._can_hold(kind, tree):
                self.build([kind], tree.parts_of(kind))
        self._forget_others(connection)
        for stored_type in self._types.values():
            for path, part in stored_type.parts.items():
                if path in tree.parts and (stamp := tree.parts[path].stamp) != part.stamp:
                    stored_type.parts[path] = replace(part, stamp=stamp)
                    values = orjson.dumps(stamp.numbers), part.rows.number
                    connection.execute("UPDATE part SET stamp = ? WHERE number = ?", values)
        self._reader.note_state()

    def lean(self, tree: Tree) -> None:
        """Let the tree, which equals its saved state, read from the store what it holds in memory."""
        self._is_left = False
        for kind in self._ontology:
            if (stored_type := self._types.get(name_of(kind))) is not None:
                parts = {path: part for path, part in stored_type.parts.items() if not tree.parts[path].rows.number}
                if parts or not tree.is_stored(kind):
                    tree.lean_on(kind, parts, self._build_index(kind, stored_type))

    def is_mirror_of(self, tree: Tree) -> bool:
        """Return whether the store vouches for every file that the tree vouches for."""
        parts = (part for stored_type in self._types.values() for part in stored_type.parts.values())
        both = ((tree_part.stamp, part.stamp) for part in parts if (tree_part := tree.parts.get(part.path)) is not None)
        return all(stamp == stored_stamp or stamp.is_racy for stamp, stored_stamp in both)

    def close(self) -> None:
        self._reader.store.close()

    def _connection(self) -> Connection:
        assert self._writing is not None, "asked while writing"
        return self._writing

    def _insert_type(self, connection: Connection, kind: RecordType) -> StoredType:
        """Insert a type without records."""
        values = name_of(kind), key_of(kind, self._limits), _new_state()
        statement = "INSERT INTO type (name, key, state) VALUES (?, ?, ?)"
        return StoredType(connection.execute(statement, values).lastrowid or 0)

    def _insert(self, connection: Connection, stored_type: StoredType, part: Part, before: Part | None = None) -> None:
        """Insert a part under a new number. Unchanged rows of the part as it was `before` are moved to it: their
        keys are in the indices already.
        """
        columns = part.rows.read()
        stamp = orjson.dumps(part.stamp.numbers)
        about = part.digest, part.canonical, part.sorted, len(columns.ids)
        statement = (
            "INSERT INTO part (type, path, stamp, digest, canonical, sorted, count) VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        number = connection.execute(statement, (stored_type.number, part.path, stamp, *about)).lastrowid or 0
        self._add(stored_type, part, number, len(columns.ids))
        rows = [
            (stored_type.number, number, line_no, record_id, flags, etag(line), identity, line)
            for record_id, identity, line, line_no, flags in zip(
                columns.ids, columns.identities, columns.lines, columns.numbers, columns.row_flags, strict=True
            )
        ]
        if before is not None:
            rows = _move(connection, before.rows.number, {(row[3], row[5]): row for row in rows})
        connection.executemany(_INSERT, rows)

    def _add(self, stored_type: StoredType, part: Part, number: int, count: int) -> None:
        stored_type.parts[part.path] = build_stored_part(self._reader, part, number, count)
        self._reader.paths[number] = part.path

    def _replace(self, connection: Connection, stored_type: StoredType, path: str, part: Part | None) -> None:
        """Replace a part by the tree's present part."""
        before = stored_type.parts.pop(path, None)
        if part is not None and not part.findings:
            self._insert(connection, stored_type, part, before)
        elif before is not None:
            connection.execute("DELETE FROM record WHERE part = ?", (before.rows.number,))
        if before is not None:
            connection.execute("DELETE FROM part WHERE number = ?", (before.rows.number,))
            self._reader.paths.pop(before.rows.number, None)

    def _can_hold(self, kind: RecordType, tree: Tree) -> bool:
        """Return whether a type has records, no duplicates, and only readable lines."""
        if not tree.count(kind) or tree.is_mended(kind):
            return False
        return not any(part.findings for part in tree.parts_of(kind))

    def _forget(self, name: str) -> None:
        """Drop a type and everything derived from it."""
        connection = self._connection()
        self._types.pop(name, None)
        for (number,) in connection.execute("SELECT number FROM type WHERE name = ?", (name,)).fetchall():
            for table in ("record", "part"):
                connection.execute(f"DELETE FROM {table} WHERE type = ?", (number,))
            connection.execute("DELETE FROM type WHERE number = ?", (number,))

    def _forget_others(self, connection: Connection) -> None:
        """Delete types that no longer exist or have another form, and data of earlier versions."""
        for (name,) in connection.execute("SELECT name FROM type").fetchall():
            if name not in self._types:
                self._forget(name)
        with suppress(OSError):
            for path in self._own.iterdir():
                if path.name.startswith(("node-", "edge-")) and path.name not in self._types:
                    remove(path)
                elif path.name.startswith("store-") and not path.name.startswith(FILE):
                    path.unlink()

    def _build_index(self, kind: RecordType, stored_type: StoredType) -> StoredIndex:
        return StoredIndex(self._reader, kind, stored_type.number)


def _move(connection: Connection, part: int, rows: dict[tuple[int, bytes], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Move the rows of a part that are among `rows` (by id and etag) to their new places, and delete its other
    rows. Returns the new rows that the part did not have.
    """
    moved, dropped = [], []
    statement = "SELECT rowid, id, etag FROM record WHERE part = ?"
    for row_id, record_id, tag in connection.execute(statement, (part,)).fetchall():
        row = rows.pop((record_id, tag), None)
        if row is None:
            dropped.append((row_id,))
        else:
            _, number, line_no, _, flags, *_ = row
            moved.append((number, line_no, flags, row_id))
    connection.executemany("DELETE FROM record WHERE rowid = ?", dropped)
    connection.executemany("UPDATE record SET part = ?, line_no = ?, flags = ? WHERE rowid = ?", moved)
    return list(rows.values())


def _new_state() -> str:
    return os.urandom(8).hex()


def _has_repeated(connection: Connection, type: int) -> bool:
    """Return whether two records of a type share an id or an identity."""
    statements = (
        f"SELECT 1 FROM record WHERE type = ? GROUP BY {column} HAVING count(*) > 1 LIMIT 1"
        for column in ("id", "identity")
    )
    return any(connection.execute(statement, (type,)).fetchone() for statement in statements)


def name_of(kind: RecordType) -> str:
    return f"{kind.kind}-{kind.table}"


def key_of(kind: RecordType, limits: Limits) -> str:
    """Return a key over everything that affects how a line is read."""
    shape = (_FORMAT, kind.kind, kind.name, kind.table, kind.identity_fields, kind.generated, limits)
    shaped_by = shape if kind.source is None else (*shape, kind.source, extractor(kind.source.pattern))
    return blake2b(repr(shaped_by).encode(), digest_size=8).hexdigest()
