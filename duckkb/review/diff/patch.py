"""A difference as a patch: a header line, then one line a record with its lines of both sides as in the files.

    {"duckkb_patch":1,"base":{"name":"main","commit":"…"},"head":{…},"records":1}
    {"op":"update","type":"Note","identity":"a","before":{"path":"data/…","line":"{…}"},"after":{…}}

An `insert` has no `before`, a `delete` no `after`; a `move` has one line in two parts. Changes of config.yaml
and ontology/ are not part of a patch.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckkb.codes import CODES
from duckkb.engine.draft import Apply
from duckkb.errors import Finding, InvalidRecord, Unreadable
from duckkb.ontology.model import Ontology
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Change, Changeset, Record
from duckkb.review.diff.model import Diff, DiffOptions, RecordChange, RecordPlace
from duckkb.review.reports.markup import dumps
from duckkb.truth.files.line import Limits, LineError, LineShape, decode, parse_objects
from duckkb.truth.files.part import record_of
from duckkb.truth.layout import parse_part

VERSION = 1
_KEPT = ("E_NOT_CANONICAL", "E_INCOMPLETE", "E_UNEXPECTED_FILE", "E_ID_CHANGED", "E_MISPLACED")
"""Faults of a version that a patch can reproduce."""

_ROOM = 13
"""Factor by which a line of a patch may be longer than a record's: it has two, and a character may become six."""


def render(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield the lines of the patch. Raises `errors.Unreadable` where it would lose lines of the newer version."""
    lost_findings = [
        finding for finding in diff.findings if finding.is_error and finding.path and finding.code not in _KEPT
    ]
    if lost_findings:
        raise Unreadable(
            f"{len(lost_findings)} places of {diff.head.shown} are not records; a patch would omit them",
            suggestion="correct the lines named, then repeat",
            findings=tuple(lost_findings),
        )
    steps = [step for change in (*diff.changes, *diff.moves) for step in _iter_steps(change)]
    head = {"duckkb_patch": VERSION, "base": diff.base.as_object, "head": diff.head.as_object, "records": len(steps)}
    yield dumps(head)
    for op, kind, identity, before, after in steps:
        yield dumps({"op": op, "type": kind, "identity": identity} | _build_places(before, after))


def parse(data: bytes, ontology: Ontology, limits: Limits, *, reverse: bool = False) -> Apply:
    """Parse a patch, or with `reverse` its inverse, into a request of the engine: every old side must be as
    stored.

    A record that stays in its part in the patch stays where it is found. Raises `errors.InvalidRecord`
    (E_PATCH) with every line that is wrong.
    """
    lines = parse_objects(data, Limits(_ROOM * limits.max_record_bytes, limits.depth))
    number, head = next(lines, (1, {}))
    if not isinstance(head, Mapping) or head.get("duckkb_patch") != VERSION:
        raise _build_error([Finding("E_PATCH", f"no patch of version {VERSION} begins here", line=number)])
    changes: dict[tuple[str, int], Change] = {}
    places: dict[tuple[str, int], str] = {}
    findings: list[Finding] = []
    steps, sides = list(lines), ("after", "before") if reverse else ("before", "after")
    for number, step in steps:
        try:
            change, path = _parse_step(step, sides, ontology, limits)
        except LineError as error:
            findings += [Finding("E_PATCH", wrong.message, line=number, field=wrong.field) for wrong in error.findings]
            continue
        key = (change.record.type, change.record.id)
        if key in changes:
            findings.append(Finding("E_PATCH", f"it has {key[0]} with __id {key[1]} twice", line=number))
        changes[key] = change
        if path:
            places[key] = path
    if not findings and head.get("records") != len(steps):
        message = f"has {len(steps)} records, and its first line names {head.get('records')}"
        findings.append(Finding("E_PATCH", message, line=1))
    if findings:
        raise _build_error(findings)
    return Apply(Changeset(tuple(changes.values())), exact=True, places=places)


def _build_error(findings: Sequence[Finding]) -> InvalidRecord:
    """Return the error for an invalid patch (E_PATCH); each finding has its line in the patch."""
    first, remedy = findings[0], CODES["E_PATCH"].remedy
    message = f"line {first.line}: {first.message}" if len(findings) == 1 else f"{len(findings)} lines are wrong"
    return InvalidRecord(f"the patch: {message}", "E_PATCH", remedy, findings=tuple(findings), exit_code=1)


def _parse_step(
    step: Mapping[str, Any] | LineError, sides: tuple[str, str], ontology: Ontology, limits: Limits
) -> tuple[Change, str]:
    """Return the change of one line of a patch, and the part for a record that moves or is new, else empty."""
    if isinstance(step, LineError):
        raise step
    (old_path, old), (path, new) = (_parse_side(step.get(side), side, ontology, limits) for side in sides)
    if old is None and new is None:
        raise LineError([Finding("E_PATCH", "has neither before nor after")])
    if old is not None and new is not None and (old.type, old.id) != (new.type, new.id):
        raise LineError([Finding("E_PATCH", "before and after are two records: their types or __id differ")])
    return Change(old, new), path if path != old_path else ""


def _parse_side(value: Any, side: str, ontology: Ontology, limits: Limits) -> tuple[str, Record | None]:
    """Return the part and the record of a side; empty and None where there is none."""
    if value is None:
        return "", None
    path, line = (value.get("path"), value.get("line")) if isinstance(value, Mapping) else (None, None)
    if not isinstance(path, str) or not isinstance(line, str):
        raise LineError([Finding("E_PATCH", "is not {path, line}", field=side)])
    address = parse_part(path)
    kind = ontology.find_by_table(address.kind, address.table) if address is not None else None
    if kind is None:
        raise LineError([Finding("E_PATCH", "names no part of a type of this base", field="path")])
    values, is_canonical = decode(line.encode(), LineShape(kind.identity_fields, kind.generated), limits)
    if not is_canonical or not {ID, CREATED_AT, UPDATED_AT} <= values.keys():
        raise LineError([Finding("E_PATCH", "has a line that is not canonical, or lacks __id or times")])
    return path, record_of(kind, values)


def _iter_steps(change: RecordChange) -> Iterator[tuple[str, str, str, RecordPlace | None, RecordPlace | None]]:
    """Yield the steps of a change: two where a record's `__id` changed, since the engine takes these for two
    records.
    """
    before, after = change.before, change.after
    if before is not None and after is not None and _extract_id(before) != _extract_id(after):
        yield "delete", change.type, change.was or change.identity, before, None
        yield "insert", change.type, change.identity, None, after
    else:
        yield change.op, change.type, change.identity, before, after


def _extract_id(place: RecordPlace) -> bytes:
    """Return the beginning of a canonical line, which is its `__id`."""
    return place.line.partition(b",")[0]


def _build_places(before: RecordPlace | None, after: RecordPlace | None) -> dict[str, Any]:
    sides = (("before", before), ("after", after))
    return {side: {"path": place.path, "line": place.line.decode()} for side, place in sides if place is not None}
