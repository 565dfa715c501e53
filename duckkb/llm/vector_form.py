"""Vectors as exact text: each float32 as 8 hex digits, big-endian (1.0 is `3f800000`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

DIGITS = 8  # of one value


def to_hex(vectors: "np.ndarray") -> list[list[str]]:
    """Return rows of float32 as lists of 8 hex digits a value."""
    width = vectors.shape[1] * DIGITS
    rows = (row.tobytes().hex() for row in vectors.astype(">f4"))
    return [[row[at : at + DIGITS] for at in range(0, width, DIGITS)] for row in rows]


def from_hex(words: Sequence[str]) -> "np.ndarray":
    """Return the float32 vector (1-d) of words of 8 hex digits, bit for bit, finite or not.

    Other words raise `ValueError`.
    """
    import numpy as np

    return np.frombuffer(bytes.fromhex("".join(words)), ">f4").astype(np.float32)


def from_numbers(numbers: Sequence[float]) -> "np.ndarray":
    """Return the float32 values (1-d) nearest to the numbers; those too large for float32 become infinite."""
    import numpy as np

    with np.errstate(over="ignore"):  # the caller checks for infinite values
        return np.array(numbers, np.float64).astype(np.float32)
