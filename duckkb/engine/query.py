"""Find: narrow -> plan -> filter -> lanes -> fuse -> hits. A filter is a true pre-filter in every lane."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.vectors import Embedded, embed_query
from duckkb.errors import FilterError, shell_word
from duckkb.id_set import IdSet
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import did_you_mean, paths_inside
from duckkb.queries import ChunkRef, FindResult, Hit, Lane, LaneHit, LexicalQuery, Mode, Notice, Plan
from duckkb.records import identity_key, identity_value
from duckkb.search import explain, syntax
from duckkb.search.expand import feedback
from duckkb.search.fuse import Fused, fuse, ranked
from duckkb.search.plan import Ask, Capabilities, plan
from duckkb.settings import Expansion, Fusion
from duckkb.truth.files.line import etag
from duckkb.truth.files.part import StoredRow
from duckkb.values import dataclass, field

if TYPE_CHECKING:
    import numpy as np

Key = tuple[str, int]
_FEW = 256  # records that are looked up one by one; more are picked out of the ids of all parts
_NO_EXCLUSION = re.compile(r"'(?:[^']|'')*'|\bIS\s+NOT\b", re.IGNORECASE)  # texts, and IS NOT NULL
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_PATH = re.compile(r"(?<![\w.])[^\W\d]\w*(?:\.[^\W\d]\w*)+(?![\w(])")
_SOME_ROWS = 1_000  # in which the names inside a nested value are looked for
_MOST_NAMED = 3
_EXCLUDES = re.compile(r"<>|!=|!~|\bNOT\b", re.IGNORECASE)
_ENGINES: Mapping[Mode, str] = {"similar": "vector", "match": "fts", "hybrid": "hybrid", "where": "relational"}


@dataclass(frozen=True, slots=True)
class Intent:
    """What a caller wants, and of which types. `vector` is a question given as a vector (1-d, float32 after checking);
    `fusion` and `expansion` stand in for the policy's."""

    text: str | None = None
    mode: Mode | None = None
    where: str | None = None
    limit: int = 10
    vector: "np.ndarray | Sequence[float] | None" = None
    fusion: Fusion | None = None
    expansion: Expansion | None = None
    explain: bool = False
    kinds: tuple[RecordType, ...] = ()


