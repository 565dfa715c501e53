"""Finds rules that merged records break together although no field of them is in conflict.

The first time every record is checked. Where nothing was broken, the commit is noted in the base's store. From
then on only differences from it are checked, and what depends on them: the edges of nodes that were added or
removed.
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
_MOST_PARTS = 0.5  # share of all parts; beyond it, checking all records costs no more


class _Changed(Struct, frozen=True):
    """The identities of one type's records that are new or differ, of those added, and of those removed."""

    fresh: set[Identity] = set()
    came: set[Identity] = set()
    went: set[Identity] = set()


def find_broken_records(base: Base) -> tuple[Finding, ...]:
    """Return all broken rules in the present files.

    A record in conflict counts with both sides, and no finding concerns the record itself.
    """
    versions = _read_since_whole(base)
    unread = [
        finding for finding in base.tree.unreadable if finding.code != "E_MARKERS"
    ]  # these are reported as conflicts
    in_conflict = _take_both_sides(base)
    whole = guard.view(base)
    view = whole if versions is None else _SinceWhole(whole, _collect_changes(base, versions))
    findings = sort_findings([*unread, *_find_untyped_folders(base), *integrity.findings(view, integrity.AFTER_MERGE)])
    return tuple(finding for finding in findings if (finding.path, finding.line) not in in_conflict)


def note_whole(base: Base, commit: str) -> None:
    """Note a commit in which nothing was broken, if the files are those of that commit."""
    if base.tree.unreadable or base.tree.findings:
        return
    try:
        is_that = bool(commit) and not read(base.root, Range(commit)).paths
    except DuckkbError:
        return
    if is_that and commit != _load_commit(base):
        base.notes.keep(_NOTE, [commit, version_of("duckkb", "duckkb")])


def _take_both_sides(base: Base) -> set[tuple[str, int]]:
    """Add the records between git's markers to the tree; return the places of their lines."""
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
    """Return findings of folders that no type reads.

    One side renamed or dropped the type, and the other added records to it.
    """
    unknown = (finding for finding in base.tree.findings if finding.code == "E_UNEXPECTED_FILE")
    return [
        finding
        for finding in unknown
        if finding.path.endswith("/") and leads_to_parts(finding.path.rstrip("/")) is not None
    ]


class _SinceWhole(BaseView):
    """A view of what differs from a sound version, and of what depends on that."""

    def __init__(self, base: BaseView, changed: Mapping[str, _Changed]) -> None:
        super().__init__(base.tree, base.validator, base.lengths)
        self._changed = changed

    def rows(self, kind: RecordType) -> Iterable[StoredRow]:
        """Return the records that are new or differ; all where some stand in several lines, which are merged in
        memory.
        """
        if self.tree.is_mended(kind):
            return super().select_rows_to_check(kind)
        fresh = self._changed[kind.name].fresh if kind.name in self._changed else ()
        return [row for identity in fresh if (row := self.tree.get(kind, identity)) is not None]

    def select_edges_to_check(self, kind: EdgeType) -> Iterable[StoredRow]:
        """Return the edges that are new or differ, the edges at removed nodes, and those at added nodes.

        The last count only where an end may be of several types.
        """
        yield from self.rows(kind)
        is_one = len(kind.from_types) == len(kind.to_types) == 1
        for name in sorted({*kind.from_types, *kind.to_types} & self._changed.keys()):
            node = self._changed[name]
            for identity in node.went if is_one else node.went | node.came:
                yield from (row for edge, row, _ in self.tree.edges_at(name, identity) if edge.name == kind.name)

    def select_rows_to_check(self, kind: RecordType) -> Iterable[StoredRow]:
        """Return all records of a type that changed itself, or whose ends changed."""
        names = (kind.name, *kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else (kind.name,)
        has_changes = self.tree.is_mended(kind) or not self._changed.keys().isdisjoint(names)
        return super().select_rows_to_check(kind) if has_changes else ()


def _collect_changes(base: Base, versions: Versions) -> dict[str, _Changed]:
    """Return the changes of records, by type."""
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
    """Read what differs from the noted commit; None where none is known, or everything must be checked."""
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
    """Return the noted commit; empty for none, and for a note of another version."""
    match base.notes.note(_NOTE):
        case [str(commit), by] if by == version_of("duckkb", "duckkb") and re.fullmatch("[0-9a-f]{40,64}", commit):
            return commit
    return ""
