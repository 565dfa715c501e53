"""The vector lane of a record type: exact cosine over every chunk, as a matrix-vector product; or, on request,
over the chunks that a graph finds.

The matrix is built at the first query and follows changes at the next; once a quarter of its slots is dead, it
is rebuilt. It knows the chunk of every row, so that a query reads records only for ties.
"""

import sys
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from duckkb.id_set import IdSet
from duckkb.index.cosine import Doubles, Ints, candidates, exact_cosines, multiply_rows, unit_query
from duckkb.index.record_vectors import Chunk, RecordVectors, View
from duckkb.ports import Row, Rows, TypeState, best_first
from duckkb.store.mirrored_files import LaneFiles, RowMirror, State
from duckkb.types.errors import StateError, UsageError
from duckkb.types.queries import LaneHit
from duckkb.types.settings import VectorSettings

if TYPE_CHECKING:
    from duckkb.index.record_vectors import Graph

_DEAD_SHARE = 0.25
_GATHER_SHARE = 1 / 16  # share of the rows below which copying the allowed rows costs less than multiplying all
_BOUNDED_FROM = 8_000  # slots from which on checking bounds first is faster
_PICKED_FROM = 1_000  # the same for selected slots
_LEFT_SHARE = 1 / 4  # share of the slots above which bounds have ruled out too little
_SPARE = 2  # records that the graph must find for each requested record; the best are taken


class MissingVectors:
    """Texts to embed by their keys, and the records that wait for them, updated record by record. `unread` are
    records that are known to wait for texts that were not read yet.
    """

    def __init__(self) -> None:
        self.unread: set[int] = set()
        self._texts: dict[bytes, str] = {}
        self._waiting: dict[bytes, set[int]] = {}
        self._keys: dict[int, set[bytes]] = {}

    @property
    def records(self) -> frozenset[int]:
        """Return the ids of the records whose texts are known."""
        return frozenset(self._keys)

    def pairs(self) -> list[tuple[bytes, str]]:
        """Return (vector key, text), each key once, in an order that depends only on the records."""
        return sorted(self._texts.items())

    def find_waiting_records(self, keys: Iterable[bytes]) -> set[int]:
        """Return the records that wait for any of these keys."""
        return {record_id for key in keys for record_id in self._waiting.get(key, ())}

    def note(self, row: Row) -> None:
        """Record the present state of a record and replace what was known of it."""
        if row.record.id in self._keys or row.record.id in self.unread:
            self.drop(row.record.id)
        for entry in row.entries:
            if entry.vector_key is not None and entry.vector is None:
                self._texts.setdefault(entry.vector_key, entry.meaning or entry.content)
                self._waiting.setdefault(entry.vector_key, set()).add(row.record.id)
                self._keys.setdefault(row.record.id, set()).add(entry.vector_key)

    def drop(self, record_id: int) -> None:
        """Forget a record."""
        self.unread.discard(record_id)
        for key in self._keys.pop(record_id, ()):
            self._waiting[key].discard(record_id)
            if not self._waiting[key]:
                del self._waiting[key], self._texts[key]


