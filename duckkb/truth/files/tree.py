"""Truth in memory: the parts as they were read, and the records, duplicates and edges that follow from them."""

import heapq
import os
from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.records import Component, Identity, Record, TypedEnd, identity_key
from duckkb.truth.files.ends import Ambiguous, EdgeEnds, End, Ref, Side, bare_end, end_identity
from duckkb.truth.files.line import Limits
from duckkb.truth.files.lines import collector_paused
from duckkb.truth.files.part_rows import PartRows, rows_among
from duckkb.truth.files.table import Difference, Repeated, StoredRow, Swapped, Table
from duckkb.truth.layout import leads_to_parts
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.truth.files.listing import Listing

__all__ = ["Ambiguous", "End", "Part", "Ref", "Side", "Stamp", "StoredRow", "Tree"]

# File systems keep times as coarse as two seconds: a file written that close to its reading may change unseen.
_IN_THE_WAY = ("E_SYMLINK", "E_NOT_REGULAR")
_GRANULARITY_NS = 2_000_000_000
_FEW_PARTS = 8


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells cheaply whether a file changed: size in bytes, mtime in ns, inode, when it was read, in ns, and ctime in
    ns, which nobody can set back as they can the mtime; 0 where it is not known."""

    size: int
    mtime_ns: int
    inode: int
    read_ns: int
    ctime_ns: int = 0

    @classmethod
    def of(cls, status: os.stat_result, read_ns: int) -> "Stamp":
        """The stamp of a file read at `read_ns`."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, read_ns, status.st_ctime_ns)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What makes it: `Stamp(*numbers)`."""
        return self.size, self.mtime_ns, self.inode, self.read_ns, self.ctime_ns

    @property
    def is_racy(self) -> bool:
        """Whether the file was written so shortly before it was read that only its digest tells."""
        return max(self.mtime_ns, self.ctime_ns) > self.read_ns - _GRANULARITY_NS

    def vouches(self, status: os.stat_result) -> bool:
        """Whether the file is surely the one that was read, so that its digest need not be asked."""
        is_same = (
            self.size == status.st_size
            and self.mtime_ns == status.st_mtime_ns
            and self.inode == status.st_ino
            and self.ctime_ns == status.st_ctime_ns
        )
        return is_same and not self.is_racy


@dataclass(frozen=True, slots=True)
class Part:
    """One JSONL file as it was read.

    `digest` is the SHA-256 of its bytes in hex. `findings` are the lines that cannot be read; `rows` are the others, in
    file order. `canonical` says that every line, the last LF and the absence of blank lines are as they should be,
    `sorted` that the rows are in the order of identity, then `__id`.
    """

    path: str
    kind: RecordType
    stamp: Stamp
    digest: str
    rows: Sequence[StoredRow]
    findings: tuple[Finding, ...] = ()
    canonical: bool = True
    sorted: bool = True


Differences = dict[str, tuple[list[StoredRow], list[int]]]
"""By type's name: the rows to put, and the ids that are gone."""

_Touching = tuple[EdgeType, StoredRow, Side]


class StoredRecords(Protocol):
    """As `Table`, of a type whose records lie in the store, where its parts have their rows."""

    is_mended: bool

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Identity]: ...

    def get(self, identity: Identity) -> StoredRow | None: ...

    def by_id(self, record_id: int) -> StoredRow | None: ...

    def ids(self) -> Iterator[int]: ...

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]: ...

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]: ...

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]: ...

    def swap(self, old: Swapped, new: Swapped) -> Difference:
        """Raises `Repeated` where two records would share an identity or an id; it is of no use then."""
        ...

    def rest_on(self, parts: Mapping[str, Part]) -> None:
        """Have the rows of these parts from where they are now."""
        ...


