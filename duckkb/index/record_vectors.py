"""The vectors of a record type as the rows of a matrix, in memory or in a mapped file; and the records that own
them.

Rows of the matrix are chunks; the chunks of a record lie together, a stretch of rows called its slot. A changed
record gets a new slot at the end and its old slot dies. The matrix only grows. The ownership of rows is small,
held in memory, and rewritten beside the matrix. Nothing here costs a Python object for each row.

A graph over the rows of a matrix, which finds most of the nearest rows of a vector without reading all rows.

It lies on disk beside the matrix and is mapped. It knows the rows at its creation. The matrix only grows until
it is rebuilt, so later rows are its last rows, few enough to compare all. Making a graph takes minutes for a
million rows; only index jobs do. It only names candidates: their scores come from the matrix."""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duckkb.id_set import IdSet
from duckkb.index.cosine import (
    LARGEST_DIMENSION,
    Doubles,
    Floats,
    Int8Rows,
    Ints,
    Mask,
    common_direction,
    is_kernel_installed,
    make_unit,
    round_rows,
)
from duckkb.store.mirrored_files import LaneFiles, LaneMeta, State

MATRIX, COPY, BOUNDS, SLOTS = "matrix", "copy", "bounds", "slots"
"""The files: the rows; the rows in 8 bits, and their rounding errors; and the slots as arrays, one after the
other: chunks, starts, ids, whether alive, and the common direction of the copy.
"""

_SETS_HELD = 8
_FEW = 16  # ids up to which scanning all slots costs less than sorting them

Chunk = tuple[str, int, Floats]
"""The field of a chunk, its number there, and its vector, float32."""


class View(NamedTuple):
    """Some slots. Slot i belongs to record `ids[i]` and begins at row `starts[i]`; row r is chunk `chunks[r, 1]` of the
    field with the number `chunks[r, 0]`; `alive[i]` says whether slot i still counts; `int8_rows` is the copy."""

    matrix: Floats
    chunks: NDArray[np.int32]
    starts: Ints
    ids: Ints
    alive: Mask
    int8_rows: Int8Rows | None = None

    def counts(self) -> Ints:
        return np.diff(self.starts, append=len(self.chunks))

    def only(self, chosen: Ints) -> "View":
        """Copy the chosen slots, in that order, without their rows in 8 bits."""
        rows, starts = self.rows_of(chosen)
        return View(self.matrix.take(rows, axis=0), self.chunks[rows], starts, self.ids[chosen], self.alive[chosen])

    def rows_of(self, chosen: Ints) -> tuple[Ints, Ints]:
        """Return the rows of the chosen slots, in that order, and where in them each of the slots begins."""
        ends = self.starts.take(chosen + 1, mode="clip")  # the end of a slot is the start of the next
        counts = np.where(chosen + 1 < len(self.starts), ends, len(self.chunks)) - self.starts[chosen]
        starts = np.cumsum(counts) - counts
        return np.repeat(self.starts[chosen] - starts, counts) + np.arange(counts.sum()), starts

    def since(self, row: int) -> tuple[int, "View"]:
        """Return the number of the slot that begins at this row, and a view of the slots from it on, not copied."""
        slot = int(np.searchsorted(self.starts, row))
        starts = self.starts[slot:] - row
        return slot, View(self.matrix[row:], self.chunks[row:], starts, self.ids[slot:], self.alive[slot:])


class Slots(NamedTuple):
    """A `View` without its matrix."""

    chunks: NDArray[np.int32] = np.empty((0, 2), np.int32)
    starts: Ints = np.empty(0, np.int64)
    ids: Ints = np.empty(0, np.int64)
    alive: Mask = np.empty(0, np.bool_)


