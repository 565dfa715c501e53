"""A difference as a patch: a header line, then one line a record with its lines on both sides as they stand in the files.

    {"duckkb_patch":1,"base":{"name":"main","commit":"…"},"head":{…},"records":1}
    {"op":"update","type":"Note","identity":"a","before":{"path":"data/…","line":"{…}"},"after":{…}}

Of an `insert` there is no `before`, of a `delete` no `after`; a `move` has one line in two parts. What config.yaml and
ontology/ say otherwise is not part of a patch.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckkb.codes import CODES
from duckkb.errors import Finding, InvalidRecord, Unreadable
from duckkb.review.diff.model import Diff, Label, Options, Place, RecordChange
from duckkb.truth.files.line import Limits, LineError, parse_objects
from duckkb.values import dataclass

VERSION = 1
_KEPT = ("E_NOT_CANONICAL", "E_INCOMPLETE", "E_UNEXPECTED_FILE", "E_ID_CHANGED", "E_MISPLACED")
"""What may be wrong with a version that a patch can bring about all the same."""

_ROOM = 13
"""How much longer a line of a patch may be than a record's: it has two, and a character may become six."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A part, relative to the base, and a line in it, without LF."""

    path: str
    line: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """What a patch does to one record: `number` is the line of the patch that says it."""

    before: Spot | None
    after: Spot | None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Patch:
    """The steps from `base` to `head`, in any order, at most one a record."""

    base: Label
    head: Label
    steps: tuple[Step, ...]

    def reversed(self) -> "Patch":
        """The patch that leads back."""
        return Patch(self.head, self.base, tuple(Step(one.after, one.before, one.number) for one in self.steps))


def render(diff: Diff, options: Options) -> Iterator[str]:
    """The lines of the patch. Raises `errors.Unreadable` where the newer version has lines that would be lost in it."""
    lost = [finding for finding in diff.findings if finding.is_error and finding.path and finding.code not in _KEPT]
    if lost:
        raise Unreadable(
            f"{len(lost)} places of {diff.head.shown} are no records; a patch would leave them out",
            suggestion="mend the lines named, then repeat",
            findings=tuple(lost),
        )
    steps = [step for change in diff.changes for step in _steps(change)]
    steps += [("move", one.type, one.identity, one.before, one.after) for one in diff.moves]
    head = {"duckkb_patch": VERSION, "base": _label(diff.base), "head": _label(diff.head), "records": len(steps)}
    yield _dumps(head)
    for op, kind, identity, before, after in steps:
        yield _dumps({"op": op, "type": kind, "identity": identity} | _places(before, after))


def parse(data: bytes, limits: Limits) -> Patch:
    """Read a patch; raises `errors.InvalidRecord` (E_PATCH) with every line that is wrong."""
    lines = parse_objects(data, Limits(_ROOM * limits.max_record_bytes, limits.depth))
    number, head = next(lines, (1, {}))
    if not isinstance(head, Mapping) or head.get("duckkb_patch") != VERSION:
        raise refusal([Finding("E_PATCH", f"no patch of version {VERSION} begins here", line=number)])
    steps: list[Step] = []
    findings: list[Finding] = []
    for number, one in lines:
        try:
            steps.append(_step(one, number))
        except LineError as error:
            findings += [Finding("E_PATCH", found.message, line=number, field=found.field) for found in error.findings]
    wanted = head.get("records")
    if not findings and wanted != len(steps):
        findings.append(Finding("E_PATCH", f"has {len(steps)} records, and its first line names {wanted}", line=1))
    if findings:
        raise refusal(findings)
    return Patch(_label_of(head.get("base")), _label_of(head.get("head")), tuple(steps))


def refusal(findings: Sequence[Finding]) -> InvalidRecord:
    """The error for a patch that does not make sense (E_PATCH); each finding has its line in the patch."""
    said = (
        f"line {findings[0].line}: {findings[0].message}" if len(findings) == 1 else f"{len(findings)} lines are wrong"
    )
    remedy = CODES["E_PATCH"].remedy
    return InvalidRecord(f"the patch: {said}", "E_PATCH", remedy, findings=tuple(findings), exit_code=1)


def _step(one: Mapping[str, Any] | LineError, number: int) -> Step:
    if isinstance(one, LineError):
        raise one
    before, after = (_spot(one.get(side), side) for side in ("before", "after"))
    if before is None and after is None:
        raise LineError([Finding("E_PATCH", "has neither before nor after")])
    return Step(before, after, number)


def _spot(value: Any, side: str) -> Spot | None:
    if value is None:
        return None
    path, line = (value.get("path"), value.get("line")) if isinstance(value, Mapping) else (None, None)
    if isinstance(path, str) and isinstance(line, str):
        return Spot(path, line.encode())
    raise LineError([Finding("E_PATCH", "is not {path, line}", field=side)])


def _label(label: Label) -> dict[str, Any]:
    return {"name": label.name, "commit": label.commit or None}


def _label_of(value: Any) -> Label:
    found = value if isinstance(value, Mapping) else {}
    return Label(str(found.get("name") or ""), str(found.get("commit") or ""))


def _steps(change: RecordChange) -> Iterator[tuple[str, str, str, Place | None, Place | None]]:
    """One, or two where a record got another `__id`: to an engine these are two records."""
    before, after = change.before, change.after
    if before is not None and after is not None and _id(before) != _id(after):
        yield "delete", change.type, change.was or change.identity, before, None
        yield "insert", change.type, change.identity, None, after
    else:
        yield change.op, change.type, change.identity, before, after


def _id(place: Place) -> bytes:
    """The beginning of a canonical line, which is its `__id`."""
    return place.line.partition(b",")[0]


def _places(before: Place | None, after: Place | None) -> dict[str, Any]:
    sides = (("before", before), ("after", after))
    return {side: {"path": place.path, "line": place.line.decode()} for side, place in sides if place is not None}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
