"""A difference as JSON for programs, as docs/diff.schema.json defines it."""

from collections.abc import Iterator
from typing import Any

from duckkb.errors import Finding
from duckkb.review.diff.model import Diff, DiffOptions, FieldChange, OntologyChange, RecordChange, RecordPlace
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import leaves
from duckkb.review.reports.findings import judge_findings, list_group_objects
from duckkb.review.reports.markup import dumps

VERSION = 1


def iter_json(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield one object on one line, with as many findings and changes as fit; `next` says how to continue."""
    counts = summary(diff)
    errors, warnings = (counts["summary"][name] for name in ("errors", "warnings"))
    outcome = judge_findings(errors, warnings, fail_on=options.fail_on, is_judged=diff.is_judged)
    page = EntryPage(diff, options)
    head = page.spend(dumps({"version": counts.pop("version"), "outcome": outcome, **counts}))[1:-1]
    first = {
        "ontology": [_describe_ontology_change(item) for item in diff.ontology],
        "groups": list_group_objects(diff.findings),
    }
    body = page.spend(dumps(first if page.is_first else {"ontology": [], "groups": []}))[1:-1]
    findings = ",".join(page.fit(page.findings, lambda item: dumps(_to_finding_object(item))))
    changes = ",".join(page.fit(page.changes, change_text)) if page.told >= len(diff.findings) else ""
    tail = dumps({"truncated": bool(page.left), "next": page.next_object})[1:-1]
    yield f'{{{head},"changes":[{changes}],{body},"findings":[{findings}],{tail}}}'


def iter_lines(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield one object a line: its `entry` is `ontology`, `finding` or `change`.

    Where more is to come, the last one is `next`, with the command that continues.
    """
    page = EntryPage(diff, options)
    for item in diff.ontology if page.is_first else ():
        yield page.spend(dumps({"entry": "ontology", **_describe_ontology_change(item)}))
    yield from page.fit(page.findings, lambda item: dumps({"entry": "finding", **_to_finding_object(item)}))
    if page.told >= len(diff.findings):
        yield from page.fit(page.changes, lambda change: f'{{"entry":"change",{change_text(change)[1:]}')
    if page.left:
        yield dumps({"entry": "next", **(page.next_object or {})})


def summary(diff: Diff) -> dict[str, Any]:
    """Return the part before the changes: the versions, and all counts."""
    numbers = diff.numbers
    return {
        "version": VERSION,
        "base": diff.base.as_object,
        "head": diff.head.as_object,
        "prefix": diff.prefix,
        "summary": numbers.totals
        | {"parts": diff.parts, "respelled": diff.respelled, "moved": len(diff.moves), "ontology": len(diff.ontology)}
        | {"errors": diff.errors, "warnings": len(diff.findings) - diff.errors},
        "types": {name: dict(count) for name, count in numbers.counts.items()},
    }


def change_text(change: RecordChange) -> str:
    """Return a change as JSON text. Values are copied from the lines, so that no number is rewritten."""
    head: dict[str, Any] = {"kind": change.kind, "type": change.type, "table": change.table, "id": change.id}
    head |= {"op": change.op, "identity": change.identity}
    head |= {"was": change.was} if change.was is not None else {}
    display = ",".join(f"{dumps(name)}:{source}" for name, source in change.shown.items())
    fields = ",".join(map(_format_field, change.fields))
    places = {"before": _place(change.before), "after": _place(change.after)}
    return f'{dumps(head)[:-1]},"display":{{{display}}},"fields":[{fields}],{dumps(places)[1:]}'


def _format_field(field: FieldChange) -> str:
    return f'{{"name":{dumps(field.name)}{_format_sides(field.before, field.after)}{_format_leaves(field)}}}'


def _format_sides(before: str | None, after: str | None) -> str:
    return "".join(f',"{side}":{text}' for side, text in (("before", before), ("after", after)) if text is not None)


def _format_leaves(field: FieldChange) -> str:
    """Return each value that differs by its JSON pointer, where both sides have an object or a list."""
    changed_leaves = [leaf for leaf in leaves(field.name, field.before, field.after) if len(leaf.keys) > 1]
    text = ",".join(
        f'{{"path":{dumps(leaf.pointer)}{_format_sides(leaf.before, leaf.after)}}}' for leaf in changed_leaves
    )
    return f',"inside":[{text}]' if text else ""


def _place(place: RecordPlace | None) -> dict[str, Any] | None:
    return {"path": place.path, "line": place.line_no, "etag": place.etag} if place is not None else None


def _describe_ontology_change(change: OntologyChange) -> dict[str, Any]:
    sides = (("before", change.before), ("after", change.after))
    return {"what": change.what, **{side: text for side, text in sides if text is not None}, "path": change.path}


def _to_finding_object(finding: Finding) -> dict[str, Any]:
    description = {
        "code": finding.code,
        "severity": "error" if finding.is_error else "warning",
        "message": finding.message,
    }
    more = {"path": finding.path, "line": finding.line, "field": finding.field, "type": finding.type}
    more |= {"identity": finding.identity, "remedy": finding.remedy}
    return description | {name: value for name, value in more.items() if value}