class GrowingRows:
    """Append-only rows of a type: in a mapped file, or in memory with spare room for half as many again. A copy
    grows independently.
    """

    def __init__(self, dtype: type[np.generic], width: int, folder: Path | None, name: str) -> None:
        self._dtype, self._width, self._path = dtype, width, folder / name if folder else None
        self._rows: NDArray[Any] = np.empty((0, width), dtype)
        self._file: IO[bytes] | None = None

    def add(self, rows: NDArray[Any], before: int) -> None:
        """Append rows to the `before` existing rows."""
        count = before + len(rows)
        if self._path is not None:
            self._file = self._file or self._path.open("r+b" if before else "wb")
            self._file.seek(before * rows[:1].nbytes)
            self._file.write(np.ascontiguousarray(rows).data)
            return
        if count > len(self._rows):
            room = np.empty((max(count, before * 3 // 2), self._width), self._dtype)
            room[:before] = self._rows[:before]
            self._rows = room
        self._rows[before:count] = rows

    def first(self, count: int) -> NDArray[Any]:
        """Return the first `count` rows, of a file as a memory map; flush first."""
        if self._file is not None:
            self._file.flush()
        if self._path is not None and count and (self._file is not None or len(self._rows) != count):
            self._rows = np.memmap(self._path, self._dtype, "r", shape=(count, self._width)).view(np.ndarray)
        return self._rows[:count]

    def close(self) -> None:
        """Write all added rows to the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RecordVectors:
    """The vectors of a type's records: in memory, or in `folder` as `state` describes them. Raises OSError and
    ValueError for files that do not match the state.
    """

    def __init__(self, folder: Path | None = None, state: State | None = None) -> None:
        self.dimension = int(state["dimension"]) if state else 0
        self.fields: list[str] = list(state["fields"]) if state else []
        self.rows = int(state["rows"]) if state else 0
        self._is_copied = COPY in state["files"] if self.rows and state else is_kernel_installed()
        self._folder = folder
        self._common = np.zeros(self.dimension, np.float32)
        self._slots = Slots()
        if folder and state and self.rows:
            self._slots, self._common = _read(folder / SLOTS, self.rows, int(state["slots"]), self.dimension)
        self._fresh: list[Slots] = []
        self._sorted: tuple[Ints, Ints] | None = None  # the ids of the living slots, ascending, and their numbers
        self._chosen: deque[tuple[IdSet, Ints]] = deque(maxlen=_SETS_HELD)
        self._begin()
        if self.rows:
            self._matrix.first(self.rows)
            if self._has_copy:
                self._levels.first(self.rows), self._bounds.first(self.rows)

    def _begin(self) -> None:
        """Allocate rows, now that their dimension is known."""
        self._matrix = GrowingRows(np.float32, self.dimension, self._folder, MATRIX)
        self._levels = GrowingRows(np.int8, self.dimension, self._folder, COPY)
        self._bounds = GrowingRows(np.float32, 3, self._folder, BOUNDS)

    @property
    def _has_copy(self) -> bool:
        return self._is_copied and self.dimension <= LARGEST_DIMENSION

    def __len__(self) -> int:
        """Return the number of living slots."""
        return len(self.view.ids) - self.dead

    @property
    def dead(self) -> int:
        """Return the number of dead slots."""
        return int(np.count_nonzero(~self.view.alive))

    @property
    def view(self) -> View:
        """Return a view of all slots."""
        if self._fresh:
            self._slots = Slots(*map(np.concatenate, zip(self._slots, *self._fresh, strict=True)))
            self._fresh = []
        int8_rows = None
        if self._has_copy:
            int8_rows = Int8Rows(self._levels.first(self.rows), self._bounds.first(self.rows), self._common)
        return View(self._matrix.first(self.rows), *self._slots, int8_rows)

    def append(self, records: Sequence[tuple[int, Sequence[Chunk]]]) -> None:
        """Give each of these records, which have none, a slot. Their vectors have `dimension` numbers, if it is
        set.
        """
        chunks = [chunk for _, record_chunks in records for chunk in record_chunks]
        if not chunks:
            return
        if not self.dimension:
            self.dimension = len(chunks[0][2])
            self._common = np.zeros(self.dimension, np.float32)
            self._begin()
        unit = np.concatenate([vector for _, _, vector in chunks], dtype=np.float32).reshape(-1, self.dimension)
        make_unit(unit)
        counts = np.array([len(record_chunks) for _, record_chunks in records], np.int64)
        starts = self.rows + np.cumsum(counts) - counts
        ids, alive = np.array([record_id for record_id, _ in records], np.int64), np.ones(len(counts), np.bool_)
        self.fields += [name for name in dict.fromkeys(name for name, _, _ in chunks) if name not in self.fields]
        numbers = {name: number for number, name in enumerate(self.fields)}
        chunk_keys = np.array([(numbers[name], seq) for name, seq, _ in chunks], np.int32)
        self._fresh.append(Slots(chunk_keys, starts, ids, alive))
        self._matrix.add(unit, self.rows)
        if self._has_copy:
            self._common = self._common if self.rows else common_direction(unit)
            levels, bounds = round_rows(unit, self._common)
            self._levels.add(levels, self.rows)
            self._bounds.add(bounds, self.rows)
        self.rows += len(unit)
        self._reset_caches()

    def kill(self, ids: Iterable[int]) -> None:
        """Mark the slots of these records as dead, if they have any."""
        alive = self.view.alive.copy()
        alive[self.places(ids)] = False
        self._slots = self._slots._replace(alive=alive)
        self._reset_caches()

    def clone(self) -> "RecordVectors":
        """Return a copy to change. Present readers keep the original, which must not be changed any more; the
        matrix is shared because it only grows.
        """
        clone = copy(self)
        clone.fields, clone._fresh = [*self.fields], [*self._fresh]
        clone._matrix, clone._levels, clone._bounds = copy(self._matrix), copy(self._levels), copy(self._bounds)
        clone._chosen = deque(maxlen=_SETS_HELD)
        return clone

    def _reset_caches(self) -> None:
        self._sorted = None
        self._chosen.clear()

    def save(self) -> State:
        """Write the ownership of the rows to the folder, if any; return the state that opens them."""
        slots = len(self.view.ids)
        for rows in (self._matrix, self._levels, self._bounds):
            rows.close()
        if self._folder and slots:
            with (self._folder / SLOTS).open("wb") as file:
                for column in (*self._slots, self._common):
                    column.tofile(file)
        files = [MATRIX, SLOTS, *((COPY, BOUNDS) if self._has_copy else ())] if slots else []
        return {"files": files, "dimension": self.dimension, "fields": self.fields, "rows": self.rows, "slots": slots}

    def select_slots(self, ids: IdSet) -> Ints:
        """Return slot numbers as `places` does; cache the results of recent sets, because conditions repeat."""
        for id_set, slots in tuple(self._chosen):
            if id_set is ids:
                return slots
        slots = self.places(ids)
        self._chosen.append((ids, slots))
        return slots

    def places(self, ids: Iterable[int]) -> Ints:
        """Return the numbers of the living slots of these records, ascending."""
        view, id_set = self.view, IdSet.from_ids(ids)
        if len(id_set) <= _FEW and self._sorted is None:
            return np.flatnonzero(id_set.holds(view.ids) & view.alive)
        if self._sorted is None:
            alive = np.flatnonzero(view.alive)
            order = np.argsort(view.ids[alive])
            self._sorted = view.ids[alive][order], alive[order]
        sorted_ids, slots = self._sorted
        there = id_set.intersection(IdSet(sorted_ids)).array
        return np.sort(slots[np.searchsorted(sorted_ids, there)])


def _read(path: Path, rows: int, slots: int, dimension: int) -> tuple[Slots, Floats]:
    with path.open("rb") as file:
        chunks = np.fromfile(file, np.int32, 2 * rows).reshape(rows, 2)
        starts, ids = (np.fromfile(file, np.int64, slots) for _ in range(2))
        alive = np.fromfile(file, np.bool_, slots)
        common = np.fromfile(file, np.float32, dimension)
    if len(common) != dimension:
        raise ValueError("it ends too soon")
    return Slots(chunks, starts, ids, alive), common


MATERIAL = "1 faiss hnsw 16 64 8bit"
_FILE = "graph"
_LINKS, _EFFORT = 16, 64
_BLOCK = 8192  # rows that are added at a time: a job can be interrupted between two blocks
_LEAST_EFFORT = 64  # the least candidates that a query examines
_OVER = 4  # candidates for each requested row, because the graph knows rows only in 8 bits
_UNSEEN_SHARE = 1 / 20  # of the rows, above which a job adds those that the graph does not know
_SAMPLED = 4096
_MOST = 4.0  # candidates by the square root of the rows above which comparing all is faster: some hundred among 10,000


class Graph:
    """A graph that knows the first `rows` rows of the matrix."""

    def __init__(self, library: Any, index: Any) -> None:
        self._library = library
        self._index = index
        self.rows = int(index.ntotal)

    def nearest(self, query: Doubles | Floats, count: int) -> Ints:
        """Return up to `count` rows that are probably the nearest, in no order."""
        effort = self._library.SearchParametersHNSW(efSearch=max(count, _LEAST_EFFORT))
        _, labels = self._index.search(query.astype(np.float32)[None], count, params=effort)
        rows: Ints = labels[0].astype(np.int64)
        return rows[rows >= 0]

    def slots(self, view: View, query: Doubles, wanted: int, matching: int) -> Ints | None:
        """Return at least `wanted` living slots of a view that are probably the nearest; `matching` is the number
        of living slots. Returns None if comparing all is cheaper.
        """
        count = int(np.ceil(_OVER * (wanted // 2) * len(view.ids) / matching))
        while count <= _MOST * len(view.matrix) ** 0.5:
            rows = self.nearest(query, count)
            slots: Ints = np.unique(np.searchsorted(view.starts, rows[rows < len(view.matrix)], "right") - 1)
            slots = slots[view.alive[slots]]
            if len(slots) >= wanted:
                return slots
            count *= 4
        return None


def load(files: LaneFiles, matrix: str, dimension: int, *, mapped: bool) -> Graph | None:
    """Load the graph of this matrix: mapped, or in memory so that rows can be added. None if it is missing or
    damaged, or without the library.
    """
    library = _library()
    if library is None:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError), files.hold_lock(alone=False):
        meta = files.read()
        if meta is None or meta.state["matrix"] != matrix:
            return None
        path = files.place(meta.generation) / _FILE
        index = library.read_index(str(path), library.IO_FLAG_MMAP_IFC if mapped else 0)
        if (index.d, index.ntotal) == (dimension, meta.state["rows"]):
            return Graph(library, index)
    return None


def is_behind(graph: Graph | None, rows: int) -> bool:
    """Return whether a matrix of `rows` rows needs a new or an extended graph."""
    return graph is None or rows - graph.rows > _UNSEEN_SHARE * rows


def make(files: LaneFiles, view: View, matrix: str) -> Graph | None:
    """Build a graph of all rows on disk; extend an existing graph. Returns None without the library."""
    library = _library()
    if library is None:
        return None
    dimension = view.matrix.shape[1]
    old_graph = load(files, matrix, dimension, mapped=False)
    index = old_graph._index if old_graph else _create_index(library, _sample(view))
    for start in range(index.ntotal, len(view.matrix), _BLOCK):
        index.add(view.matrix[start : start + _BLOCK])
    state = {"files": [_FILE], "matrix": matrix, "rows": index.ntotal}
    with files.hold_lock(alone=True), files.create_generation() as generation:
        library.write_index(index, str(files.place(generation) / _FILE))
        files.seal(LaneMeta("", generation, state))
    return load(files, matrix, dimension, mapped=True)


def _library() -> Any:
    try:
        import faiss
    except ImportError:
        return None
    return faiss


def _create_index(library: Any, sample: Floats) -> Any:
    """Create a graph without rows. It will store rows in 8 bits, whose range it takes from a sample."""
    eight = library.ScalarQuantizer.QT_8bit
    index = library.IndexHNSWSQ(sample.shape[1], eight, _LINKS, library.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EFFORT
    index.train(sample)
    return index


def _sample(view: View) -> Floats:
    """Return some rows, drawn at random."""
    rows = len(view.matrix)
    return view.matrix[np.sort(np.random.default_rng(rows).permutation(rows)[:_SAMPLED])]
