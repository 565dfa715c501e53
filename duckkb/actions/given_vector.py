"""A vector as a caller gives it: a JSON array of numbers, or of the hex digits that `embed` prints."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from duckkb.actions.resolve import regular_file
from duckkb.engine.base import Base
from duckkb.errors import UsageError
from duckkb.llm.vector_form import from_hex, from_numbers
from duckkb.truth.files.line import Limits, LineError, parse_json

if TYPE_CHECKING:
    import numpy as np

MOST_DIMENSIONS = 16_384
_WORD = re.compile("[0-9a-fA-F]{8}")
_SUGGESTION = "give a JSON array of numbers, or of 8 hex digits each as `duckkb embed` prints it"


def vector_input(base: Base, file: str, stdin: BinaryIO | None) -> "np.ndarray":
    """As `read_vector`, of what a file holds, or stdin for `-`."""
    most = base.limits.max_record_bytes
    if file == "-":
        return read_vector(stdin.read(most) if stdin else b"")
    with regular_file(base, Path(file), "a file with a vector").open("rb") as opened:
        return read_vector(opened.read(most))


def read_vector(data: bytes) -> "np.ndarray":
    """float32, 1-d, 1 to 16,384 values, finite and not all zeros; hex comes back bit for bit.

    Raises `errors.UsageError` that names the first value that is wrong, counted from 1.
    """
    values = _array(data)
    is_hex = isinstance(values[0], str)
    for place, value in enumerate(values, 1):
        if flaw := _flaw(value, is_hex):
            raise _refusal(f"value {place} of the vector {flaw}")
    vector = from_hex(values) if is_hex else from_numbers(values)
    finite = abs(vector) < float("inf")  # false for NaN too
    if not finite.all():
        place = int(finite.argmin()) + 1
        flaw = "is not a finite number" if is_hex else "is too large for float32"
        raise _refusal(f"value {place} of the vector {flaw}")
    if not vector.any():
        raise _refusal("the vector has nothing but zeros, which point nowhere")
    return vector


def _array(data: bytes) -> list[Any]:
    if not data.strip():
        raise _refusal("there is no vector: the input is empty")
    try:
        values = parse_json(data, Limits())
    except LineError as error:
        first = error.findings[0]
        place = f"value {int(first.field[1:]) + 1}: " if first.field[1:].isdecimal() else ""
        raise _refusal(f"the vector cannot be read: {place}{first.message}") from error
    if not isinstance(values, list):
        raise _refusal("a vector is a JSON array")
    if not 0 < len(values) <= MOST_DIMENSIONS:
        raise _refusal(f"a vector has 1 to {MOST_DIMENSIONS:,} values; this one has {len(values):,}")
    return values


def _flaw(value: object, is_hex: bool) -> str:
    """What is wrong with one value, for vectors of hex or of numbers; empty where nothing is."""
    if isinstance(value, str):
        if not is_hex:
            return "is a string, while the first is a number"
        return "" if _WORD.fullmatch(value) else "is not 8 hex digits"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "is neither a number nor 8 hex digits"
    return "is a number, while the first is a string" if is_hex else ""


def _refusal(message: str) -> UsageError:
    return UsageError(message, suggestion=_SUGGESTION)
