"""Conflicts on one page: what each side has of a field, a choice for each, and the command or the file of answers that
carries the choices out. Nothing is sent anywhere; `duckkb resolve` takes what the page prints.

What is shown has unseen characters as escapes. What is printed names each conflict by its `etag`, so that an answer is for
what stood on the page alone, and holds nothing in JSON or in a command that a terminal would obey.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from duckkb.errors import Finding
from duckkb.records import CREATED_AT, ID, UPDATED_AT
from duckkb.review.diff.words import json_words
from duckkb.review.merging.conflicts import OpenConflict, is_edited_as_text
from duckkb.review.merging.resolve import Resolved
from duckkb.review.reports.html import KINDS, document, finding, safe
from duckkb.rules.invisible import invisible_in, visible
from duckkb.truth.files.source_text import split

MOST_CHARACTERS = 100_000_000
"""Of the data of conflicts; a browser opens a page of this size. What does not fit is counted by type."""
_SCRIPT = Path(__file__).parent / "page.js"
_OURS = {
    "rebase": "Ours is the branch rebased onto, theirs the commit that is put on it.",
    "revert": "Ours is HEAD, theirs what it was before the commit that is reverted.",
    "": "Ours is what is checked out, theirs what is put on it.",
}


def render(left: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    """The page, piece by piece."""
    yield from document(f"Conflicts: {left.operation or 'records'}", _data(left, violations), _SCRIPT)


def _data(left: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    named = Counter(_names(left.conflicts))
    summary = {
        "operation": left.operation,
        "sides": _OURS.get(left.operation, "Ours is HEAD, theirs what is merged into it."),
        "types": Counter(one.type for one in left.conflicts),
        "violations": [finding(one) for one in violations],
        "unreadable": list(map(visible, left.unreadable)),
        "others": list(map(visible, left.others)),
    }
    yield f'{{"summary":{safe(summary)},"conflicts":['
    room, comma = MOST_CHARACTERS, ""
    lost: Counter[str] = Counter()
    for one in left.conflicts:
        told = safe(_conflict(one, is_alone=named[one.selector] == 1))
        room -= len(told)
        if room < 0:
            lost[one.type] += 1
            continue
        yield comma + told
        comma = ","
    yield f'],"left":{safe(lost)}}}'


def _names(conflicts: Iterable[OpenConflict]) -> Iterator[str]:
    """Everything that a selector on the command line may mean."""
    for one in conflicts:
        yield one.selector
        if one.field:
            yield f"{one.type}:{one.identity}"


def _conflict(one: OpenConflict, *, is_alone: bool) -> dict[str, Any]:
    is_plain = next(invisible_in(one.selector), None) is None and one.selector.isprintable()
    values = [_value(one, source) for source in (one.base, one.ours, one.theirs)]
    told = {"type": one.type, "identity": one.identity, "field": one.field, "etag": one.etag}
    return {
        "type": one.type,
        "id": visible(one.identity),
        "field": visible(one.field),
        "path": visible(one.path),
        "selector": one.selector if is_alone and is_plain else None,
        "head": json.dumps(told, separators=(",", ":"))[1:-1],
        "sides": [None if text is None else _runs(values[0], text) for text in values],
        "edit": _edit(one),
    }


def _runs(base: str | None, value: str) -> list[tuple[int, str]]:
    """A value with what it has that the base does not have marked; unmarked where there is no base."""
    runs = json_words(base if base is not None else value, value)
    return [(KINDS[kind], visible(text)) for kind, text in runs if kind != "gone"]


def _value(one: OpenConflict, source: str | None) -> str | None:
    """JSON of a field as it stands; of a whole record a line a field, without what duckkb itself writes."""
    if source is None or one.field:
        return source
    fields = split(source.encode())
    shown = [f"  {key}: {value}" for name, (key, value) in fields.items() if name not in (ID, CREATED_AT, UPDATED_AT)]
    return "{\n" + ",\n".join(shown) + "\n}"


def _edit(one: OpenConflict) -> dict[str, str]:
    """What an edit begins with: the text itself where all sides are texts that a browser's field keeps as they are, else
    JSON, in which what is not seen stands as an escape."""
    begin = _value(one, one.ours if one.ours is not None else one.theirs) or ""
    if one.field and is_edited_as_text((one.base, one.ours, one.theirs)):
        return {"as": "text", "begin": json.loads(begin, strict=False)}
    return {"as": "json" if one.field else "record", "begin": _escaped(begin)}


def _escaped(source: str) -> str:
    pieces, behind = [], 0
    for at, character in invisible_in(source):
        pieces += [source[behind:at], json.dumps(character)[1:-1]]
        behind = at + 1
    return "".join([*pieces, source[behind:]])
