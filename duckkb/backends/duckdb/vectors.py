"""The vector lane of one record type: exact cosine over every chunk, as one matrix-vector product.

Rows of the matrix are chunks; the chunks of a record lie together, a stretch of rows called its slot. A changed record
gets a new slot at the end and its old one dies; once a quarter of the slots is dead, the matrix is built anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duckkb.backends.duckdb.order import best_first
from duckkb.errors import StateError, UsageError
from duckkb.ports import Row
from duckkb.queries import LaneHit
from duckkb.records import identity_key

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_DECIMALS = 6
_DOUBT = 2e-5  # more than the 32-bit product of two unit vectors is off by, together with the rounding
_DEAD_SHARE = 0.25
_GATHER_SHARE = 1 / 16  # below it, copying the allowed rows costs less than multiplying all of them
_BLOCK = 4096  # rows that are widened to 64 bits at a time


class _Slots(NamedTuple):
    """Slot i belongs to record `ids[i]` and begins at row `starts[i]`; `places[r]` is row r's place in its entries."""

    matrix: Floats
    places: Ints
    starts: Ints
    ids: Ints

    @classmethod
    def none(cls) -> "_Slots":
        empty = np.empty(0, np.int64)
        return cls(np.empty((0, 0), np.float32), empty, empty, empty)

    def counts(self) -> Ints:
        return np.diff(self.starts, append=len(self.places))

    def only(self, chosen: Ints) -> "_Slots":
        """A copy of the chosen slots, in that order."""
        counts = self.counts()[chosen]
        starts = np.cumsum(counts) - counts
        rows = np.repeat(self.starts[chosen] - starts, counts) + np.arange(counts.sum())
        return _Slots(self.matrix[rows], self.places[rows], starts, self.ids[chosen])


