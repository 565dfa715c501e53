"""The lines of a base as they were read last: a start opens them and parses nothing.

They are never truth. A part counts as unread unless its file is the one that was read (`tree.Stamp`, or its digest where
that cannot tell); a type is left out where records stand twice, a part where lines cannot be read. What a part held is
never changed under its number, so that who began to read goes on with what there was, and is removed a while later.

Where the store cannot be read, whether it is damaged or a call fails, lines come out of the files that they were read from.
"""

import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection

from duckkb.errors import Unavailable
from duckkb.fast_json import orjson
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import RowVersion
from duckkb.queries import Lane
from duckkb.store import base_store
from duckkb.store.base_store import BaseStore
from duckkb.store.database import Database
from duckkb.store.key_index import KeyIndex
from duckkb.store.place import Place, Unusable, remove
from duckkb.store.stored_type import StoredPart, StoredType, key_of, name_of, value_name
from duckkb.truth.files.document_parts import type_at
from duckkb.truth.files.line import Limits
from duckkb.truth.files.part import Part, PartContent, PartHead, PartRows, Stamp, etag, pause_collector
from duckkb.truth.files.read import line_in_file, read_part
from duckkb.truth.files.table import Table
from duckkb.truth.files.tree import Differences, Tree

_LOGGED_BYTES = 1 << 20
"""What is remembered of changes by type, for derived state that follows."""
_HEADS, _WHOLE = 8192, 16
"""How many parts are held in memory: what is known of their lines, 25 KB a part, and all of them."""
_READABLE_S = 10
"""How long a part that was replaced can still be read by who began before."""
_GENERATION = "generation"


class Lost(Unavailable):
    """What a part held cannot be read in the store, and its file holds something else now: load the base anew."""


