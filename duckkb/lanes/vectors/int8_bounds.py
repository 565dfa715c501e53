"""A copy of a matrix in 8 bits: bounds of cosines, which rule out nearly all rows for a quarter of the bytes.

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

https://en.wikipedia.org/wiki/Cauchy-Schwarz_inequality. The kernel is that of numkong, in whichever instructions the processor has.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duckkb.lanes.vectors.cosine import LARGE, Doubles, Floats, Ints, run_in_threads

Kernel = Callable[[NDArray[np.int8], NDArray[np.int8], Floats], object]
"""Writes the products of rows of levels (rows, dimension) with the levels of a query (dimension) to (rows, 1)."""

LARGEST_DIMENSION = 32_768
"""So many products of two levels and a byte's offset fit into the 32 bits in which kernels sum them."""
_LEVELS = 127
_BLOCK = 1024  # rows that are rounded at a time: they stay in the processor's cache
_STRETCH = 16_384  # rows that one thread multiplies at a time
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
    for start in range(0, len(unit), _BLOCK):
        part = slice(start, start + _BLOCK)
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
            run_in_threads(len(self.levels), fill, _STRETCH)
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
