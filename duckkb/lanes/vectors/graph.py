"""A graph over the rows of a matrix, which finds most of the nearest rows of a vector without reading all rows.

It lies on disk beside the matrix and is mapped. It knows the rows at its creation. The matrix only grows until
it is rebuilt, so later rows are its last rows, few enough to compare all. Making a graph takes minutes for a
million rows; only index jobs do. It only names candidates: their scores come from the matrix.
"""

from contextlib import suppress
from typing import Any

import numpy as np

from duckkb.lanes.files import LaneFiles, LaneMeta
from duckkb.lanes.vectors.cosine import Doubles, Floats, Ints
from duckkb.lanes.vectors.record_vectors import View

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