class Tree:
    """All of truth. Tables and edge ends are indexed when first asked for, then kept up by `replace`.

    `findings` are about paths that are no parts (links, unknown files); they are never loaded and never touched. `listing`
    is what lay there when the parts were last found to be what the files hold. `stored` has by name the types whose records
    are found in the store.
    """

    def __init__(
        self,
        ontology: Ontology,
        limits: Limits,
        parts: Mapping[str, Part],
        findings: list[Finding],
        stored: Mapping[str, StoredRecords] | None = None,
    ) -> None:
        self.ontology = ontology
        self.limits = limits
        self.parts: dict[str, Part] = dict(sorted(parts.items()))
        self.findings = findings
        self.listing: Listing | None = None
        self.lately: tuple[str, ...] = ()  # parts that were replaced last, where they are few
        self._tables: dict[str, Table | StoredRecords] = {**(stored or {})}
        self._ends: dict[str, EdgeEnds] = {}

    @property
    def unreadable(self) -> list[Finding]:
        """What stands where a part belongs and is none (a link, a FIFO, a folder), then every line that cannot be read,
        in path order: records may be missing there."""
        hidden = [one for one in self.findings if one.code in _IN_THE_WAY and self._leads_to_parts(one.path)]
        return hidden + [finding for part in self.parts.values() for finding in part.findings]

    def _leads_to_parts(self, path: str) -> bool:
        found = leads_to_parts(path)
        return found is not None and all(self.ontology.by_table(kind, table) for kind, table in found)

    def get(self, kind: RecordType, identity: Identity) -> StoredRow | None:
        return self._table(kind).get(identity)

    def by_id(self, kind: RecordType, record_id: int) -> StoredRow | None:
        return self._table(kind).by_id(record_id)

    def among(self, kind: RecordType, ids: Container[int]) -> Iterator[StoredRow]:
        """The records of a type with one of these ids, in path order."""
        if self._table(kind).is_mended:
            return (row for row in self.rows(kind) if row.record.id in ids)
        return (row for part in self.parts_of(kind) for row in rows_among(part.rows, ids))

    def rows(self, kind: RecordType) -> Iterator[StoredRow]:
        """The records of a type, one row per identity, in path order. A duplicate comes at the place of its first line."""
        table = self._table(kind)
        for part in self.parts_of(kind):
            if not table.is_mended:
                yield from part.rows
                continue
            for stored in part.rows:
                row = table.get(stored.record.identity)
                if row and row.position == stored.position:
                    yield row

    def records(self, kind: RecordType) -> Iterator[Record]:
        """The records of a type, as `rows` has them."""
        if self._table(kind).is_mended:
            yield from (row.record for row in self.rows(kind))
            return
        for part in self.parts_of(kind):
            yield from part.rows.records if isinstance(part.rows, PartRows) else (row.record for row in part.rows)

    def in_order(self, kind: RecordType, behind: Identity | None = None) -> Iterator[StoredRow]:
        """The records of a type in the order of their identities, from the first one behind `behind` on. Where every part
        is in that order, only those are decoded that are taken."""
        floor = None if behind is None else identity_key(behind)
        parts = self.parts_of(kind)
        is_plain = not self._table(kind).is_mended and all(part.sorted for part in parts)
        if not is_plain:
            rows = sorted(self.rows(kind), key=_identity_key)
            return (row for row in rows if floor is None or _identity_key(row) > floor)
        return heapq.merge(*(_behind(part.rows, floor) for part in parts), key=_identity_key)

    def ids(self, kind: RecordType) -> Iterator[int]:
        """The ids of all records of a type; those out of the store are not decoded for it."""
        table = self._table(kind)
        return (row.record.id for row in self.rows(kind)) if isinstance(table, Table) else table.ids()

    def is_stored(self, kind: RecordType) -> bool:
        """Whether a type's records are found in the store, changes since then aside."""
        return not isinstance(self._tables.get(kind.name), Table | None)

    def count(self, kind: RecordType) -> int:
        return len(self._table(kind))

    def stored(self, kind: RecordType, identity: Identity) -> tuple[StoredRow, ...]:
        """The lines of one record as they stand in files, in path order."""
        return self._table(kind).lines(identity)

    def duplicates(self, kind: RecordType) -> Mapping[Identity, tuple[StoredRow, ...]]:
        """Identities that stand in several lines, with those lines in path order."""
        return self._table(kind).duplicates()

    def id_clashes(self, kind: RecordType) -> Mapping[int, tuple[StoredRow, ...]]:
        """Ids that several records claim, with these records; the first keeps the id, the others have a free one."""
        return self._table(kind).clashes()

    def parts_of(self, kind: RecordType) -> list[Part]:
        """The parts of one type, in path order."""
        return [part for part in self.parts.values() if part.kind.name == kind.name]

    def edges_at(self, node_type: str, identity: Identity) -> list[_Touching]:
        """Edges that touch a node: (edge type, row, `out` where the node is its `from`, else `in`), sorted by identity.

        A loop is there twice. A bare end counts for this node unless it exists in another allowed type and not in this
        one: an ambiguous end touches every node that it may mean.
        """
        found: list[_Touching] = []
        for kind in self.ontology.edges.values():
            sides: list[tuple[Side, tuple[str, ...]]] = [("out", kind.from_types), ("in", kind.to_types)]
            for side, types in sides:
                found += [(kind, row, side) for row in self._edges_at_end(kind, side, types, (node_type, identity))]
        return found

    def ends(self, kind: EdgeType, edge: Identity) -> tuple[End, End]:
        """What the two ends of an edge lead to: a `Ref`, `Ambiguous`, or None where there is no such node."""
        source, target = edge[:2]
        return self._resolve(source, kind.from_types), self._resolve(target, kind.to_types)

    def node(self, end: End) -> StoredRow | None:
        """The node that an end leads to; None where it leads nowhere or to several."""
        if end is None or isinstance(end, Ambiguous):
            return None
        name, identity = end
        return self.get(self.ontology.nodes[name], identity)

    def replace(self, parts: Mapping[str, Part | None]) -> Differences:
        """Put parts read anew in the place of those that they were (None: the file is gone), and say what that changed.

        Costs in proportion to the parts given. The tree is as if it had been loaded afresh.
        """
        self.listing = None
        self.lately = tuple(parts) if len(parts) <= _FEW_PARTS else ()
        kinds: dict[str, RecordType] = {}
        for path, part in parts.items():
            known = part or self.parts.get(path)
            if known:
                kinds[known.kind.name] = known.kind
        differences: Differences = {}
        for name, kind in kinds.items():
            own = {path: part for path, part in parts.items() if _is_of(part or self.parts.get(path), kind)}
            differences[name] = self._swap(kind, own)
        kept = {path: part for path, part in self.parts.items() if path not in parts}
        self.parts = dict(sorted((kept | {path: part for path, part in parts.items() if part}).items()))
        return differences

    def is_mended(self, kind: RecordType) -> bool:
        """Whether any record of a type differs from its line, as where it stands twice."""
        return self._table(kind).is_mended

    def lean_on(
        self, kind: RecordType, parts: Mapping[str, Part], table: Callable[[Mapping[str, Part]], StoredRecords]
    ) -> None:
        """Find a type's records in the store from now on, instead of holding them; `parts` are those that it has there now,
        and `table` makes what finds them where the type was in memory."""
        self.listing = None
        self.parts |= parts
        known = self._tables.get(kind.name)
        if known is None or isinstance(known, Table):
            self._tables[kind.name] = table({part.path: part for part in self.parts_of(kind)})
        else:
            known.rest_on(parts)

    def forget(self) -> None:
        """Drop the indices over the parts: after a `replace` that was interrupted they are made anew from them."""
        self._tables.clear()
        self._ends.clear()

    def _swap(self, kind: RecordType, parts: Mapping[str, Part | None]) -> tuple[list[StoredRow], list[int]]:
        old = {path: part.rows for path in parts if (part := self.parts.get(path))}
        new = {path: part.rows for path in sorted(parts) if (part := parts[path])}
        try:
            difference = self._table(kind).swap(old, new)
        except Repeated:
            del self._tables[kind.name]
            difference = self._held(kind).swap(old, new)
        if ends := self._ends.get(kind.name):
            ends.change(difference.appeared, difference.vanished)
        return difference.upserts, difference.gone

    def _table(self, kind: RecordType) -> Table | StoredRecords:
        table = self._tables.get(kind.name)
        return self._held(kind) if table is None else table

    def _held(self, kind: RecordType) -> Table:
        """All of a type's records in memory."""
        rows = (row for part in self.parts_of(kind) for row in part.rows)
        with collector_paused():
            table = self._tables[kind.name] = Table(kind, self.limits, rows)
        return table

    def _edge_ends(self, kind: EdgeType) -> EdgeEnds:
        if kind.name not in self._ends:
            self._ends[kind.name] = EdgeEnds(self._table(kind))
        return self._ends[kind.name]

    def _edges_at_end(self, kind: EdgeType, side: Side, types: tuple[str, ...], node: Ref) -> list[StoredRow]:
        name, identity = node
        if name not in types:
            return []
        ends = self._edge_ends(kind)
        found = set(ends.at(side, TypedEnd(name, _scalars(identity))))
        bare = bare_end(identity)
        candidates = self._candidates(bare, types) if len(types) > 1 else []
        if not candidates or name in candidates:
            found |= ends.at(side, bare)
        rows = (self.get(kind, edge) for edge in sorted(found, key=identity_key))
        return [row for row in rows if row]

    def _resolve(self, component: Component, types: tuple[str, ...]) -> End:
        named = (component.type,) if isinstance(component, TypedEnd) else types
        candidates = self._candidates(component, tuple(name for name in named if name in types))
        if len(candidates) > 1:
            return Ambiguous(tuple(candidates))
        return (candidates[0], end_identity(component)) if candidates else None

    def _candidates(self, component: Component, types: tuple[str, ...]) -> list[str]:
        """The types, of those given, in which an end exists."""
        identity = end_identity(component)
        kinds = (self.ontology.nodes.get(name) for name in types)
        return [kind.name for kind in kinds if kind and self.get(kind, identity)]


def _identity_key(row: StoredRow) -> Any:
    return identity_key(row.record.identity)


def _behind(rows: Sequence[StoredRow], floor: Any) -> Iterator[StoredRow]:
    """Of rows in the order of their identities those behind `floor`."""
    start = 0 if floor is None else bisect_right(rows, floor, key=_identity_key)
    return map(rows.__getitem__, range(start, len(rows)))


def _is_of(part: Part | None, kind: RecordType) -> bool:
    return part is not None and part.kind.name == kind.name


def _scalars(identity: Identity) -> tuple[str | int, ...]:
    return tuple(part for part in identity if isinstance(part, (str, int)))