@dataclass(frozen=True, slots=True)
class LaneResults:
    """What the lanes yielded: per lane a ranking of (type, id) with scores, and each record's hit there; the records
    that the question was moved towards; and those that the lexical lane has for their words alone, though they do not fit
    the operators, with what their scores were multiplied by to come behind those that do."""

    rankings: Mapping[Lane, Sequence[tuple[Key, float]]]
    hits: Mapping[Lane, Mapping[Key, LaneHit]]
    notices: tuple[Notice, ...] = ()
    expanded_by: tuple[Key, ...] = ()
    filled: Mapping[Key, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaneQuestion:
    """What the lanes are asked: words, the ids allowed by type (None for all), a vector (1-d) by type where there is one."""

    words: LexicalQuery
    allowed: Mapping[str, IdSet | None]
    vectors: "Mapping[str, np.ndarray | Sequence[float]]"


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a question: the lanes, and the records as they are fused. Behind the question as it is typed may come
    its plain words, whose scores were multiplied by `scale` to come there."""

    intent: Intent
    lanes: LaneResults
    fused: Sequence[Fused]
    scale: float = 1.0


@boot.answered
def find(base: Base, intent: Intent) -> FindResult:
    """Answer an intent; raises `errors.UsageError`, `errors.FilterError`, and `errors.Unavailable` where an explicit
    similar search has no usable model."""
    chosen = _plan(base, intent)
    allowed = _allowed(base, intent)
    if not chosen.lanes:
        return _filtered(base, intent, chosen, allowed)
    first = _read(base, intent, chosen, allowed)
    readings = [first, *_plainly(base, first, chosen, allowed)]
    hits = tuple(_hit(base, one, chosen, fused) for one in readings for fused in one.fused)[: chosen.limit]
    unsaid = (*_unsaid(base, intent), *_nowhere(base, intent, allowed))
    notices = (*boot.notices(base), *chosen.notices, *first.lanes.notices, *_said(readings, chosen), *unsaid)
    moved_to = [identity_value(_row(base, key)[1].record.identity) for key in first.lanes.expanded_by]
    account = explain.plan_account(chosen, moved_to) if intent.explain else None
    return FindResult(hits, chosen.mode, _ENGINES[chosen.mode], notices, account)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Everything that a search ranks: each lane to its end, beyond the plan's depth; what the plan makes of them, beyond its
    limit, of which the first `fitting` are found by the question as it is typed and the others by its plain words; and by
    type the ids that a filter allows, None without one."""

    plan: Plan
    lanes: LaneResults
    fused: Sequence[Fused]
    fitting: int
    allowed: Mapping[str, IdSet | None]


@boot.answered
def rank(base: Base, intent: Intent) -> Ranked:
    """As `find`, without cutting anything off; raises as it does. For a question with a text or a vector."""
    chosen, allowed = _plan(base, intent), _allowed(base, intent)
    records = max(sum(base.tree.count(kind) for kind in intent.kinds), chosen.depth)
    first = _read(base, intent, chosen, allowed, records)
    plain = _plainly(base, first, chosen, allowed, records)
    fused = [*first.fused, *(one for reading in plain for one in reading.fused)]
    return Ranked(chosen, first.lanes, fused, len(first.fused), allowed)


def _read(base: Base, intent: Intent, chosen: Plan, allowed: Mapping[str, IdSet | None], beyond: int = 0) -> Reading:
    """Run each lane over every type, rank across types, fuse. To see what lies `beyond` what counts and is given, so many are
    ranked."""
    deep = replace(chosen, limit=max(chosen.limit, beyond), depth=max(chosen.depth, beyond))
    words, in_vectors = syntax.parse(intent.text or ""), "vector" in deep.lanes
    embedded = embed_query(base, intent.kinds, intent.text, intent.vector, deep) if in_vectors else Embedded({})
    question = LaneQuestion(words, allowed, embedded.vectors)
    expanded_by: tuple[Key, ...] = ()
    for kinds in _by_model(intent.kinds, question.vectors) if deep.expansion.method == "feedback" else ():
        question, moved_to = _expanded(base, kinds, deep, question)
        expanded_by += moved_to
    hits = {lane: _lane(base, intent.kinds, lane, deep, question) for lane in deep.lanes}
    rankings = {lane: _ranking(base, found, deep.depth) for lane, found in hits.items()}
    filled: dict[Key, float] = {}
    if "fts" in hits and (words.phrases or words.prefixes) and len(hits["fts"]) < deep.depth:
        rankings["fts"], hits["fts"], filled = _filled(base, intent.kinds, deep, question, rankings["fts"])
    lanes = LaneResults(rankings, hits, embedded.notices, expanded_by, filled)
    counting = {lane: ranking[: chosen.depth] for lane, ranking in rankings.items()}
    return Reading(intent, lanes, _fused(base, deep, counting))


def _plainly(
    base: Base, first: Reading, chosen: Plan, allowed: Mapping[str, IdSet | None], beyond: int = 0
) -> list[Reading]:
    """Where the question as it is typed finds fewer records than are asked for because it excludes some: its plain words, with
    what is new by them."""
    text = first.intent.text or ""
    if "fts" not in chosen.lanes or len(first.fused) >= chosen.limit or not syntax.parse(text).excluded:
        return []
    plain = _read(base, replace(first.intent, text=syntax.plain(text)), chosen, allowed, beyond)
    known = {one.key for one in first.fused}
    new = [one for one in plain.fused if one.key not in known]
    scale = _behind([one.score for one in first.fused], [one.score for one in new])
    return [replace(plain, fused=[replace(one, score=one.score * scale) for one in new], scale=scale)]


def _behind(scores: Iterable[float], following: Iterable[float]) -> float:
    """What the scores that follow are multiplied by so that none is above those before. None of them is negative."""
    lowest, highest = min(scores, default=math.inf), max(following, default=0.0)
    return lowest / highest if highest > lowest else 1.0


def _said(readings: Sequence[Reading], chosen: Plan) -> tuple[Notice, ...]:
    """That some of what is given does not fit the question as it is typed."""
    found = [(one, reading) for reading in readings for one in reading.fused][: chosen.limit]
    count = sum(reading is not readings[0] or one.key in reading.lanes.filled for one, reading in found)
    if not count:
        return ()
    fit = f"{len(found) - count} of {len(found)} results" if count < len(found) else "no result"
    verb = "fit" if len(found) - count > 1 else "fits"
    said = f"{fit} {verb} the question with its quotes, dashes and stars; the others were found by its plain words"
    return (Notice("W_PLAIN", said, "leave the signs out, or ask for fewer with --limit"),)


def _plan(base: Base, intent: Intent) -> Plan:
    ask = Ask(
        mode=intent.mode,
        limit=intent.limit,
        records=sum(base.tree.count(kind) for kind in intent.kinds),
        has_text=bool(intent.text and intent.text.strip()),
        has_vector=intent.vector is not None,
        has_where=intent.where is not None,
        where=intent.where or "",
        fusion=intent.fusion,
        expansion=intent.expansion,
    )
    can = Capabilities(model=base.settings.embedding.model != "none")
    return plan(ask, intent.kinds, base.settings, can)


def _allowed(base: Base, intent: Intent) -> dict[str, IdSet | None]:
    """By type, the ids that satisfy the filter; None where there is no filter."""
    if intent.where is None:
        return {kind.name: None for kind in intent.kinds}
    return {kind.name: base.sql.where(kind, intent.where) for kind in intent.kinds}


def _unsaid(base: Base, intent: Intent) -> tuple[Notice, ...]:
    """What a filter that excludes something skips because it says nothing of it: records without the field are neither equal
    nor unequal to a value."""
    if intent.where is None or not _EXCLUDES.search(_NO_EXCLUSION.sub(" ", intent.where)):
        return ()
    decided = (intent.where, f"NOT ({intent.where}\n)")
    try:
        counts = [len(base.sql.where(kind, condition)) for kind in intent.kinds for condition in decided]
    except FilterError:  # the longer one is over a limit
        return ()
    skipped = sum(base.tree.count(kind) for kind in intent.kinds) - sum(counts)
    if not skipped:
        return ()
    records = "1 record is" if skipped == 1 else f"{skipped:,} records are"
    message = f"{records} left out, being neither in nor out of the filter: a value that it compares is missing"
    return (Notice("W_SKIPPED", message, f"to have them too: -w {shell_word(f'coalesce(({intent.where}), TRUE)')}"),)


def _nowhere(base: Base, intent: Intent, allowed: Mapping[str, IdSet | None]) -> tuple[Notice, ...]:
    """Where a filter lets nothing through, the paths in it that lead to no value in any record: slips of a name inside a
    nested value, which no schema knows."""
    if intent.where is None or any(allowed.values()):
        return ()
    lacking = [
        (kind, path)
        for path in dict.fromkeys(_PATH.findall(_QUOTED.sub(" ", intent.where)))
        for kind in intent.kinds
        if base.tree.count(kind) and not _has_value(base, kind, path)
    ]
    notices = []
    for kind, path in lacking[:_MOST_NAMED]:
        some = (row.record.fields for row in islice(base.tree.rows(kind), _SOME_ROWS))
        said = f"no record of {kind.name} has {path}"
        notices.append(Notice("W_NO_VALUE", said, did_you_mean(path, paths_inside(some, path))))
    return tuple(notices)


def _has_value(base: Base, kind: RecordType, path: str) -> bool:
    try:
        return len(base.sql.where(kind, f"{path} IS NOT NULL")) > 0
    except FilterError:  # the name of a function's result, or of a variable
        return True


def _filtered(base: Base, intent: Intent, chosen: Plan, allowed: Mapping[str, IdSet | None]) -> FindResult:
    """A structured filter: every record that satisfies it, ordered by identity."""
    rows = [(kind, row) for kind in intent.kinds for row in _rows(base, kind, allowed[kind.name] or IdSet.of(()))]
    rows.sort(key=lambda pair: identity_key(pair[1].record.identity))
    hits = tuple(_shown(kind, row, "relational") for kind, row in rows[: chosen.limit])
    account = explain.plan_account(chosen) if intent.explain else None
    unsaid = (*_unsaid(base, intent), *_nowhere(base, intent, allowed), *_more(len(rows), chosen.limit))
    return FindResult(hits, "where", "relational", (*boot.notices(base), *chosen.notices, *unsaid), account)


def _more(satisfy: int, limit: int) -> tuple[Notice, ...]:
    """That a filter alone lets more through than are given: an unranked answer has no tail that matters less."""
    if satisfy <= limit:
        return ()
    return (Notice("W_TRUNCATED", f"{limit:,} of {satisfy:,} records that satisfy the filter", f"--limit {satisfy}"),)


def _rows(base: Base, kind: RecordType, ids: IdSet) -> Iterator[StoredRow]:
    """The rows of these records: one by one where they are few, else part by part."""
    if len(ids) > _FEW:
        return base.tree.among(kind, frozenset(ids))
    return (row for record_id in ids if (row := base.tree.by_id(kind, record_id)) is not None)


def _shown(kind: RecordType, row: StoredRow, engine: str, score: float | None = None, **more: Any) -> Hit:
    record = row.record
    return Hit(
        type=kind.name,
        id=record.id,
        identity=identity_value(record.identity),
        score=score,
        engine=engine,
        record=dict(record.fields),
        etag=etag(row.line),
        times=(record.created_at, record.updated_at),
        **more,
    )


def _filled(
    base: Base, kinds: Sequence[RecordType], chosen: Plan, question: LaneQuestion, strict: Sequence[tuple[Key, float]]
) -> tuple[list[tuple[Key, float]], dict[Key, LaneHit], dict[Key, float]]:
    """The lexical lane filled to its depth: behind the records that have the phrases and open ends of the question, those
    that have its words. A quoted word is often a quotation."""
    found = _lane(base, kinds, "fts", chosen, replace(question, words=question.words.relaxed))
    known = {key for key, _ in strict}
    new = [(key, score) for key, score in _ranking(base, found, chosen.depth) if key not in known]
    new = new[: chosen.depth - len(strict)]
    scale = _behind([score for _, score in strict], [score for _, score in new])
    hits = {key: LaneHit(key[1], score) for key, score in strict} | {key: found[key] for key, _ in new}
    return [*strict, *((key, score * scale) for key, score in new)], hits, {key: scale for key, _ in new}


def _expanded(
    base: Base, kinds: Sequence[RecordType], chosen: Plan, question: LaneQuestion
) -> tuple[LaneQuestion, tuple[Key, ...]]:
    """The question of types with one model moved towards its first hits there, and which these were. How many are asked
    for does not depend on the limit, so that a record's rank does not either."""
    first = replace(chosen, depth=chosen.expansion.hits)
    hits = _lane(base, kinds, "vector", first, question)
    keys = [key for key, _ in _ranking(base, hits, first.depth)]
    found = [
        entry.vector.tolist()
        for key in keys
        for entry in base.rows(_row(base, key)[0])[key[1]].entries
        if (entry.field, entry.seq) == (hits[key].field, hits[key].seq) and entry.vector is not None
    ]
    moved = feedback([float(value) for value in question.vectors[kinds[0].name]], found, chosen.expansion.weight)
    return replace(question, vectors={**question.vectors, **{kind.name: moved for kind in kinds}}), tuple(keys)


def _by_model(kinds: Sequence[RecordType], vectors: Mapping[str, Any]) -> list[list[RecordType]]:
    """The types that are asked by vector, those together that are asked by one and the same."""
    groups: dict[int, list[RecordType]] = {}
    for kind in kinds:
        if kind.name in vectors:
            groups.setdefault(id(vectors[kind.name]), []).append(kind)
    return list(groups.values())


def _lane(
    base: Base, kinds: Sequence[RecordType], lane: Lane, chosen: Plan, question: LaneQuestion
) -> dict[Key, LaneHit]:
    """What one lane finds over all types; nothing where it was given up. A hybrid search honours `-word` in both lanes."""
    hits: dict[Key, LaneHit] = {}
    for kind in kinds:
        words, allowed, lanes = question.words, question.allowed[kind.name], base.lanes(kind)
        found: Sequence[LaneHit] = ()
        if lane == "fts" and kind.full_text:
            found = lanes.words.ask(words, chosen.depth, allowed)
        elif lane == "vector" and kind.name in question.vectors:
            if chosen.mode == "hybrid" and words.excluded and kind.full_text:
                everything = allowed if allowed is not None else IdSet.of(base.tree.ids(kind))
                allowed = everything.without(lanes.words.excluded(words))
            found = lanes.vectors.ask(question.vectors[kind.name], chosen.depth, allowed)
        hits |= {(kind.name, hit.id): hit for hit in found}
    return hits


def _ranking(base: Base, hits: Mapping[Key, LaneHit], depth: int) -> list[tuple[Key, float]]:
    """Hits of all types in one order; those of one come in it."""
    if len({name for name, _ in hits}) < 2:
        return [(key, hit.score) for key, hit in islice(hits.items(), depth)]
    scores = {key: hit.score for key, hit in hits.items()}
    return [(key, scores[key]) for key in ranked(scores, lambda key: _tie(base, key), depth)]


def _tie(base: Base, key: Key) -> Any:
    return identity_key(_row(base, key)[1].record.identity), key[0]


def _row(base: Base, key: Key) -> tuple[RecordType, StoredRow]:
    kind = base.ontology.find(key[0])
    row = base.tree.by_id(kind, key[1]) if kind else None
    assert kind is not None and row is not None, "a lane returns ids that exist"
    return kind, row


def _fused(base: Base, chosen: Plan, rankings: Mapping[Lane, Sequence[tuple[Key, float]]]) -> list[Fused]:
    """One lane keeps its own scores; two are fused by the plan. A hybrid search that lost a lane fuses what is left."""
    if chosen.mode == "hybrid":
        return fuse(rankings, chosen.fusion, lambda key: _tie(base, key), chosen.limit)
    lane = chosen.lanes[0]
    return [Fused(key, score, {lane: score}, {lane: rank}) for rank, (key, score) in enumerate(rankings[lane], 1)]


def _words(reading: Reading, key: Key) -> LexicalQuery:
    """What the lexical lane has this record for."""
    words = syntax.parse(reading.intent.text or "")
    return words.relaxed if key in reading.lanes.filled else words


def _hit(base: Base, reading: Reading, chosen: Plan, one: Fused) -> Hit:
    kind, row = _row(base, one.key)
    trace = None
    if reading.intent.explain:
        words = base.lanes(kind).words.explain(_words(reading, one.key), row.record.id) if "fts" in one.ranks else None
        trace = explain.trace(one, chosen, words, (reading.lanes.filled.get(one.key, 1.0), reading.scale))
    scores = explain.score_account(one, chosen) if chosen.mode == "hybrid" else None
    chunk = _chunk(base, kind, reading, one)
    return _shown(kind, row, _ENGINES[chosen.mode], one.score, scores=scores, chunk=chunk, trace=trace)


def _chunk(base: Base, kind: RecordType, reading: Reading, one: Fused) -> ChunkRef | None:
    """The chunk is shown of the lane in which the record ranks best; the vector lane goes first on a tie."""
    lane = min(one.ranks, key=lambda lane: (one.ranks[lane], lane != "vector"))
    hit = reading.lanes.hits[lane][one.key]
    field, seq = hit.field, hit.seq
    if lane == "fts":
        field, seq = base.lanes(kind).words.chunk(_words(reading, one.key), hit.id)
    text = base.rows(kind).text(hit.id, field, seq)
    return ChunkRef(field, seq, text) if text else None
