"""Vectors as text, exactly: each float32 as 8 hex digits, big-endian (1.0 is `3f800000`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

DIGITS = 8  # of one value


def to_hex(vectors: "np.ndarray") -> list[list[str]]:
    """Rows of float32 as lists of 8 hex digits a value."""
    width = vectors.shape[1] * DIGITS
    rows = (row.tobytes().hex() for row in vectors.astype(">f4"))
    return [[row[at : at + DIGITS] for at in range(0, width, DIGITS)] for row in rows]


def from_hex(words: Sequence[str]) -> "np.ndarray":
    """The float32 vector (1-d) of words of 8 hex digits, bit for bit. Finite or not; other words raise `ValueError`."""
    import numpy as np

    return np.frombuffer(bytes.fromhex("".join(words)), ">f4").astype(np.float32)


def from_numbers(numbers: Sequence[float]) -> "np.ndarray":
    """The float32 values (1-d) that are nearest to the numbers; what is too large for float32 becomes infinite."""
    import numpy as np

    with np.errstate(over="ignore"):  # the caller looks for what is not finite
        return np.array(numbers, np.float64).astype(np.float32)
