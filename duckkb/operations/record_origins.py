"""Origins of records: of hits, blame, log, and citations."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb import config
from duckkb.engine.base import Base
from duckkb.engine.boot import config_files
from duckkb.engine.rank_fusion import Intent
from duckkb.engine.write_draft import make_not_found_finding
from duckkb.ontology.model import EXTRACTED, Ontology, RecordType
from duckkb.operations.collections import BaseNow
from duckkb.operations.lifecycle import OpenOptions
from duckkb.operations.name_resolution import GivenIdentity, find_kind, positive, text_or_none
from duckkb.operations.record_lookup import find_row, line_of, parse_identity
from duckkb.review import explanation, history
from duckkb.review.explanation import Why
from duckkb.review.history import COMMIT_DIGITS, Citation, FieldOrigin, HistorySource, LineOrigin, LogEntry, Origin
from duckkb.storage import git_process, repository, revisions
from duckkb.storage.git_facts import History, Sample, sample_history
from duckkb.storage.part import StoredRow
from duckkb.storage.revisions import Revision
from duckkb.types.errors import DuckkbError, NotFound, Refused, StateError, UsageError
from duckkb.types.queries import Hit, Mode
from duckkb.types.records import ID, identity_text, record_arguments
from duckkb.types.settings import Settings


class Provenance:
    """The actions `kb.provenance` on the git history of records.

    Each raises `errors.StateError` (E_GIT) outside git.
    """

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def list_origins(self, hits: Sequence[Hit]) -> list[Origin]:
        """Return for each hit the commit that last changed its record's line, and a citation of it."""
        with self._base() as base:
            return origins_of(base, hits)

    def blame(self, type: str, identity: Any, field: str | None = None) -> list[FieldOrigin]:
        """Return for each field of a record the commit that set its value.

        With a `field` or path (`names.fr`, `tags[0]`), returns this for each value inside it. Raises
        `errors.NotFound`.
        """
        with self._base() as base:
            return blame(base, type, identity, field)

    def lines(self, type: str, identity: Any, first: int | None = None, last: int | None = None) -> list[LineOrigin]:
        """Return for each run of lines of a document's text the commit that wrote them, as `git blame` does.

        `first` and `last` (line numbers of the file, from 1) limit the lines, front matter included. Empty for
        text that is not a file's own. Raises `errors.NotFound`, also for such lines, and `errors.UsageError`.
        """
        with self._base() as base:
            kind, row = find_row(base, type, identity)
            fields, name = row.record.fields, f"{kind.name} {identity_text(row.record.identity)}"
            text, begin = fields.get("text"), fields.get("text_line", 1)
            command = record_arguments(kind.name, row.record.identity)
            has_range = first is not None or last is not None
            if kind.source is None or not text or fields["format"] in EXTRACTED:
                if has_range:
                    message = f"{name} has no lines; only text documents have lines"
                    raise UsageError(message, suggestion=f"duckkb blame {command}")
                return []
            count = begin - 1 + text.count("\n") + (not text.endswith("\n"))
            begin = positive(1 if first is None else first, "the first line") if has_range else begin
            end = count if last is None else positive(last, "the last line")
            if begin > min(end, count):
                raise NotFound(
                    f"{name} has {count} lines, none from {begin} to {end}", suggestion=f"duckkb get {command}"
                )
            origins = history.lines(base.root, row.path, count, ground(base).at if base.wiring.at else None)
            return [
                replace(origin, first=max(origin.first, begin), last=min(origin.last, end))
                for origin in origins
                if origin.last >= begin and origin.first <= end
            ]

    def log(self, type: str, identity: Any) -> list[LogEntry]:
        """Return the changes of a record, the newest first, also of a deleted record. Raises `errors.NotFound`."""
        with self._base() as base:
            return log(base, type, identity)

    def resolve_citation(self, cited: Citation) -> dict[str, Any]:
        """Resolve a citation as `resolve_citation`, also in a base opened at the cited commit."""
        with self._base() as base:
            return resolve_citation(base, cited)


def origins_of(base: Base, hits: Sequence[Hit]) -> list[Origin]:
    """Return for each hit the commit that last changed its record's line, and a citation of it."""
    found_in = ground(base)
    origins_by_id: dict[tuple[str, int], Origin] = {}
    for name in dict.fromkeys(hit.type for hit in hits):
        kind = find_kind(base, name)
        rows = [row for hit in hits if hit.type == name and (row := base.tree.find_by_id(kind, hit.id)) is not None]
        origins = history.origins(found_in, kind, rows)
        origins_by_id |= {(name, number): origin for number, origin in origins.items()}
    is_read_alike = cache(partial(_read_at, base))
    return [_cite_origin(origins_by_id[hit.type, hit.id], base, hit, is_read_alike) for hit in hits]


