"""Truth in memory: the parts as they were read, and the records, duplicates and edges that follow from them."""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents.document import WikiNames, find_inner_path
from duckkb.documents.markdown import wiki_name
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.storage.layout import leads_to_parts
from duckkb.storage.line import Limits
from duckkb.storage.part import Part, PartRows, Stamp, StoredRow, etag, identity_of, pause_collector
from duckkb.storage.record_table import KeyIndex, MendedTable, Repeated, Table
from duckkb.types.errors import Finding
from duckkb.types.records import Component, Identity, Record, TypedEnd, identity_key

if TYPE_CHECKING:
    from duckkb.storage.read import Survey

__all__ = ["Ambiguous", "End", "Part", "Ref", "Side", "Stamp", "StoredRow", "Tree"]

_IN_THE_WAY = ("E_SYMLINK", "E_NOT_REGULAR")
_NOT_SERVED = ("E_SOURCE_MISSING", "E_IO")
_FEW_PARTS = 8
_MANY_EDGES = 256

Side = Literal["out", "in"]
Ref = tuple[str, Identity]
"""A node: the name of its type and its identity."""


class Ambiguous(Struct, frozen=True):
    """A bare end that exists in several of the allowed types; for a wiki link whose name several documents have,
    their paths.
    """

    types: tuple[str, ...]


End = Ref | Ambiguous | None
"""The target of an edge's end; None if it does not exist."""


def bare_end(identity: Identity) -> Component:
    """Return a node's identity as a bare end of an edge: the scalar, or a tuple if it has several components."""
    scalars = _pick_scalars(identity)
    return scalars[0] if len(scalars) == 1 else scalars


def _pick_scalars(identity: Identity) -> tuple[str | int, ...]:
    return tuple(part for part in identity if isinstance(part, (str, int)))


def end_identity(component: Component) -> Identity:
    """Return the node's identity that an end names."""
    match component:
        case TypedEnd(id=parts):
            return parts
        case tuple():
            return component
        case _:
            return (component,)


_Touching = tuple[EdgeType, StoredRow, Side]


