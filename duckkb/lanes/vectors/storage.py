"""Rows of a matrix as they are stored: 32-bit floats, or narrower numbers, which lose a little of them; and how much that is.

A narrow row is known up to its length, which is all that a cosine asks for: a row is its stored numbers times its scale.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckkb.lanes.vectors.cosine import Doubles, Floats, Ints
from duckkb.settings import VectorStorage

Stored = NDArray[Any]
"""Rows of float32, float16 or int8."""

DTYPES: dict[VectorStorage, type[np.float32 | np.float16 | np.int8]] = {
    "float32": np.float32,
    "float16": np.float16,
    "int8": np.int8,
}
QUESTIONS, DEPTH = 100, 10
"""Of a measurement: how much of what is nearest to questions that lie near to stored vectors is found."""
LARGE = 12 << 20
"""Numbers of a matrix from which on several threads multiply it."""
_AWAY = 0.5  # length of the step that leads from a vector to a question: 27 degrees
_DECIMALS = 6
_threads = 8  # at most, of one product
_STRETCH = 4096  # rows that one of them takes at a time
_BLOCK = 1024  # rows that are widened at a time: they stay in the processor's cache
_HALF_BIAS = np.float32(2.0**112)  # how much a 16-bit float grows by when its bits are read as those of a 32-bit one
_HALF_BITS = np.int32(-0x70000001)  # all but the copies that widening made of the sign


def packed(unit: Floats, storage: VectorStorage) -> tuple[Stored, Floats]:
    """Rows of unit length as they are stored, and their scales; a zero row has the scale 0."""
    if storage == "float16":
        stored = unit.astype(np.float16)
    elif storage == "int8":
        largest = np.abs(unit).max(axis=1, keepdims=True, initial=0.0)
        stored = np.rint(unit * np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)).astype(np.int8)
    else:
        return unit, np.ones(len(unit), np.float32)
    lengths = np.sqrt(np.square(stored, dtype=np.float64).sum(axis=1))
    scales = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return stored, scales.astype(np.float32)


def products(matrix: Stored, scales: Floats | None, query: Doubles) -> Floats:
    """The product of every row with a vector, in 32 bits. `scales` is None for rows that are stored as they are."""
    narrow = query.astype(np.float32)
    if scales is None and matrix.size < LARGE:
        whole: Floats = matrix @ narrow
        return whole
    found = np.empty(len(matrix), np.float32)
    if scales is None:
        shared(len(matrix), lambda own: np.einsum("ij,j->i", matrix[own], narrow, out=found[own]))
        return found
    if matrix.dtype == np.float16:
        narrow = narrow * _HALF_BIAS
    for start, block in _widened(matrix):
        np.matmul(block, narrow, out=found[start : start + len(block)])
    found *= scales
    return found


def shared(rows: int, work: Callable[[slice], object], stretch: int = _STRETCH) -> None:
    """Do some work on all rows, stretch by stretch, in as many threads as there are cores; raises what it raises.

    What this is for waits for memory, and one core cannot ask for as much as there is. (BLAS has threads of its own, but
    where a matrix does not fit into the caches one of them needs twice as long for such a product as `einsum`.)
    """
    from concurrent.futures import ThreadPoolExecutor

    left = iter([slice(start, start + stretch) for start in range(0, rows, stretch)])

    def take_turns() -> None:
        for own in left:  # whoever is free takes the next one
            work(own)

    threads = min(_cores(), _threads) - 1
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        try:
            others = [pool.submit(take_turns) for _ in range(threads)]
        except RuntimeError:  # no more threads here
            others = []
        take_turns()
        for other in others:
            other.result()


def use_one_thread() -> None:
    """From now on, in this process: others of its kind use the other cores."""
    global _threads
    _threads = 1


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unit_blocks(matrix: Stored, scales: Floats | None) -> Iterator[tuple[int, Floats]]:
    """The rows with unit length as 32-bit floats, some at a time, with the number of the first. They hold until the next."""
    if scales is None:
        for start in range(0, len(matrix), _BLOCK):
            yield start, matrix[start : start + _BLOCK].astype(np.float32, copy=False)
        return
    grown = _HALF_BIAS if matrix.dtype == np.float16 else np.float32(1)
    for start, block in _widened(matrix):
        block *= scales[start : start + len(block), None] * grown
        yield start, block


def _widened(matrix: Stored) -> Iterator[tuple[int, Floats]]:
    """Blocks of narrow rows in 32 bits. Those of 16-bit floats are by `_HALF_BIAS` too small: moving their bits to where a
    32-bit float has them costs a tenth of what converting them does."""
    buffer = np.empty((min(_BLOCK, len(matrix)), matrix.shape[1]), np.float32)
    bits = buffer.view(np.int32)
    for start in range(0, len(matrix), _BLOCK):
        part = matrix[start : start + _BLOCK]
        count = len(part)
        if part.dtype == np.float16:
            bits[:count] = part.view(np.int16)
            bits[:count] <<= 13
            bits[:count] &= _HALF_BITS
        else:
            buffer[:count] = part
        yield start, buffer[:count]


def questions(unit: Floats) -> Floats:
    """At most `QUESTIONS` of these vectors, each moved by 27 degrees in a direction of its own; equal vectors give equal
    questions."""
    draw = np.random.default_rng(len(unit))
    chosen = np.sort(draw.permutation(len(unit))[:QUESTIONS])
    steps = draw.standard_normal((len(chosen), unit.shape[1]))
    steps *= _AWAY / np.linalg.norm(steps, axis=1, keepdims=True)
    made = unit[chosen] + steps
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    found: Floats = (made / lengths).astype(np.float32)
    return found


class Nearest:
    """The `DEPTH` rows nearest to each question among those that were shown; of equally near ones the first."""

    def __init__(self, asked: Floats) -> None:
        self.asked = asked
        self._scores = np.full((len(asked), DEPTH), -np.inf, np.float32)
        self._rows = np.full((len(asked), DEPTH), -1, np.int64)

    def show(self, unit: Floats, first: int) -> None:
        """Rows of unit length; the first of them has this number. Numbers rise from one call to the next."""
        for start in range(0, len(unit), _STRETCH):
            self._show(unit[start : start + _STRETCH], first + start)

    def _show(self, unit: Floats, first: int) -> None:
        scores = (self.asked @ unit.T).round(_DECIMALS)
        near = np.flatnonzero((scores > self._scores[:, -1:]).any(axis=0))
        if not len(near):
            return
        scores = np.hstack((self._scores, scores[:, near]))
        rows = np.hstack((self._rows, np.broadcast_to(first + near, (len(scores), len(near)))))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
        self._scores = np.take_along_axis(scores, best, axis=1)
        self._rows = np.take_along_axis(rows, best, axis=1)

    @property
    def rows(self) -> list[Ints]:
        """By question, best first."""
        return [found[found >= 0] for found in self._rows]


def nearest(asked: Floats, matrix: Stored, scales: Floats | None) -> list[Ints]:
    """By question, the `DEPTH` rows of a stored matrix that are nearest to it."""
    found = Nearest(asked)
    for start, block in unit_blocks(matrix, scales):
        found.show(block, start)
    return found.rows


def recall(found: list[Ints], right: list[Ints]) -> float:
    """The share of what is right that was found, over all questions; 1 where nothing was to be found."""
    hits = sum(len(np.intersect1d(one, other)) for one, other in zip(found, right, strict=True))
    return round(hits / (sum(map(len, right)) or 1), 4) if any(map(len, right)) else 1.0