def resolve_citation(base: Base, cited: Citation) -> dict[str, Any]:
    """Return the record that a citation names as it was then, with `_chunk` where it names one.

    `_since` is added where the record differs now: `changed` in which `fields`, `renamed` to which `identity`,
    or `deleted`. Raises `errors.NotFound`, also for a record no longer at the cited version; `errors.Refused`
    (E_FORBIDDEN) for a commit, which callers who see a part may not know; `errors.StateError` (E_REVISION,
    E_GIT).
    """
    if cited.at is None:
        return _read_citation(base, cited)
    if base.is_narrowed:
        message = "the history needs access to the whole base"
        raise Refused(message, "E_FORBIDDEN", "leave out the @commit")
    if base.wiring.at is None:
        with closing(base.wiring.beside(cited.at)) as then:
            record = _read_citation(then, cited)
        return record | _since(base, cited, record)
    record = _read_citation(base, cited)
    with suppress(DuckkbError), closing(base.wiring.beside(None)) as now:  # a base that is broken now cannot tell
        record |= _since(now, cited, record)
    return record


def _read_citation(base: Base, citation: Citation) -> dict[str, Any]:
    kind, row = find_row(base, citation.type, citation.identity)
    line = line_of(kind, row)
    if citation.version not in ("", line["_etag"]):
        name = f"{kind.name} {identity_text(row.record.identity)}"
        message = f"{name} has changed since it was cited, before it was committed"
        raise NotFound(message, suggestion=f"duckkb log {record_arguments(kind.name, row.record.identity)}")
    if citation.field is None:
        return line
    text = base.rows(kind).text(row.record.id, citation.field, citation.seq)
    if not text:
        raise NotFound(
            f"{kind.name} {identity_text(row.record.identity)} has no chunk {citation.field}/{citation.seq}",
            suggestion="leave out the part after #",
        )
    return line | {"_chunk": {"field": citation.field, "chunk_seq": citation.seq, "text": text}}