class Tree:
    """All of truth. Tables and edge ends are indexed at the first request, then updated by `replace`.

    `findings` concern paths that are not parts (links, unknown files); they are never loaded and never touched.
    `stored` has by name the types whose records are found in the store.
    """

    def __init__(
        self,
        ontology: Ontology,
        limits: Limits,
        parts: Mapping[str, Part],
        findings: list[Finding],
        stored: Mapping[str, Table] | None = None,
    ) -> None:
        self.ontology = ontology
        self.limits = limits
        self.parts: dict[str, Part] = dict(sorted(parts.items()))
        self.findings = findings
        self.lately: tuple[str, ...] = ()  # the parts that were replaced last, if they are few
        self.seen: Survey | None = None  # the last survey without changes, when stamps vouched for all parts
        # a cache: the parts and findings it was computed from, and the result
        self._unreadable: tuple[object, object, list[Finding]] | None = None
        self._tables: dict[str, Table | MendedTable] = {**(stored or {})}
        self._ends: dict[str, EdgeEnds] = {}
        self._wiki: dict[str, WikiLinks] = {}  # by edge type
        self._turn = RLock()  # a single thread builds an index that several request

    def narrow(self, ontology: Ontology) -> "Tree":
        """Return a tree of fewer types with the same records: its readers cannot tell that there are others. Valid
        until the next `replace`. It has the findings that concern all parts or parts of these types.
        """
        parts = {
            path: part for path, part in self.parts.items() if ontology.find_by_table(part.kind.kind, part.kind.table)
        }
        tree = Tree(ontology, self.limits, parts, [])
        tree._tables, tree._ends, tree._turn = (
            self._tables,
            self._ends,
            self._turn,
        )  # shared, because each is built only from the parts of its type
        tree.findings = [
            finding
            for finding in self.findings
            if (finding.code in _IN_THE_WAY and tree._can_hold_parts(finding.path))
            or (finding.code in _NOT_SERVED and finding.type in ontology.nodes)
        ]
        return tree

    @property
    def not_served(self) -> list[Finding]:
        """Return findings for document folders and files that are missing or unreadable: records may be missing
        there.
        """
        files = (part for part in self.parts.values() if part.kind.source is not None and part.kind.kind == "node")
        unread = [replace(finding, type=part.kind.name) for part in files for finding in part.findings]
        return [finding for finding in self.findings if finding.code in _NOT_SERVED] + unread

    @property
    def unreadable(self) -> list[Finding]:
        """Return findings for anything but a file at a part's path (a link, a FIFO, a folder), then for every
        unreadable line of a stored type, in path order: records may be missing there.
        """
        cache = self._unreadable
        if cache is None or cache[0] is not self.parts or cache[1] is not self.findings:  # each question asks
            obstacles = [
                obstacle
                for obstacle in self.findings
                if obstacle.code in _IN_THE_WAY and self._can_hold_parts(obstacle.path)
            ]
            stored_parts = (part for part in self.parts.values() if part.kind.source is None)
            findings = obstacles + [finding for part in stored_parts for finding in part.findings]
            cache = self._unreadable = self.parts, self.findings, findings
        return cache[2]

    def _can_hold_parts(self, path: str) -> bool:
        tables = leads_to_parts(path)
        return tables is not None and all(self.ontology.find_by_table(kind, table) for kind, table in tables)

    def get(self, kind: RecordType, identity: Identity) -> StoredRow | None:
        return self._table(kind).get(identity)

    def find_by_id(self, kind: RecordType, record_id: int) -> StoredRow | None:
        return self._table(kind).find_by_id(record_id)

    def id_of(self, kind: RecordType, identity: Identity) -> int | None:
        """Return the id of a record; None if it does not exist."""
        table = self._table(kind)
        if isinstance(table, Table):
            return table.id_of(identity)
        row = table.get(identity)
        return row.record.id if row is not None else None

    def identity(self, kind: RecordType, record_id: int) -> Identity | None:
        """Return the identity of the record with this id; None if it does not exist."""
        table = self._table(kind)
        if isinstance(table, Table):
            return table.identity(record_id)
        row = table.find_by_id(record_id)
        return row.record.identity if row is not None else None

    def select_rows(self, kind: RecordType, ids: Container[int]) -> Iterator[StoredRow]:
        """Yield the records of a type with these ids, in the order of their identities. Decodes only records that
        are taken, but all of an unsorted part.
        """
        if self._table(kind).is_mended:
            return iter(sorted((row for row in self.rows(kind) if row.record.id in ids), key=_build_sort_key))
        parts = (
            part.rows.select_rows(ids) if part.sorted else iter(sorted(part.rows.select_rows(ids), key=_build_sort_key))
            for part in self.parts_of(kind)
        )
        return heapq.merge(*parts, key=_build_sort_key)

    def rows(self, kind: RecordType) -> Iterator[StoredRow]:
        """Yield the records of a type, one row per identity, in path order. A duplicate comes at the place of its
        first line.
        """
        table = self._table(kind)
        for part in self.parts_of(kind):
            if not table.is_mended:
                yield from part.rows
                continue
            for stored_row in part.rows:
                row = table.get(stored_row.record.identity)
                if row and row.position == stored_row.position:
                    yield row

    def rows_with(self, kind: RecordType, text: bytes) -> Iterator[StoredRow]:
        """Yield those of `rows` whose lines contain these bytes; if no record differs from its line, only they are
        decoded.
        """
        if self._table(kind).is_mended:
            return (row for row in self.rows(kind) if text in row.line)
        return (row for part in self.parts_of(kind) for row in part.rows.find_by_text(text))

    def records(self, kind: RecordType) -> Iterator[Record]:
        """Yield the records of a type, in the order of `rows`."""
        if self._table(kind).is_mended:
            yield from (row.record for row in self.rows(kind))
            return
        for part in self.parts_of(kind):
            yield from part.rows.records

    def iter_by_identity(self, kind: RecordType, behind: Identity | None = None) -> Iterator[StoredRow]:
        """Yield the records of a type in the order of their identities, from the first after `behind`. Decodes
        only records that are taken, but all of an unsorted part.
        """
        floor = None if behind is None else identity_key(behind)
        if self._table(kind).is_mended:
            rows = sorted(self.rows(kind), key=_build_sort_key)
            return (row for row in rows if floor is None or _build_sort_key(row) > floor)
        return heapq.merge(*(_iter_later_rows(part, floor) for part in self.parts_of(kind)), key=_build_sort_key)

    def ids(self, kind: RecordType) -> Iterator[int]:
        """Yield the ids of all records of a type; if no record differs from its line, nothing is decoded."""
        if self._table(kind).is_mended:
            return (row.record.id for row in self.rows(kind))
        return (record_id for part in self.parts_of(kind) for record_id in part.rows.ids)

    def is_stored(self, kind: RecordType) -> bool:
        """Return whether the store finds a type's records, apart from later changes."""
        return kind.name in self._tables and self._tables[kind.name].is_stored

    def count(self, kind: RecordType) -> int:
        return len(self._table(kind))

    def find_lines(self, kind: RecordType, identity: Identity) -> tuple[StoredRow, ...]:
        """Return the lines of a record as they stand in files, in path order."""
        return self._table(kind).lines(identity)

    def duplicates(self, kind: RecordType) -> Mapping[Identity, tuple[StoredRow, ...]]:
        """Return the identities with several lines, with those lines in path order."""
        table = self._table(kind)
        return table.duplicates() if isinstance(table, MendedTable) else {}

    def id_clashes(self, kind: RecordType) -> Mapping[int, tuple[StoredRow, ...]]:
        """Return the ids that several records claim, with these records; the first keeps the id, the others have a
        free one.
        """
        table = self._table(kind)
        return table.clashes() if isinstance(table, MendedTable) else {}

    @property
    def stored_parts(self) -> list[str]:
        """Return the paths of the parts that duckkb writes: those of data/, without documents."""
        return [path for path, part in self.parts.items() if part.kind.source is None]

    def parts_of(self, kind: RecordType) -> list[Part]:
        """Return the parts of a type, in path order."""
        return [part for part in self.parts.values() if part.kind.name == kind.name]

    def digests(self, kind: RecordType) -> dict[str, str]:
        """Return the digest of each part of a type, by path; if records differ from their lines, all of them are a
        single part without a path.
        """
        digests = {part.path: part.digest for part in self.parts_of(kind)}
        return {"": repr(digests)} if self.is_mended(kind) else digests

    def etags(self, kind: RecordType, path: str) -> Iterable[tuple[int, bytes]]:
        """Return the id and the etag of each record of a part in `digests`."""
        if not path:
            return ((row.record.id, etag(row.line)) for row in self.rows(kind))
        rows = self.parts[path].rows
        return zip(rows.ids, rows.etags, strict=True)

    def edges_at(self, node_type: str, identity: Identity) -> list[_Touching]:
        """Return the edges that touch a node: (edge type, row, `out` if the node is its `from`, else `in`), sorted
        by identity.

        A loop appears twice. A bare end counts for this node unless it exists in another allowed type and not
        in this one: an ambiguous end touches every node that it may mean.
        """
        sides = self.sides_at(node_type, identity)
        matches = ((kind, self.get(kind, edge), side) for kind, side, names in sides for edge in names)
        return [(kind, row, side) for kind, row, side in matches if row is not None]

    def sides_at(self, node_type: str, identity: Identity) -> Iterator[tuple[EdgeType, Side, Sequence[Identity]]]:
        """Yield the sorted identities of a node's edges by edge type and side, as `edges_at` finds them. Reads no
        edge, so that a caller who needs only some edges reads only those.
        """
        for kind in self.ontology.edges.values():
            sides: list[tuple[Side, tuple[str, ...]]] = [("out", kind.from_types), ("in", kind.to_types)]
            for side, types in sides:
                if names := self._find_edges(kind, side, types, (node_type, identity)):
                    yield kind, side, names

    def ends(self, kind: EdgeType, edge: Identity) -> tuple[End, End]:
        """Return the targets of an edge's two ends: a `Ref`, `Ambiguous`, or None if there is no such node."""
        source, target = edge[:2]
        paths = self._find_wiki_paths(kind, edge)
        if paths is None:
            end = self._resolve(target, kind.to_types)
        elif len(paths) == 1:
            end = kind.to_types[0], (paths[0],)
        else:
            end = Ambiguous(tuple(paths)) if paths else None
        return self._resolve(source, kind.from_types), end

    def end_ids(self, kind: EdgeType, edge: Identity) -> tuple[int | None, int | None]:
        """Return the ids of the nodes at the two ends of an edge; None for an end without a node or with several."""
        if (paths := self._find_wiki_paths(kind, edge)) is not None:
            edge = edge[0], paths[0] if len(paths) == 1 else edge[1]
        candidates = (
            self._find_candidates(end, types)
            for end, types in zip(edge[:2], (kind.from_types, kind.to_types), strict=True)
        )
        source, target = (next(iter(ids.values())) if len(ids) == 1 else None for ids in candidates)
        return source, target

    def node(self, end: End) -> StoredRow | None:
        """Return the node of an end; None if there is none or several."""
        if end is None or isinstance(end, Ambiguous):
            return None
        name, identity = end
        return self.get(self.ontology.nodes[name], identity)

    def replace(self, parts: Mapping[str, Part | None]) -> None:
        """Replace parts by their newly read versions (None: the file is deleted).

        The cost is proportional to the given parts. The tree is as if it had been loaded afresh.
        """
        self.seen = None
        self.lately = tuple(parts) if len(parts) <= _FEW_PARTS else ()
        for kind in self.ontology:
            kind_parts = {path: part for path, part in parts.items() if _is_of(part or self.parts.get(path), kind)}
            if kind_parts:
                self._swap(kind, kind_parts)
        other_parts = {path: part for path, part in self.parts.items() if path not in parts}
        self.parts = dict(sorted((other_parts | {path: part for path, part in parts.items() if part}).items()))

    def is_mended(self, kind: RecordType) -> bool:
        """Return whether any record of a type differs from its line, as duplicates do."""
        return self._table(kind).is_mended

    def lean_on(self, kind: RecordType, parts: Mapping[str, Part], index: KeyIndex) -> None:
        """Find a type's records in the store through its index, instead of holding them; `parts` are its parts
        there.
        """
        self.parts |= parts
        self._tables[kind.name] = Table({part.path: part for part in self.parts_of(kind)}, index)

    def forget(self) -> None:
        """Drop the indices over the parts; they are rebuilt after an interrupted `replace`."""
        self._tables.clear()
        self._ends.clear()
        self._wiki.clear()

    def _swap(self, kind: RecordType, parts: Mapping[str, Part | None]) -> None:
        if kind.source is not None:
            self._wiki.clear()
        table = self._table(kind)
        if isinstance(table, Table):
            old = {path: part.rows for path in parts if (part := self.parts.get(path))}
            new = {path: part.rows for path in sorted(parts) if (part := parts[path])}
            with suppress(Repeated):
                names = table.swap(old, new)
                if ends := self._ends.get(kind.name):
                    ends.change(*(map(identity_of, identities) for identities in names))
                return
        # A type with duplicates is rebuilt from all its parts: such types are few and temporary.
        present = {**{part.path: part for part in self.parts_of(kind)}, **parts}
        self._tables[kind.name] = self._build_table(
            kind, {path: part for path in sorted(present) if (part := present[path])}
        )
        self._ends.pop(kind.name, None)

    def _table(self, kind: RecordType) -> Table | MendedTable:
        if kind.name not in self._tables:
            with self._turn:
                if kind.name not in self._tables:
                    self._tables[kind.name] = self._build_table(kind, {part.path: part for part in self.parts_of(kind)})
        return self._tables[kind.name]

    def _build_table(self, kind: RecordType, parts: Mapping[str, Part]) -> Table | MendedTable:
        try:
            return Table(parts)
        except Repeated:
            return self._build_mended_table(kind, parts.values())

    def _build_mended_table(self, kind: RecordType, parts: Iterable[Part]) -> MendedTable:
        with pause_collector():
            return MendedTable(kind, self.limits, (row for part in parts for row in part.rows))

    def _edge_ends(self, kind: EdgeType) -> "EdgeEnds":
        with self._turn:
            if kind.name not in self._ends:
                self._ends[kind.name] = EdgeEnds(self._table(kind))
            return self._ends[kind.name]

    def _find_edges(self, kind: EdgeType, side: Side, types: tuple[str, ...], node: Ref) -> Sequence[Identity]:
        """Return the sorted identities of the edges of a type at one side of a node."""
        name, identity = node
        if name not in types:
            return ()
        ends = self._edge_ends(kind)
        typed_edges, bare = ends.find_edges(side, TypedEnd(name, _pick_scalars(identity))), bare_end(identity)
        candidates = self._find_candidates(bare, types) if len(types) > 1 else []
        if candidates and name not in candidates:
            return typed_edges
        bare_edges = ends.find_edges(side, bare)
        if side == "in" and kind.source is not None:
            bare_edges = sorted({*bare_edges, *self._index_wiki(kind).edges_to(str(identity[0]))}, key=identity_key)
        return (
            sorted((*typed_edges, *bare_edges), key=identity_key)
            if typed_edges and bare_edges
            else typed_edges or bare_edges
        )

    def _find_wiki_paths(self, kind: EdgeType, edge: Identity) -> Sequence[str] | None:
        """Return the documents that a wiki link may mean; None for an edge that is not a wiki link."""
        name = wiki_name(edge[1]) if kind.source is not None else None
        if name is None or kind.to_types[0] not in self.ontology.nodes:
            return None
        return self._index_wiki(kind).names.paths_of(str(edge[0]), name)

    def _index_wiki(self, kind: EdgeType) -> "WikiLinks":
        with self._turn:
            if kind.name not in self._wiki:
                documents = self.ontology.nodes[kind.to_types[0]]
                names = WikiNames(self._document_paths(documents), lambda: self._collect_aliases(documents))
                self._wiki[kind.name] = WikiLinks(names, lambda: self._table(kind))
            return self._wiki[kind.name]

    def _document_paths(self, kind: RecordType) -> Iterable[str]:
        assert kind.source is not None, "asked of documents"
        return [find_inner_path(kind.source, part.path) or part.path for part in self.parts_of(kind) if part.rows]

    def _collect_aliases(self, kind: RecordType) -> dict[str, list[str]]:
        """Collect the documents of a collection by the `aliases` in their front matter."""
        paths: dict[str, list[str]] = {}
        for row in self.rows_with(kind, b'"aliases":'):
            aliases = row.record.fields.get("aliases")
            for alias in aliases if isinstance(aliases, list) else (aliases,):
                if isinstance(alias, str):
                    paths.setdefault(alias, []).append(str(row.record.identity[0]))
        return paths

    def _resolve(self, component: Component, types: tuple[str, ...]) -> End:
        candidates = self._find_candidates(component, types)
        if len(candidates) > 1:
            return Ambiguous(tuple(candidates))
        return next(((name, end_identity(component)) for name in candidates), None)

    def _find_candidates(self, component: Component, types: tuple[str, ...]) -> dict[str, int]:
        """Return the allowed types in which an end exists, with its id there."""
        if isinstance(component, TypedEnd):
            types = tuple(name for name in types if name == component.type)
        identity = end_identity(component)
        kinds = (kind for name in types if (kind := self.ontology.nodes.get(name)) is not None)
        return {kind.name: record_id for kind in kinds if (record_id := self.id_of(kind, identity)) is not None}


