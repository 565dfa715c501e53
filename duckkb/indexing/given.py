"""Vectors that stand in the records themselves: features, or what another model made of something."""

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duckkb.entries import IndexEntry
from duckkb.ontology.vectors import vector_problem
from duckkb.records import Record

if TYPE_CHECKING:
    import numpy as np

Made = Sequence[tuple[IndexEntry, ...]]


def with_given(dimensions: Mapping[str, int], records: Sequence[Record], made: Made) -> list[tuple[IndexEntry, ...]]:
    """The entries of each record and, behind them, one for each vector that the record gives: without text, float32 of
    unit length. A value that is no vector, or not as long as `dimensions` says of its field, has none; `check` reports
    it."""
    entries = list(made)
    for name, dimension in dimensions.items():
        for at, record in enumerate(records):
            vector = _unit(record.fields.get(name), dimension)
            if vector is not None:
                entries[at] = (*entries[at], IndexEntry(name, 0, "", vector=vector))
    return entries


def _unit(value: Any, dimension: int) -> "np.ndarray | None":
    import numpy as np

    if vector_problem(value, dimension):
        return None
    numbers = np.array(floats(value), np.float64)
    numbers /= np.abs(numbers).max()  # so that the squares of very large or small ones stay finite
    unit: np.ndarray = (numbers / np.sqrt(numbers @ numbers)).astype(np.float32)
    return unit


def floats(value: Sequence[Any]) -> list[float]:
    """The numbers of a sound vector, given as numbers or as 8 hex digits each (float32, big-endian)."""
    if isinstance(value[0], str):
        found: list[float] = list(struct.unpack(f">{len(value)}f", bytes.fromhex("".join(value))))
        return found
    return [float(number) for number in value]