def _since(now: Base, citation: Citation, then: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a cited record has changed; empty where it has not. It is identified by its id."""
    kind = now.ontology.find(citation.type)
    row = now.tree.find_by_id(kind, then[ID]) if kind is not None else None
    if kind is None or row is None:
        return {"_since": {"state": "deleted"}}
    was, is_now = (
        {name: value for name, value in line.items() if not name.startswith("_")} for line in (then, line_of(kind, row))
    )
    fields = sorted(name for name in was.keys() | is_now.keys() if was.get(name) != is_now.get(name))
    identity = identity_text(row.record.identity)
    if identity != citation.identity:
        return {"_since": {"state": "renamed", "identity": identity, "fields": fields}}
    return {"_since": {"state": "changed", "fields": fields}} if fields else {}


def blame(base: Base, type: str, identity: GivenIdentity, field: str | None = None) -> list[FieldOrigin]:
    """Return the origins of a record's fields. As `Provenance.blame`, of a base."""
    kind, row = find_row(base, type, identity)
    name, command = (
        f"{kind.name} {identity_text(row.record.identity)}",
        record_arguments(kind.name, row.record.identity),
    )
    field_origins = history.fields(ground(base), kind, row, field)
    if not field_origins:
        raise NotFound(f"{name} has no field {field!r}", suggestion=f"duckkb get {command}")
    return [
        replace(field_origin, origin=replace(field_origin.origin, uri=_build_uri(kind, row, field_origin.origin)))
        for field_origin in field_origins
    ]


def log(base: Base, type: str, identity: GivenIdentity) -> list[LogEntry]:
    """Return the changes of a record. As `Provenance.log`, of a base."""
    kind, record_identity = parse_identity(base, type, identity)
    entries = history.changes(ground(base), kind, record_identity, base.tree)
    if not entries:
        missing = make_not_found_finding(kind, record_identity, base.tree)
        raise NotFound(
            f"the history has {missing.message}", suggestion=missing.remedy.replace("duckkb get ", "duckkb log ")
        )
    return entries


def why(
    base: Base,
    type: str,
    identity: GivenIdentity,
    query: str,
    *,
    mode: Mode | None = None,
    where: str | None = None,
    limit: int = 10,
) -> Why:
    """Explain why a question does or does not find a record, and at which rank. Raises as `find` and `get` do."""
    positive(limit)
    if not (text_or_none(query, "a query") or "").strip():
        raise UsageError(
            "give the question for which the record is missing", suggestion="duckkb why TYPE IDENTITY QUERY"
        )
    kind, row = find_row(base, type, identity)
    return explanation.why(base, kind, row, Intent(query, mode, where, limit, kinds=(kind,)))


def ground(base: Base) -> HistorySource:
    """Return the revision that the base was read at, else HEAD; raises `errors.StateError` (E_GIT) outside git."""
    at = base.wiring.at
    if at is None and repository.head_commit(base.root) is not None:
        at = revisions.revision(base.root, "HEAD")
    elif at is None:
        git_process.repository_of(base.root)
    elif not at.commit:
        raise StateError(
            f"{at.name} is a tree, not a commit", code="E_REVISION", suggestion="name a commit, branch or tag"
        )
    return HistorySource(base.root, at, base.limits)


def read_alike(base: Base, at: Revision) -> Callable[[RecordType], bool]:
    """Return a test whether a commit's configuration names and cuts a type's records as the base does.

    Citations resolve by the commit's own configuration, and files of the base may be uncommitted. Raises
    `errors.DuckkbError` where it is missing or does not load.
    """
    base_revision = base.wiring.at
    if base.wiring.published or (
        _is_configured_so(base, at) if base_revision is None else base_revision.commit == at.commit
    ):
        return lambda kind: True
    then, _ = base.wiring.wire(base.root, OpenOptions(at=at.commit))

    def is_alike(kind: RecordType) -> bool:
        was = then.ontology.find(kind.name)
        return was is not None and _collect_search_settings(was, then.settings) == _collect_search_settings(
            kind, base.settings
        )

    return is_alike


def _is_configured_so(base: Base, at: Revision) -> bool:
    files = config_files(base.root, at)
    with suppress(OSError):
        return {path: (base.root / path).read_bytes() for path in config.paths(base.root)} == files
    return False


def _collect_search_settings(kind: RecordType, settings: Settings) -> tuple[object, ...]:
    """Return the settings by which a type's records are searched, and their texts cut."""
    type_settings = kind.settings(settings)
    cut = type_settings.chunk_size, type_settings.embedding.reads, kind.full_text, kind.vectors
    return kind.name, kind.kind, kind.table, kind.identity_fields, kind.source is None, cut


def history_of(base: Base, places: Callable[[Path, Ontology], Sequence[str]], most: int) -> History | None:
    """Return at most `most` (2 or more) commits that touched a base's places, as `sampled` chooses them.

    None outside git and before the first commit; None for a published base and for callers who see a part,
    whose types may have differed then.
    """
    if base.is_narrowed or base.wiring.published:
        return None
    if base.wiring.at is None and repository.head_commit(base.root) is None:
        return History()
    at = ground(base).at
    assert at is not None, "there is a commit"
    return sample_history(base.root, at, places(base.root, base.ontology), most)


def sample_line(sample: Sample) -> dict[str, Any]:
    """Return a commit of a history as actions give it: `number` counts from 1, the oldest."""
    by = sample.by
    return {"commit": by.commit, "number": sample.number, "date": by.date, "author": by.author, "summary": by.summary}


def _read_at(base: Base, commit: str) -> Callable[[RecordType], bool]:
    with suppress(DuckkbError):
        return read_alike(base, revisions.revision(base.root, commit))
    return lambda kind: False


def _cite_origin(
    origin: Origin, base: Base, hit: Hit, is_read_alike: Callable[[str], Callable[[RecordType], bool]]
) -> Origin:
    """Return an origin whose citation has no chunk where the commit does not cut the record in the same way."""
    kind = find_kind(base, hit.type)
    row = base.tree.find_by_id(kind, hit.id)
    assert row is not None, "a hit is a record"
    has_chunk = hit.chunk is not None and (origin.by is None or is_read_alike(origin.by.commit)(kind))
    return replace(origin, uri=_build_uri(kind, row, origin, hit if has_chunk else None))


def _build_uri(kind: RecordType, row: StoredRow, origin: Origin, hit: Hit | None = None) -> str:
    commit = origin.by.commit[:COMMIT_DIGITS] if origin.by else None
    citation = Citation(kind.name, identity_text(row.record.identity), commit)
    if hit is not None and hit.chunk is not None:
        citation = replace(citation, field=hit.chunk.field, seq=hit.chunk.seq)
    return str(citation)