def _build_sort_key(row: StoredRow) -> Any:
    return identity_key(row.record.identity)


def _iter_later_rows(part: Part, floor: Any) -> Iterator[StoredRow]:
    """Yield the rows of a part in the order of their identities, from the first after `floor`."""
    rows = part.rows if part.sorted else sorted(part.rows, key=_build_sort_key)
    start = 0 if floor is None else bisect_right(rows, floor, key=_build_sort_key)
    return rows.iter_behind(start) if isinstance(rows, PartRows) else iter(rows[start:])


def _is_of(part: Part | None, kind: RecordType) -> bool:
    return part is not None and part.kind.name == kind.name


class WikiLinks:
    """The wiki links of a collection: their targets, and which of them lead to a document."""

    def __init__(self, names: WikiNames, edges: Callable[[], Iterable[Identity]]) -> None:
        self.names = names
        self._edges = edges
        self._by_path: dict[str, list[Identity]] | None = None

    def edges_to(self, path: str) -> Sequence[Identity]:
        """Return the links that mean this document and no other."""
        if self._by_path is None:
            by_path: dict[str, list[Identity]] = {}
            for edge in self._edges():
                name = wiki_name(edge[1])
                paths = self.names.paths_of(str(edge[0]), name) if name is not None else ()
                if len(paths) == 1:
                    by_path.setdefault(paths[0], []).append(edge)
            self._by_path = by_path
        return self._by_path.get(path, ())


