"""What records break together although no field of them is in conflict: what both sides brought, seen as one.

The first time every record is held against the rules. Where nothing was broken, the commit is noted in the base's store;
from then on only what differs from it is looked at, and what depends on that: the edges of nodes that came or went.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from duckkb.engine import guard
from duckkb.engine.base import Base
from duckkb.errors import DuckkbError, Finding
from duckkb.installed import version_of
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.records import Identity
from duckkb.review.check.findings import sort_findings
from duckkb.review.diff.compare import Types, compare
from duckkb.review.diff.model import RecordPlace, Versions
from duckkb.review.diff.versions import Range, is_configuration, read
from duckkb.review.merging.work import read_part_on_disk
from duckkb.rules import integrity
from duckkb.rules.view import BaseView
from duckkb.truth.files.part import StoredRow, part_of, record_of
from duckkb.truth.layout import leads_to_parts
from duckkb.truth.merge import conflict

_NOTE = "whole"
_MOST_PARTS = 0.5  # of all parts; where more have changed, looking at all records costs no more


class _Changed(Struct, frozen=True):
    """The identities of one type's records that are there and are new or differ, and of those that came, and went."""

    fresh: set[Identity] = set()
    came: set[Identity] = set()
    went: set[Identity] = set()


def find_broken_records(base: Base) -> tuple[Finding, ...]:
    """All of it in the files as they are. A record in conflict counts as both sides have it, and nothing is said of itself."""
    versions = _read_since_whole(base)
    unread = [
        finding for finding in base.tree.unreadable if finding.code != "E_MARKERS"
    ]  # those are told as what is in conflict
    in_conflict = _take_both_sides(base)
    whole = guard.view(base)
    view = whole if versions is None else _SinceWhole(whole, _collect_changes(base, versions))
    findings = sort_findings([*unread, *_find_untyped_folders(base), *integrity.findings(view, integrity.AFTER_MERGE)])
    return tuple(finding for finding in findings if (finding.path, finding.line) not in in_conflict)


def note_whole(base: Base, commit: str) -> None:
    """Remember a commit in which nothing was found broken, where the files are those of that commit."""
    if base.tree.unreadable or base.tree.findings:
        return
    try:
        is_that = bool(commit) and not read(base.root, Range(commit)).paths
    except DuckkbError:
        return
    if is_that and commit != _load_commit(base):
        base.notes.keep(_NOTE, [commit, version_of("duckkb", "duckkb")])


def _take_both_sides(base: Base) -> set[tuple[str, int]]:
    """Have the tree hold the records between git's markers; the places of their lines."""
    places: set[tuple[str, int]] = set()
    parts = {}
    for path in {finding.path for finding in base.tree.unreadable if finding.code == "E_MARKERS"}:
        part = base.tree.parts[path]
        data, numbers = conflict.remove_conflict_markers(read_part_on_disk(base.root, path) or b"")
        parts[path] = part_of(path, part.kind, data, base.limits, part.stamp)
        places |= {(path, number) for number in numbers}
    base.tree.replace(parts)
    return places


def _find_untyped_folders(base: Base) -> list[Finding]:
    """Folders of records that no type reads: one side renamed or dropped the type, the other added records to it."""
    unknown = (finding for finding in base.tree.findings if finding.code == "E_UNEXPECTED_FILE")
    return [
        finding
        for finding in unknown
        if finding.path.endswith("/") and leads_to_parts(finding.path.rstrip("/")) is not None
    ]


class _SinceWhole(BaseView):
    """What differs from a version in which all was well, and what depends on that."""

    def __init__(self, base: BaseView, changed: Mapping[str, _Changed]) -> None:
        super().__init__(base.tree, base.validator, base.lengths)
        self._changed = changed

    def rows(self, kind: RecordType) -> Iterable[StoredRow]:
        """The records that are new or differ; all where some stand in several lines, which are merged in memory."""
        if self.tree.is_mended(kind):
            return super().compared(kind)
        fresh = self._changed[kind.name].fresh if kind.name in self._changed else ()
        return [row for identity in fresh if (row := self.tree.get(kind, identity)) is not None]

    def linked(self, kind: EdgeType) -> Iterable[StoredRow]:
        """Those, and the edges at the nodes that went, and where several types may be meant at those that came."""
        yield from self.rows(kind)
        is_one = len(kind.from_types) == len(kind.to_types) == 1
        for name in sorted({*kind.from_types, *kind.to_types} & self._changed.keys()):
            node = self._changed[name]
            for identity in node.went if is_one else node.went | node.came:
                yield from (row for edge, row, _ in self.tree.edges_at(name, identity) if edge.name == kind.name)

    def compared(self, kind: RecordType) -> Iterable[StoredRow]:
        """All of a type of which, or of whose ends, something changed."""
        names = (kind.name, *kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else (kind.name,)
        has_changes = self.tree.is_mended(kind) or not self._changed.keys().isdisjoint(names)
        return super().compared(kind) if has_changes else ()


def _collect_changes(base: Base, versions: Versions) -> dict[str, _Changed]:
    """What became of records, by type."""
    changes: defaultdict[str, _Changed] = defaultdict(_Changed)
    types = Types(base.ontology, base.ontology)
    for change in compare(versions, types, base.limits).changes:
        kind = base.ontology.find_by_table(change.kind, change.table)
        if kind is None:
            continue
        before, after = (_parse_identity(kind, place) for place in (change.before, change.after))
        if after is not None:
            changes[kind.name].fresh.add(after)
            if before != after:
                changes[kind.name].came.add(after)
        if before is not None and before != after:
            changes[kind.name].went.add(before)
    return changes


def _parse_identity(kind: RecordType, place: RecordPlace | None) -> Identity | None:
    return None if place is None else record_of(kind, json.loads(place.line)).identity


def _read_since_whole(base: Base) -> Versions | None:
    """What differs from the commit in which nothing was broken; None where none is known, or all must be looked at."""
    commit = _load_commit(base)
    if not commit:
        return None
    try:
        versions = read(base.root, Range(commit))
    except DuckkbError:  # the commit is gone, or git is
        return None
    is_much = len(versions.paths) > _MOST_PARTS * len(base.tree.parts)
    return None if is_much or versions.findings or any(map(is_configuration, versions.paths)) else versions


def _load_commit(base: Base) -> str:
    """The commit that is noted; empty for none, and for one that another version noted."""
    match base.notes.note(_NOTE):
        case [str(commit), by] if by == version_of("duckkb", "duckkb") and re.fullmatch("[0-9a-f]{40,64}", commit):
            return commit
    return ""
