"""The HTML page of conflicts: each side's value of a field, a choice for each, and the command or answers to carry
out.

Nothing is sent anywhere; `duckkb resolve` takes what the page prints.

Invisible characters are shown as escapes. The output names each conflict by its `etag`, so that an answer is
valid for what the page showed alone. It contains nothing, in JSON or in a command, that a terminal would
interpret.
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
from duckkb.review.reports.html import KINDS, convert_finding, document, safe
from duckkb.rules.invisible import invisible_in, visible
from duckkb.truth.files.source_text import split

MOST_CHARACTERS = 100_000_000
"""Characters of the conflicts' data that a browser can open. What exceeds them is counted by type."""
_SCRIPT = Path(__file__).parent / "page.js"
_OURS = {
    "rebase": "Ours is the branch rebased onto, theirs the commit that is put on it.",
    "revert": "Ours is HEAD, theirs what it was before the commit that is reverted.",
    "": "Ours is what is checked out, theirs what is put on it.",
}


def render(left: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    """Yield the page in pieces."""
    yield from document(f"Conflicts: {left.operation or 'records'}", _render_data(left, violations), _SCRIPT)


def _render_data(resolution: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    name_counts = Counter(_iter_names(resolution.conflicts))
    summary = {
        "operation": resolution.operation,
        "sides": _OURS.get(resolution.operation, "Ours is HEAD, theirs what is merged into it."),
        "types": Counter(item.type for item in resolution.conflicts),
        "violations": [convert_finding(item) for item in violations],
        "unreadable": list(map(visible, resolution.unreadable)),
        "others": list(map(visible, resolution.others)),
    }
    yield f'{{"summary":{safe(summary)},"conflicts":['
    room, comma = MOST_CHARACTERS, ""
    omitted_counts: Counter[str] = Counter()
    for item in resolution.conflicts:
        text = safe(_describe_conflict(item, is_alone=name_counts[item.selector] == 1))
        room -= len(text)
        if room < 0:
            omitted_counts[item.type] += 1
            continue
        yield comma + text
        comma = ","
    yield f'],"left":{safe(omitted_counts)}}}'


def _iter_names(conflicts: Iterable[OpenConflict]) -> Iterator[str]:
    """Yield every name that a selector on the command line may have."""
    for conflict in conflicts:
        yield conflict.selector
        if conflict.field:
            yield f"{conflict.type}:{conflict.identity}"


def _describe_conflict(conflict: OpenConflict, *, is_alone: bool) -> dict[str, Any]:
    is_plain = next(invisible_in(conflict.selector), None) is None and conflict.selector.isprintable()
    values = [_format_value(conflict, source) for source in (conflict.base, conflict.ours, conflict.theirs)]
    key_fields = {"type": conflict.type, "identity": conflict.identity, "field": conflict.field, "etag": conflict.etag}
    return {
        "type": conflict.type,
        "id": visible(conflict.identity),
        "field": visible(conflict.field),
        "path": visible(conflict.path),
        "selector": conflict.selector if is_alone and is_plain else None,
        "head": json.dumps(key_fields, separators=(",", ":"))[1:-1],
        "sides": [None if text is None else _mark_runs(values[0], text) for text in values],
        "edit": _edit(conflict),
    }


def _mark_runs(base: str | None, value: str) -> list[tuple[int, str]]:
    """Mark what a value has beyond the base; unmarked where there is no base."""
    runs = json_words(base if base is not None else value, value)
    return [(KINDS[kind], visible(text)) for kind, text in runs if kind != "gone"]


def _format_value(conflict: OpenConflict, source: str | None) -> str | None:
    """Return JSON of a field as it stands; of a whole record one field a line, without duckkb's own fields."""
    if source is None or conflict.field:
        return source
    fields = split(source.encode())
    lines = [f"  {key}: {value}" for name, (key, value) in fields.items() if name not in (ID, CREATED_AT, UPDATED_AT)]
    return "{\n" + ",\n".join(lines) + "\n}"


def _edit(conflict: OpenConflict) -> dict[str, str]:
    """Return the initial text of an edit.

    It is the text itself where all sides are texts that a browser's field keeps unchanged, else JSON with
    invisible characters escaped.
    """
    begin = _format_value(conflict, conflict.ours if conflict.ours is not None else conflict.theirs) or ""
    if conflict.field and is_edited_as_text((conflict.base, conflict.ours, conflict.theirs)):
        return {"as": "text", "begin": json.loads(begin, strict=False)}
    return {"as": "json" if conflict.field else "record", "begin": _escape_source(begin)}


def _escape_source(source: str) -> str:
    pieces, behind = [], 0
    for at, character in invisible_in(source):
        pieces += [source[behind:at], json.dumps(character)[1:-1]]
        behind = at + 1
    return "".join([*pieces, source[behind:]])
