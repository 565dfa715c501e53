"""What a value must be to stand for a vector."""

import math
import re
import struct
from typing import Any

LONGEST = 16_384
_HEX = re.compile(r"[0-9a-fA-F]{8}")


def vector_problem(value: Any, dimension: int | None) -> str:
    """Why a value is no vector, as the rest of a sentence; empty where it is one.

    A vector is an array of 1 to 16,384 finite numbers, or of as many texts of 8 hex digits (float32, big-endian, as
    `duckkb embed` prints them), of the length `dimension` where that is given, and not all of them are zero.
    """
    if not isinstance(value, list) or not value:
        return "is not an array of numbers"
    if len(value) > LONGEST:
        return f"has {len(value):,} numbers, more than {LONGEST:,}"
    if dimension and len(value) != dimension:
        return f"has {len(value)} numbers, not {dimension}"
    is_hex = isinstance(value[0], str)
    for at, one in enumerate(value):
        if problem := _hex_problem(one) if is_hex else _number_problem(one):
            return f"{problem} at place {at}"
    if all(int(one, 16) & 0x7FFFFFFF == 0 for one in value) if is_hex else not any(value):
        return "is all zeros, which points nowhere"
    return ""


def _number_problem(one: Any) -> str:
    if type(one) not in (int, float):
        return "has something other than a number"
    if not math.isfinite(one) or abs(one) > 3.4e38:
        return "has a number that float32 cannot hold"
    return ""


def _hex_problem(one: Any) -> str:
    if not isinstance(one, str) or not _HEX.fullmatch(one):
        return "has something other than 8 hex digits"
    (number,) = struct.unpack(">f", bytes.fromhex(one))
    return "" if math.isfinite(number) else "has a number that is not finite"
