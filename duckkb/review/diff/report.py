"""A difference as JSON for programs: docs/diff.schema.json says what stands where."""

from collections.abc import Iterator
from typing import Any

from duckkb.errors import Finding
from duckkb.review.diff.model import Diff, DiffOptions, FieldChange, OntologyChange, RecordChange, RecordPlace
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import leaves
from duckkb.review.reports.findings import as_objects, of_findings
from duckkb.review.reports.markup import dumps

VERSION = 1


def as_json(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """One object on one line: of findings and changes as many as fit, `next` says how to go on."""
    counts = summary(diff)
    errors, warnings = (counts["summary"][name] for name in ("errors", "warnings"))
    ended = of_findings(errors, warnings, fail_on=options.fail_on, is_judged=diff.is_judged)
    page = EntryPage(diff, options)
    head = page.spend(dumps({"version": counts.pop("version"), "outcome": ended, **counts}))[1:-1]
    first = {"ontology": [_ontology(one) for one in diff.ontology], "groups": as_objects(diff.findings)}
    told = page.spend(dumps(first if page.is_first else {"ontology": [], "groups": []}))[1:-1]
    findings = ",".join(page.fit(page.findings, lambda one: dumps(_finding(one))))
    changes = ",".join(page.fit(page.changes, change_text)) if page.told >= len(diff.findings) else ""
    rest = dumps({"truncated": bool(page.left), "next": page.next_object})[1:-1]
    yield f'{{{head},"changes":[{changes}],{told},"findings":[{findings}],{rest}}}'


def as_lines(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """An object a line: each has an `entry` that says what it is, `ontology`, `finding` or `change`; where more is to come
    the last one is `next`, with the command that goes on."""
    page = EntryPage(diff, options)
    for one in diff.ontology if page.is_first else ():
        yield page.spend(dumps({"entry": "ontology", **_ontology(one)}))
    yield from page.fit(page.findings, lambda one: dumps({"entry": "finding", **_finding(one)}))
    if page.told >= len(diff.findings):
        yield from page.fit(page.changes, lambda change: f'{{"entry":"change",{change_text(change)[1:]}')
    if page.left:
        yield dumps({"entry": "next", **(page.next_object or {})})


def summary(diff: Diff) -> dict[str, Any]:
    """What stands before the changes: which versions, and how much of what."""
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
    """A change as JSON text. Values are copied as they stand in the lines, so that no number is written anew."""
    head: dict[str, Any] = {"kind": change.kind, "type": change.type, "table": change.table, "id": change.id}
    head |= {"op": change.op, "identity": change.identity}
    head |= {"was": change.was} if change.was is not None else {}
    display = ",".join(f"{dumps(name)}:{source}" for name, source in change.shown.items())
    fields = ",".join(map(_field, change.fields))
    places = {"before": _place(change.before), "after": _place(change.after)}
    return f'{dumps(head)[:-1]},"display":{{{display}}},"fields":[{fields}],{dumps(places)[1:]}'


def _field(field: FieldChange) -> str:
    return f'{{"name":{dumps(field.name)}{_sides(field.before, field.after)}{_inside(field)}}}'


def _sides(before: str | None, after: str | None) -> str:
    return "".join(f',"{side}":{text}' for side, text in (("before", before), ("after", after)) if text is not None)


def _inside(field: FieldChange) -> str:
    """Where both sides have an object or a list: each value in it that differs, by its JSON pointer."""
    found = [leaf for leaf in leaves(field.name, field.before, field.after) if len(leaf.keys) > 1]
    told = ",".join(f'{{"path":{dumps(leaf.pointer)}{_sides(leaf.before, leaf.after)}}}' for leaf in found)
    return f',"inside":[{told}]' if told else ""


def _place(place: RecordPlace | None) -> dict[str, Any] | None:
    return {"path": place.path, "line": place.line_no, "etag": place.etag} if place is not None else None


def _ontology(change: OntologyChange) -> dict[str, Any]:
    sides = (("before", change.before), ("after", change.after))
    return {"what": change.what, **{side: text for side, text in sides if text is not None}, "path": change.path}


def _finding(finding: Finding) -> dict[str, Any]:
    found = {"code": finding.code, "severity": "error" if finding.is_error else "warning", "message": finding.message}
    more = {"path": finding.path, "line": finding.line, "field": finding.field, "type": finding.type}
    more |= {"identity": finding.identity, "remedy": finding.remedy}
    return found | {name: value for name, value in more.items() if value}
