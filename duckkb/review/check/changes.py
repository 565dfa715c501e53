"""What a reviewer must be told of a change, as far as the files that it touches tell it: findings of a difference."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.records import CREATED_AT
from duckkb.review.diff.comparison import Comparison
from duckkb.review.diff.model import Diff, Move, RecordChange, RecordPlace, Versions
from duckkb.rules.files import misplaced
from duckkb.rules.homoglyphs import mixed_identity
from duckkb.rules.invisible_fields import invisible_in_change
from duckkb.settings import Shrink
from duckkb.truth.files.source_text import split
from duckkb.truth.git import revisions
from duckkb.truth.layout import Kind, part_folder

_INDICES = "data/indices/"


def findings_of(
    compared: Comparison, diff: Diff, *, whole: bool, allow_shrink: bool, allow_weaker: bool
) -> tuple[Finding, ...]:
    """Each once, by place: what is found twice is told as it was first. With `whole` both versions are held against every
    rule, and the files that a gate rests on are compared. `allow_shrink`: mass deletions are meant, `allow_weaker`: rules that
    are gone are no error."""
    told = [*compared.both.findings, *diff.findings, *_caches(compared.versions)]
    told += [*_masses(compared, diff, allow_shrink), *_of_records(diff)]
    if whole:
        from duckkb.review.check.guards import of_files
        from duckkb.review.check.regressions import regressions

        told += [*regressions(compared, diff), *of_files(compared)]
    if compared.both.old.documents != compared.both.new.documents:
        from duckkb.review.check.guards import of_configuration

        told += of_configuration(compared.both, diff.changes)
    if allow_weaker:
        from duckkb.review.check.guards import allowed

        told = [*allowed(told)]
    once: dict[tuple[Any, ...], Finding] = {}
    for one in told:
        once.setdefault((one.path, one.line, one.code, one.field, one.type, one.identity), one)
    return tuple(once[key] for key in sorted(once))


def _of_records(diff: Diff) -> Iterator[Finding]:
    renamed = {
        change.was: change.identity for change in diff.changes if change.kind == "node" and change.was is not None
    }
    for change in diff.changes:
        yield from _renamed(change, renamed)
        yield from _of_record(change)
    for move in diff.moves:
        if said := _misplaced(move.after):
            yield _finding("E_MISPLACED", said, move.after, move)


def _caches(versions: Versions) -> Iterator[Finding]:
    touched = [path for path in versions.paths if path.startswith(_INDICES)]
    if touched:
        many = f" ({len(touched):,} files)" if len(touched) > 1 else ""
        said = f"the team's cache is made on the main branch{many}; nobody can review it"
        remedy = f"git checkout {versions.base.commit[:12]} -- {_INDICES}"
        yield Finding("W_CACHE_IN_PR", said, touched[0], remedy=remedy)


def _masses(compared: Comparison, diff: Diff, allow_shrink: bool) -> Iterator[Finding]:
    """By the limits of the older version. How many records a table had is asked only where many changed."""
    moved = {(one.kind, one.id) for one in diff.changes if one.op == "insert"}  # as of a collection that was renamed
    counted = Counter(
        (one.kind, one.table, one.type, one.op == "delete")
        for one in diff.changes
        if one.before is not None and not (one.op == "delete" and (one.kind, one.id) in moved)
    )
    for (kind, table, name, is_deletion), number in sorted(counted.items()):
        limit = compared.both.old.shrink if is_deletion else Shrink()
        if number <= limit.records or number <= limit.most(before := _count_before(compared, kind, table)):
            continue
        code = ("W_MASS_DELETE" if allow_shrink else "E_SHRINK") if is_deletion else "W_MASS_CHANGE"
        said = f"the change {'removes' if is_deletion else 'edits'} {number:,} of {before:,} records"
        yield Finding(code, said, remedy=CODES[code].remedy, type=name)


def _count_before(compared: Comparison, kind: Kind, table: str) -> int:
    base = revisions.revision(compared.root, compared.versions.base.commit)
    return revisions.lines(compared.root, base, part_folder(kind, table))


def _renamed(change: RecordChange, nodes: Mapping[str, str]) -> Iterator[Finding]:
    """An edge that only followed a node which was renamed is as it was."""
    if change.was is None or change.after is None:
        return
    if change.kind == "edge":
        old, new = json.loads(change.was), json.loads(change.identity)
        if [nodes.get(str(one), one) if isinstance(one, str | int) else one for one in old] == new:
            return
    said = f"was {change.was}: links and citations by the old identity lead nowhere"
    yield _finding("W_RENAMED", said, change.after, change)


def _of_record(change: RecordChange) -> Iterator[Finding]:
    after = change.after
    if after is None:
        return
    if change.op != "insert":
        for field in change.fields:
            if field.name == CREATED_AT:
                yield _finding("W_CREATED_AT", f"was {field.before}, is {field.after}", after, change, f"/{CREATED_AT}")
    if said := _misplaced(after):
        yield _finding("E_MISPLACED", said, after, change)
    for field in change.fields:
        if found := invisible_in_change(field.name, field.before, field.after):
            yield _finding("W_INVISIBLE", found[1], after, change, found[0])
    if change.op in ("insert", "rename") and (said := mixed_identity(change.identity)):
        yield _finding("W_INVISIBLE", said, after, change)


def _misplaced(place: RecordPlace) -> str:
    created = split(place.line).get(CREATED_AT)
    return misplaced(place.path, json.loads(created[1])) if created else ""


def _finding(code: str, message: str, place: RecordPlace, of: RecordChange | Move, field: str = "") -> Finding:
    return Finding(code, message, place.path, place.line_no, field, CODES[code].remedy, of.type, of.identity)
