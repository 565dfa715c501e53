"""Where records come from: origins of hits, blame, log, citations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from duckkb.actions.collecting import BaseNow
from duckkb.actions.reading import identified, line_of, row_named
from duckkb.actions.resolve import GivenIdentity, kind_named, positive, text_or_none
from duckkb.engine.base import Base
from duckkb.engine.draft import not_found
from duckkb.errors import NotFound, StateError, UsageError
from duckkb.ontology.model import EXTRACTED, RecordType
from duckkb.queries import Hit, Mode
from duckkb.records import identity_text
from duckkb.review.impact import why as explanation
from duckkb.review.impact.why import Why
from duckkb.review.provenance import history
from duckkb.review.provenance.citation import Citation
from duckkb.review.provenance.history import FieldOrigin, HistorySource, LineOrigin, LogEntry, Origin
from duckkb.search.plan import Intent
from duckkb.truth.files.part import StoredRow
from duckkb.truth.git import repository, revisions, run


class Provenance:
    """`kb.provenance`: what git knows of records. Every method raises `errors.StateError` (E_GIT) outside of a repository."""

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def of(self, hits: Sequence[Hit]) -> list[Origin]:
        """For each hit the commit that gave its record's line the form it has, and a citation of it."""
        with self._base() as base:
            ground = _ground(base)
            found: dict[tuple[str, int], Origin] = {}
            for name in dict.fromkeys(hit.type for hit in hits):
                kind = kind_named(base, name)
                rows = [row for hit in hits if hit.type == name and (row := base.tree.by_id(kind, hit.id)) is not None]
                origins = history.origins(ground, kind, rows)
                found |= {(name, number): origin for number, origin in origins.items()}
            return [_cited(found[hit.type, hit.id], base, hit) for hit in hits]

    def blame(self, type: str, identity: Any, field: str | None = None) -> list[FieldOrigin]:
        """For each field of a record the commit that gave it its value, or for each value of one of them or below a path
        (`names.fr`, `tags[0]`). Raises `errors.NotFound`."""
        with self._base() as base:
            kind, row = row_named(base, type, identity)
            name = f"{kind.name} {identity_text(row.record.identity)}"
            wanted = history.fields(_ground(base), kind, row, field)
            if not wanted:
                raise NotFound(f"{name} has no field {field!r}", suggestion=f"duckkb get {name}")
            return [replace(one, origin=replace(one.origin, uri=_uri(kind, row, one.origin))) for one in wanted]

    def lines(self, type: str, identity: Any, first: int | None = None, last: int | None = None) -> list[LineOrigin]:
        """For each run of lines of a document's text the commit that gave them, as `git blame` has it; with `first` or `last`
        (numbers of lines of the file, from 1) for the lines between these, front matter too. Empty for what is no text that was
        read as it is. Raises `errors.NotFound`, also for such lines, and `errors.UsageError`."""
        with self._base() as base:
            kind, row = row_named(base, type, identity)
            fields, name = row.record.fields, f"{kind.name} {identity_text(row.record.identity)}"
            text, begin = fields.get("text"), fields.get("text_line", 1)
            is_asked = first is not None or last is not None
            if kind.source is None or not text or fields["format"] in EXTRACTED:
                if is_asked:
                    said = f"{name} has no lines: only documents have that are text"
                    raise UsageError(said, suggestion=f"duckkb blame {name}")
                return []
            count = begin - 1 + text.count("\n") + (not text.endswith("\n"))
            begin = positive(1 if first is None else first, "the first line") if is_asked else begin
            end = count if last is None else positive(last, "the last line")
            if begin > min(end, count):
                raise NotFound(f"{name} has {count} lines, none from {begin} to {end}", suggestion=f"duckkb get {name}")
            found = history.lines(base.root, row.path, count, _ground(base).at if base.wiring.at else None)
            return [
                replace(one, first=max(one.first, begin), last=min(one.last, end))
                for one in found
                if one.last >= begin and one.first <= end
            ]

    def log(self, type: str, identity: Any) -> list[LogEntry]:
        """The changes of a record, the newest first, also of one that was deleted. Raises `errors.NotFound`."""
        with self._base() as base:
            kind, named = identified(base, type, identity)
            found = history.changes(_ground(base), kind, named, base.tree.get(kind, named))
            if not found:
                missing = not_found(kind, named)
                raise NotFound(f"{missing.message}, and history knows none", suggestion=missing.remedy)
            return found

    def cited(self, cited: Citation) -> dict[str, Any]:
        """The record that a citation names, in a base that was opened at its commit; `_chunk` where it names one."""
        with self._base() as base:
            kind, row = row_named(base, cited.type, cited.identity)
            line = line_of(kind, row)
            if cited.field is None:
                return line
            text = base.rows(kind).text(row.record.id, cited.field, cited.seq)
            if not text:
                raise NotFound(
                    f"{kind.name} {identity_text(row.record.identity)} has no chunk {cited.field}/{cited.seq}",
                    suggestion="leave out what stands behind #",
                )
            return line | {"_chunk": {"field": cited.field, "chunk_seq": cited.seq, "text": text}}


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
    """Why a question finds a record where it does, or does not find it. Raises as `find` and `get` do."""
    positive(limit)
    if not (text_or_none(query, "a query") or "").strip():
        raise UsageError("give the question that the record is missed by", suggestion="duckkb why TYPE IDENTITY QUERY")
    kind, row = row_named(base, type, identity)
    return explanation.why(base, kind, row, Intent(query, mode, where, limit, kinds=(kind,)))


def _ground(base: Base) -> HistorySource:
    """The revision that the base was read at, else HEAD; raises `errors.StateError` (E_GIT) outside of git."""
    at = base.wiring.at
    if at is None and repository.head_commit(base.root) is not None:
        at = revisions.revision(base.root, "HEAD")
    elif at is None:
        run.repository_of(base.root)
    elif not at.commit:
        raise StateError(
            f"{at.name} is a tree, and no commit", code="E_REVISION", suggestion="name a commit, branch or tag"
        )
    return HistorySource(base.root, at, base.limits)


def _cited(origin: Origin, base: Base, hit: Hit) -> Origin:
    kind = kind_named(base, hit.type)
    row = base.tree.by_id(kind, hit.id)
    assert row is not None, "a hit is a record"
    return replace(origin, uri=_uri(kind, row, origin, hit))


def _uri(kind: RecordType, row: StoredRow, origin: Origin, hit: Hit | None = None) -> str:
    commit = origin.by.commit if origin.by else None
    cited = Citation(kind.name, identity_text(row.record.identity), commit)
    if hit is not None and hit.chunk is not None:
        cited = replace(cited, field=hit.chunk.field, seq=hit.chunk.seq)
    return str(cited)
