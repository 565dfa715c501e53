"""A difference between two versions of a knowledge base, as values. Nothing here reads or prints."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from duckkb.errors import Finding
from duckkb.ontology.display import display_names
from duckkb.review.diff.links import ForgeLinks
from duckkb.truth.files.ignored import IgnoreFiles
from duckkb.truth.files.source_text import split

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
