"""The field merge of records as source text. It needs the standard library only: git starts it once per file.

Values are copied as they stand and compared as text, which in canonical lines is comparing them. Nothing is written anew
but texts that `x-merge: text` joins and arrays that `x-merge: set` joins from the sources of their elements; `max`, `min`,
`latest` and `ours` take one of the two as it stands.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from math import isfinite
from typing import Any

from duckkb.values import dataclass, field

_ID, _CREATED_AT, _UPDATED_AT = "__id", "__created_at", "__updated_at"
_SPACE = re.compile(r"[ \t\n\r]*")
_TIME = re.compile('"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z"')
_DAY = re.compile("[0-9]{4}(?:-[0-9]{2}){0,2}")
_MOMENT = re.compile(r"([0-9-]{10}T[0-9:]{8})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})")
_UNSEEN = re.compile("[\x7f\x85\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

# Only the extent of a value is wanted; numbers stay text, as Python refuses to convert very long ones.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
_SCAN: Callable[[str, int], tuple[Any, int]] = vars(_DECODER)["scan_once"]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What a merge must know of a table: its identity fields (for the order of keys), `x-merge` by field (`set`, `text`,
    `max`, `min`, `latest` or `ours`; by any other rule both sides' changes conflict), and whether fields are merged
    (`field`) or records (`record`, the way of a table that is not known)."""

    identity: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    granularity: str = "field"

    def of_bases(self) -> "MergeRules":
        """The rules for two merge bases, of which neither is ours."""
        kept = {name: rule for name, rule in self.fields.items() if rule != "ours"}
        return MergeRules(self.identity, kept, self.granularity)


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that both sides changed differently, as source text; None where a side has none.

    `name` is empty where the whole record is in conflict: deleted on one side, or merged by record.
    """

    name: str
    base: bytes | None
    ours: bytes | None
    theirs: bytes | None


@dataclass(frozen=True, slots=True)
class Merged:
    """The line that a merge made, None for a deleted record.

    With conflicts `line` is None too, and `alternatives` holds our line and theirs, each with the other side's clean
    edits (None for the side that deleted the record).
    """

    line: bytes | None
    conflicts: tuple[FieldConflict, ...] = ()
    alternatives: tuple[bytes | None, bytes | None] | None = None


_Field = tuple[str, str]
"""A key and a value, both as source text."""


def merge_record(base: bytes | None, ours: bytes | None, theirs: bytes | None, rules: MergeRules) -> Merged:
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
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    if ours is None or theirs is None or rules.granularity == "record":
        return Merged(None, (FieldConflict("", base, ours, theirs),), (ours, theirs))
    return _merge_fields(split(base) if base is not None else {}, split(ours), split(theirs), rules)


def merge_duplicates(lines: Sequence[bytes], identity: Sequence[str]) -> bytes:
    """One line out of several of the same record, whatever their order.

    Of a field that they hold differently, the line with the latest `__updated_at` that has the field wins (equal times:
    the greater bytes); names that differ in case alone are one field, as no line may have both. `__id` and `__created_at` are the smallest, `__updated_at` the latest.
    """
    versions = sorted(((split(line), line) for line in lines), key=lambda each: (_value(each[0], _UPDATED_AT), each[1]))
    merged: dict[str, _Field] = {}
    spelling: dict[str, str] = {}
    for version, _ in versions:
        for name, field_text in version.items():
            merged.pop(spelling.get(name.casefold(), name), None)
            spelling[name.casefold()] = name
            merged[name] = field_text
    for name in (_ID, _CREATED_AT):
        held = [version[name] for version, _ in versions if name in version]
        if held:
            merged[name] = min(held, key=lambda each: (len(each[1]), each[1]))
    return join(merged, identity)


def split(line: bytes) -> dict[str, _Field]:
    """The fields of an object by name, each as the source text of its key and of its value.

    >>> split(b'{"a":1.50,"b":[1, 2]}')
    {'a': ('"a"', '1.50'), 'b': ('"b"', '[1, 2]')}
    """
    text = line.decode()
    if (compact := _split_compact(text)) is not None:
        return compact
    found: dict[str, _Field] = {}
    at = _after(text, _skip(text, 0), "{")
    if text[at : at + 1] != "}":
        while True:
            name, end = _read(text, at)
            start = _after(text, _skip(text, end), ":")
            stop = _read(text, start)[1]
            if text[at] != '"' or name in found:
                raise ValueError(f"the key {name!r} is no text, or stands twice")
            found[name] = (text[at:end], text[start:stop])
            at = _skip(text, stop)
            if text[at : at + 1] != ",":
                break
            at = _skip(text, at + 1)
    if text[_skip(text, _after(text, at, "}")) :]:
        raise ValueError("something follows the object")
    return found


def _split_compact(text: str) -> dict[str, _Field] | None:
    """As `split`, several times as fast, of an object without blanks around its keys and values; None for any other."""
    found: dict[str, _Field] = {}
    at, stop = 1, 0
    try:
        while text[stop] == (",{"[stop == 0]):
            name, end = _SCAN(text, at)
            stop = _SCAN(text, end + 1)[1]
            if text[at] != '"' or text[end] != ":" or name in found:
                return None
            found[name] = (text[at:end], text[end + 1 : stop])
            at = stop + 1
    except (StopIteration, IndexError, ValueError, RecursionError):
        return None
    return found if text[stop:] == "}" else None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _after(text: str, at: int, mark: str) -> int:
    """The place after a mark that must stand here, and after the space that follows it."""
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} expected at column {at + 1}")
    return _skip(text, at + 1)


def _read(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that starts here, and the place after it."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise ValueError("values are nested too deep") from error


def _value(fields: Mapping[str, _Field], name: str) -> str:
    return fields[name][1] if name in fields else ""


def _merge_fields(
    base: Mapping[str, _Field], ours: Mapping[str, _Field], theirs: Mapping[str, _Field], rules: MergeRules
) -> Merged:
    clean: dict[str, _Field] = {}
    conflicts = []
    later = _later(_value(ours, _UPDATED_AT), _value(theirs, _UPDATED_AT))
    for name in {**base, **ours, **theirs}:
        sides = base.get(name), ours.get(name), theirs.get(name)
        merged, is_clean = _merge_field(name, sides, rules.fields.get(name, ""), later)
        if not is_clean:
            conflicts.append(FieldConflict(name, *(_source(side, name) for side in (base, ours, theirs))))
        elif merged:
            clean[name] = merged
    for name in _alike(clean):
        del clean[name]
        conflicts.append(FieldConflict(name, *(_source(side, name) for side in (base, ours, theirs))))
    if not conflicts:
        return Merged(join(clean, rules.identity))
    names = [conflict.name for conflict in conflicts]
    alternatives = tuple(
        join(clean | {name: side[name] for name in names if name in side}, rules.identity) for side in (ours, theirs)
    )
    return Merged(None, tuple(conflicts), (alternatives[0], alternatives[1]))


def _alike(names: Collection[str]) -> list[str]:
    """The names that differ from another in case alone: each side added its own, and no line may have both."""
    times = Counter(name.casefold() for name in names)
    return [name for name in names if times[name.casefold()] > 1]


def _source(fields: Mapping[str, _Field], name: str) -> bytes | None:
    return fields[name][1].encode() if name in fields else None


def _merge_field(
    name: str, sides: tuple[_Field | None, _Field | None, _Field | None], rule: str, later: str
) -> tuple[_Field | None, bool]:
    """The merged field (None: it is left out), and whether the merge is clean. `sides` are base, ours and theirs, `later`
    names the one whose record was changed later."""
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


def _later(ours: str, theirs: str) -> str:
    """The side whose record was changed later; none where that cannot be told, so that a field of it conflicts."""
    times = [_TIME.fullmatch(time) for time in (ours, theirs)]
    return "" if None in times or ours == theirs else "ours" if ours > theirs else "theirs"


_Rule = Callable[[str | None, str, str], str | None]
"""Joins the source texts of a value (base, ours, theirs); None where they conflict."""


def _latest(base: str | None, ours: str, theirs: str) -> str:
    return max(ours, theirs)


def _earliest(base: str | None, ours: str, theirs: str) -> str:
    return min(ours, theirs)


def _greatest(base: str | None, ours: str, theirs: str) -> str | None:
    return _extreme(ours, theirs, is_greatest=True)


def _least(base: str | None, ours: str, theirs: str) -> str | None:
    return _extreme(ours, theirs, is_greatest=False)


def _extreme(ours: str, theirs: str, *, is_greatest: bool) -> str | None:
    """The greater or the smaller of two numbers, dates or times; None for anything else, as `1.10` and `1.9` have no order
    that could be told from the texts, nor have two values of different kinds."""
    mine, other = _measure(ours), _measure(theirs)
    if mine is None or other is None or mine[0] != other[0]:
        return None
    if mine == other:  # one value, spelled twice
        return min(ours, theirs, key=lambda text: (len(text), text))
    return ours if (mine > other) is is_greatest else theirs


def _measure(text: str) -> tuple[Any, ...] | None:
    """What a value is (a number, a day, a month, a year, a time) and what it is compared by; None for any other."""
    try:
        value = json.loads(text)
        if type(value) in (int, float):
            return ("number", value) if isfinite(value) else None
        if isinstance(value, str) and _DAY.fullmatch(value):
            return len(value), value
        if isinstance(value, str) and (found := _MOMENT.fullmatch(value)):
            from datetime import datetime

            moment, fraction, zone = found.groups()
            return "time", datetime.fromisoformat(moment + zone.upper()), (fraction or "").rstrip("0.")
    except (ValueError, OverflowError, RecursionError):
        pass
    return None


def _merge_set(base: str | None, ours: str, theirs: str) -> str | None:
    """What all have in the base's order, then what either side added, by source text: both directions give one result."""
    lists = [elements(text) for text in (base or "[]", ours, theirs)]
    if lists[1] is None or lists[2] is None:
        return None
    old, mine, other = (dict.fromkeys(elements or ()) for elements in lists)
    kept = [element for element in old if element in mine and element in other]
    added = sorted((mine.keys() | other.keys()) - old.keys())
    return f"[{','.join(kept + added)}]"


