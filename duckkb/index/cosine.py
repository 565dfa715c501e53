"""Cosines between a vector and the rows of a matrix: a fast product picks candidates, an exact product scores
them.

A copy of a matrix in 8 bits: bounds of cosines, which rule out nearly all rows for a quarter of the bytes.

A row u of unit length lies beside a direction m that all rows have in common (models put their vectors into a narrow cone),
a direction of at most unit length. The copy has of each row

    b    how far it goes along m, and what is left of it, w = u - b m
    r s  w rounded: 127 levels of either sign, r, times a scale, s
    e    at least the length of what rounding lost, |w - r s|

A question q, of unit length, is cut in the same way: q = g m + v, where g m is its part along m, and v = p t + f with the
levels p. So u q = b (m q) + w q, and as m is at right angles to w, w q = w v = (r p) s t + (r s) f + (w - r s) v. Of this the copy
knows

    the middle  b (m q) + (r p) s t,  where r p is a sum of whole numbers
    the doubt   e |v| + (1 + e) |f|   by Cauchy and Schwarz the most that the other two terms can be, as |r s| <= |w| + e

and u q lies between middle - doubt and middle + doubt, but for what floats lose on the way. b, a float32, is off by at most
2^-24 |b|, so that w and m are at right angles but for 6e-8. The middle takes seven roundings to float32 of numbers below 1.3 (of
t, m q, s t, b (m q), r p where it is 2^24 or more, the product and the sum), the doubt four of numbers below .8, and adding both
one: each loses 2^-24 of its number, so together less than 1.5e-6. e is enlarged by more than was lost in computing it; s is what
it is stored as. With the length of a row, which is 1 but for 2.5e-6, and cosines that are rounded to six
decimals, the error in comparing two rows is below 2 x (1.5 + 2.5 + .5) = 9e-6, of which `cosine.candidates` allows 2e-5.

https://en.wikipedia.org/wiki/Cauchy-Schwarz_inequality. The kernel is that of numkong, in whichever instructions the processor has."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duckkb.types.errors import UsageError

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


Kernel = Callable[[NDArray[np.int8], NDArray[np.int8], Floats], object]
"""Writes the products of rows of levels (rows, dimension) with the levels of a query (dimension) to (rows, 1)."""

LARGEST_DIMENSION = 32_768
"""So many products of two levels and a byte's offset fit into the 32 bits in which kernels sum them."""
_LEVELS = 127
_BOUNDS_BLOCK = 1024  # rows that are rounded at a time: they stay in the processor's cache
_BOUNDS_STRETCH = 16_384  # rows that one thread multiplies at a time
_ABOVE = 1 + 1e-6  # above the relative error of rounding a number to 32 bits
_LEAST = np.float32(1e-6)  # above the length of the error of subtracting in a unit row in 32 bits


