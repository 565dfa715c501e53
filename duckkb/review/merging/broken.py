"""What records break together although no field of them is in conflict: what both sides brought, seen as one.

The first time every record is held against the rules. Where nothing was broken, the commit is noted in `.duckkb/whole.json`;
from then on only what differs from it is looked at, and what depends on that: the edges of nodes that came or went.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from duckkb.engine.base import Base
from duckkb.engine.guard import limited_sides
from duckkb.errors import DuckkbError, Finding
from duckkb.installed import version_of
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.records import Identity
from duckkb.review import findings
from duckkb.review.diff import compare, sides
from duckkb.review.diff.compare import Types
from duckkb.review.diff.configuration import is_configuration
from duckkb.review.diff.model import Place, Versions
from duckkb.truth import state
from duckkb.truth.files.table import StoredRow, record_of
from duckkb.values import dataclass, field

_FILE = "whole.json"
_MOST_PARTS = 0.5  # of all parts; where more have changed, looking at all records costs no more


@dataclass(frozen=True, slots=True)
class _Changed:
    """The identities of one type's records that are there and are new or differ, and of those that came, and went."""

    fresh: set[Identity] = field(default_factory=set)
    came: set[Identity] = field(default_factory=set)
    went: set[Identity] = field(default_factory=set)


def broken(base: Base, commit: str) -> tuple[Finding, ...]:
    """All of it in the files as they are. `commit` is what HEAD named before the base was opened."""
    versions = _since_whole(base)
    unread = [one for one in base.tree.unreadable if one.code != "E_MARKERS"]  # those are told as what is in conflict
    found = findings.in_order([*unread, *(_of_all(base) if versions is None else _of_changed(base, versions))])
    if not found and not base.tree.unreadable and not base.tree.findings:
        _note(base.root, commit)
    return found


def _of_all(base: Base) -> Iterator[Finding]:
    for kind in base.ontology:
        yield from _of_kind(base, kind)


def _of_kind(base: Base, kind: RecordType) -> Iterator[Finding]:
    tree, validator = base.tree, base.validator(kind)
    wrong = (record for record in tree.records(kind) if not validator.is_valid(record.fields))
    yield from findings.schema(filter(None, (tree.get(kind, one.identity) for one in wrong)), validator)
    if kind.given_vectors:
        yield from findings.lengths(tree.rows(kind), kind, base.lengths(kind))
    yield from findings.duplicates(tree, kind)
    yield from findings.same_texts(tree, kind)
    if isinstance(kind, EdgeType):
        yield from findings.edges(tree, kind, tree.rows(kind))


def _of_changed(base: Base, versions: Versions) -> Iterator[Finding]:
    """As `_of_all`, where all was well in the older version."""
    changed = _changed(base, versions)
    for kind in base.ontology:
        if base.tree.is_mended(kind) or (_is_compared(kind) and kind.name in changed) or _is_counted(kind, changed):
            yield from _of_kind(base, kind)
            continue
        own = _rows(base, kind, changed[kind.name].fresh) if kind.name in changed else []
        yield from findings.schema(own, base.validator(kind))
        if isinstance(kind, EdgeType):
            yield from findings.edges(base.tree, kind, [*own, *_at_ends(base, kind, changed)])


def _is_compared(kind: RecordType) -> bool:
    """Whether the records of a type are held against one another."""
    return bool(kind.given_vectors) or (kind.generated is not None and bool(kind.generated.of))


def _is_counted(kind: RecordType, changed: Collection[str]) -> bool:
    """Whether a type limits how many edges a node may have, and that may have changed."""
    if not isinstance(kind, EdgeType) or not limited_sides(kind):
        return False
    return any(name in changed for name in (kind.name, *kind.from_types, *kind.to_types))


def _at_ends(base: Base, kind: EdgeType, changed: Mapping[str, _Changed]) -> Iterator[StoredRow]:
    """The edges of one type at the nodes that went, and where several types may be meant at those that came."""
    is_one = len(kind.from_types) == len(kind.to_types) == 1
    for name in sorted({*kind.from_types, *kind.to_types} & changed.keys()):
        for identity in changed[name].went if is_one else changed[name].went | changed[name].came:
            yield from (row for edge, row, _ in base.tree.edges_at(name, identity) if edge.name == kind.name)


def _rows(base: Base, kind: RecordType, identities: Iterable[Identity]) -> list[StoredRow]:
    return [row for one in identities if (row := base.tree.get(kind, one)) is not None]


def _changed(base: Base, versions: Versions) -> dict[str, _Changed]:
    """What became of records, by type."""
    found: defaultdict[str, _Changed] = defaultdict(_Changed)
    types = Types(base.ontology, base.ontology)
    for change in compare.compare(versions, types, base.limits).changes:
        kind = base.ontology.by_table(change.kind, change.table)
        if kind is None:
            continue
        before, after = (_identity(kind, place) for place in (change.before, change.after))
        if after is not None:
            found[kind.name].fresh.add(after)
            if before != after:
                found[kind.name].came.add(after)
        if before is not None and before != after:
            found[kind.name].went.add(before)
    return found


def _identity(kind: RecordType, place: Place | None) -> Identity | None:
    return None if place is None else record_of(kind, json.loads(place.line)).identity


def _since_whole(base: Base) -> Versions | None:
    """What differs from the commit in which nothing was broken; None where none is known, or all must be looked at."""
    commit = _noted(base.root)
    if not commit:
        return None
    try:
        versions = sides.read(base.root, sides.Range(commit))
    except DuckkbError:  # the commit is gone, or git is
        return None
    is_much = len(versions.paths) > _MOST_PARTS * len(base.tree.parts)
    return None if is_much or versions.findings or any(map(is_configuration, versions.paths)) else versions


def _noted(root: Path) -> str:
    try:
        told = json.loads(state.jotted(root, _FILE) or b"{}")
        commit = str(told["commit"]) if told["by"] == version_of("duckkb", "duckkb") else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return commit if re.fullmatch("[0-9a-f]{40,64}", commit) else ""


def _note(root: Path, commit: str) -> None:
    """Only where the files are those of the commit."""
    try:
        is_that = bool(commit) and not sides.read(root, sides.Range(commit)).paths
    except DuckkbError:
        return
    if is_that and commit != _noted(root):
        state.jot(root, _FILE, json.dumps({"commit": commit, "by": version_of("duckkb", "duckkb")}).encode() + b"\n")
