"""The vectors of one record type as the rows of a matrix, in memory or in a file that is mapped; and whose they are.

Rows of the matrix are chunks; the chunks of a record lie together, a stretch of rows called its slot. A changed record
gets a new slot at the end and its old one dies. The matrix only grows; whose its rows are is small, held in memory, and written
anew beside it. Nothing here costs a Python object for each row.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

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
_FEW = 16  # ids up to which looking at all slots costs less than sorting them

Chunk = tuple[str, int, Floats]
"""The field of a chunk, its number there, and its vector, float32."""


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


class Slots(NamedTuple):
    """A `View` without its matrix."""

    scales: Floats = np.empty(0, np.float32)
    chunks: NDArray[np.int32] = np.empty((0, 2), np.int32)
    starts: Ints = np.empty(0, np.int64)
    ids: Ints = np.empty(0, np.int64)
    alive: Mask = np.empty(0, np.bool_)


class RecordVectors:
    """`storage` says as what numbers the matrix is kept; in `folder`, where one is given, as `state` says that
    it lies there. Raises OSError and ValueError for files that are not as it says."""

    def __init__(self, storage: VectorStorage, folder: Path | None = None, state: State | None = None) -> None:
        self.dimension = int(state["dimension"]) if state else 0
        self.fields: list[str] = list(state["fields"]) if state else []
        self.rows = int(state["rows"]) if state else 0
        self._storage = storage
        self._folder = folder
        self._matrix: Stored = np.empty((0, self.dimension), DTYPES[storage])
        self._file: IO[bytes] | None = None
        self._slots = _read(folder / SLOTS, self.rows, int(state["slots"])) if folder and state else Slots()
        self._fresh: list[Slots] = []
        self._sorted: tuple[Ints, Ints] | None = None  # the ids of the slots that are alive, rising, and their numbers
        self._chosen: deque[tuple[IdSet, Ints]] = deque(maxlen=_SETS_HELD)
        if folder and self.rows:
            self._map(folder)

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
            self._slots = Slots(*map(np.concatenate, zip(self._slots, *self._fresh, strict=True)))
            self._fresh = []
        if self._file is not None and self._folder is not None:
            self._file.flush()
            self._map(self._folder)
        scales, chunks, starts, ids, alive = self._slots
        matrix = self._matrix[: self.rows]
        return View(matrix, scales if self._storage != "float32" else None, chunks, starts, ids, alive)

    def append(self, records: Sequence[tuple[int, Sequence[Chunk]]]) -> Floats:
        """Give these records, which have none, a slot each. Their vectors have `dimension` numbers, if it is set. Gives
        them back with unit length."""
        chunks = [chunk for _, found in records for chunk in found]
        if not chunks:
            return np.empty((0, self.dimension), np.float32)
        self.dimension = self.dimension or len(chunks[0][2])
        unit = np.concatenate([vector for _, _, vector in chunks], dtype=np.float32).reshape(-1, self.dimension)
        make_unit(unit)
        stored, scales = packed(unit, self._storage)
        counts = np.array([len(found) for _, found in records], np.int64)
        starts = self.rows + np.cumsum(counts) - counts
        ids, alive = np.array([record_id for record_id, _ in records], np.int64), np.ones(len(counts), np.bool_)
        self.fields += [name for name in dict.fromkeys(name for name, _, _ in chunks) if name not in self.fields]
        numbers = {name: number for number, name in enumerate(self.fields)}
        numbered = np.array([(numbers[name], seq) for name, seq, _ in chunks], np.int32)
        self._fresh.append(Slots(scales, numbered, starts, ids, alive))
        self._add(stored)
        self._changed()
        return unit

    def kill(self, ids: Iterable[int]) -> None:
        """Let the slots of these records die, as far as they have one."""
        alive = self.view.alive.copy()
        alive[self.places(ids)] = False
        self._slots = self._slots._replace(alive=alive)
        self._changed()

    def _changed(self) -> None:
        self._sorted = None
        self._chosen.clear()

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
            room = np.empty((max(self.rows, before * 3 // 2), self.dimension), stored.dtype)
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
            if held is ids:
                return found
        found = self.places(ids)
        self._chosen.append((ids, found))
        return found

    def places(self, ids: Iterable[int]) -> Ints:
        """The numbers of the slots of these records that are alive, rising."""
        view, wanted = self.view, IdSet.of(ids)
        if len(wanted) <= _FEW and self._sorted is None:
            return np.flatnonzero(wanted.holds(view.ids) & view.alive)
        if self._sorted is None:
            alive = np.flatnonzero(view.alive)
            order = np.argsort(view.ids[alive])
            self._sorted = view.ids[alive][order], alive[order]
        known, slots = self._sorted
        there = wanted.within(IdSet(known)).array
        return np.sort(slots[np.searchsorted(known, there)])


def _read(path: Path, rows: int, slots: int) -> Slots:
    if not slots:
        return Slots()
    with path.open("rb") as file:
        scales = np.fromfile(file, np.float32, rows)
        chunks = np.fromfile(file, np.int32, 2 * rows).reshape(rows, 2)
        starts, ids = (np.fromfile(file, np.int64, slots) for _ in range(2))
        alive = np.fromfile(file, np.bool_, slots)
    if len(alive) != slots:
        raise ValueError("it ends too soon")
    return Slots(scales, chunks, starts, ids, alive)
