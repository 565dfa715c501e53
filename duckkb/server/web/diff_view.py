"""The change of a record as pages show it: by field, with removed and new words, and the context of changes in
long texts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from duckkb.review.record_changes import Run, keep_near_changes, words
from duckkb.review.report_markup import cut
from duckkb.types.invisible_characters import visible

LONGEST = 4_000
"""Characters of a value compared word by word, from the first difference on; the rest is counted."""
_CONTEXT = 400
_LONGEST_NAME = 200
_MOST_FIELDS, _MOST_INSIDE = 60, 40
ABSENT = object()
"""The value of a side that lacks it."""


class ValueDifference(Struct, frozen=True):
    """A value that differs, by its path in the record.

    It is markup of either side (empty where a side lacks it) and of both in one text. `rest`: characters that
    are not shown.
    """

    field: str
    path: str
    old: Markup
    new: Markup
    joined: Markup
    rest: int = 0


class ChangedRecord(Struct, frozen=True):
    """A record that changed.

    `op` is insert, update, rename or delete, `was` its former identity; `title` and `context` represent it;
    `mark` names both of its versions. `side` is the one (LEFT or RIGHT, as on forges) whose line is at `path`,
    `line`. `rest`: values that are not shown.
    """

    op: str
    type: str
    identity: str
    was: str
    title: str
    context: Sequence[str]
    differences: Sequence[ValueDifference]
    rest: int
    path: str
    line: int
    side: str
    etag: str
    mark: str


def build_changed_record(line: Mapping[str, Any]) -> ChangedRecord:
    """Build the record of a change as `diff` returns it."""
    values = list(_iter_values(line["fields"]))
    after, before = line["after"], line["before"]
    place, identity = after or before, line["identity"]
    title, *context = map(_cut_text, line["display"].values() or [identity])
    return ChangedRecord(
        line["op"],
        line["type"],
        identity,
        line.get("was", ""),
        title,
        context,
        [difference(*value) for value in values[:_MOST_FIELDS]],
        max(0, len(values) - _MOST_FIELDS),
        place["path"],
        place["line"],
        "RIGHT" if after else "LEFT",
        place["etag"],
        "-".join(side["etag"] if side else "" for side in (before, after)),
    )


def difference(field: str, path: str, before: Any, after: Any) -> ValueDifference:
    """Compare two values of JSON, `ABSENT` where a side has none."""
    runs, hidden_count = _compare_texts(_format_value(before), _format_value(after))
    old = _mark_runs(runs, ("same", "gone", "cut")) if before is not ABSENT else Markup("")
    new = _mark_runs(runs, ("same", "new", "cut")) if after is not ABSENT else Markup("")
    return ValueDifference(field, path, old, new, _mark_runs(runs, ("same", "gone", "new", "cut")), hidden_count)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[list[ValueDifference], list[str]]:
    """Return the differences between two versions of a record, and the names of its equal fields.

    Fields of duckkb's own are left out.
    """
    names = [name for name in dict.fromkeys([*old, *new]) if not name.startswith("_")]
    same = [
        name for name in names if name in old and name in new and _format_value(old[name]) == _format_value(new[name])
    ]
    differing_names = [name for name in names if name not in same]
    return [difference(name, name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in differing_names], same


def version(changes: Sequence[Mapping[str, Any]], number: int) -> dict[str, Any]:
    """Return a record as the change with this number left it; `changes` are all of its changes, newest first, as
    in `log`.
    """
    values: dict[str, Any] = {}
    for change in reversed(changes[number:]):
        for name, sides in change["fields"].items():
            if "after" in sides:
                values[name] = sides["after"]
            else:
                values.pop(name, None)
        if change["op"] == "delete":
            values = {}
    return values


def mark_changes(base: str, value: str) -> Markup:
    """Mark what a text has beyond a former one."""
    runs, _ = _compare_texts(base, value)
    return _mark_runs(runs, ("same", "new", "cut"))


def _iter_values(fields: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield each field that differs, or what differs inside it, by its path."""
    for field in fields:
        name = field["name"]
        if name.startswith("__"):
            continue
        inside = field.get("inside", ())
        for detail in inside[:_MOST_INSIDE]:
            path, sides = detail["path"][1:], (detail.get("before", ABSENT), detail.get("after", ABSENT))
            list_of, _, index = path.rpartition("/")
            yield name, list_of if ABSENT in sides and index.isdecimal() else path, *sides
        if not inside or len(inside) > _MOST_INSIDE:
            yield name, name, field.get("before", ABSENT), field.get("after", ABSENT)


def _cut_text(value: Any) -> str:
    return cut(_format_value(value), _LONGEST_NAME)


def _format_value(value: Any) -> str:
    if value is ABSENT:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _compare_texts(old: str, new: str) -> tuple[list[Run], int]:
    """Return the runs around the differences, and the number of characters left out behind them.

    Equal text at both ends costs no comparison, however long it is.
    """
    head = _count_common(old, new)
    start, most = max(0, head - _CONTEXT), min(len(old), len(new)) - head
    tail = max(0, _count_common(old[len(old) - most :][::-1], new[len(new) - most :][::-1]) - _CONTEXT)
    parts = [text[start : len(text) - tail] for text in (old, new)]
    hidden_count = max(0, max(map(len, parts)) - LONGEST)
    runs = keep_near_changes(words(*(part[:LONGEST] for part in parts)), 120)
    return [
        *([Run("cut", old[:start])] if start else []),
        *runs,
        *([Run("cut", old[len(old) - tail :])] if tail else []),
    ], hidden_count


def _count_common(first: str, second: str) -> int:
    """Count the equal characters at the beginning.

    >>> _count_common("abcx", "abcyz"), _count_common("", "a"), _count_common("ab", "ab")
    (3, 0, 2)
    """
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _mark_runs(runs: Sequence[Run], kinds: Sequence[str]) -> Markup:
    templates = {"same": Markup("{}"), "gone": Markup("<del>{}</del>"), "new": Markup("<ins>{}</ins>")}
    return Markup("").join(
        Markup('<span class="cut">…</span>') if run.kind == "cut" else templates[run.kind].format(visible(run.text))
        for run in runs
        if run.kind in kinds
    )
