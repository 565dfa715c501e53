"""One HTML file with everything in it. It asks no network: a policy in its head forbids it, and every script but its own.

The data is JSON in a block that no browser runs. In it `<` is escaped, so nothing in it can end the block; the script puts
it on the page as text, never as markup.
"""

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duckkb.errors import Finding
from duckkb.review.diff.model import OPS, Diff, FieldChange, Label, Options, Place, RecordChange
from duckkb.review.diff.stat import WORDS
from duckkb.review.diff.values import leaves
from duckkb.review.diff.words import json_words
from duckkb.review.unseen import visible

MOST_CHARACTERS = 100_000_000
"""Of the data of records; a browser opens a page of this size. What does not fit is counted by type."""
_KINDS = {"same": 0, "gone": 1, "new": 2, "cut": 0}
_HERE = Path(__file__).parent


def render(diff: Diff, options: Options) -> Iterator[str]:
    """The page, piece by piece."""
    style, script = (_HERE / "page.css").read_text("utf-8"), (_HERE / "page.js").read_text("utf-8")
    yield _head(f"Knowledge: {_shown(diff.base)} → {_shown(diff.head)}", style, script)
    diff = diff.rooted
    yield f'<script type="application/json" id="data">{{"summary":{_safe(_summary(diff))},"changes":['
    room, comma = MOST_CHARACTERS, ""
    left: Counter[str] = Counter()
    for change in diff.changes:
        told = _safe(_change(change))
        if len(told) > room:
            left[change.type] += 1
            continue
        room -= len(told)
        yield comma + told
        comma = ","
    yield f'],"left":{_safe(dict(left))}}}</script>\n<script>{script}</script>\n</html>'


def _head(title: str, style: str, script: str) -> str:
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page needs JavaScript: its records are shown as they are scrolled to.</p></noscript>
</body>"""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _shown(label: Label) -> str:
    return visible(label.shown).replace("\n", " ")


def _summary(diff: Diff) -> dict[str, Any]:
    return {
        "base": _shown(diff.base),
        "head": _shown(diff.head),
        "words": WORDS,
        "ops": {op: sum(count[op] for count in diff.counts.values()) for op in OPS},
        "types": {name: sum(count.values()) for name, count in diff.counts.items()},
        "respelled": diff.respelled,
        "findings": [_finding(one) for one in sorted(diff.findings, key=lambda one: not one.is_error)],
        "ontology": [[visible(one.what), _field(FieldChange("", one.before, one.after))[2]] for one in diff.ontology],
    }


def _finding(finding: Finding) -> dict[str, str]:
    record = f"{finding.type} {finding.identity}" if finding.type else ""
    told = {"code": finding.code, "place": finding.place, "record": record, "field": finding.field}
    told |= {"message": finding.message, "remedy": finding.remedy}
    return {name: visible(text) for name, text in told.items() if text}


def _change(change: RecordChange) -> dict[str, Any]:
    told = {"op": change.op, "type": change.type, "id": visible(change.identity)}
    told |= {"was": visible(change.was)} if change.was is not None else {}
    shown = [one for one in change.fields if not one.name.startswith("__") or change.op in ("update", "rename")]
    return told | {
        "places": [_place(change.before), _place(change.after)],
        "fields": [row for one in shown for row in _rows(one)],
    }


def _place(place: Place | None) -> str:
    return visible(f"{place.path}:{place.line_no}") if place is not None else ""


def _rows(field: FieldChange) -> Iterator[tuple[str, int, list[tuple[int, str]]]]:
    """A row for each value below a field that differs, by its path."""
    for leaf in leaves(field.name, field.before, field.after):
        yield _field(FieldChange(leaf.pointer[1:], leaf.before, leaf.after))


def _field(field: FieldChange) -> tuple[str, int, list[tuple[int, str]]]:
    """Name, the sides that it has (1 the old, 2 the new, 3 both), and the runs of both."""
    sides = (field.before is not None) + 2 * (field.after is not None)
    runs = [(_KINDS[kind], visible(text)) for kind, text in json_words(field.before, field.after)]
    return visible(field.name), sides, runs


def _safe(value: Any) -> str:
    """JSON that ends no block of HTML."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
