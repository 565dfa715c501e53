"""The lines of a base as they were read last: a start opens them and parses nothing.

They are never truth. A part counts as unread unless its file is the one that was read (`tree.Stamp`, or its digest
where that cannot tell); a type is left out where records stand twice, a part where lines cannot be read. Who began to
read goes on with what there was: a connection sees one state of the file.
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
from duckkb.store.base_store import FILE, INDICES
from duckkb.store.database import Unusable
from duckkb.store.place import Place, remove
from duckkb.store.stored_rows import StoredIndex, StoredReader, build_stored_part
from duckkb.truth.files.document_parts import type_at
from duckkb.truth.files.line import Limits
from duckkb.truth.files.part import Part, PartRows, Stamp, etag, pause_collector
from duckkb.truth.files.table import Table
from duckkb.truth.files.tree import Tree

_FORMAT = 3
_INSERT = "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class StoredType(Struct):
    """One type in the store, with its parts by path. Parts with lines that cannot be read are not held."""

    number: int
    parts: dict[str, Part] = {}


class StoredLines:
    """The lines of one base as this process last read or wrote them."""

    def __init__(self, place: Place, ontology: Ontology, limits: Limits) -> None:
        self._ontology, self._limits, self._own = ontology, limits, place.own
        self._reader = StoredReader(place, limits)
        self._types: dict[str, StoredType] = {}
        self._writing: Connection | None = None
        self._is_left = False  # what was begun to be written has not become what is held

    @classmethod
    def open(cls, place: Place, ontology: Ontology, limits: Limits) -> "StoredLines":
        """What is there and can be used, type by type; nothing where nothing is. Never raises for what lies there."""
        stored_lines = cls(place, ontology, limits)
        stored_lines.reopen()
        return stored_lines

    def reopen(self) -> None:
        """Look at the file anew."""
        self._types = {}
        try:
            self._reader.look()
            self._load()
        except Unusable:
            self._types = {}
        except (ValueError, TypeError):
            self._types = {}
            self._reader.store.damaged("what it says of types and parts")

    def _load(self) -> None:
        """Raises `Unusable`, ValueError and TypeError for what cannot be read."""
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
                rows, about = PartRows.of(kind, path), (bool(canonical), bool(is_sorted))
                part = Part(path, kind, Stamp(*orjson.loads(stamp)), digest, rows, (), *about)
                self._add(stored_type, part, number, count)

    @property
    def reason(self) -> str:
        """Why nothing is kept beyond this process; empty where it is."""
        return self._reader.store.reason

    @property
    def is_behind(self) -> bool:
        """Whether the file is not what this process looked at: it was removed, could not be read or written, or others went
        on."""
        return self._is_left or self._reader.is_dropped

    @property
    def holds(self) -> frozenset[str]:
        """Names of the types that it holds."""
        return frozenset(kind.name for kind in self._ontology if name_of(kind) in self._types)

    @pause_collector()
    def tree(self) -> Tree:
        """The tree as it was when it was written down, of the types that are held; the others have no parts."""
        parts: dict[str, Part] = {}
        tables = {}
        for kind in self._ontology:
            if (stored_type := self._types.get(name_of(kind))) is not None:
                tables[kind.name] = Table(stored_type.parts, self._build_index(kind, stored_type))
                parts |= stored_type.parts
        return Tree(self._ontology, self._limits, parts, [], tables)

    def folder(self, kind: RecordType) -> Path | None:
        """Where lanes over a type may lie; None where the type is not held."""
        name = name_of(kind)
        return self._own / name if name in self._types else None

    @contextmanager
    def writing(self, timeout: float) -> Iterator[bool]:
        """Change the file alone; True where nobody wrote since this process looked, else it has to look again (`reopen`).

        Raises `Unusable` where it cannot be had in time or written: what was there before is then still there."""
        reader, self._is_left = self._reader, True
        if reader.is_lost or not reader.store.database.is_lasting:
            raise Unusable(self.reason or "it could not be read")
        with reader.store.writing(timeout) as connection:
            self._writing, reader.is_written = connection, True
            try:
                is_current = reader.is_current
                reader.is_lost = not is_current  # what this process looked at is there no more
                yield is_current
            finally:
                self._writing, reader.is_written = None, False

    def build(self, kinds: Iterable[RecordType], parts: Iterable[Part]) -> None:
        """Write types down anew out of their parts as they are read, in any order, while `writing`; ends with `save`. A type
        whose records stand twice is left out: that takes all of them in memory."""
        connection, kinds = self._connection(), list(kinds)
        for kind in kinds:
            self._forget(name_of(kind))
            self._types[name_of(kind)] = self._insert_type(connection, kind)
        is_first = connection.execute("SELECT 1 FROM record LIMIT 1").fetchone() is None
        if is_first:  # an index of many rows is made in half the time once they are there
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
        """Write down what the tree has become by taking in the parts at these paths, while `writing`. Types that cannot be held
        as they are now drop out, those that can be and are not yet are written. Where that went well, `lean` is next.

        Raises `Unusable`."""
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
        """Let the tree, which is as it was saved, find here what it holds in memory."""
        self._is_left = False
        for kind in self._ontology:
            if (stored_type := self._types.get(name_of(kind))) is not None:
                parts = {path: part for path, part in stored_type.parts.items() if not tree.parts[path].rows.number}
                if parts or not tree.is_stored(kind):
                    tree.lean_on(kind, parts, self._build_index(kind, stored_type))

    def is_mirror_of(self, tree: Tree) -> bool:
        """Whether it vouches for every file that the tree vouches for."""
        parts = (part for stored_type in self._types.values() for part in stored_type.parts.values())
        both = ((tree_part.stamp, part.stamp) for part in parts if (tree_part := tree.parts.get(part.path)) is not None)
        return all(stamp == stored_stamp or stamp.is_racy for stamp, stored_stamp in both)

    def close(self) -> None:
        self._reader.store.close()

    def _connection(self) -> Connection:
        assert self._writing is not None, "asked while writing"
        return self._writing

    def _insert_type(self, connection: Connection, kind: RecordType) -> StoredType:
        """A type without records."""
        values = name_of(kind), key_of(kind, self._limits), _new_state()
        statement = "INSERT INTO type (name, key, state) VALUES (?, ?, ?)"
        return StoredType(connection.execute(statement, values).lastrowid or 0)

    def _insert(self, connection: Connection, stored_type: StoredType, part: Part, before: Part | None = None) -> None:
        """Write a part down under a new number. Of rows that it had `before` those that stay are moved there: their
        keys are in the indices already."""
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
        """Take in a part as the tree has it now."""
        before = stored_type.parts.pop(path, None)
        if part is not None and not part.findings:
            self._insert(connection, stored_type, part, before)
        elif before is not None:
            connection.execute("DELETE FROM record WHERE part = ?", (before.rows.number,))
        if before is not None:
            connection.execute("DELETE FROM part WHERE number = ?", (before.rows.number,))
            self._reader.paths.pop(before.rows.number, None)

    def _can_hold(self, kind: RecordType, tree: Tree) -> bool:
        """Whether a type has records, none of which stands twice, and all of its lines can be read."""
        if not tree.count(kind) or tree.is_mended(kind):
            return False
        return not any(part.findings for part in tree.parts_of(kind))

    def _forget(self, name: str) -> None:
        """Leave out a type, with all that was made of it."""
        connection = self._connection()
        self._types.pop(name, None)
        for (number,) in connection.execute("SELECT number FROM type WHERE name = ?", (name,)).fetchall():
            for table in ("record", "part"):
                connection.execute(f"DELETE FROM {table} WHERE type = ?", (number,))
            connection.execute("DELETE FROM type WHERE number = ?", (number,))

    def _forget_others(self, connection: Connection) -> None:
        """Leave nothing of types that are no more, or have another form, and of what earlier versions kept."""
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
    """Move the rows of a part that are among these (by id and etag) to where these stand, and drop its others; returns
    those of these that it did not have."""
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
    """Whether two records of a type have one id or one identity."""
    statements = (
        f"SELECT 1 FROM record WHERE type = ? GROUP BY {column} HAVING count(*) > 1 LIMIT 1"
        for column in ("id", "identity")
    )
    return any(connection.execute(statement, (type,)).fetchone() for statement in statements)


def name_of(kind: RecordType) -> str:
    return f"{kind.kind}-{kind.table}"


def key_of(kind: RecordType, limits: Limits) -> str:
    """Names everything that what a line is read as depends on."""
    shape = (_FORMAT, kind.kind, kind.name, kind.table, kind.identity_fields, kind.generated, limits)
    shaped_by = shape if kind.source is None else (*shape, kind.source, extractor(kind.source.pattern))
    return blake2b(repr(shaped_by).encode(), digest_size=8).hexdigest()
