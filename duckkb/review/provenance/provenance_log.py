"""What became of one record, commit by commit, the newest first."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from duckkb.ontology.model import Ontology, RecordType
from duckkb.records import Identity
from duckkb.review.diff.compare import Types, compare
from duckkb.review.diff.model import Label, RecordChange, Versions
from duckkb.review.provenance.provenance import Ground, folder_of
from duckkb.review.provenance.provenance_lines import Finder, Place
from duckkb.truth.files.ids import hash_id
from duckkb.truth.files.table import StoredRow
from duckkb.truth.git import ancestry, revisions
from duckkb.truth.git.ancestry import Blobs, CommitStep, Signature
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a record, and who committed it; None where it is not committed. `is_boundary` says that history ends
    there, so that the record may be older."""

    by: Signature | None
    change: RecordChange
    is_boundary: bool = False


@dataclass(frozen=True, slots=True)
class _Event:
    """A commit (empty for none), and the record before and after it."""

    commit: str
    before: Place | None
    after: Place | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The record: its row where it exists now, else its identity."""

    kind: RecordType
    identity: Identity
    row: StoredRow | None = None


def changes(ground: Ground, ontology: Ontology, wanted: Wanted) -> list[Entry]:
    """The record's history; empty where nothing is known of it."""
    with Blobs(ground.root) as blobs:
        finder = Finder(wanted.kind, ground.limits, blobs)
        number = wanted.row.record.id if wanted.row else _lost_id(ground, finder, wanted)
        events = list(_events(ground, finder, number, wanted.row)) if number is not None else []
    by = ancestry.signatures(ground.root, (event.commit for event in events if event.commit))
    ends = ancestry.boundary(ground.root) if by else frozenset()
    told = [(event, _change(event, ontology, ground)) for event in events]
    return [Entry(by.get(event.commit), change, event.commit in ends) for event, change in told if change is not None]


def _lost_id(ground: Ground, finder: Finder, wanted: Wanted) -> int | None:
    """The `__id` of a record that is gone: as the last commit that had it says."""
    if ground.at is None:
        return None
    for step in ancestry.steps(ground.root, ground.at, folder_of(wanted.kind)):
        for touched in step.touched:
            found = finder.id_of(touched, wanted.identity)
            if found is not None:
                return found
    return hash_id(wanted.kind.kind, wanted.kind.table, wanted.identity)


def _events(ground: Ground, finder: Finder, number: int, row: StoredRow | None) -> Iterator[_Event]:
    now = Place(row.path, row.line, row.line_no) if row is not None else None
    if ground.at is None:
        yield _Event("", None, now)
        return
    entries = revisions.entries(ground.root, ground.at, (folder_of(finder.kind),))
    last = finder.among(entries, number, now.path if now else "")
    if _line(now) != _line(last):
        yield _Event("", last, now)
    waiting: dict[str, Place | None] = {}
    for step in ancestry.steps(ground.root, ground.at, folder_of(finder.kind)):
        after = waiting.pop(step.commit) if step.commit in waiting else last
        befores = _befores(finder, step, number, after)
        waiting |= zip(step.parents, befores, strict=True)
        if all(_line(before) != _line(after) for before in befores) and (befores or after):
            yield _Event(step.commit, befores[0] if befores else None, after)


def _befores(finder: Finder, step: CommitStep, number: int, after: Place | None) -> list[Place | None]:
    """The record in each parent of a commit."""
    found = []
    for touched in step.touched:
        old = {one.path: one.old for one in touched if one.old is not None}
        is_kept = after is not None and all(one.path != after.path for one in touched)
        found.append(after if is_kept else finder.among(old, number, after.path if after else ""))
    return found


def _line(place: Place | None) -> bytes | None:
    return place.line if place else None


def _change(event: _Event, ontology: Ontology, ground: Ground) -> RecordChange | None:
    """The two lines as a change; None where neither can be read as a record of today's type."""
    old, new = _file(event.before), _file(event.after)
    versions = Versions(Label("before"), Label("after"), old, new, (), tuple({**old, **new}))
    found = compare(versions, Types(ontology, ontology), ground.limits).changes
    if not found:
        return None
    (change,) = found[:1]
    before = replace(change.before, line_no=event.before.line_no) if change.before and event.before else None
    after = replace(change.after, line_no=event.after.line_no) if change.after and event.after else None
    return replace(change, before=before, after=after)


def _file(place: Place | None) -> Mapping[str, bytes]:
    return {place.path: place.line + b"\n"} if place else {}