class CosineLane(RowMirror):
    """Implements `ports.VectorLane`."""

    name = "vectors"
    lane = "vector"
    _records: RecordVectors
    _missing: MissingVectors

    def __init__(self, rows: Rows, settings: VectorSettings | None = None) -> None:
        super().__init__(rows)
        self._settings = settings or VectorSettings()
        self._graph: tuple[str, Graph | None] = "", None  # the generation of the graph's matrix, and the graph
        self._open(None, {})

    @property
    def _material(self) -> str:
        return f"4 {sys.byteorder}"

    def ask(self, vector: NDArray[Any] | Sequence[float], depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        """Return the `depth` records whose best chunk has the greatest cosine with `vector`, out of `allowed` if
        given.

        Cosines are exact to six decimals. A shortcut (8-bit bounds, the fast 32-bit product or a graph) only selects
        candidates; each candidate is then scored exactly. Raises `UsageError` for a vector that is not a row of finite numbers, is zero, or has
        another dimension than the stored vectors.
        """
        query = unit_query(vector)
        with self.turn:
            self._settle()
            self._refuse_mixed_dimensions()
            records, graph = self._records, self._load_graph() if self._wants_graph else None
            is_empty = not len(records)  # writes all pending rows
        if is_empty or depth <= 0:
            return []
        if len(query) != records.dimension:
            raise UsageError(
                f"The query vector has {len(query)} dimensions, the stored ones have {records.dimension}.",
                suggestion="Ask with a vector of the model that made the stored ones, or `duckkb index build`.",
            )
        places = None if allowed is None else records.select_slots(IdSet.from_ids(allowed))
        near = graph_candidates(records, graph, query, depth, places)
        if near is not None:
            return self._rank_hits(records, records.view.only(near), query, depth)
        survivors = select_candidates_by_bounds(records, query, depth, places)
        scope = _select_scope(records, places) if survivors is None else records.view.only(survivors)
        products = multiply_rows(scope.matrix, query)
        return self._rank_hits(
            records, scope.only(candidates(products, scope.starts, scope.alive, depth)), query, depth
        )

    def list_missing_texts(self) -> list[tuple[bytes, str]]:
        """Return (vector key, text) of the chunks that lack a vector, each key once."""
        with self.turn:
            self._settle()
            return self._missing.pairs()

    def on_vectors_available(self, keys: Iterable[bytes]) -> None:
        """Read again the records that wait for these vectors."""
        with self.turn:
            self.reread(self._missing.find_waiting_records(keys))

    def account(self) -> dict[str, Any] | None:
        """Describe the lane if it is open or can be opened; None if it would have to be built."""
        with self.turn:
            if self._rows.state.folder is None:
                self._refresh()
            elif self._meta is None and not self.glance():
                return None
            graph = self._load_graph() if self._wants_graph else None
            ann = "exact" if graph is None else "hnsw"
            return {"rows": self._records.rows, "dimension": self._records.dimension, "ann": ann}

    def complete(self) -> None:
        """Write the matrix to disk, with the vectors that caches received since, and the graph if the settings
        want it. Does nothing if they are kept in memory.
        """
        with self.turn:
            self._update_graph(self._rows.state)

    def _update_graph(self, state: TypeState) -> None:
        if state.folder is None:
            return
        self._settle()
        files = self._find_graph_files(state)
        if not self._wants_graph or self._meta is None or files is None:
            return
        from duckkb.index import record_vectors

        view, generation = self._records.view, self._meta.generation
        if record_vectors.is_behind(self._load_graph(), len(view.matrix)):
            # the disk is full or read-only: all rows are compared without a graph
            with suppress(OSError, RuntimeError):
                self._graph = generation, record_vectors.make(files, view, generation)

    def _settle(self) -> None:
        """Mirror the rows, and add vectors that caches received since the waiting records were last checked."""
        self._refresh()
        if unread := frozenset(self._missing.unread):
            for row in self._rows.some(sorted(unread), "vector"):
                self._missing.note(row)
            self._missing.unread.clear()
            self.reread(unread - self._missing.records)
            self._refresh()

    def _build(self, folder: Path | None) -> State:
        self._open(folder, {})
        self._lengths = self._rows.state.lengths()
        for rows in self._rows.batches(self.lane):
            self._append(rows)
        return self._state()

    def _follow(self, folder: Path | None, changed_ids: frozenset[int]) -> State | None:
        if self._rows.state.lengths() != self._lengths:
            return None
        self._records = self._records.clone()
        outdated_slots = self._records.places(changed_ids)
        slots = len(self._records) + self._records.dead
        if self._records.dead + len(outdated_slots) > _DEAD_SHARE * slots or self._mixed:
            return None
        self._records.kill(changed_ids)
        for record_id in changed_ids:
            self._missing.drop(record_id)
        self._append(self._rows.some(sorted(changed_ids), "vector"))
        return self._state()

    def _open(self, folder: Path | None, state: State) -> None:
        """Open what lies in a folder as a state says, or start empty."""
        self._records = RecordVectors(folder, state or None)
        self._lengths = str(state.get("lengths", ""))
        self._missing = MissingVectors()
        self._missing.unread |= set(state.get("lacking", ()))
        self._mixed: set[int] = set(state.get("mixed", ()))  # the dimensions if there are several

    def _state(self) -> State:
        return {
            **self._records.save(),
            "lacking": sorted(self._missing.records | self._missing.unread),
            "mixed": sorted(self._mixed),
            "lengths": self._lengths,
        }

    def _append(self, rows: Iterable[Row]) -> None:
        """Give these rows slots."""
        new_slots: list[tuple[int, list[Chunk]]] = []
        dimension = self._records.dimension
        for row in rows:
            self._missing.note(row)
            chunks = [(entry.field, entry.seq, entry.vector) for entry in row.entries if entry.vector is not None]
            lengths = {len(vector) for _, _, vector in chunks}
            dimension = dimension or min(lengths, default=0)
            if lengths - {dimension}:
                self._mixed |= {dimension, *lengths}
            elif chunks:
                new_slots.append((row.record.id, chunks))
        self._records.append(new_slots)

    def _refuse_mixed_dimensions(self) -> None:
        if self._mixed:
            raise StateError(
                f"Stored vectors differ in dimension: {sorted(self._mixed)}.",
                code="E_MODEL",
                suggestion="`duckkb index build` makes all of them with one model.",
            )

    @property
    def _wants_graph(self) -> bool:
        chunks = self._records.rows
        return self._rows.state.folder is not None and chunks > 0 and self._settings.wants_graph(chunks)

    def _load_graph(self) -> "Graph | None":
        """Load the graph of the matrix on disk, None if there is none. Another process may create or extend it at
        any time.
        """
        files = self._find_graph_files(self._rows.state)
        if files is None or self._meta is None:
            return None
        from duckkb.index import record_vectors

        generation, mapped_graph = self._graph
        if generation != self._meta.generation or record_vectors.is_behind(mapped_graph, self._records.rows):
            generation = self._meta.generation
            mapped_graph = record_vectors.load(files, generation, self._records.dimension, mapped=True)
            self._graph = generation, mapped_graph
        return mapped_graph

    def _find_graph_files(self, state: TypeState) -> LaneFiles | None:
        from duckkb.index.record_vectors import MATERIAL

        if state.folder is None or self._has_no_files:
            return None
        material = f"{state.key(self.lane)} {self._material} {MATERIAL}"
        return LaneFiles(state.folder / "graph", material)

    def _rank_hits(self, records: RecordVectors, slots: View, query: Doubles, depth: int) -> list[LaneHit]:
        if not len(slots.ids):
            return []
        scores = exact_cosines(slots.matrix, query)
        chunks = slots.chunks
        if len(chunks) == len(slots.ids):
            best = scores
        else:
            best = np.maximum.reduceat(scores, slots.starts)
            chunks = chunks[_find_best_rows(slots, scores, best)]
        falling = np.argsort(-best, kind="stable")
        scored_ids = list(zip(best[falling].tolist(), slots.ids[falling].tolist(), strict=True))
        chunk_of, fields = dict(zip(slots.ids.tolist(), chunks.tolist(), strict=True)), records.fields
        hits = []
        for score, record_id in best_first(scored_ids, depth, self._identity, slack=0.0):
            field, seq = chunk_of[record_id]
            hits.append(LaneHit(record_id, score, fields[field], seq))
        return hits


def graph_candidates(
    records: RecordVectors, graph: "Graph | None", query: Doubles, depth: int, places: Ints | None
) -> Ints | None:
    """Return slots to score, of those in `places` if given: those that the graph finds, and the nearest of the
    rows that it does not know. None if comparing all is cheaper.
    """
    matching = len(records) if places is None else len(places)
    if graph is None or matching < _SPARE * depth:
        return None
    view = records.view if places is None else _restrict_slots(records.view, places)
    near_slots = graph.slots(view, query, _SPARE * depth, matching)
    if near_slots is None:
        return None
    slot, unseen = view.since(min(graph.rows, len(view.matrix)))
    products = multiply_rows(unseen.matrix, query)
    return np.concatenate((near_slots, slot + candidates(products, unseen.starts, unseen.alive, depth)))


def select_candidates_by_bounds(records: RecordVectors, query: Doubles, depth: int, places: Ints | None) -> Ints | None:
    """Return the slots, of those in `places` if given, that their bounds in 8 bits do not rule out. None if
    finding them costs more than comparing all: with few slots, or with many left.
    """
    view, matching = records.view, len(records) if places is None else len(places)
    selection = places if places is not None and matching <= _GATHER_SHARE * len(records) else None
    least = _BOUNDED_FROM if selection is None else _PICKED_FROM
    if view.int8_rows is None or matching < max(least, _SPARE * depth):
        return None
    int8_rows, starts, alive = view.int8_rows, view.starts, view.alive
    if selection is not None:
        rows, starts = view.rows_of(selection)
        int8_rows, alive = view.int8_rows.take(rows), np.ones(matching, np.bool_)
    elif places is not None:
        alive = _restrict_slots(view, places).alive
    bounds = int8_rows.bounds(query)
    if bounds is None:
        return None
    survivors = candidates(bounds[0], starts, alive, depth, bounds[1])
    if len(survivors) > _LEFT_SHARE * matching:
        return None
    return survivors if selection is None else selection[survivors]


def _select_scope(records: RecordVectors, places: Ints | None) -> View:
    """Return the slots to multiply; those that may be returned are alive."""
    if places is None:
        return records.view
    if len(places) <= _GATHER_SHARE * len(records):
        return records.view.only(places)
    return _restrict_slots(records.view, places)


def _restrict_slots(view: View, places: Ints) -> View:
    alive = np.zeros(len(view.ids), np.bool_)
    alive[places] = True
    return view._replace(alive=alive)


def _find_best_rows(slots: View, scores: Doubles, best: Doubles) -> Ints:
    """Return for each slot the first of its rows with the slot's best score."""
    counts = slots.counts()
    rows = np.flatnonzero(scores == np.repeat(best, counts))
    slot_of_row = np.repeat(np.arange(len(counts)), counts)[rows]
    _, first = np.unique(slot_of_row, return_index=True)
    best_rows: Ints = rows[first]
    return best_rows