class StoredLines:
    """The lines of one base as this process last read or wrote them."""

    def __init__(self, place: Place, ontology: Ontology, limits: Limits) -> None:
        self._place, self._ontology, self._limits = place, ontology, limits
        self._own = place.own
        self._store = BaseStore(place, holds=True)
        self._generation = 0
        self._types: dict[str, StoredType] = {}
        self._indices: dict[str, KeyIndex] = {}
        self._paths: dict[str, dict[int, str]] = {}
        self._openings = 0
        self._contents: dict[int, _Content] = {}
        self._whole: list[_Content] = []
        self._writing: Connection | None = None
        self._is_lost = False  # could not be read: nothing more is asked of it

    @classmethod
    def open(cls, place: Place, ontology: Ontology, limits: Limits) -> "StoredLines":
        """What is there and can be used, type by type; nothing where nothing is. Never raises for what lies there."""
        stored_lines = cls(place, ontology, limits)
        stored_lines.reopen()
        return stored_lines

    def reopen(self) -> None:
        """Look at the file anew."""
        self._generation = 0
        self._types, self._indices, self._paths = {}, {}, {}
        self._contents.clear()
        with suppress(Unusable):
            if self._writing is None:
                self._store.database.let_go()
            self._generation = self._read_generation()
            self._openings = self._store.database.openings
            for kind in self._ontology:
                stored_type = StoredType.of(data) if (data := self._store.value(value_name(kind))) is not None else None
                if stored_type is not None and stored_type.key == key_of(kind, self._limits):
                    self._types[name_of(kind)] = stored_type
                    self._indices[name_of(kind)] = KeyIndex(self._store, name_of(kind), stored_type.buckets)

    @property
    def reason(self) -> str:
        """Why nothing is kept beyond this process; empty where it is."""
        return self._store.reason

    @property
    def is_dropped(self) -> bool:
        """Whether somebody has removed the file since it was opened, or it could not be read."""
        database = self._store.database
        return self._is_lost or database.openings != self._openings or not database.is_in_place

    @property
    def is_whole(self) -> bool:
        """Whether no record that derived state may have stands in a part that is not held."""
        return not any(stored_type.loose for stored_type in self._types.values())

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
                type_parts = {path: self._part(kind, path, part) for path, part in stored_type.parts.items()}
                tables[kind.name] = self._build_table(kind, type_parts)
                parts |= type_parts
        return Tree(self._ontology, self._limits, parts, [], tables)

    def version(
        self, kind: RecordType, key: Callable[[Lane | None], str], lengths: Callable[[], str]
    ) -> RowVersion | None:
        """What derived state of a type has to mirror, with `key` and `lengths` for what else shapes it; None where the type is
        not held."""
        stored_type = self._types.get(name := name_of(kind))
        if stored_type is None:
            return None
        find_changes = partial(self._find_changed_ids, name, stored_type.revision)
        return RowVersion(stored_type.store, stored_type.revision, find_changes, self._own / name, key, lengths)

    def _find_changed_ids(self, name: str, until: int, after: int) -> frozenset[int] | None:
        """Ids of the records that were put or are gone since an earlier revision; None where that is not known any more,
        or there was no such revision, as after a power cut that took it back. Each change names the one before, so that
        none is passed over."""
        stored_type = self._types.get(name)
        if stored_type is None or after < stored_type.since or after > until:
            return None
        statement = "SELECT revision, data, seal FROM change WHERE type = ? AND revision > ? ORDER BY revision"
        changed_ids: set[int] = set()
        try:
            for revision, data, seal in self._store.database.read(statement, (name, after)):
                if seal != base_store.compute_checksum(f"{name}/{revision}", data):
                    return None
                before, ids = orjson.loads(data)
                if before != after:
                    return None
                after = revision
                changed_ids.update(ids)
                if revision == until:
                    break
        except Unusable:
            return None
        return frozenset(changed_ids) if after == until else None

    @contextmanager
    def writing(self, timeout: float) -> Iterator[bool]:
        """Change the file alone; True where nobody wrote since this process looked, else it has to look again (`reopen`).

        Raises `Unusable` where it cannot be had in time or written: what was there before is then still there."""
        if self._is_lost or not self._store.database.is_lasting:
            raise Unusable(self.reason or "it could not be read")
        with self._store.writing(timeout) as connection:
            self._writing = connection
            try:
                yield self._generation == self._read_generation()
            finally:
                self._writing = None

    def build(self, kinds: Iterable[RecordType], parts: Iterable[Part]) -> None:
        """Write types down anew out of their parts as they are read, in any order, while `writing`; ends with `save`. A type
        whose records stand twice is left out: that takes all of them in memory."""
        connection = self._connection()
        entries: dict[str, tuple[StoredType, array[int], array[int]]] = {}
        for kind in kinds:
            name, now = name_of(kind), time.time_ns()
            self._forget(name)
            stored_type = StoredType(key_of(kind, self._limits), os.urandom(16).hex(), revision=now, since=now)
            entries[name] = stored_type, array("Q"), array("I")
        for part in parts:
            stored_type, keys, slots = entries[name_of(part.kind)]
            stored_part, content = self._insert(connection, part, stored_type)
            keys.extend(content.keys)
            slots.extend([stored_part.slot] * (2 * stored_part.count))
        for name, (stored_type, keys, slots) in entries.items():
            self._types[name] = stored_type
            index = self._indices[name] = KeyIndex(self._store, name)
            if not index.build(connection, keys, slots, len(keys)):
                self._forget(name)
            stored_type.buckets = index.count

    def save(self, tree: Tree, differences: Differences, paths: Iterable[str]) -> None:
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
            if stored_type is not None and (name in paths_by_type or stored_type.loose):
                self._replace(connection, kind, tree, sorted(paths_by_type.get(name, ())))
                upserts, removals = differences.get(kind.name, ([], []))
                unclean = (part for part in tree.parts_of(kind) if part.findings)
                loose = stored_type.mark_loose(row.record.id for part in unclean for row in part.rows)
                self._advance(connection, name, stored_type, {*upserts, *removals, *loose})
            elif stored_type is None and self._can_hold(kind, tree):
                self.build([kind], tree.parts_of(kind))
        self._forget_others(connection)
        for kind in self._ontology:
            if (stored_type := self._types.get(name_of(kind))) is not None:
                for path, part in stored_type.parts.items():
                    part.stamp = tree.parts[path].stamp.numbers if path in tree.parts else part.stamp
                base_store.put(connection, value_name(kind), stored_type.plain())
        self._generation += 1
        base_store.put(connection, _GENERATION, str(self._generation).encode())
        long_ago = int(time.time()) - _READABLE_S
        connection.execute("DELETE FROM part WHERE number IN (SELECT number FROM gone WHERE at < ?)", (long_ago,))
        connection.execute("DELETE FROM gone WHERE at < ?", (long_ago,))

    def lean(self, tree: Tree) -> None:
        """Let the tree, which is as it was saved, find here what it holds in memory."""
        for kind in self._ontology:
            if (stored_type := self._types.get(name_of(kind))) is not None:
                held_paths = {path for path, part in tree.parts.items() if isinstance(part.rows, _StoredRows)}
                parts = {
                    path: self._part(kind, path, part)
                    for path, part in stored_type.parts.items()
                    if path not in held_paths
                }
                if parts or not tree.is_stored(kind):
                    tree.lean_on(kind, parts, partial(self._build_table, kind))

    def knows_stamps(self, tree: Tree) -> bool:
        """Whether it vouches for every file that the tree vouches for."""
        stored_stamps = (
            (path, tuple(part.stamp))
            for stored_type in self._types.values()
            for path, part in stored_type.parts.items()
        )
        both = (
            (tree_part.stamp, numbers)
            for path, numbers in stored_stamps
            if (tree_part := tree.parts.get(path)) is not None
        )
        return all(stamp.numbers == numbers or stamp.is_racy for stamp, numbers in both)

    def close(self) -> None:
        self._store.close()

    def _connection(self) -> Connection:
        assert self._writing is not None, "asked while writing"
        return self._writing

    def _read_generation(self) -> int:
        return int(self._store.value(_GENERATION) or 0)

    def _insert(
        self, connection: Connection, part: Part, stored_type: StoredType, before: StoredPart | None = None
    ) -> tuple[StoredPart, PartContent]:
        """Write a part down under a new number."""
        content = part.rows.content
        (number,) = connection.execute("SELECT seq + 1 FROM sqlite_sequence WHERE name = 'part'").fetchone() or (1,)
        head = content.head.data
        seal = base_store.compute_checksum(f"part/{number}", head)
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (number, seal, head, content.text))
        if before is None:
            stored_type.slots += 1
        slot = before.slot if before is not None else stored_type.slots
        stored_part = StoredPart(
            number, slot, part.stamp.numbers, part.digest, part.canonical, part.sorted, len(content.head.ids)
        )
        stored_type.parts[part.path] = stored_part
        return stored_part, content

    def _replace(self, connection: Connection, kind: RecordType, tree: Tree, paths: Iterable[str]) -> None:
        """Take in the parts at these paths as the tree has them."""
        stored_type, index = self._types[name_of(kind)], self._indices[name_of(kind)]
        self._paths.pop(name_of(kind), None)
        fresh: list[tuple[int, int]] = []
        for path in paths:
            before, part = stored_type.parts.pop(path, None), tree.parts.get(path)
            had = set(self._load_content(kind, path, before).keys) if before is not None else set()
            if before is not None:
                _retire_parts(connection, [before])
            if part is not None and not part.findings:
                stored_part, content = self._insert(connection, part, stored_type, before)
                fresh += [(key, stored_part.slot) for key in content.keys if key not in had]
        if not index.add(connection, fresh):
            contents = [(part.slot, self._load_content(kind, path, part)) for path, part in stored_type.parts.items()]
            keys = array("Q", [key for _, content in contents for key in content.keys])
            slots = array("I", [slot for slot, content in contents for _ in range(2 * len(content.head.ids))])
            index.build(connection, keys, slots, len(keys))
        stored_type.buckets = index.count

    def _advance(self, connection: Connection, name: str, stored_type: StoredType, ids: set[int]) -> None:
        """Begin a new revision, which these records differ in. Its number is never given again, though a power cut may take
        it back and keep what mirrors it."""
        before, stored_type.revision = stored_type.revision, max(stored_type.revision + 1, time.time_ns())
        data = orjson.dumps([before, sorted(ids)])
        seal = base_store.compute_checksum(f"{name}/{stored_type.revision}", data)
        connection.execute("INSERT INTO change VALUES (?, ?, ?, ?)", (name, stored_type.revision, data, seal))
        stored_type.logged += len(data)
        if stored_type.logged <= _LOGGED_BYTES:
            return
        statement = "SELECT revision, length(data) FROM change WHERE type = ? ORDER BY revision"
        for revision, size in connection.execute(statement, (name,)).fetchall():
            if stored_type.logged <= _LOGGED_BYTES // 2:
                break
            stored_type.since, stored_type.logged = revision, stored_type.logged - size
        connection.execute("DELETE FROM change WHERE type = ? AND revision <= ?", (name, stored_type.since))

    def _can_hold(self, kind: RecordType, tree: Tree) -> bool:
        """Whether a type has records, none of which stands twice, and all of its lines can be read."""
        if not tree.count(kind) or tree.is_mended(kind):
            return False
        return not any(part.findings for part in tree.parts_of(kind))

    def _forget(self, name: str) -> None:
        """Leave out a type, with all that was made of it."""
        connection = self._connection()
        stored_type = self._types.pop(name, None)
        self._indices.pop(name, None)
        self._paths.pop(name, None)
        if stored_type is not None:
            _retire_parts(connection, stored_type.parts.values())
        KeyIndex(self._store, name).drop(connection)
        connection.execute("DELETE FROM change WHERE type = ?", (name,))
        connection.execute("DELETE FROM value WHERE name = ?", (f"type/{name}",))

    def _forget_others(self, connection: Connection) -> None:
        """Leave nothing of types that are no more, or have another form."""
        for (value,) in connection.execute("SELECT name FROM value WHERE name GLOB 'type/*'").fetchall():
            name = value.removeprefix("type/")
            if name not in self._types:
                if (stored_type := StoredType.of(self._store.value(value) or b"")) is not None:
                    self._types[name] = stored_type
                self._forget(name)
        with suppress(OSError):
            self._remove_lanes()

    def _remove_lanes(self) -> None:
        for folder in self._place.own.iterdir():
            if folder.name.startswith(("node-", "edge-")) and folder.name not in self._types:
                remove(folder)

    def _part(self, kind: RecordType, path: str, part: StoredPart) -> Part:
        """A part whose rows lie here."""
        rows = _StoredRows(kind, path, part.count, partial(self._load_content, kind, path, part))
        return Part(path, kind, Stamp(*part.stamp), part.digest, rows, (), part.canonical, part.sorted)

    def _build_table(self, kind: RecordType, parts: Mapping[str, Part]) -> Table:
        return Table(parts, partial(self._find_paths, name_of(kind)))

    def _find_paths(self, name: str, key: int) -> list[str] | None:
        """Paths of the parts of a type in which a key may be found; None where that cannot be told any more."""
        index, stored_type = self._indices.get(name), self._types.get(name)
        if index is None or stored_type is None:
            return []
        if self._is_lost:
            return None
        try:
            slots = [*index.slots(key)]
        except Unusable as problem:
            self._disable_store(problem)
            return None
        if slots and name not in self._paths:
            self._paths[name] = {part.slot: path for path, part in stored_type.parts.items()}
        return [self._paths[name][slot] for slot in slots if slot in self._paths[name]]

    def _load_content(self, kind: RecordType, path: str, part: StoredPart) -> PartContent:
        """What a part holds. Raises `Lost`."""
        content = self._contents.get(part.number)
        if content is None:
            if len(self._contents) >= _HEADS:
                self._contents.clear()
            anew = partial(self._anew, kind, path, part)
            try:
                plain_content = PartContent(self._read_head(part), [])
            except (Unusable, ValueError) as problem:
                plain_content = anew(problem)
            candidate = _Content(plain_content, part, self, f"{self._place.root}/{path}", anew)
            content = self._contents.setdefault(part.number, candidate)
        return content

    def _read_head(self, part: StoredPart) -> PartHead:
        """Raises `Unusable`, ValueError."""
        rows = self._sound.read("SELECT seal, head FROM part WHERE number = ?", (part.number,))
        if rows and rows[0][0] == base_store.compute_checksum(f"part/{part.number}", rows[0][1]):
            return PartHead.load(part.count, rows[0][1])
        if rows or self._read_generation() == self._generation:
            raise self._store.damaged(f"part {part.number}")
        raise Unusable(f"part {part.number} was removed")  # others went on

    def read(self, part: StoredPart, etags: bytes, start: int = 0, end: int | None = None) -> list[bytes]:
        """Lines of a part, which their etags guard; all of them the digest of its file, where that is what stands here. Raises
        `Unusable`."""
        text = self._sound.slice("part", "text", part.number, start, end)
        lines = text.split(b"\n")[:-1]
        is_file = end is None and part.canonical and sha256(text).hexdigest() == part.digest
        if not is_file and b"".join(map(etag, lines)) != etags:
            raise self._store.damaged(f"part {part.number}")
        return lines

    def keep(self, content: "_Content") -> None:
        """Let a part stay in memory that was read whole, and others go."""
        self._whole.append(content)
        if len(self._whole) > _WHOLE:
            self._whole.pop(0).forget()

    def damaged(self) -> "Lost":
        self._store.database.drop()
        return _build_lost_error()

    @property
    def _sound(self) -> Database:
        """The file. Raises `Unusable` once it could not be read."""
        if self._is_lost:
            raise Unusable("it could not be read")
        return self._store.database

    def _disable_store(self, problem: Exception) -> None:
        """Ask nothing more of the store. Raises `Lost` while it is written: what has begun there is taken back."""
        if self._writing is not None:
            raise _build_lost_error() from problem
        self._is_lost = True

    def _anew(self, kind: RecordType, path: str, part: StoredPart, problem: Exception) -> PartContent:
        """What a part holds, out of its file while that is the one that was read. Raises `Lost`."""
        self._disable_store(problem)
        file_part = read_part(Path(self._place.root), path, kind, self._limits)
        if file_part is None or file_part.findings or file_part.digest != part.digest:
            raise _build_lost_error() from problem
        return file_part.rows.content


