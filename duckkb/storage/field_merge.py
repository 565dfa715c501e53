"""Merges records field by field as source text. It needs only the standard library: git starts it once per file.

Values are copied unchanged and compared as text, which is exact in canonical lines. Only two rules build new
values: `x-merge: text` joins texts, and `x-merge: set` joins arrays from the sources of their elements; `max`,
`min`, `latest` and `ours` take one of the two values unchanged.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import Match, SequenceMatcher
from itertools import takewhile
from math import isfinite
from typing import Any

from msgspec import Struct

from duckkb.storage.source_text import Field, elements, join, split, text_of

_MOST_PAIRS = 1_000_000
"""The most pairs of equal lines of two texts that are compared singly."""
_ID, _CREATED_AT, _UPDATED_AT = "__id", "__created_at", "__updated_at"
_TIME = re.compile('"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z"')
_DAY = re.compile("[0-9]{4}(?:-[0-9]{2}){0,2}")
_MOMENT = re.compile(r"([0-9-]{10}T[0-9:]{8})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})")
_UNSEEN = re.compile("[\x7f\x85\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class MergeRules(Struct, frozen=True):
    """The merge rules of a table. `identity` gives the order of keys. `x-merge` by field is `set`, `text`, `max`,
    `min`, `latest` or `ours`; under any other rule changes on both sides conflict. A table merges fields
    (`field`) or whole records (`record`, always for a table that is not `known`). `name` is the type's, or the
    table's if the type is unknown.
    """

    identity: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}
    granularity: str = "field"
    name: str = ""
    known: bool = True

    def make_base_rules(self) -> "MergeRules":
        """Return the rules for merging two merge bases, neither of which is ours."""
        fields = {name: rule for name, rule in self.fields.items() if rule != "ours"}
        return MergeRules(self.identity, fields, self.granularity, self.name, self.known)


class MergedRecord(Struct, frozen=True):
    """The line that a merge made, None for a deleted record. If fields conflict there is no line. Then `conflicts`
    names them; an empty name stands for the whole record (deleted on one side, or merged by record).
    `alternatives` are our line and theirs, each already with the other's clean edits (None for the side that
    deleted the record).
    """

    line: bytes | None
    conflicts: tuple[str, ...] = ()
    alternatives: tuple[bytes | None, bytes | None] | None = None


def merge_record(base: bytes | None, ours: bytes | None, theirs: bytes | None, rules: MergeRules) -> MergedRecord:
    """Merge one record of three versions of a file, None where a version lacks it. Lines come and go without LF.

    | base | ours | theirs | result                          |
    |------|------|--------|---------------------------------|
    | x    | x    | y      | y                               |
    | x    | y    | y      | y                               |
    | x    | y    | z      | field merge                     |
    | x    | -    | x      | deleted                         |
    | x    | -    | y      | conflict                        |
    | -    | y    | -      | y                               |
    | -    | y    | z      | field merge with an empty base  |

    Raises ValueError for a line that is not one JSON object with each key once.
    """
    if ours == theirs or theirs == base:
        return MergedRecord(ours)
    if ours == base:
        return MergedRecord(theirs)
    if ours is None or theirs is None or rules.granularity == "record":
        return MergedRecord(None, ("",), (ours, theirs))
    return _merge_fields(split(base) if base is not None else {}, split(ours), split(theirs), rules)


def _merge_fields(
    base: Mapping[str, Field], ours: Mapping[str, Field], theirs: Mapping[str, Field], rules: MergeRules
) -> MergedRecord:
    clean: dict[str, Field] = {}
    conflicts = []
    later = _pick_later_side(text_of(ours, _UPDATED_AT), text_of(theirs, _UPDATED_AT))
    for name in {**base, **ours, **theirs}:
        sides = base.get(name), ours.get(name), theirs.get(name)
        field, is_clean = _merge_field(name, sides, rules.fields.get(name, ""), later)
        if not is_clean:
            conflicts.append(name)
        elif field:
            clean[name] = field
    for name in _find_case_twins(clean):
        del clean[name]
        conflicts.append(name)
    if not conflicts:
        return MergedRecord(join(clean, rules.identity))
    mine, their_line = (
        join(clean | {name: side[name] for name in conflicts if name in side}, rules.identity)
        for side in (ours, theirs)
    )
    return MergedRecord(None, tuple(conflicts), (mine, their_line))


def _find_case_twins(names: Collection[str]) -> list[str]:
    """Return the names that differ from another only in case: each side added its own, and no line may have both."""
    times = Counter(name.casefold() for name in names)
    return [name for name in names if times[name.casefold()] > 1]


def _merge_field(
    name: str, sides: tuple[Field | None, Field | None, Field | None], rule: str, later: str
) -> tuple[Field | None, bool]:
    """Return the merged field (None: left out), and whether the merge is clean. `sides` are base, ours and theirs;
    `later` names the side whose record was changed later.
    """
    base, ours, theirs = sides
    if ours == theirs or theirs == base:
        return ours, True
    if ours == base:
        return theirs, True
    if rule == "ours" or (rule == "latest" and later):
        return (theirs if rule == "latest" and later == "theirs" else ours), True
    if ours is None or theirs is None:
        return None, False
    join = _OWN_RULES.get(name) or _DECLARED_RULES.get(rule)
    value = join(base[1] if base else None, ours[1], theirs[1]) if join else None
    return (ours[0], value or ""), value is not None


def _pick_later_side(ours: str, theirs: str) -> str:
    """Return the side whose record was changed later; none if that is unknown, so that a field of it conflicts."""
    times = [_TIME.fullmatch(time) for time in (ours, theirs)]
    return "" if None in times or ours == theirs else "ours" if ours > theirs else "theirs"


_Rule = Callable[[str | None, str, str], str | None]
"""Joins the source texts of a value (base, ours, theirs); None if they conflict."""


def _pick_extreme(ours: str, theirs: str, *, is_greatest: bool) -> str | None:
    """Return the greater or the smaller of two numbers, dates or times. Returns None for anything else: `1.10` and
    `1.9` have no certain order as texts, nor have two values of different kinds.
    """
    mine, their_measure = _measure(ours), _measure(theirs)
    if mine is None or their_measure is None or mine[0] != their_measure[0]:
        return None
    if mine == their_measure:  # one value, spelled twice
        return min(ours, theirs, key=lambda text: (len(text), text))
    return ours if (mine > their_measure) is is_greatest else theirs


def _measure(text: str) -> tuple[Any, ...] | None:
    """Return a value's kind (a number, a day, a month, a year, a time) and its sort key; None for any other value."""
    try:
        value = json.loads(text)
        if type(value) in (int, float):
            return ("number", value) if isfinite(value) else None
        if isinstance(value, str) and _DAY.fullmatch(value):
            return len(value), value
        if isinstance(value, str) and (match := _MOMENT.fullmatch(value)):
            from datetime import datetime

            moment, fraction, zone = match.groups()
            return "time", datetime.fromisoformat(moment + zone.upper()), (fraction or "").rstrip("0.")
    except (ValueError, OverflowError, RecursionError):
        pass
    return None


