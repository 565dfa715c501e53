"""What a reviewer must be told of a change, as far as the files that it touches tell it: findings of a difference."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.records import CREATED_AT, component_of
from duckkb.review.diff.model import Diff, Move, Place, RecordChange, Versions
from duckkb.review.homoglyphs import hidden_in_change, mixed_identity
from duckkb.settings import Shrink
from duckkb.truth.files.source_text import split
from duckkb.truth.layout import Kind, parse_part
from duckkb.values import dataclass, field

_INDICES = "data/indices/"

Count = Callable[[Kind, str], int]
"""How many records a table or label had before the change."""


@dataclass(frozen=True, slots=True)
class Masses:
    """From where on many changes are told: `limit` is how many records a change may delete, by the older version's
    settings, and more is an error unless it is `allowed`. `count` is asked only for tables of which that many changed."""

    count: Count
    limit: Shrink = field(default_factory=Shrink)
    allowed: bool = False


def of_change(diff: Diff, versions: Versions, masses: Masses) -> Iterator[Finding]:
    """Warnings and errors that follow from the records that changed and the files that hold them."""
    yield from _caches(versions)
    yield from _masses(diff, masses)
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


def _masses(diff: Diff, masses: Masses) -> Iterator[Finding]:
    moved = {(one.kind, one.id) for one in diff.changes if one.op == "insert"}  # as of a collection that was renamed
    counted = Counter(
        (one.kind, one.table, one.type, one.op == "delete")
        for one in diff.changes
        if one.before is not None and not (one.op == "delete" and (one.kind, one.id) in moved)
    )
    for (kind, table, name, is_deletion), number in sorted(counted.items()):
        limit = masses.limit if is_deletion else Shrink()
        if number <= limit.records or number <= limit.most(before := masses.count(kind, table)):
            continue
        code = ("W_MASS_DELETE" if masses.allowed else "E_SHRINK") if is_deletion else "W_MASS_CHANGE"
        said = f"the change {'removes' if is_deletion else 'edits'} {number:,} of {before:,} records"
        yield Finding(code, said, remedy=CODES[code].remedy, type=name)


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
        if found := hidden_in_change(field.name, field.before, field.after):
            yield _finding("W_INVISIBLE", found[1], after, change, found[0])
    if change.op in ("insert", "rename") and (said := _mixed(change)):
        yield _finding("W_INVISIBLE", said, after, change)


def _misplaced(place: Place) -> str:
    address, created = parse_part(place.path), split(place.line).get(CREATED_AT)
    day = json.loads(created[1])[:10].replace("-", "") if created else ""
    wrong = address is not None and day and day != address.day
    return f"created on {day}, but stands in the folder of {address.day}" if wrong and address is not None else ""


def _mixed(change: RecordChange) -> str:
    text = change.identity
    if text.isascii():
        return ""
    try:
        parts = json.loads(text) if text.startswith("[") else [text]
        return mixed_identity(tuple(map(component_of, parts)))
    except ValueError:
        return mixed_identity((text,))


def _finding(code: str, message: str, place: Place, of: RecordChange | Move, field: str = "") -> Finding:
    return Finding(code, message, place.path, place.line_no, field, CODES[code].remedy, of.type, of.identity)
