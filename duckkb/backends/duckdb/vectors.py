"""The vector lane of one record type: exact cosine over every chunk, as one matrix-vector product.

The matrix is made at the first question and follows changes at the next one; once a quarter of its slots is dead, it is
made anew. It knows of every hit which chunk it is, so that answering reads no row but for ties.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from duckkb.backends.duckdb.arrays import Column, Growing, Mapped
from duckkb.backends.duckdb.component import State
from duckkb.backends.duckdb.cosine import Doubles, Ints, candidates, exact_cosines, unit_query
from duckkb.backends.duckdb.derived import Derived
from duckkb.backends.duckdb.order import best_first
from duckkb.backends.duckdb.pending import Pending
from duckkb.backends.duckdb.slots import Chunked, Slots, View
from duckkb.errors import StateError, UsageError
from duckkb.ports import Row, Rows, Version
from duckkb.queries import LaneHit
from duckkb.records import identity_key

_DEAD_SHARE = 0.25
_GATHER_SHARE = 1 / 16  # below it, copying the allowed rows costs less than multiplying all of them


class Vectors(Derived):
    """Finds the records nearest to a vector. `filled` has vectors, by key, that the rows may not know of yet."""

    name = "vectors"
    lane = "vector"
    _material = f"1 float32 {sys.byteorder}"

    def __init__(
        self, rows: Rows, filled: Mapping[bytes, NDArray[Any]] | None = None, version: Version | None = None
    ) -> None:
        super().__init__(rows, version)
        self._filled = {} if filled is None else filled
        self._begin(None, {})

    @property
    def pending(self) -> Pending:
        """What lacks a vector now."""
        self._settle()
        return self._pending

    @property
    def dimension(self) -> int:
        """That of the stored vectors, 0 where there is none."""
        self._refresh()
        return self._slots.dimension

    def similar(
        self, vector: NDArray[Any] | Sequence[float], depth: int, allowed: frozenset[int] | None = None
    ) -> list[LaneHit]:
        """The `depth` records whose best chunk has the greatest cosine with `vector`, out of `allowed` where given.

        Cosines are exact to six decimals: the fast 32-bit product only picks the candidates. Raises `UsageError` for a
        vector that is not one row of finite numbers, is zero, or has another dimension than what is stored.
        """
        query = unit_query(vector)
        self._settle()
        self._refuse_mixed()
        if not len(self._slots) or depth <= 0:
            return []
        if len(query) != self._slots.dimension:
            raise UsageError(
                f"The query vector has {len(query)} dimensions, the stored ones have {self._slots.dimension}.",
                suggestion="Ask with a vector of the model that made the stored ones, or `duckkb index build`.",
            )
        scope = self._scope(allowed)
        chosen = candidates(scope.matrix, scope.starts, scope.alive, query, depth)
        return self._hits(scope.only(chosen), query, depth)

    def prepare(self) -> None:
        """As `Derived.prepare`, with the vectors that caches got since."""
        self._settle()

    def _settle(self) -> None:
        """Mirror the rows, and take in the vectors that caches got since those that wait for them were last looked at."""
        self._refresh()
        if unread := frozenset(self._pending.unread):
            for row in self._rows.some(sorted(unread), "vector"):
                self._pending.note(with_filled(row, self._filled))
            self._pending.unread.clear()
            self.refill(unread - self._pending.records)
            self._refresh()

    def _build(self, folder: Path | None) -> State:
        self._begin(folder, {})
        self._lengths = self._version.lengths() if self._version is not None else ""
        self._slots.expect(len(self._rows))
        for rows in self._rows.batches("vector"):
            self._append(rows)
        return self._state()

    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        if self._version is not None and self._version.lengths() != self._lengths:
            return None
        outdated = self._slots.places(changed)
        slots = len(self._slots) + self._slots.dead
        if self._slots.dead + len(outdated) > _DEAD_SHARE * slots or self._mixed:
            return None
        self._slots.kill(changed)
        for record_id in changed:
            self._pending.drop(record_id)
        self._append(self._rows.some(sorted(changed), "vector"))
        return self._state()

    def _open(self, folder: Path, state: State) -> None:
        self._begin(folder, state)
        log = self._lacking.array[::-1]
        ids, last = np.unique(log[:, 0], return_index=True)
        self._logged |= set(ids[log[last, 1] == 1].tolist())
        self._pending.unread |= self._logged

    def _begin(self, folder: Path | None, state: State) -> None:
        """Columns as they are in a folder, or empty ones."""
        self._mapped: dict[str, Mapped] = {}
        sizes = state.get("files", {})

        def column(name: str, dtype: DTypeLike, shape: tuple[int, ...]) -> Column:
            if folder is None:
                return Growing(dtype, shape)
            self._mapped[name] = Mapped(folder / name, dtype, shape, sizes.get(name, 0))
            return self._mapped[name]

        self._slots = Slots(column, state.get("dimension", 0), state.get("fields", ()))
        self._lacking = column("lacking", np.int64, (2,))
        self._logged: set[int] = set()
        self._lengths = str(state.get("lengths", ""))
        self._pending = Pending()
        self._mixed: set[int] = set(state.get("mixed", ()))  # dimensions of which there is more than one

    def _state(self) -> State:
        lacking = self._pending.records | self._pending.unread
        changes = [(record_id, 1) for record_id in lacking - self._logged]
        changes += [(record_id, 0) for record_id in self._logged - lacking]
        self._lacking.append(np.array(changes, np.int64).reshape(-1, 2))
        self._logged = set(lacking)
        for column in self._mapped.values():
            column.close()
        return {
            "files": {name: column.size for name, column in self._mapped.items() if column.size},
            "dimension": self._slots.dimension,
            "fields": self._slots.fields,
            "mixed": sorted(self._mixed),
            "lengths": self._lengths,
        }

    def _append(self, rows: Iterable[Row]) -> None:
        made: list[Chunked] = []
        for row in rows:
            row = with_filled(row, self._filled)
            self._pending.note(row)
            found = [(entry.field, entry.seq, entry.vector) for entry in row.entries if entry.vector is not None]
            if not found:
                continue
            chunked = Chunked(row.record.id, *zip(*found, strict=True))
            lengths = set(map(len, chunked.vectors))
            expected = self._slots.dimension or len((made or [chunked])[0].vectors[0])
            if lengths == {expected}:
                made.append(chunked)
            else:
                self._mixed |= lengths | {expected}
        self._slots.append(made)

    def _refuse_mixed(self) -> None:
        if self._mixed:
            raise StateError(
                f"Stored vectors differ in dimension: {sorted(self._mixed)}.",
                code="E_MODEL",
                suggestion="`duckkb index build` makes all of them with one model.",
            )

    def _scope(self, allowed: frozenset[int] | None) -> View:
        """The slots to multiply; those that may be returned are alive."""
        everything = self._slots.view
        if allowed is None:
            return everything
        chosen = self._slots.places(allowed)
        if len(chosen) <= _GATHER_SHARE * len(self._slots):
            return everything.only(chosen)
        alive = np.zeros(len(everything.ids), np.bool_)
        alive[chosen] = True
        return everything._replace(alive=alive)

    def _hits(self, slots: View, query: Doubles, depth: int) -> list[LaneHit]:
        if not len(slots.ids):
            return []
        scores = exact_cosines(slots.matrix, query)
        best = np.maximum.reduceat(scores, slots.starts)
        falling = np.argsort(-best, kind="stable")
        scored = list(zip(best[falling].tolist(), slots.ids[falling].tolist(), strict=True))
        first_best = dict(zip(slots.ids.tolist(), _best_rows(slots, scores, best).tolist(), strict=True))
        hits = []
        for score, record_id in best_first(scored, depth, self._identity, slack=0.0):
            field, seq = slots.chunks[first_best[record_id]].tolist()
            hits.append(LaneHit(record_id, score, self._slots.fields[field], seq))
        return hits

    def _identity(self, record_id: int) -> Any:
        return identity_key(self._rows.record(record_id).identity)


def with_filled(row: Row, filled: Mapping[bytes, NDArray[Any]]) -> Row:
    """The row with the vectors that it lacks and `filled` has."""
    lacking = [entry.vector_key for entry in row.entries if entry.vector is None and entry.vector_key is not None]
    known = {key: filled[key] for key in lacking if key in filled}
    if not known:
        return row
    return replace(
        row,
        entries=tuple(
            replace(entry, vector=known.get(entry.vector_key or b"")) if entry.vector is None else entry
            for entry in row.entries
        ),
    )


def _best_rows(slots: View, scores: Doubles, best: Doubles) -> Ints:
    """For each slot the first of its rows with the slot's best score."""
    counts = slots.counts()
    rows = np.flatnonzero(scores == np.repeat(best, counts))
    slot_of_row = np.repeat(np.arange(len(counts)), counts)[rows]
    _, first = np.unique(slot_of_row, return_index=True)
    found: Ints = rows[first]
    return found
