"""A base that is read from a target: the same questions on the same paths, over a database instead of files.

Its tree, rows, lanes and tables ask the target what a clone reads from truth and derived state. It has one
commit and is never written.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from duckkb.engine.base import Base, TreeRows, Wiring
from duckkb.engine.observed import Observed
from duckkb.indexing.cache import SearchCache
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ports import Lanes, Row, Target, VectorLane, WordLane
from duckkb.queries import Lane, LaneHit, Notice
from duckkb.records import Component, Identity, Record, identity_key
from duckkb.truth.files.line import Limits
from duckkb.truth.files.part import StoredRow, row_in
from duckkb.truth.files.table import Swapped, Table
from duckkb.truth.files.tree import EdgeEnds, Side, Tree

OBSERVED = "observed"
"""Key under which a target stores the statistics of a type's fields."""

_KEPT = 4_096  # rows held, the latest requested
_AT_ONCE = 500

Ahead = Callable[[str], tuple[Notice, ...]]
"""Function that returns the notices about a published commit, seen from a clone."""


class PublishedTable(Table):
    """The records of one type of a commit, read from a target on demand."""

    def __init__(self, kind: RecordType, target: Target) -> None:
        super().__init__({})
        self._kind, self._target = kind, target
        self._by_id: dict[int, StoredRow] = {}
        self._ids: dict[Identity, int | None] = {}

    def __len__(self) -> int:
        return self._target.now.count(self._kind)

    def __iter__(self) -> Iterator[Identity]:
        return (row.record.identity for row in self.iter_by_identity())

    def get(self, identity: Identity) -> StoredRow | None:
        record_id = self.id_of(identity)
        return None if record_id is None else self.find_by_id(record_id)

    def find_by_id(self, record_id: int) -> StoredRow | None:
        row = self._by_id.get(record_id)
        return self.fetch([record_id]).get(record_id) if row is None else row

    def id_of(self, identity: Identity) -> int | None:
        ids = self._ids
        if identity in ids:
            return ids[identity]
        record_id = self._target.now.find_ids(self._kind, [identity]).get(identity)
        if len(ids) >= _KEPT:
            ids = self._ids = {}
        ids[identity] = record_id
        return record_id

    def identity(self, record_id: int) -> Identity | None:
        row = self.find_by_id(record_id)
        return row.record.identity if row else None

    def swap(self, old: Swapped, new: Swapped) -> tuple[set[bytes], set[bytes]]:
        raise AssertionError("a published base has no files")

    def fetch(self, ids: Iterable[int]) -> Mapping[int, StoredRow]:
        """Fetch those of these records that are not held, in one request. Other threads may drop them at any time."""
        at_hand = self._by_id
        missing_ids = [record_id for record_id in ids if record_id not in at_hand]
        lines = self._target.now.lines(self._kind, missing_ids) if missing_ids else {}
        rows = {record_id: self._row(line) for record_id, line in lines.items()}
        if len(at_hand) + len(rows) > _KEPT:
            at_hand = self._by_id = {}
        at_hand.update(rows)
        return rows

    def some(self, ids: Sequence[int]) -> Iterator[StoredRow]:
        """Yield the rows of those of these records that exist; they are not held."""
        for start in range(0, len(ids), _AT_ONCE):
            batch_ids = ids[start : start + _AT_ONCE]
            lines = self._target.now.lines(self._kind, batch_ids)
            yield from (self._row(lines[record_id]) for record_id in batch_ids if record_id in lines)

    def iter_by_identity(self, behind: Identity | None = None) -> Iterator[StoredRow]:
        return map(self._row, self._target.now.iter_by_identity(self._kind, behind))

    def _row(self, line: bytes) -> StoredRow:
        return row_in(self._kind, line)


class PublishedEnds(EdgeEnds):
    """The edges of one type by either end, as a target finds them."""

    def __init__(self, kind: EdgeType, table: PublishedTable, target: Target) -> None:
        super().__init__(())
        self._kind, self._table, self._target = kind, table, target

    def find_edges(self, side: Side, component: Component) -> Sequence[Identity]:
        ids = self._target.now.find_edge_ids(self._kind, side, [component])
        self._table.fetch(ids)
        rows = map(self._table.find_by_id, ids)
        return sorted((row.record.identity for row in rows if row), key=identity_key)