def elements(text: str) -> list[str] | None:
    """The elements of an array as source text, None for another value."""
    if not text.startswith("["):
        return None
    found = []
    at = _skip(text, 1)
    while text[at] != "]":
        end = _read(text, at)[1]
        found.append(text[at:end])
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def _merge_text(base: str | None, ours: str, theirs: str) -> str | None:
    """A merge line by line of two strings; None where they overlap, or where a value is no string."""
    texts = [json.loads(text, strict=False) if text.startswith('"') else None for text in (base or '""', ours, theirs)]
    old, mine, other = map(_text_lines, texts)
    if old is None or mine is None or other is None:
        return None
    merged = _merge_lines(old, mine, other)
    if merged is None:
        return None
    written = json.dumps("".join(merged), ensure_ascii=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


_OWN_RULES: Mapping[str, _Rule] = {_UPDATED_AT: _latest, _CREATED_AT: _earliest}
_DECLARED_RULES: Mapping[str, _Rule] = {"set": _merge_set, "text": _merge_text, "max": _greatest, "min": _least}


def _text_lines(text: str | None) -> list[str] | None:
    return None if text is None else re.findall(r"[^\n]*\n|[^\n]+", text)


def _merge_lines(base: list[str], ours: list[str], theirs: list[str]) -> list[str] | None:
    """diff3: between two stretches that all three share, a side that changed nothing yields to the other."""
    merged: list[str] = []
    at_base = at_ours = at_theirs = 0
    for start, mine, other, size in _shared(base, ours, theirs):
        old = base[at_base:start]
        left, right = ours[at_ours:mine], theirs[at_theirs:other]
        if left == right or right == old:
            merged += left
        elif left == old:
            merged += right
        else:
            return None
        merged += base[start : start + size]
        at_base, at_ours, at_theirs = start + size, mine + size, other + size
    return merged


def _shared(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Stretches that all three share: their starts in base, ours and theirs, and their length. The last one is empty."""
    mine = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    other = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    left = right = 0
    while left < len(mine) and right < len(other):
        a, b = mine[left], other[right]
        start, end = max(a.a, b.a), min(a.a + a.size, b.a + b.size)
        if start < end:
            yield start, a.b + start - a.a, b.b + start - b.a, end - start
        if a.a + a.size < b.a + b.size:
            left += 1
        else:
            right += 1
    yield len(base), len(ours), len(theirs), 0


def join(fields: Mapping[str, _Field], identity: Sequence[str]) -> bytes:
    """The line of fields as `split` gives them, in canonical order."""
    rest = sorted(fields.keys() - {_ID, *identity, _CREATED_AT, _UPDATED_AT})
    ordered = [_ID, *identity, *rest, _CREATED_AT, _UPDATED_AT]
    body = ",".join(f"{fields[name][0]}:{fields[name][1]}" for name in ordered if name in fields)
    return f"{{{body}}}".encode()
