"""Cosines between a vector and the rows of a matrix: a fast product picks candidates, an exact product scores
them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckkb.errors import UsageError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_DECIMALS = 6
DOUBT = 2e-5  # above the error of a 32-bit product of two unit vectors, rounding included
_SURE = 1e-6  # the distance from 1 up to which a squared length, summed in 32 bits, certainly counts as 1
_STRETCH = 64  # products per stretch, whose greatest is examined first
_BLOCK = 4096  # rows that are widened to 64 bits at a time, or that one thread multiplies
LARGE = 12 << 20
"""The size of a matrix, in numbers, from which on several threads multiply it."""
_threads = 8  # at most, of one product


def unit_query(vector: NDArray[Any] | Sequence[float]) -> Doubles:
    """Scale the vector to length 1; raises `UsageError` if that is impossible."""
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


def candidates(products: Floats, starts: Ints, alive: Mask, depth: int, upper: Floats | None = None) -> Ints:
    """Return every slot that may be among the first `depth`, by inexact products. With `upper`, `products` and
    `upper` are the lower and upper bounds of each product. A slot is a stretch of rows that begins at one of
    `starts`.
    """
    count = min(depth, int(np.count_nonzero(alive)))
    if count == 0:
        return np.empty(0, np.int64)
    least = _find_slot_maxima(products, starts, alive)
    most = least if upper is None else _find_slot_maxima(upper, starts, alive)
    return np.flatnonzero(most >= _find_nth_greatest(least, count) - np.float32(DOUBT))


def _find_slot_maxima(products: Floats, starts: Ints, alive: Mask) -> Floats:
    """Return the greatest product of each slot that is alive."""
    best: Floats = products if len(starts) == len(products) else np.maximum.reduceat(products, starts)
    return best if alive.all() else np.where(alive, best, np.float32(-np.inf))


def _find_nth_greatest(values: Floats, place: int) -> np.float32:
    """Return the value at this place, from 1, of the values in falling order. The `place` stretches with the
    greatest maxima hold at least `place` values that are no less than the least of these maxima, so the value
    lies in one of them.
    """
    stretches = values[: len(values) // _STRETCH * _STRETCH].reshape(-1, _STRETCH)
    if len(stretches) > 2 * place:
        tops = stretches.max(axis=1)
        near = stretches[tops >= np.partition(tops, len(tops) - place)[len(tops) - place]]
        values = np.concatenate((near.ravel(), values[stretches.size :]))
    value: np.float32 = np.partition(values, len(values) - place)[len(values) - place]
    return value


def multiply_rows(matrix: Floats, query: Doubles) -> Floats:
    """Return the product of every row with a vector, in 32 bits."""
    narrow = query.astype(np.float32)
    if matrix.size < LARGE:
        whole: Floats = matrix @ narrow
        return whole
    products = np.empty(len(matrix), np.float32)
    run_in_threads(len(matrix), lambda part: np.einsum("ij,j->i", matrix[part], narrow, out=products[part]))
    return products


def run_in_threads(rows: int, work: Callable[[slice], object], stretch: int = _BLOCK) -> None:
    """Process all rows, `stretch` of them at a time, in as many threads as there are cores; raise the errors of
    `work`.

    Such work waits for memory, and a single core cannot use the whole bandwidth. (BLAS has threads of its own,
    but for a matrix larger than the caches each of them needs twice as long for such a product as `einsum`.)
    """
    from concurrent.futures import ThreadPoolExecutor

    parts = iter([slice(start, start + stretch) for start in range(0, rows, stretch)])

    def take_turns() -> None:
        for part in parts:  # a free thread takes the next part
            work(part)

    threads = min(_count_cores(), _threads) - 1
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        try:
            futures = [pool.submit(take_turns) for _ in range(threads)]
        except RuntimeError:  # no more threads here
            futures = []
        take_turns()
        for future in futures:
            future.result()


def use_one_thread() -> None:
    """Multiply in a single thread from now on in this process, because sibling processes use the other cores."""
    global _threads
    _threads = 1


def _count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def exact_cosines(matrix: NDArray[Any], query: Doubles) -> Doubles:
    """Return cosines summed row by row in 64 bits, so that equal rows have equal cosines wherever they stand."""
    cosines = []
    for start in range(0, len(matrix), _BLOCK):
        block = matrix[start : start + _BLOCK].astype(np.float64)
        lengths = np.sqrt((block * block).sum(axis=1))
        products = (block * query).sum(axis=1)
        cosines.append(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))
    return np.concatenate(cosines).round(_DECIMALS) + 0.0  # no negative zero


def make_unit(rows: Floats) -> None:
    """Scale in place all rows that are not of unit length; a zero row stays, and its cosine with anything is 0."""
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        doubtful = np.flatnonzero(~(np.abs(np.einsum("ij,ij->i", block, block) - 1) <= _SURE))
        if not len(doubtful):
            continue
        doubtful_rows = block[doubtful]
        lengths = np.sqrt(np.square(doubtful_rows, dtype=np.float64).sum(axis=1))
        off = (np.abs(lengths - 1) > DOUBT / 8) & (lengths > 0)
        block[doubtful[off]] = doubtful_rows[off] / lengths[off, None]
