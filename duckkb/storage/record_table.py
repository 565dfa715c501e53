"""The records of a type as readers see them: one per identity, each with an id of its own.

Files may hold several lines of a record (two branches added it) and the same id for two records. Reading
continues then: lines of the same record are merged field by field; of two records with the same id, the later
in path order gets a free id. Both are mended only in memory (`MendedTable`), and equally whether the files were
read at once or one after the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.storage.line import Limits, LineShape, decode, record_line
from duckkb.storage.part import Part, PartRows, StoredRow, encode_identity, identity_of, record_of
from duckkb.storage.source_text import merge_duplicates
from duckkb.storage.strict_lines import free_id
from duckkb.types.records import Identity, identity_key

_KEPT = 4096  # recently found rows


class Repeated(Exception):
    """Two records share an identity or an id; mending them needs all records of the type."""


Key = int | bytes
"""The key of a record: its id, or its identity as JSON."""
Swapped = Mapping[str, PartRows]
"""The rows of files by path, in path order."""


class IndexLost(Exception):
    """The index of a type is unreadable or mirrors other lines; search its parts instead."""


class KeyEntry(Struct, frozen=True):
    """The place of a record: the part's path and `number` (0 in memory), its id, its identity as JSON; the row if
    that was requested.
    """

    path: str
    number: int
    id: int
    identity: bytes
    row: StoredRow | None = None


class KeyIndex(Protocol):
    """Finds the records of a type whose lines lie outside of memory, by id or by identity as JSON. Raises
    `IndexLost`.
    """

    def find(self, key: Key, *, with_row: bool) -> KeyEntry | None: ...

    def find_holders(self, ids: Sequence[int], identities: Sequence[bytes]) -> set[tuple[str, int]]:
        """Return the paths and numbers of the parts that hold any of these."""
        ...


class Table:
    """The rows of a type without duplicates, found by id or identity and decoded on request. Rows that an `index`
    finds are not in memory; without an index, and for replaced parts, the keys are. The cost of a change is
    proportional to the changed lines.

    Raises `Repeated` if two records of parts in memory share an identity or an id.
    """

    is_mended = False

    def __init__(self, parts: Mapping[str, Part], index: KeyIndex | None = None) -> None:
        self._index = index
        self._rows = {path: part.rows for path, part in parts.items()}
        self._count: int | None = None
        self._places: dict[Key, tuple[str, int]] = {}
        self._lately: dict[Key, StoredRow] = {}
        for path, rows in self._rows.items():
            if index is None or not rows.number:
                self._hold(path)

    @property
    def is_stored(self) -> bool:
        """Return whether an index finds the records, apart from later changes."""
        return self._index is not None

    def __len__(self) -> int:
        if self._count is None:  # each query calls this several times
            self._count = sum(map(len, self._rows.values()))
        return self._count

    def __iter__(self) -> Iterator[Identity]:
        for path in sorted(self._rows):
            yield from self._rows[path].identities

    def get(self, identity: Identity) -> StoredRow | None:
        identity_text = _spell(identity)
        return None if identity_text is None else self._find_row(identity_text)

    def find_by_id(self, record_id: int) -> StoredRow | None:
        return self._find_row(record_id)

    def id_of(self, identity: Identity) -> int | None:
        """Return the id of the record with this identity, without reading a line."""
        identity_text = _spell(identity)
        entry = None if identity_text is None else self._find_entry(identity_text)
        return None if entry is None else entry.id

    def identity(self, record_id: int) -> Identity | None:
        """Return the identity of the record with this id, without reading a line."""
        entry = self._find_entry(record_id)
        return None if entry is None else identity_of(entry.identity)

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        """Return every line of a record, in path order."""
        row = self.get(identity)
        return (row,) if row else ()

    def swap(self, old: Swapped, new: Swapped) -> tuple[set[bytes], set[bytes]]:
        """Replace the rows that files had (`old`) by their present rows (`new`). Return the added and the removed
        identities, as JSON; no line is decoded.

        Raises `Repeated` if two records would share an identity or an id; the table is unusable then.
        """
        self._lately.clear()
        self._count = None
        before, after = _collect_names(old), _collect_names(new)
        for path in old.keys() - new.keys():
            self._rows.pop(path, None)
        self._rows |= new
        for path in new:  # also keys of unchanged lines: the index no longer leads to a replaced part
            self._hold(path)
        self._refuse_duplicates([*(after - before)])
        gone, came = {identity for _, identity in before}, {identity for _, identity in after}
        return came - gone, gone - came

    def _refuse_duplicates(self, names: Sequence[tuple[int, bytes]]) -> None:
        """Raise `Repeated` if a part outside of memory has one of these ids or identities. `_hold` checks parts in
        memory.
        """
        if self._index is None:
            return
        try:
            holders = self._index.find_holders(
                [record_id for record_id, _ in names], [identity for _, identity in names]
            )
        except IndexLost:
            self._hold_all()
        else:
            if any(self._is_current(path, number) for path, number in holders):
                raise Repeated

    def _hold_all(self) -> None:
        """Hold the keys of all parts and stop using the index."""
        for path in self._rows:
            self._hold(path)
        self._index = None  # only after other threads can find all rows

    def _hold(self, path: str) -> None:
        """Hold the keys of a part in memory. Raises `Repeated`."""
        lines = self._rows[path].read()
        columns: tuple[Iterable[Key], ...] = lines.ids, lines.identities
        for at, key in chain.from_iterable(map(enumerate, columns)):
            place = self._places.get(key)
            if place is not None and place != (path, at):
                rows = self._rows.get(place[0])
                if rows is not None and rows.has(key, place[1]):
                    raise Repeated
            self._places[key] = path, at

    def _find_row(self, key: Key) -> StoredRow | None:
        row = self._lately.get(key)  # a query requests the same few rows repeatedly
        if row is None:
            entry = self._find_entry(key, with_row=True)
            if entry is None or entry.row is None:
                return None
            if len(self._lately) >= _KEPT:
                self._lately.clear()
            row = self._lately[key] = entry.row
        return row

    def _find_entry(self, key: Key, *, with_row: bool = False) -> KeyEntry | None:
        path, at = self._places.get(key, ("", 0))
        rows = self._rows.get(path)
        if rows is not None and rows.has(key, at):
            return KeyEntry(path, 0, *rows.names_at(at), rows[at] if with_row else None)
        if self._index is None:
            return None
        try:
            entry = self._index.find(key, with_row=with_row)
        except IndexLost:
            self._hold_all()
            return self._find_entry(key, with_row=with_row)
        return entry if entry is not None and self._is_current(entry.path, entry.number) else None

    def _is_current(self, path: str, number: int) -> bool:
        """Return whether a part is still as the index knows it."""
        rows = self._rows.get(path)
        return rows is not None and rows.number == number


def _collect_names(parts: Swapped) -> set[tuple[int, bytes]]:
    """Collect the ids and identities of all rows."""
    columns = (rows.read() for rows in parts.values())
    return {name for lines in columns for name in zip(lines.ids, lines.identities, strict=True)}


def _spell(identity: Identity) -> bytes | None:
    try:
        return encode_identity(identity)
    except TypeError:  # half a character, from a command line; no stored line has it
        return None


class MendedTable:
    """The rows of any type, duplicates included, all in memory."""

    is_stored = False

    def __init__(self, kind: RecordType, limits: Limits, rows: Iterable[StoredRow]) -> None:
        self._kind, self._limits = kind, limits
        self._shape = LineShape(kind.identity_fields)
        self._stored = _group_by_identity(rows)
        self._joined = {
            identity: self._join(identity_rows)
            for identity, identity_rows in self._stored.items()
            if len(identity_rows) > 1
        }
        self._claims: dict[int, list[Identity]] = {}
        for identity in self._stored:
            self._claims.setdefault(self._find_claimant(identity).record.id, []).append(identity)
        self._moved = self._reassign_ids()
        self._owners = {record_id: rivals[0] for record_id, rivals in self._claims.items()}
        self._owners |= {row.record.id: identity for identity, row in self._moved.items()}

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._stored)

    @property
    def is_mended(self) -> bool:
        """Return whether any record differs from its line."""
        return bool(self._joined or self._moved)

    def get(self, identity: Identity) -> StoredRow | None:
        row = self._moved.get(identity) or self._joined.get(identity)
        return row or next(iter(self._stored.get(identity, ())), None)

    def find_by_id(self, record_id: int) -> StoredRow | None:
        return self.get(self._owners[record_id]) if record_id in self._owners else None

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        """Return every line of a record, in path order; more than one for a duplicate."""
        return tuple(self._stored.get(identity, ()))

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]:
        return {identity: self.lines(identity) for identity in sorted(self._joined, key=identity_key)}

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]:
        """Return the ids that several records claim, with those records as stored; the first record keeps the id."""
        return {
            record_id: tuple(map(self._find_claimant, rivals))
            for record_id, rivals in sorted(self._claims.items())
            if rivals[1:]
        }

    def _join(self, rows: Sequence[StoredRow]) -> StoredRow:
        line = merge_duplicates([row.line for row in rows], self._kind.identity_fields)
        # The merged line may exceed the limit of a line; writing it is then refused.
        limits = replace(self._limits, max_record_bytes=max(self._limits.max_record_bytes, len(line)))
        record = record_of(self._kind, decode(line, self._shape, limits).values)
        return replace(rows[0], record=record, line=line)

    def _find_claimant(self, identity: Identity) -> StoredRow:
        return self._joined.get(identity) or self._stored[identity][0]

    def _find_position(self, identity: Identity) -> tuple[str, int]:
        return self._find_claimant(identity).position

    def _reassign_ids(self) -> dict[Identity, StoredRow]:
        """Give a free id to each record whose id an earlier record has."""
        losers: list[Identity] = []
        for rivals in self._claims.values():
            rivals.sort(key=self._find_position)
            losers += rivals[1:]
        used_ids, new_rows = {*self._claims}, {}
        for identity in sorted(losers, key=self._find_position):
            row = self._find_claimant(identity)
            record_id = free_id(self._kind.kind, self._kind.table, identity, used_ids.__contains__)
            record = replace(row.record, id=record_id)
            new_rows[identity] = replace(row, record=record, line=record_line(record, self._shape, self._limits.depth))
            used_ids.add(record_id)
        return new_rows


def _group_by_identity(rows: Iterable[StoredRow]) -> dict[Identity, list[StoredRow]]:
    groups: dict[Identity, list[StoredRow]] = {}
    for row in rows:
        groups.setdefault(row.record.identity, []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: row.position)
    return groups
