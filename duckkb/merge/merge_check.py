"""Verifies that a merge commit, or a pick or revert that names its source, holds what a merge by records gives.

Forges, and git without the driver, merge parts by lines. Some of their clean merges are conflicts of records
(deleted here, renamed there).

Finds rules that merged records break together although no field of them is in conflict.

The first time every record is checked. Where nothing was broken, the commit is noted in the base's store. From
then on only differences from it are checked, and what depends on them: the edges of nodes that were added or
removed."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from duckkb.engine import integrity, write
from duckkb.engine.base import Base
from duckkb.engine.integrity import BaseView
from duckkb.installed import version_of
from duckkb.merge import merge_sides as versions
from duckkb.merge.git_merge import read_part_on_disk
from duckkb.merge.merge_sides import Contents, MergedTrees, Sides, Tree, merge_sides
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.review.change_findings import sort_findings
from duckkb.review.compared_versions import Range, is_configuration, read
from duckkb.review.diff_model import RecordPlace, Versions
from duckkb.review.record_changes import Types, compare
from duckkb.storage import git_changes, merge_rules, repository
from duckkb.storage.field_merge import MergeRules
from duckkb.storage.layout import leads_to_parts
from duckkb.storage.merge_rules import Block, Key, RulesByTable, read_blocks
from duckkb.storage.part import StoredRow, part_of, record_of
from duckkb.storage.source_text import id_of, split
from duckkb.storage.table_merge import identity_of, table_of
from duckkb.types.codes import CODES
from duckkb.types.errors import DuckkbError, Finding
from duckkb.types.records import Identity

_CODE = "W_MERGED"
_Lines = list[tuple[int, bytes]]
_LinesById = Mapping[str, Sequence[bytes]]
_Spot = tuple[str, int, bytes]
"""A part, the number of a line in it, and the line."""


def findings(root: Path, rules: RulesByTable, commit: str = "HEAD") -> list[Finding]:
    """Return the records of a merge commit of two parents that differ from a merge by records.

    Only parts that lines alone could decide count; what a person settled is not checked. Picks and reverts that
    name their source are checked in parts that are as git made them. Empty for any other commit, and where its
    sources are absent (a shallow clone).
    """
    commit_id = repository.head_commit(root) if commit == "HEAD" else commit
    if not commit_id or not repository.is_readable_repository(root):
        return []
    commit = commit_id
    heads = git_changes.parents(root, commit)
    sides = _read_merge_sides(root, heads, rules) if len(heads) == 2 else _read_pick_sides(root, commit, heads)
    if sides is None:
        return []
    commit_tree = versions.tree(root, commit)
    rules, merged_trees = sides.rules(rules), merge_sides(sides, rules)
    deviations: list[Finding] = []
    tables: dict[Key, _TableRecords] = {}
    for path in _find_differing_parts(merged_trees, commit_tree, sides, rules):
        key = table_of(path)
        there = sides.contents.get(commit_tree.get(path))
        if key is not None and (len(heads) == 2 or sides.is_gits(path, there, rules.get_rules(key))):
            if key not in tables:
                table_tree = {part_path: blob for part_path, blob in commit_tree.items() if table_of(part_path) == key}
                tables[key] = _TableRecords(rules.get_rules(key), table_tree, sides.contents)
            deviations += _compare_part(path, merged_trees.parts[path] or b"", there or b"", tables[key])
    return deviations


def _read_merge_sides(root: Path, heads: list[str], rules: RulesByTable) -> Sides | None:
    if not all(git_changes.parents(root, head) or git_changes.is_root(root, head) for head in heads):
        return None
    return versions.read_commit_sides(root, heads[0], heads[1], rules)


def _read_pick_sides(root: Path, commit: str, heads: list[str]) -> Sides | None:
    """Return the sides of a pick or revert, if it names its source.

    People often amend those without a trace, so only parts that git made are checked.
    """
    change = git_changes.find_carried_change(root, commit) if len(heads) == 1 else None
    if change is None:
        return None
    base, ours, theirs = (versions.tree(root, revision) for revision in (change[0], heads[0], change[1]))
    return versions.read_tree_sides((base, ours, theirs), Contents(root))


def _find_differing_parts(
    merged_trees: MergedTrees, commit_tree: Tree, sides: Sides, rules: RulesByTable
) -> Iterator[str]:
    """Yield the parts that differ from a merge by records, though no line of them was in conflict."""
    for path, merged_data in merged_trees.parts.items():
        there, key = sides.contents.get(commit_tree.get(path)), table_of(path)
        if path in merged_trees.by_lines or key is None or there == merged_data:
            continue
        base, ours, theirs = sides.read_versions(path)
        if ours is None or theirs is None:
            if base is None or base in (ours, theirs) or ours == theirs:
                yield path
            continue  # otherwise it was a conflict in git too
        is_clean = git_changes.merge_lines(base or b"", ours, theirs, sides.contents.root)[1]
        if is_clean or sides.is_merged(path, there, rules.get_rules(key)):
            yield path


class _TableRecords:
    """The records of a table in the commit, in whatever part; read when one is not in its own part."""

    def __init__(self, rules: MergeRules, held: Tree, contents: Contents) -> None:
        self.rules, self._held, self._contents = rules, held, contents
        self._spots: dict[str, _Spot] | None = None

    def find_spot(self, line: bytes) -> _Spot | None:
        """Return the place of the record of a line: by its number, else by its identity."""
        if self._spots is None:
            self._spots = self._index_spots()
        return self._spots.get(id_of(line)) or self._spots.get(self._name(line))

    @cached_property
    def lines(self) -> _LinesById:
        """Return all lines of the table by their ids."""
        self._contents.read(self._held.values())
        lines_by_id = defaultdict[str, list[bytes]](list)
        for blob in self._held.values():
            for _, line in _enumerate_lines(self._contents.get(blob) or b""):
                lines_by_id[id_of(line)].append(line)
        return lines_by_id

    def _index_spots(self) -> dict[str, _Spot]:
        self._contents.read(self._held.values())
        spots: dict[str, _Spot] = {}
        for path, blob in self._held.items():
            for number, line in _enumerate_lines(self._contents.get(blob) or b""):
                for name in filter(None, (id_of(line), self._name(line))):
                    spots.setdefault(name, (path, number, line))
        return spots

    def _name(self, line: bytes) -> str:
        """Return `=` and the identity of a line, or an empty text if the table's rules are unknown or the line is no
        record. The `=` keeps it apart from ids in the same index.
        """
        try:
            return f"={identity_of(Block(None, line, line), self.rules)}" if self.rules.known and line else ""
        except ValueError:
            return ""


def _compare_part(path: str, merged_data: bytes, part_data: bytes, table: _TableRecords) -> Iterator[Finding]:
    spots_by_key = {_identify_line(line): (path, line_no, line) for line_no, line in _enumerate_lines(part_data)}
    expected_keys: set[str | bytes] = set()
    for item in read_blocks(merged_data) or []:
        block = item if isinstance(item, Block) else Block(None, item, item)
        record_line = block.ours or block.theirs or b""
        spot = spots_by_key.get(_identify_line(record_line)) or table.find_spot(record_line)
        if spot is not None and spot[0] == path:
            expected_keys.add(_identify_line(spot[2]))
            if spot[2] == item:
                continue
        yield _build_deviation(
            spot or (path, 0, record_line),
            _describe_record(item, spot, path, table.rules, table.lines),
            table.rules,
            block,
        )
    for line_no, line in _enumerate_lines(part_data):
        if _identify_line(line) not in expected_keys:
            message = "a merge by records does not keep it here"
            yield _build_deviation((path, line_no, line), message, table.rules, Block(None, line, line))


def _identify_line(line: bytes) -> str | bytes:
    """Return what identifies a line's record in its part: its id, else the line itself."""
    return id_of(line) or line


