"""The vectors of one record type as the rows of a matrix, in memory or in a file that is mapped; and whose they are.

Rows of the matrix are chunks; the chunks of a record lie together, a stretch of rows called its slot. A changed record
gets a new slot at the end and its old one dies. The matrix only grows; whose its rows are is small, held in memory, and written
anew beside it. Nothing here costs a Python object for each row.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from duckkb.id_set import IdSet
from duckkb.lanes.files import State
from duckkb.lanes.vectors.cosine import Floats, Ints, Mask, make_unit
from duckkb.lanes.vectors.storage import DTYPES, Stored, packed
from duckkb.settings import VectorStorage

MATRIX, SLOTS = "matrix", "slots"
"""The files: the numbers of each row; and scales, chunks, beginnings, ids and signs of life, one array after the other."""

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
        ends = self.starts.take(chosen + 1, mode="clip")  # of the slot behind, whose beginning it is
        counts = np.where(chosen + 1 < len(self.starts), ends, len(self.chunks)) - self.starts[chosen]
        starts = np.cumsum(counts) - counts
        rows = np.repeat(self.starts[chosen] - starts, counts) + np.arange(counts.sum())
        scales = None if self.scales is None else self.scales[rows]
        matrix = self.matrix.take(rows, axis=0)
        return View(matrix, scales, self.chunks[rows], starts, self.ids[chosen], self.alive[chosen])

    def since(self, row: int) -> tuple[int, "View"]:
        """The slots from this row on, which begins one, and the number of the first; not copied."""
        slot = int(np.searchsorted(self.starts, row))
        scales = None if self.scales is None else self.scales[row:]
        starts = self.starts[slot:] - row
        return slot, View(self.matrix[row:], scales, self.chunks[row:], starts, self.ids[slot:], self.alive[slot:])


class RecordVectors:
    """All slots of a type, dead ones too. `dimension` is that of the first vector seen, 0 before; `fields` are the names of the
    numbered fields. `storage` says as what numbers the matrix is kept; in `folder`, where one is given, as `state` says that
    it lies there. Raises OSError and ValueError for files that are not as it says."""

    def __init__(self, storage: VectorStorage, folder: Path | None = None, state: State | None = None) -> None:
        self.dimension = int(state["dimension"]) if state else 0
        self.fields: list[str] = list(state["fields"]) if state else []
        self._storage = storage
        self._folder = folder
        self._reserved = 0
        self._matrix: Stored = np.empty((0, self.dimension), DTYPES[storage])
        self._file: IO[bytes] | None = None
        self._slots = _read(folder / SLOTS, state) if folder and state else _Slots.none()
        self._fresh: list[_Slots] = []
        self.rows = len(self._slots.chunks)
        if folder and self.rows:
            self._map(folder)
        self._sorted: tuple[Ints, Ints] | None = None
        self._chosen: list[tuple[ref[IdSet], Ints]] = []

    def reserve(self, rows: int) -> None:
        """Say how many rows there will be, about."""
        self._reserved = rows

    def __len__(self) -> int:
        """How many slots are alive."""
        return len(self.view.ids) - self.dead

    @property
    def dead(self) -> int:
        """How many are not."""
        return int(np.count_nonzero(~self.view.alive))

    @property
    def view(self) -> View:
        """All of them."""
        if self._fresh:
            self._slots = _Slots(*map(np.concatenate, zip(self._slots, *self._fresh, strict=True)))
            self._fresh = []
        if self._file is not None and self._folder is not None:
            self._file.flush()
            self._map(self._folder)
        scales, chunks, starts, ids, alive = self._slots
        matrix = self._matrix[: self.rows]
        return View(matrix, scales if self._storage != "float32" else None, chunks, starts, ids, alive)

    def append(self, chunked: Chunked) -> Floats:
        """Give these records, which have none, a slot each. Their vectors have `dimension` numbers, if it is set. Gives
        them back with unit length."""
        if not chunked.vectors:
            return np.empty((0, self.dimension), np.float32)
        self.dimension = self.dimension or len(chunked.vectors[0])
        unit = np.concatenate(chunked.vectors, dtype=np.float32).reshape(-1, self.dimension)
        make_unit(unit)
        stored, scales = packed(unit, self._storage)
        counts = np.array(chunked.counts, np.int64)
        starts = self.rows + np.cumsum(counts) - counts
        ids, alive = np.array(chunked.ids, np.int64), np.ones(len(counts), np.bool_)
        self._fresh.append(_Slots(scales, self._numbered(chunked), starts, ids, alive))
        self._add(stored)
        self._changed()
        return unit

    def kill(self, ids: Iterable[int]) -> None:
        """Let the slots of these records die, as far as they have one."""
        places = self.places(ids)
        if len(places):
            alive = self.view.alive.copy()
            alive[places] = False
            self._slots = self._slots._replace(alive=alive)
            self._changed()

    def save(self) -> State:
        """Write down whose the rows are, where they lie in a folder; what has to be known to open them."""
        slots = len(self.view.ids)
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._folder and slots:
            with (self._folder / SLOTS).open("wb") as file:
                for column in self._slots:
                    column.tofile(file)
        files = [MATRIX, SLOTS] if slots else []
        return {"files": files, "dimension": self.dimension, "fields": self.fields, "rows": self.rows, "slots": slots}

    def _add(self, stored: Stored) -> None:
        """Behind the rows of the matrix: in its file, or in memory, where it has room for half as many again."""
        before, self.rows = self.rows, self.rows + len(stored)
        if self._folder is not None:
            self._file = self._file or (self._folder / MATRIX).open("r+b" if before else "wb")
            self._file.seek(before * self.dimension * stored.itemsize)
            self._file.write(np.ascontiguousarray(stored).data)
            return
        if self.rows > len(self._matrix):
            room = np.empty((max(self.rows, before * 3 // 2, self._reserved), self.dimension), stored.dtype)
            if before:
                room[:before] = self._matrix[:before]
            self._matrix = room
        self._matrix[before : self.rows] = stored

    def _map(self, folder: Path) -> None:
        """Map the matrix now: who is asked later cannot do without it any more."""
        shape = self.rows, self.dimension
        self._matrix = np.memmap(folder / MATRIX, DTYPES[self._storage], "r", shape=shape).view(np.ndarray)

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
            alive = np.flatnonzero(self.view.alive)
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


class _Slots(NamedTuple):
    """A `View` without its matrix."""

    scales: Floats
    chunks: NDArray[np.int32]
    starts: Ints
    ids: Ints
    alive: Mask

    @classmethod
    def none(cls) -> "_Slots":
        integers = np.empty(0, np.int64)
        return cls(np.empty(0, np.float32), np.empty((0, 2), np.int32), integers, integers, np.empty(0, np.bool_))


def _read(path: Path, state: State) -> _Slots:
    rows, slots = int(state["rows"]), int(state["slots"])
    if not slots:
        return _Slots.none()
    with path.open("rb") as file:
        scales = np.fromfile(file, np.float32, rows)
        chunks = np.fromfile(file, np.int32, 2 * rows).reshape(rows, 2)
        starts, ids = (np.fromfile(file, np.int64, slots) for _ in range(2))
        alive = np.fromfile(file, np.bool_, slots)
    if len(alive) != slots:
        raise ValueError("it ends too soon")
    return _Slots(scales, chunks, starts, ids, alive)
