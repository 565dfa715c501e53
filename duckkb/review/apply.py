"""From a patch to a write: its lines as records, each to stand where the patch has it."""

from collections.abc import Iterator

from duckkb.engine.draft import Apply
from duckkb.errors import Finding
from duckkb.ontology.model import Ontology, RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Change, Changeset, Record
from duckkb.review.diff.patch import Patch, Spot, Step, refusal
from duckkb.truth.files.line import Limits, LineError, LineShape, decode
from duckkb.truth.files.table import record_of
from duckkb.truth.layout import parse_part


def request(patch: Patch, ontology: Ontology, limits: Limits) -> Apply:
    """What the engine is asked to write: every old side exactly as stored. A record that the patch leaves in its part stays
    in the one in which it is found. Raises `errors.InvalidRecord` (E_PATCH) with every line of the patch that is wrong."""
    changes: list[Change] = []
    places: dict[tuple[str, int], str] = {}
    findings: list[Finding] = []
    for step in patch.steps:
        try:
            change = _change(step, ontology, limits)
        except LineError as error:
            findings += [Finding("E_PATCH", one.message, line=step.number, field=one.field) for one in error.findings]
            continue
        changes.append(change)
        key = (change.record.type, change.record.id)
        if step.after is not None and (step.before is None or step.before.path != step.after.path):
            places[key] = step.after.path
    findings += _twice(changes)
    if findings:
        raise refusal(findings)
    return Apply(Changeset(tuple(changes)), exact=True, places=places)


def _change(step: Step, ontology: Ontology, limits: Limits) -> Change:
    sides = [_record(spot, ontology, limits) if spot is not None else None for spot in (step.before, step.after)]
    old, new = sides
    if old is not None and new is not None and (old.type, old.id) != (new.type, new.id):
        raise LineError([Finding("E_PATCH", "before and after are two records: their types or __id differ")])
    return Change(old, new)


def _record(spot: Spot, ontology: Ontology, limits: Limits) -> Record:
    address = parse_part(spot.path)
    kind = ontology.by_table(address.kind, address.table) if address is not None else None
    if kind is None:
        raise LineError([Finding("E_PATCH", "names no part of a type of this base", field="path")])
    return _decoded(spot, kind, limits)


def _decoded(spot: Spot, kind: RecordType, limits: Limits) -> Record:
    values, is_canonical = decode(spot.line, LineShape(kind.identity_fields, kind.generated), limits)
    if not is_canonical or not {ID, CREATED_AT, UPDATED_AT} <= values.keys():
        raise LineError([Finding("E_PATCH", "holds a line that is not canonical, or has no __id or times")])
    return record_of(kind, values)


def _twice(changes: list[Change]) -> Iterator[Finding]:
    known: set[tuple[str, int]] = set()
    for change in changes:
        key = (change.record.type, change.record.id)
        if key in known:
            yield Finding("E_PATCH", f"{key[0]} with __id {key[1]} stands in it twice")
        known.add(key)