def _describe_record(item: bytes | Block, spot: _Spot | None, path: str, table: MergeRules, lines: _LinesById) -> str:
    """Describe how a record differs from the merge by records.

    `spot` is its place in the commit, if it is there; `lines` are those of its table there.
    """
    if isinstance(item, Block):
        return _describe_fate(item, item.open_fields(table), lines)
    if spot is None:
        return "a merge by records keeps it, and it is gone"
    if spot[0] != path:
        return f"a merge by records keeps it in {path}"
    if id_of(spot[2]) != id_of(item):
        return "a merge by records keeps it with its own __id"
    return "a merge by records keeps changes that are not in it"


def _describe_fate(block: Block, fields: Sequence[str], lines: _LinesById) -> str:
    """Describe the outcome of a record that both sides changed in these fields.

    A side counts as taken where a line has its values of the fields in conflict; other fields are not compared.
    """
    sides = [side for side in (block.ours, block.theirs) if side is not None]
    stand = [any(_has_same_fields(side, line, fields) for line in lines.get(id_of(side), ())) for side in sides]
    if len(sides) == 1:
        outcome = "the other's version" if stand[0] else "the deletion" if not lines.get(id_of(sides[0])) else "neither"
        return f"one side deleted it and the other changed it, and git took {outcome} unasked"
    names = " ".join(filter(None, fields))
    outcome = (
        "both versions remain" if all(stand) else "git chose one of them silently" if any(stand) else "neither stands"
    )
    return f"both sides changed it{f' ({names})' if names else ''}, and {outcome}"


def _has_same_fields(side: bytes, line: bytes, fields: Sequence[str]) -> bool:
    """Return whether a line equals a side in the fields in conflict."""
    if not any(fields):
        return side == line
    side_fields, line_fields = split(side), split(line)
    return all(side_fields.get(name) == line_fields.get(name) for name in fields)


def _build_deviation(spot: _Spot, message: str, table: MergeRules, block: Block) -> Finding:
    identity = identity_of(block, table)
    return Finding(_CODE, message, spot[0], spot[1], remedy=CODES[_CODE].remedy, type=table.name, identity=identity)


def _enumerate_lines(data: bytes) -> _Lines:
    """Return the lines that are records, by number."""
    return [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line[:1] == b"{"]


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
    whole = write.view(base)
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
        data, numbers = merge_rules.remove_conflict_markers(read_part_on_disk(base.root, path) or b"")
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
