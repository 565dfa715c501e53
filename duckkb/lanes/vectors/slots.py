"""The vectors of one record type as the rows of a matrix.

Rows of the matrix are chunks; the chunks of a record lie together, a stretch of rows called its slot. A changed record
gets a new slot at the end and its old one dies. Nothing here costs a Python object for each row.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import DTypeLike, NDArray

from duckkb.id_set import IdSet
from duckkb.lanes.arrays import Column
from duckkb.lanes.vectors.cosine import Floats, Ints, Mask, make_unit
from duckkb.lanes.vectors.storage import DTYPES, Stored, packed
from duckkb.settings import VectorStorage

_SETS_HELD = 8
_FEW = 16  # ids up to which looking at all slots for each of them costs less than sorting the slots


class Chunked(NamedTuple):
    """The vectors of some records: of each record its id and how many it has, of each vector, float32, the field and the
    number of its chunk. As lists side by side: there may be millions."""

    ids: list[int]
    counts: list[int]
    fields: list[str]
    seqs: list[int]
    vectors: list[Floats]

    @classmethod
    def none(cls) -> "Chunked":
        return cls([], [], [], [], [])


class View(NamedTuple):
    """Some slots. Slot i belongs to record `ids[i]` and begins at row `starts[i]`; row r is chunk `chunks[r, 1]` of the
    field with the number `chunks[r, 0]`; `alive[i]` says whether slot i still counts. Narrow rows have `scales`."""

    matrix: Stored
    scales: Floats | None
    chunks: NDArray[np.int32]
    starts: Ints
    ids: Ints
    alive: Mask

    def counts(self) -> Ints:
        return np.diff(self.starts, append=len(self.chunks))

    def only(self, chosen: Ints) -> "View":
        """A copy of the chosen slots, in that order."""
        if len(self.starts) == len(self.chunks):  # one row each
            scales = None if self.scales is None else self.scales[chosen]
            starts = np.arange(len(chosen))
            return View(
                self.matrix.take(chosen, axis=0),
                scales,
                self.chunks[chosen],
                starts,
                self.ids[chosen],
                self.alive[chosen],
            )
        ends = self.starts.take(chosen + 1, mode="clip")  # of the slot behind, whose beginning it is
        counts = np.where(chosen + 1 < len(self.starts), ends, len(self.chunks)) - self.starts[chosen]
        starts = np.cumsum(counts) - counts
        rows = np.repeat(self.starts[chosen] - starts, counts) + np.arange(counts.sum())
        scales = None if self.scales is None else self.scales[rows]
        return View(
            self.matrix.take(rows, axis=0), scales, self.chunks[rows], starts, self.ids[chosen], self.alive[chosen]
        )

    def since(self, row: int) -> tuple[int, "View"]:
        """The slots from this row on, which begins one, and the number of the first; not copied."""
        slot = int(np.searchsorted(self.starts, row))
        scales = None if self.scales is None else self.scales[row:]
        starts = self.starts[slot:] - row
        return slot, View(self.matrix[row:], scales, self.chunks[row:], starts, self.ids[slot:], self.alive[slot:])


Columns = Callable[[str, DTypeLike, tuple[int, ...]], Column]
"""Makes or opens a column by its name, the type of its numbers and the shape of a row."""


class Slots:
    """All slots of a type, dead ones too. `dimension` is that of the first vector seen, 0 before; `fields` are the names
    of the numbered fields. `columns` has what is there already, or nothing; `storage` says as what numbers."""

    def __init__(
        self,
        columns: Columns,
        dimension: int = 0,
        fields: Iterable[str] = (),
        storage: VectorStorage = "float32",
    ) -> None:
        self._columns = columns
        self._storage = storage
        self.dimension = dimension
        self.fields = list(fields)
        self._matrix = columns("matrix", DTYPES[storage], (dimension,)) if dimension else None
        self._scales = columns("scales", np.float32, ()) if storage != "float32" else None
        self._chunks = columns("chunks", np.int32, (2,))
        self._ids = columns("ids", np.int64, ())
        self._starts = columns("starts", np.int64, ())
        self._dead = columns("dead", np.int64, ())
        self._rows = len(self._chunks.array)
        self._expected = 0
        self._alive = np.ones(len(self._ids.array), np.bool_)
        self._alive[self._dead.array] = False
        self._sorted: tuple[Ints, Ints] | None = None
        self._chosen: list[tuple[ref[IdSet], Ints]] = []

    def expect(self, rows: int) -> None:
        """Say how many rows there will be, about."""
        self._expected = rows

    def __len__(self) -> int:
        """How many are alive."""
        return len(self._alive) - self.dead

    @property
    def dead(self) -> int:
        """How many are not."""
        return len(self._dead.array)

    @property
    def view(self) -> View:
        """All of them."""
        matrix = np.empty((0, 0), DTYPES[self._storage]) if self._matrix is None else self._matrix.array
        scales = None if self._scales is None else self._scales.array
        return View(matrix, scales, self._chunks.array, self._starts.array, self._ids.array, self._alive)

    def append(self, chunked: Chunked) -> Floats:
        """Give these records, which have none, a slot each. Their vectors have `dimension` numbers, if it is set. Gives
        them back with unit length."""
        if not chunked.vectors:
            return np.empty((0, self.dimension), np.float32)
        if self._matrix is None:
            self.dimension = len(chunked.vectors[0])
            self._matrix = self._columns("matrix", DTYPES[self._storage], (self.dimension,))
            self._matrix.reserve(self._expected)
        unit = np.concatenate(chunked.vectors, dtype=np.float32).reshape(-1, self.dimension)
        make_unit(unit)
        counts = np.array(chunked.counts, np.int64)
        starts = self._rows + np.cumsum(counts) - counts
        self._chunks.append(self._numbered(chunked))
        stored, scales = packed(unit, self._storage)
        self._matrix.append(stored)
        if self._scales is not None:
            self._scales.append(scales)
        self._ids.append(np.array(chunked.ids, np.int64))
        self._starts.append(starts)
        self._rows += len(unit)
        self._alive = np.concatenate((self._alive, np.ones(len(counts), np.bool_)))
        self._changed()
        return unit

    def kill(self, ids: Iterable[int]) -> None:
        """Let the slots of these records die, as far as they have one."""
        places = self.places(ids)
        if len(places):
            self._alive[places] = False
            self._dead.append(places)
            self._changed()

    def chosen(self, ids: IdSet) -> Ints:
        """As `places`; what was found for the last sets is held, for conditions are asked again and again."""
        for held, found in self._chosen:
            if held() is ids:
                return found
        found = self.places(ids)
        self._chosen = [*self._chosen[1 - _SETS_HELD :], (ref(ids), found)]
        return found

    def places(self, ids: Iterable[int]) -> Ints:
        """The numbers of the slots of these records that are alive, rising."""
        wanted = IdSet.of(ids).array
        if len(wanted) <= _FEW and self._sorted is None:
            view = self.view
            found = [np.flatnonzero((view.ids == record_id) & view.alive) for record_id in wanted]
            return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
        if self._sorted is None:
            alive = np.flatnonzero(self._alive)
            order = np.argsort(self.view.ids[alive], kind="stable")
            self._sorted = self.view.ids[alive][order], alive[order]
        known, slots = self._sorted
        at = np.searchsorted(known, wanted)
        at[at == len(known)] = 0
        there = known[at] == wanted if len(known) else np.zeros(len(wanted), np.bool_)
        return np.sort(slots[at[there]])

    def _changed(self) -> None:
        self._sorted = None
        self._chosen = []

    def _numbered(self, chunked: Chunked) -> NDArray[np.int32]:
        """The chunk of each row: the number of its field, and its own."""
        numbers = {name: number for number, name in enumerate(self.fields)}
        for name in dict.fromkeys(chunked.fields):
            if name not in numbers:
                numbers[name] = len(self.fields)
                self.fields.append(name)
        return np.array([[numbers[name] for name in chunked.fields], chunked.seqs], np.int32).T