class Vectors:
    """Finds the records nearest to a vector. `rows` is read, never changed; `touch` says which of them have changed."""

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self._rows = rows
        self._stale: set[int] = set()
        self._built = False
        self._clear()

    def touch(self, ids: Iterable[int]) -> None:
        """Say that these records were added, replaced or dropped. Nothing is computed before the next question."""
        if self._built:
            self._stale.update(ids)

    def similar(
        self, vector: NDArray[Any] | Sequence[float], depth: int, allowed: frozenset[int] | None = None
    ) -> list[LaneHit]:
        """The `depth` records whose best chunk has the greatest cosine with `vector`, out of `allowed` where given.

        Cosines are exact to six decimals: the fast 32-bit product only picks the candidates. Raises `UsageError` for a
        vector that is not one row of finite numbers, is zero, or has another dimension than what is stored.
        """
        query = unit_query(vector)
        self._refresh()
        if not self._slot_of or depth <= 0:
            return []
        if len(query) != self._slots.matrix.shape[1]:
            raise UsageError(
                f"The query vector has {len(query)} dimensions, the stored ones have {self._slots.matrix.shape[1]}.",
                suggestion="Ask with a vector of the model that made the stored ones, or `duckkb index build`.",
            )
        slots, alive = self._scope(allowed)
        return self._hits(slots.only(_candidates(slots, alive, query, depth)), query, depth)

    def _clear(self) -> None:
        self._slots = _Slots.none()
        self._buffer: Floats = np.empty((0, 0), np.float32)  # the matrix and room to grow
        self._alive: Mask = np.empty(0, np.bool_)
        self._slot_of: dict[int, int] = {}

    def _refresh(self) -> None:
        outdated = self._stale & self._slot_of.keys()
        dead = len(self._alive) - len(self._slot_of) + len(outdated)
        if not self._built or dead > _DEAD_SHARE * len(self._alive):
            self._clear()
            self._append(self._rows.values())
            self._built = True
        else:
            for record_id in outdated:
                self._alive[self._slot_of.pop(record_id)] = False
            self._append(self._rows[record_id] for record_id in sorted(self._stale & self._rows.keys()))
        self._stale.clear()

    def _append(self, rows: Iterable[Row]) -> None:
        vectors: list[Floats] = []
        places: list[int] = []
        ids: list[int] = []
        counts: list[int] = []
        for row in rows:
            before = len(vectors)
            for place, entry in enumerate(row.entries):
                if entry.vector is not None:
                    vectors.append(entry.vector)
                    places.append(place)
            if len(vectors) > before:
                ids.append(row.record.id)
                counts.append(len(vectors) - before)
        if not ids:
            return
        old = self._slots
        self._slots = _Slots(
            self._grown(vectors),
            np.concatenate((old.places, np.asarray(places, np.int64))),
            np.concatenate((old.starts, len(old.places) + np.cumsum(counts) - counts)),
            np.concatenate((old.ids, np.asarray(ids, np.int64))),
        )
        self._alive = np.concatenate((self._alive, np.ones(len(ids), np.bool_)))
        self._slot_of.update(zip(ids, range(len(old.ids), len(old.ids) + len(ids)), strict=True))

    def _grown(self, vectors: Sequence[Floats]) -> Floats:
        """The matrix with these vectors, made unit, as its last rows. Room grows by half, so adding costs what is added."""
        used, dimension = self._slots.matrix.shape
        expected = (dimension or len(vectors[0]),)
        shapes = {np.shape(vector) for vector in vectors}
        if shapes != {expected}:
            raise StateError(
                f"Stored vectors differ in dimension: {sorted(shapes | {expected})}.",
                code="E_MODEL",
                suggestion="`duckkb index build` makes all of them with one model.",
            )
        needed = used + len(vectors)
        if needed > len(self._buffer):
            buffer = np.empty((max(needed, used * 3 // 2), *expected), np.float32)
            if used:
                buffer[:used] = self._slots.matrix
            self._buffer = buffer
        np.stack(vectors, out=self._buffer[used:needed])
        _make_unit(self._buffer[used:needed])
        return self._buffer[:needed]

    def _scope(self, allowed: frozenset[int] | None) -> tuple[_Slots, Mask]:
        """The slots to multiply, and which of them may be returned."""
        if allowed is None:
            return self._slots, self._alive
        if len(allowed) > _GATHER_SHARE * len(self._slot_of):
            wanted = np.fromiter(allowed, np.int64, len(allowed))
            return self._slots, self._alive & np.isin(self._slots.ids, wanted)
        chosen = sorted(self._slot_of[record_id] for record_id in allowed & self._slot_of.keys())
        return self._slots.only(np.asarray(chosen, np.int64)), np.ones(len(chosen), np.bool_)

    def _hits(self, slots: _Slots, query: Doubles, depth: int) -> list[LaneHit]:
        if not len(slots.ids):
            return []
        scores = _exact_cosines(slots.matrix, query)
        best = np.maximum.reduceat(scores, slots.starts)
        falling = np.argsort(-best, kind="stable")
        scored = list(zip(best[falling].tolist(), slots.ids[falling].tolist(), strict=True))
        first_best = dict(zip(slots.ids.tolist(), _best_places(slots, scores, best), strict=True))
        hits = []
        for score, record_id in best_first(scored, depth, self._identity, slack=0.0):
            entry = self._rows[record_id].entries[first_best[record_id]]
            hits.append(LaneHit(record_id, score, entry.field, entry.seq))
        return hits

    def _identity(self, record_id: int) -> Any:
        return identity_key(self._rows[record_id].record.identity)


def unit_query(vector: NDArray[Any] | Sequence[float]) -> Doubles:
    """The vector with length 1; raises `UsageError` where there is none."""
    try:
        query = np.asarray(vector, np.float64)
    except (TypeError, ValueError, OverflowError):
        query = np.empty((0, 0))
    if query.ndim != 1 or not np.isfinite(query).all():
        raise UsageError(
            "The query vector is not one row of finite numbers.", suggestion="Give as many numbers as the model does."
        )
    largest = float(np.abs(query).max(initial=0.0))
    if largest == 0.0:
        raise UsageError("The query vector is zero: it points nowhere.", suggestion="Give a vector that is not zero.")
    # Squares of numbers past 1e154 are infinite, those below 1e-162 nothing: the largest is made 1 first.
    query = query / largest
    return query / float(np.linalg.norm(query))


def _candidates(slots: _Slots, alive: Mask, query: Doubles, depth: int) -> Ints:
    """Every slot that may be among the first `depth`, by a product that is a little off."""
    count = min(depth, int(alive.sum()))
    if count == 0:
        return np.empty(0, np.int64)
    best = np.maximum.reduceat(slots.matrix @ query.astype(np.float32), slots.starts)
    best[~alive] = -np.inf
    cut = np.partition(best, len(best) - count)[len(best) - count]
    return np.flatnonzero(best >= cut - _DOUBT)


def _exact_cosines(matrix: Floats, query: Doubles) -> Doubles:
    """Summed row by row in 64 bits, so that equal rows have equal cosines wherever they stand."""
    cosines = []
    for start in range(0, len(matrix), _BLOCK):
        block = matrix[start : start + _BLOCK].astype(np.float64)
        lengths = np.sqrt((block * block).sum(axis=1))
        products = (block * query).sum(axis=1)
        cosines.append(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))
    return np.concatenate(cosines).round(_DECIMALS) + 0.0  # no negative zero


def _best_places(slots: _Slots, scores: Doubles, best: Doubles) -> list[int]:
    """For each slot the place of its first entry with the slot's best score."""
    counts = slots.counts()
    is_best = scores == np.repeat(best, counts)
    slot_of_row = np.repeat(np.arange(len(counts)), counts)[is_best]
    _, first = np.unique(slot_of_row, return_index=True)
    places: list[int] = slots.places[is_best][first].tolist()
    return places


def _make_unit(rows: Floats) -> None:
    """Scale in place what is not of unit length already; a zero row stays, its cosine with anything is 0."""
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        lengths = np.sqrt(np.square(block, dtype=np.float64).sum(axis=1))
        off = (np.abs(lengths - 1) > _DOUBT / 8) & (lengths > 0)
        if off.any():
            block[off] = block[off] / lengths[off, None]
