"""The HTML page of a difference: records are drawn as they are scrolled to, with filters and search."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from duckkb.review.diff.model import WORDS, Diff, DiffOptions, Label, RecordChange, RecordPlace
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import Leaf, leaves
from duckkb.review.reports.findings import summarize_groups
from duckkb.review.reports.html import KINDS, convert_finding, document, safe
from duckkb.review.reports.markup import cut
from duckkb.rules.invisible import visible

_LONGEST_NAME = 120
_SCRIPT = Path(__file__).parent / "page.js"


def render(diff: Diff, options: DiffOptions, judged: tuple[str, Sequence[str]] = ("", ())) -> Iterator[str]:
    """Yield the page in pieces.

    `judged` is a headline for the whole, and the effect of the change on search, in lines.
    """
    title = f"Knowledge: {_format_label(diff.base)} → {_format_label(diff.head)}"
    yield from document(title, _render_data(diff.rooted, options, judged), _SCRIPT)


def _render_data(diff: Diff, options: DiffOptions, judgement: tuple[str, Sequence[str]]) -> Iterator[str]:
    page = EntryPage(diff, options)
    page.tell_findings()
    headline, impact = judgement
    texts = {"headline": visible(headline), "impact": [visible(line) for line in impact]}
    yield f'{{"summary":{safe(_summarize_diff(diff, options) | texts)},"changes":['
    comma = ""
    for piece in page.fit(page.changes, lambda change: safe(_change(change, options))):
        yield comma + piece
        comma = ","
    remaining_counts = Counter(change.type for change in page.changes)
    yield f'],"left":{safe(dict(remaining_counts))},"next":{safe(visible(page.next))}}}'


def _format_label(label: Label) -> str:
    return visible(label.shown).replace("\n", " ")


def _summarize_diff(diff: Diff, options: DiffOptions) -> dict[str, Any]:
    links = options.links
    return {
        "commits": [links.commit(is_old=True), links.commit(is_old=False)] if links else ["", ""],
        "base": _format_label(diff.base),
        "head": _format_label(diff.head),
        "words": WORDS,
        "ops": diff.numbers.totals,
        "types": {name: sum(count.values()) for name, count in diff.counts.items()},
        "respelled": diff.respelled,
        "findings": [
            convert_finding(item)
            for item in sorted(summarize_groups(diff.findings), key=lambda item: not item.is_error)
        ],
        "ontology": [[visible(item.what), _build_row(Leaf((), item.before, item.after))[2]] for item in diff.ontology],
    }


def _change(change: RecordChange, options: DiffOptions) -> dict[str, Any]:
    entry = {"op": change.op, "type": change.type, "id": visible(change.identity)}
    entry |= {"was": visible(change.was)} if change.was is not None else {}
    shown_fields = [
        field for field in change.fields if not field.name.startswith("__") or change.op in ("update", "rename")
    ]
    return entry | {
        "shown": [_to_plain_text(source) for source in change.shown.values()],
        "places": [_place(change.before), _place(change.after)],
        "links": [
            options.links.line(place.path, place.line_no, is_old=is_old) if options.links and place else ""
            for place, is_old in ((change.before, True), (change.after, False))
        ],
        "fields": [
            _build_row(leaf) for field in shown_fields for leaf in leaves(field.name, field.before, field.after)
        ],
    }


def _place(place: RecordPlace | None) -> str:
    return visible(f"{place.path}:{place.line_no}") if place is not None else ""


def _to_plain_text(source: str) -> str:
    """Return a value as readable text, cut to the room of a heading."""
    value = json.loads(source)
    return visible(cut(value if isinstance(value, str) else source, _LONGEST_NAME))


def _build_row(leaf: Leaf) -> tuple[str, int, list[tuple[int, str]]]:
    """Return a value that differs: its path, its sides (1 the old, 2 the new, 3 both), and the runs of both."""
    sides = (leaf.before is not None) + 2 * (leaf.after is not None)
    return visible(leaf.pointer[1:]), sides, [(KINDS[kind], visible(text)) for kind, text in leaf.runs()]
