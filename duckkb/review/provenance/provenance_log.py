"""What became of one record, commit by commit, the newest first."""

from collections.abc import Iterator

from duckkb.ontology.model import RecordType
from duckkb.records import Identity
from duckkb.review.diff.compare import change_of
from duckkb.review.diff.model import RecordChange
from duckkb.review.provenance.provenance import Finder, HistorySource, LinePlace, folder_of
from duckkb.truth.files.ids import hash_id
from duckkb.truth.files.part import StoredRow
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Blobs, CommitStep, Signature
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One change of a record, and who committed it; None where it is not committed. `is_boundary` says that history ends
    there, so that the record may be older."""

    by: Signature | None
    change: RecordChange
    is_boundary: bool = False


@dataclass(frozen=True, slots=True)
class _Event:
    """A commit (empty for none), and the record before and after it."""

    commit: str
    before: LinePlace | None
    after: LinePlace | None


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """The record: its row where it exists now, else its identity."""

    kind: RecordType
    identity: Identity
    row: StoredRow | None = None


def changes(ground: HistorySource, wanted: TracedRecord) -> list[LogEntry]:
    """The record's history; empty where nothing is known of it."""
    with Blobs(ground.root) as blobs:
        finder = Finder(wanted.kind, ground.limits, blobs)
        number = wanted.row.record.id if wanted.row else _lost_id(ground, finder, wanted)
        events = list(_events(ground, finder, number, wanted.row)) if number is not None else []
    by = revisions.signatures(ground.root, (event.commit for event in events if event.commit))
    ends = revisions.boundary(ground.root) if by else frozenset()
    told = [(event, _change(event, finder)) for event in events]
    return [
        LogEntry(by.get(event.commit), change, event.commit in ends) for event, change in told if change is not None
    ]


def _lost_id(ground: HistorySource, finder: Finder, wanted: TracedRecord) -> int | None:
    """The `__id` of a record that is gone: as the last commit that had it says."""
    if ground.at is None:
        return None
    for step in revisions.steps(ground.root, ground.at, folder_of(wanted.kind)):
        for touched in step.touched:
            found = finder.id_of(touched, wanted.identity)
            if found is not None:
                return found
    return hash_id(wanted.kind.kind, wanted.kind.table, wanted.identity)


def _events(ground: HistorySource, finder: Finder, number: int, row: StoredRow | None) -> Iterator[_Event]:
    now = LinePlace(row.path, row.line, row.line_no) if row is not None else None
    if ground.at is None:
        yield _Event("", None, now)
        return
    entries = revisions.entries(ground.root, ground.at, (folder_of(finder.kind),))
    last = finder.among(entries, number, now.path if now else "")
    if _line(now) != _line(last):
        yield _Event("", last, now)
    waiting: dict[str, LinePlace | None] = {}
    for step in revisions.steps(ground.root, ground.at, folder_of(finder.kind)):
        after = waiting.pop(step.commit) if step.commit in waiting else last
        befores = _befores(finder, step, number, after)
        waiting |= zip(step.parents, befores, strict=True)
        if all(_line(before) != _line(after) for before in befores) and (befores or after):
            yield _Event(step.commit, befores[0] if befores else None, after)


def _befores(finder: Finder, step: CommitStep, number: int, after: LinePlace | None) -> list[LinePlace | None]:
    """The record in each parent of a commit."""
    found = []
    for touched in step.touched:
        old = {one.path: one.old for one in touched if one.old is not None}
        is_kept = after is not None and all(one.path != after.path for one in touched)
        found.append(after if is_kept else finder.among(old, number, after.path if after else ""))
    return found


def _line(found: LinePlace | StoredRow | None) -> bytes | None:
    return found.line if found else None


def _change(event: _Event, finder: Finder) -> RecordChange | None:
    """The two lines as a change; None where neither can be read as a record of today's type, or both say the same."""
    old, new = finder.row(event.before), finder.row(event.after)
    is_same = _line(old) == _line(new)
    return None if is_same else change_of(finder.kind, old, new)