def _merge_set(base: str | None, ours: str, theirs: str) -> str | None:
    """Keep the common elements in the base's order, then add each side's new elements, by source text. Both
    directions of a merge give the same result.
    """
    lists = [elements(text) for text in (base or "[]", ours, theirs)]
    if lists[1] is None or lists[2] is None:
        return None
    old, mine, their_elements = (dict.fromkeys(elements or ()) for elements in lists)
    common_elements = [element for element in old if element in mine and element in their_elements]
    new_elements = sorted((mine.keys() | their_elements.keys()) - old.keys())
    return f"[{','.join(common_elements + new_elements)}]"


def _merge_text(base: str | None, ours: str, theirs: str) -> str | None:
    """Merge two strings line by line; None if the changes overlap, or if a value is not a string."""
    texts = [json.loads(text, strict=False) if text.startswith('"') else None for text in (base or '""', ours, theirs)]
    old, mine, their_lines = map(_split_text, texts)
    if old is None or mine is None or their_lines is None:
        return None
    lines = _merge_lines(old, mine, their_lines)
    if lines is None:
        return None
    literal = json.dumps("".join(lines), ensure_ascii=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", literal)


_OWN_RULES: Mapping[str, _Rule] = {
    _UPDATED_AT: lambda _, ours, theirs: max(ours, theirs),
    _CREATED_AT: lambda _, ours, theirs: min(ours, theirs),
}
_DECLARED_RULES: Mapping[str, _Rule] = {
    "set": _merge_set,
    "text": _merge_text,
    "max": lambda _, ours, theirs: _pick_extreme(ours, theirs, is_greatest=True),
    "min": lambda _, ours, theirs: _pick_extreme(ours, theirs, is_greatest=False),
}


def _split_text(text: str | None) -> list[str] | None:
    return None if text is None else re.findall(r"[^\n]*\n|[^\n]+", text)


def _merge_lines(base: list[str], ours: list[str], theirs: list[str]) -> list[str] | None:
    """Merge by diff3: between two stretches that all three share, a side without changes yields to the other."""
    lines: list[str] = []
    at_base = at_ours = at_theirs = 0
    for start, mine, their_start, size in _iter_common_stretches(base, ours, theirs):
        old = base[at_base:start]
        left, right = ours[at_ours:mine], theirs[at_theirs:their_start]
        if left == right or right == old:
            lines += left
        elif left == old:
            lines += right
        else:
            return None
        lines += base[start : start + size]
        at_base, at_ours, at_theirs = start + size, mine + size, their_start + size
    return lines


def _find_matches(base: list[str], side: list[str]) -> list[Match]:
    """Return the stretches that two texts share, in order; the last is empty. Equal beginnings and ends always
    count. Between them, frequent lines are ignored if comparing each pair of them would take minutes.
    """
    start = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(base, side, strict=False)))
    left, right = base[start:], side[start:]
    backwards = zip(reversed(left), reversed(right), strict=False)
    end = sum(1 for _ in takewhile(lambda both: both[0] == both[1], backwards))
    left, right = left[: len(left) - end], right[: len(right) - end]
    is_junk = _count_pairs(left, right) > _MOST_PAIRS
    inner = SequenceMatcher(None, left, right, autojunk=is_junk).get_matching_blocks()[:-1]
    matches = [Match(0, 0, start), *(Match(match.a + start, match.b + start, match.size) for match in inner)]
    matches.append(Match(len(base) - end, len(side) - end, end))
    return [*(match for match in matches if match.size), Match(len(base), len(side), 0)]


def _count_pairs(some: list[str], other_lines: list[str]) -> int:
    """Count the pairs of equal lines."""
    counts = Counter(other_lines)
    return sum(counts[line] for line in some)


def _iter_common_stretches(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the stretches that all three share: their starts in base, ours and theirs, and their length. The last
    is empty.
    """
    mine, their_matches = _find_matches(base, ours), _find_matches(base, theirs)
    left = right = 0
    while left < len(mine) and right < len(their_matches):
        a, b = mine[left], their_matches[right]
        start, end = max(a.a, b.a), min(a.a + a.size, b.a + b.size)
        if start < end:
            yield start, a.b + start - a.a, b.b + start - b.a, end - start
        if a.a + a.size < b.a + b.size:
            left += 1
        else:
            right += 1
    yield len(base), len(ours), len(theirs), 0