def common_direction(unit: Floats) -> Floats:
    """Return the mean of rows of unit length (zeros do no harm), scaled to unit length; zeros where it has none."""
    mean = unit.mean(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    direction: Floats = (mean / length if length > 1e-9 else np.zeros_like(mean)).astype(np.float32)
    return direction


def round_rows(unit: Floats, common: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Round rows of unit length, or zero, to what the copy has: r, int8 of (rows, dimension), and (b, s, e) of each."""
    copy, numbers = np.empty(unit.shape, np.int8), np.empty((len(unit), 3), np.float32)
    square = float(np.square(common, dtype=np.float64).sum()) or 1.0
    for start in range(0, len(unit), _BOUNDS_BLOCK):
        part = slice(start, start + _BOUNDS_BLOCK)
        b, s, e = numbers[part].T
        b[:] = np.einsum("ij,j->i", unit[part], common, dtype=np.float64) / square
        residual = unit[part] - b[:, None] * common
        np.abs(residual).max(axis=1, out=s)
        s /= _LEVELS
        levels = np.divide(residual, s[:, None], out=np.zeros_like(residual), where=s[:, None] > 0)
        np.rint(levels, out=levels).clip(-_LEVELS, _LEVELS, out=levels)
        copy[part] = levels
        levels *= s[:, None]
        residual -= levels
        # Numbers are off by 2^-24 of what they were taken from; summing squares may lose 2^-24 of the sum at each step.
        e[:] = (
            np.sqrt(np.einsum("ij,ij->i", residual, residual)) * np.float32(1 + residual.shape[1] * 2.0**-23) + _LEAST
        )
    return copy, numbers


class Int8Query(NamedTuple):
    """A query in 8 bits. Its part along a common direction gives the product `along`. The rest, of length `left`,
    is `levels` times `scale`, plus what rounding `lost` (a length).
    """

    levels: NDArray[np.int8]
    scale: float
    along: float
    left: float
    lost: float

    @classmethod
    def quantize(cls, query: Doubles, common: Floats) -> "Int8Query":
        direction = common.astype(np.float64)
        along = float(query @ direction)
        residual = query - along / (float(direction @ direction) or 1.0) * direction
        scale = float(np.abs(residual).max()) / _LEVELS or 1.0
        levels = np.rint(residual / scale).clip(-_LEVELS, _LEVELS)
        loss = float(np.linalg.norm(residual - scale * levels))
        return cls(levels.astype(np.int8), scale, along, float(np.linalg.norm(residual)) * _ABOVE, loss * _ABOVE + 1e-9)


class Int8Rows(NamedTuple):
    """Rows in 8 bits: `levels` of shape (rows, dimension), `numbers` (b, s, e) of each, and the direction in common."""

    levels: NDArray[np.int8]
    numbers: Floats
    common: Floats

    def take(self, rows: Ints) -> "Int8Rows":
        return self._replace(levels=self.levels[rows], numbers=self.numbers[rows])

    def bounds(self, query: Doubles) -> tuple[Floats, Floats] | None:
        """Return the least and the most that the cosine of each row with a question of unit length can be; None
        without a kernel."""
        multiply, int8_query = kernel(), Int8Query.quantize(query, self.common)
        if multiply is None:
            return None
        least, most = np.empty((len(self.levels), 1), np.float32), np.empty(len(self.levels), np.float32)
        along, scale, doubt_scale, loss = np.array(
            (int8_query.along, int8_query.scale, int8_query.left + int8_query.lost, int8_query.lost), np.float32
        )

        def fill(part: slice) -> None:
            numbers, middle = self.numbers[part], least[part, 0]
            multiply(self.levels[part], int8_query.levels, least[part])
            middle *= numbers[:, 1] * scale
            middle += numbers[:, 0] * along
            doubt = numbers[:, 2] * doubt_scale
            doubt += loss
            np.add(middle, doubt, out=most[part])
            middle -= doubt  # from here on `middle` is the lower bound

        if self.levels.size < LARGE:
            fill(slice(0, len(self.levels)))
        else:
            run_in_threads(len(self.levels), fill, _BOUNDS_STRETCH)
        return least[:, 0], most


def is_kernel_installed() -> bool:
    """Return whether a kernel can use such a copy here; imports nothing."""
    return find_spec("numkong") is not None


@cache
def kernel() -> Kernel | None:
    """Return the function that multiplies levels on this machine; None if it is missing or wrong."""
    try:
        import numkong

        def multiply(levels: NDArray[np.int8], query_levels: NDArray[np.int8], out: Floats) -> None:
            numkong.cdist(levels, query_levels[None], "dot", out=out)

        return multiply if _is_right(multiply) else None
    except Exception:  # without a kernel all rows are compared; no failure of it may stop a query
        return None


def _is_right(multiply: Kernel) -> bool:
    """Return whether a kernel multiplies sample levels, including the largest of either sign, as numpy does."""
    draw = np.random.default_rng(1)
    for dimension in (1, 63, 384, 1000):
        rows, products = draw.integers(-_LEVELS, _LEVELS, (37, dimension), np.int8, True), np.empty((37, 1), np.float32)
        rows[:2] = [[-_LEVELS], [_LEVELS]]
        for query_levels in (rows[5], rows[0]):
            multiply(rows, query_levels, products)
            if not np.array_equal(products[:, 0], rows.astype(np.int64) @ query_levels.astype(np.int64)):
                return False
    return True