class PublishedTree(Tree):
    """The records of a commit as a target holds them; those of a type come in the order of their identities."""

    def __init__(self, ontology: Ontology, limits: Limits, target: Target) -> None:
        super().__init__(ontology, limits, {}, [])
        self._target = target

    def narrow(self, ontology: Ontology) -> "PublishedTree":
        tree = PublishedTree(ontology, self.limits, self._target)
        tree._tables, tree._ends, tree._turn = self._tables, self._ends, self._turn
        return tree

    def select_rows(self, kind: RecordType, ids: Container[int]) -> Iterator[StoredRow]:
        return self.table(kind).some([record_id for record_id in self._target.now.ids(kind) if record_id in ids])

    def rows(self, kind: RecordType) -> Iterator[StoredRow]:
        return self.table(kind).iter_by_identity()

    def rows_with(self, kind: RecordType, text: bytes) -> Iterator[StoredRow]:
        return (row for row in self.rows(kind) if text in row.line)

    def records(self, kind: RecordType) -> Iterator[Record]:
        return (row.record for row in self.rows(kind))

    def iter_by_identity(self, kind: RecordType, behind: Identity | None = None) -> Iterator[StoredRow]:
        return self.table(kind).iter_by_identity(behind)

    def ids(self, kind: RecordType) -> Iterator[int]:
        return iter(self._target.now.ids(kind))

    def table(self, kind: RecordType) -> PublishedTable:
        with self._turn:
            published_table = self._tables.get(kind.name)
            if not isinstance(published_table, PublishedTable):
                published_table = self._tables[kind.name] = PublishedTable(kind, self._target)
            return published_table

    def _table(self, kind: RecordType) -> PublishedTable:
        return self.table(kind)

    def _document_paths(self, kind: RecordType) -> Iterable[str]:
        return (str(identity[0]) for identity in self.table(kind))

    def _edge_ends(self, kind: EdgeType) -> EdgeEnds:
        with self._turn:
            if kind.name not in self._ends:
                self._ends[kind.name] = PublishedEnds(kind, self.table(kind), self._target)
            return self._ends[kind.name]


class PublishedRows(TreeRows):
    """Tree rows with the vectors that were published."""

    def __init__(self, base: "PublishedBase", kind: RecordType) -> None:
        super().__init__(base, kind)
        self._target = base.target

    def _rows(self, records: Sequence[Record], lane: Lane | None) -> list[Row]:
        rows = super()._rows(records, lane)
        if lane == "fts" or not self._kind.vectors:
            return rows
        vectors = self._target.now.vectors(self._kind, [record.id for record in records])
        return [_with_vectors(row, vectors.get(row.record.id, {})) for row in rows]


def _with_vectors(row: Row, vectors: Mapping[tuple[str, int], Any]) -> Row:
    entries = (
        replace(entry, vector=vectors.get((entry.field, entry.seq)))
        if entry.vector_key or entry.vector is not None
        else entry
        for entry in row.entries
    )
    return Row(row.record, tuple(entries))


class PublishedBase(Base):
    """A base of the commit that is published at a target.

    `ahead` has the notices about that commit where there is a clone.
    """

    def __init__(self, wiring: Wiring, cache: SearchCache, target: Target, ahead: Ahead) -> None:
        super().__init__(wiring, PublishedTree(wiring.ontology, wiring.limits, target), cache)
        self.target, self._ahead = target, ahead
        self.is_generation = True

    def _build_rows(self, kind: RecordType) -> TreeRows:
        return PublishedRows(self, kind)

    def _get_lanes(self, kind: RecordType) -> Lanes:
        if kind.name not in self._lanes:
            lanes, tree = self.wiring.lanes(kind, self.rows(kind)), self.tree
            assert isinstance(tree, PublishedTree), "it is made so"
            self._lanes[kind.name] = FetchingLanes(lanes, tree.table(kind).fetch)
        return self._lanes[kind.name]

    def observe_fields(self, kind: RecordType) -> Observed:
        with self.turn:
            if kind.name not in self._observed:
                observations = self._observed[kind.name] = Observed(kind)
                observations.add(self.target.now.notes(kind).get(OBSERVED, {}), 1)
            return self._observed[kind.name]

    def list_notices(self, ontology: Ontology) -> Iterable[Notice]:
        yield from self._ahead(self.wiring.published)
        pending = sum(len(self.target.now.list_pending_ids(kind)) for kind in ontology if kind.vectors)
        if pending:
            message = f"{pending} records were published before all of their texts had a vector"
            yield Notice("W_DEGRADED", message, "`duckkb index build`, then `duckkb publish`", "vectors_pending")


class FetchingLanes:
    """Lanes (`ports.Lanes`) over other lanes that fetch all records of a hit list in one request.

    Their identities and lines are asked for next.
    """

    def __init__(self, lanes: Lanes, fetch: Callable[[Iterable[int]], object]) -> None:
        self._lanes = lanes
        self.words: WordLane = _Fetching(lanes.words, fetch)
        self.vectors: VectorLane = _Fetching(lanes.vectors, fetch)

    def discard(self) -> None:
        self._lanes.discard()


class _Fetching:
    def __init__(self, lane: Any, fetch: Callable[[Iterable[int]], object]) -> None:
        self._lane, self._fetch = lane, fetch

    def ask(self, *given: Any) -> list[LaneHit]:
        hits: list[LaneHit] = self._lane.ask(*given)
        self._fetch(hit.id for hit in hits[:_AT_ONCE])
        return hits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)
