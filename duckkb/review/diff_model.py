"""A difference between two versions of a knowledge base, as values. Nothing here reads or prints.

A difference as a patch: a header line, then one line a record with its lines of both sides as in the files.

    {"duckkb_patch":1,"base":{"name":"main","commit":"…"},"head":{…},"records":1}
    {"op":"update","type":"Note","identity":"a","before":{"path":"data/…","line":"{…}"},"after":{…}}

An `insert` has no `before`, a `delete` no `after`; a `move` has one line in two parts. Changes of config.yaml
and ontology/ are not part of a patch."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from duckkb.engine.write_draft import Apply
from duckkb.ontology.identity import display_names
from duckkb.ontology.model import Ontology
from duckkb.review.report_markup import ForgeLinks, dumps
from duckkb.storage.document_parts import IgnoreFiles
from duckkb.storage.layout import parse_part
from duckkb.storage.line import Limits, LineError, LineShape, decode, parse_objects
from duckkb.storage.part import record_of
from duckkb.storage.source_text import split
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, InvalidRecord, Unreadable
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, Change, Changeset, Record

Op = Literal["insert", "update", "rename", "delete", "move"]
OPS: tuple[Op, ...] = ("insert", "update", "rename", "delete")
WORDS = {"insert": "added", "update": "changed", "rename": "renamed", "delete": "removed"}
_HERE_ALONE = re.compile(r"(HEAD|@)(?![\w/.-])")
Counts = Mapping[str, Mapping[str, int]]
"""The number of each op, by type; every op is present."""


class Label(Struct, frozen=True):
    """The name of a side (`main`, `the working tree`), and its commit in hex, empty where it is none.

    `parted_from` names the other side where the commit is the merge base of both.
    """

    name: str
    commit: str = ""
    parted_from: str = ""

    @property
    def shown(self) -> str:
        """The name with the commit; the commit alone for a name that is only valid here (`HEAD^1`)."""
        if self.parted_from and self.commit:
            return f"merge base of {self.name} and {self.parted_from} ({self.commit[:12]})"
        if self.commit and _HERE_ALONE.match(self.name):
            return self.commit[:12]
        return f"{self.name} ({self.commit[:12]})" if self.commit and self.commit != self.name else self.name

    @property
    def as_object(self) -> dict[str, str | None]:
        """Return the label as plain data."""
        return {"name": self.name, "commit": self.commit or None}


class RecordPlace(Struct, frozen=True):
    """The place of a record's line on one side.

    It has a path relative to the base, the line from 1, the canonical line (without LF), and the record's etag
    as `get` prints it.
    """

    path: str
    line_no: int
    line: bytes
    etag: str


class FieldChange(Struct, frozen=True):
    """A top-level field that differs, as JSON source text; None where a side lacks it."""

    name: str
    before: str | None
    after: str | None


class RecordChange(Struct, frozen=True):
    """The change of one record, matched by its `__id`.

    `identity` is the new one (the old one of a deleted record) as the command line writes it; `was` is the old
    one after a rename.
    `fields` are the top-level fields that differ, in the order of the line; of an insert or delete all of them.
    `__updated_at` is left out, unless nothing else differs.
    A `move` is an unchanged record in another part, which a patch must name. `display` names the fields that
    represent a record, as its type declares.
    """

    kind: Literal["node", "edge"]
    type: str
    table: str
    id: int
    op: Op
    identity: str
    was: str | None
    fields: tuple[FieldChange, ...]
    before: RecordPlace | None
    after: RecordPlace | None
    display: tuple[str, ...] = ()

    @property
    def place(self) -> RecordPlace:
        side = self.after or self.before
        assert side is not None, "a change has a side"
        return side

    @property
    def shown(self) -> Mapping[str, str]:
        """The fields that represent the record in its newest form, its title first, as JSON source text."""
        line = self.place.line or b"{}"
        sources = {name: source for name, (_, source) in split(line).items()}
        return {name: sources[name] for name in display_names(json.loads(line), self.display, self.identity)}


class OntologyChange(Struct, frozen=True):
    """A change of the ontology or config.yaml: `what` names its subject (`node Note`, `node Note field /title`).

    `before` and `after` are JSON or YAML text, None where a side lacks the subject.
    """

    what: str
    before: str | None
    after: str | None
    path: str = ""


class Numbers(Struct, frozen=True):
    """The numbers of a difference: each op by type (every op is present), and other counts; they can be added."""

    counts: Counts = {}
    parts: int = 0
    respelled: int = 0
    moved: int = 0
    ontology: int = 0
    findings: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.counts or self.ontology)

    @property
    def totals(self) -> dict[str, int]:
        """The number of each op over all types."""
        return {op: sum(count[op] for count in self.counts.values()) for op in OPS}

    def __add__(self, other: "Numbers") -> "Numbers":
        return Numbers(
            {**self.counts, **other.counts},  # the two have no type in common
            self.parts + other.parts,
            self.respelled + other.respelled,
            self.moved + other.moved,
            self.ontology + other.ontology,
            self.findings + other.findings,
        )


class Diff(Struct, frozen=True):
    """All changes from `base` to `head`, by type and identity.

    `parts` counts the touched files of records, `respelled` the records whose line was only written otherwise;
    `moves` are the unchanged records that changed parts.
    `prefix` is the folder of the base inside its repository (`docs/kb/`), empty where the two are one.
    `is_judged`: the findings are complete; otherwise they come from the touched files alone.
    """

    base: Label
    head: Label
    changes: tuple[RecordChange, ...] = ()
    ontology: tuple[OntologyChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    parts: int = 0
    respelled: int = 0
    moves: tuple[RecordChange, ...] = ()
    prefix: str = ""
    is_judged: bool = False

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def is_empty(self) -> bool:
        return not (self.changes or self.ontology)

    @property
    def numbers(self) -> Numbers:
        totals = (len(self.moves), len(self.ontology), len(self.findings))
        return Numbers(self.counts, self.parts, self.respelled, *totals)

    @property
    def rooted(self) -> "Diff":
        """Return the difference with all paths relative to the root of the repository, as a forge names files."""
        if not self.prefix:
            return self

        def prefix_place(place: RecordPlace | None) -> RecordPlace | None:
            return None if place is None else replace(place, path=self.prefix + place.path)

        return replace(
            self,
            prefix="",
            changes=tuple(
                replace(item, before=prefix_place(item.before), after=prefix_place(item.after)) for item in self.changes
            ),
            ontology=tuple(
                replace(item, path=self.prefix + item.path) if item.path else item for item in self.ontology
            ),
            findings=tuple(item.prefix_path(self.prefix) for item in self.findings),
        )

    @property
    def counts(self) -> Counts:
        """The number of each op, by type; every op is present."""
        counters: dict[str, Counter[str]] = {}
        for change in self.changes:
            counters.setdefault(change.type, Counter())[change.op] += 1
        return {name: {op: count[op] for op in OPS} for name, count in counters.items()}


LineNumbers = Mapping[str, Sequence[int]]
"""The line numbers of records, by the path of a part."""


class Versions(Struct, frozen=True):
    """The two versions of the touched files: bytes by path on either side, and findings of paths that are no
    regular files.

    `renamed` maps the part of a renamed document to its former name. `numbers` has, for the older and the newer
    version, the lines in the file where records stand. `ignored` are the .gitignore files of the older version.
    """

    base: Label
    head: Label
    old: Mapping[str, bytes]
    new: Mapping[str, bytes]
    findings: tuple[Finding, ...] = ()
    paths: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}
    numbers: tuple[LineNumbers, LineNumbers] = field(default_factory=lambda: ({}, {}))
    ignored: IgnoreFiles = field(default_factory=IgnoreFiles)


class DiffOptions(Struct, frozen=True):
    """The options for showing a difference.

    `full` leaves nothing out of long texts, `color` is for terminals, `budget` is the limit in bytes, `after`
    the cursor from which to continue, `again` builds a command line from this one and more options.
    `fail_on` is the grade of the findings that count (`error`, `warning`), `links` are the forge's addresses of
    files and commits.
    """

    full: bool = False
    color: bool = False
    budget: int = sys.maxsize
    fail_on: str = "error"
    after: str = ""
    again: Callable[[str], str] = "duckkb diff {}".format
    links: ForgeLinks | None = None


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
