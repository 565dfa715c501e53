"""Which condition of a filter takes the last record, for who finds nothing."""

import re
from collections.abc import Callable


def describe_last_condition(where: str, count_records: Callable[[str], int]) -> tuple[str, str]:
    """Return what a search without results says, and the filter without the condition that takes the last record.

    `count_records` counts those that satisfy a filter. The filter is empty where a single condition finds nothing.
    """
    conditions = split_conditions(where)
    for at in range(len(conditions) - 1, 0, -1):
        before = " AND ".join(conditions[:at])
        if count := count_records(before):
            return f"no results: of {count:,} with {before} none has {conditions[at]}", before
    return "no results", ""


def split_conditions(condition: str) -> list[str]:
    """Return the conditions that `AND` joins, outside of texts and brackets; the whole where it has `OR`.

    >>> split_conditions("a = 'x AND y' AND b BETWEEN 1 AND 2 AND (c OR d)")
    ["a = 'x AND y'", 'b BETWEEN 1 AND 2', '(c OR d)']
    """
    depth, pieces = 0, [""]
    for word in re.findall(r"'(?:[^']|'')*'|\w+|\s+|.", condition, re.DOTALL):
        depth += {"(": 1, ")": -1}.get(word, 0)
        is_between = re.search(r"(?i)\bbetween\s+[^\s]+\s+$", pieces[-1]) is not None
        if word.lower() == "or" and depth == 0:
            return [condition]
        if word.lower() == "and" and depth == 0 and not is_between:
            pieces.append("")
        else:
            pieces[-1] += word
    return [piece.strip() for piece in pieces]