class EdgeEnds:
    """The edges of a type by either end. Sorting those of a node with very many takes a second, so their order is
    cached.
    """

    def __init__(self, edges: Iterable[Identity]) -> None:
        self._at: dict[tuple[Side, Component], set[Identity]] = {}
        self._sorted: dict[tuple[Side, Component], tuple[Identity, ...]] = {}
        self.change(edges, ())

    def change(self, appeared: Iterable[Identity], vanished: Iterable[Identity]) -> None:
        for identity in vanished:
            for key in _iter_keys(identity):
                self._sorted.pop(key, None)
                edges = self._at[key]
                edges.discard(identity)
                if not edges:
                    del self._at[key]
        for identity in appeared:
            for key in _iter_keys(identity):
                self._sorted.pop(key, None)
                self._at.setdefault(key, set()).add(identity)

    def find_edges(self, side: Side, component: Component) -> Sequence[Identity]:
        """Return the sorted identities of the edges that leave (`out`) or reach (`in`) this end as it is written."""
        key = side, component
        if (cached_edges := self._sorted.get(key)) is not None:
            return cached_edges
        edges = tuple(sorted(self._at.get(key, ()), key=identity_key))
        if len(edges) >= _MANY_EDGES:
            self._sorted[key] = edges
        return edges


def _iter_keys(identity: Identity) -> Iterator[tuple[Side, Component]]:
    yield "out", identity[0]
    yield "in", identity[1]