class _StoredRows(PartRows):
    """Rows that lie in the store."""


class _Content(PartContent):
    """What a part in the store holds: its head; of its text a line at a time, or all of it where it is gone through. What
    cannot be read there is read `anew`."""

    def __init__(
        self,
        found: PartContent,
        part: StoredPart,
        lines: StoredLines,
        file: str,
        anew: Callable[[Exception], PartContent],
    ) -> None:
        super().__init__(found.head, [])
        self._part, self._stored, self._anew, self._file = part, lines, anew, file
        if found.lines:
            self._hold(found.lines)

    @property
    def lines(self) -> list[bytes]:
        if not (lines := self._lines):  # which another thread may let go of
            try:
                lines = self._stored.read(self._part, self.head.etags)
            except Unusable as problem:
                lines = self._anew(problem).lines
            self._hold(lines)
        return lines

    def line(self, at: int) -> bytes:
        if lines := self._lines:
            return lines[at]
        start, end = self.head.ends[at - 1] if at else 0, self.head.ends[at]
        line_etag = self.head.etags[8 * at : 8 * at + 8]
        if (
            self._part.canonical
            and (line := line_in_file(self._file, start, end)) is not None
            and etag(line) == line_etag
        ):
            return line
        with suppress(Unusable):
            return self._stored.read(self._part, line_etag, start, end)[0]
        return self.lines[at]

    def _hold(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._stored.keep(self)

    def forget(self) -> None:
        """Hold the lines no longer."""
        self._lines = []

    def damaged(self) -> Exception:
        return self._stored.damaged()


def _build_lost_error() -> Lost:
    return Lost(
        "What was read before is damaged or has been removed; it is read anew, and nothing in data/ is touched.",
        code="E_IO",
        suggestion="repeat the command",
    )


def _retire_parts(connection: Connection, parts: Iterable[StoredPart]) -> None:
    now = int(time.time())
    connection.executemany("INSERT OR REPLACE INTO gone VALUES (?, ?)", [(part.number, now) for part in parts])
