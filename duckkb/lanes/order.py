"""Orders the records of a lane: by score, and by identity if scores are indistinguishable."""

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Scored = tuple[float, int]
"""A score and the id of the record that has it."""


def best_first(scored: Sequence[Scored], depth: int, identity: Callable[[int], Any], slack: float) -> list[Scored]:
    """Return the first `depth` of records in falling order of score, ties by `identity(id)`.

    Two neighbours tie when they differ by no more than `slack` of the greater one: the order in which an engine
    adds up 32-bit floats would otherwise decide between equal texts. Tied records share the score of their
    first, rounded to six decimals, so that a longer list starts with the shorter one.

    >>> best_first([(2.0, 7), (1.0, 9), (1.0, 8)], 2, lambda id: id, 0.0)
    [(2.0, 7), (1.0, 8)]
    """
    best_records: list[Scored] = []
    start, count = 0, len(scored)
    while start < count and (missing_count := depth - len(best_records)) > 0:
        upper, record_id = scored[start]
        end, score = start + 1, round(upper, 6)
        while end < count and upper - (lower := scored[end][0]) <= slack * abs(upper):
            end, upper = end + 1, lower
        if end == start + 1:  # a record without a tie needs no identity
            best_records.append((score, record_id))
        else:
            ids = [record_id for _, record_id in scored[start:end]]
            best_records += [
                (score, record_id) for record_id in heapq.nsmallest(min(missing_count, len(ids)), ids, key=identity)
            ]
        start = end
    return best_records


def is_settled(scored: Sequence[Scored], depth: int, slack: float) -> bool:
    """Return whether records after these cannot belong among the first `depth`: some tie ends at `depth` or later."""
    return any(not _is_tie(upper[0], lower[0], slack) for upper, lower in pairwise(scored[max(depth - 1, 0) :]))


def _is_tie(upper: float, lower: float, slack: float) -> bool:
    return upper - lower <= slack * abs(upper)
