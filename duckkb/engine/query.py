"""Find: narrow -> plan -> filter -> lanes -> fuse -> hits. A filter is a true pre-filter in every lane."""

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.beside import vectors_made_beside
from duckkb.engine.vectors import Vector, embed_query
from duckkb.errors import FilterError, shell_word
from duckkb.id_set import IdSet
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import did_you_mean, paths_inside
from duckkb.queries import ChunkRef, FindResult, Hit, Lane, LaneHit, LexicalQuery, Mode, Notice, Plan
from duckkb.records import identity_key, identity_value
from duckkb.search import ranking, syntax
from duckkb.search.plan import Intent, plan
from duckkb.search.ranking import Fused, Gate, feedback, fuse, ranked
from duckkb.steps import step, stepped
from duckkb.truth.files.line import etag
from duckkb.truth.files.part import StoredRow
from duckkb.values import dataclass, field

Key = tuple[str, int]
Allowed = Mapping[str, IdSet | None]
"""By type the ids that a filter lets through; None without one."""
_FEW = 256  # records that are looked up one by one; more are picked out of the ids of all parts
_NO_EXCLUSION = re.compile(r"'(?:[^']|'')*'|\bIS\s+NOT\b", re.IGNORECASE)  # texts, and IS NOT NULL
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_PATH = re.compile(r"(?<![\w.])[^\W\d]\w*(?:\.[^\W\d]\w*)+(?![\w(])")
_SOME_ROWS = 1_000  # in which the names inside a nested value are looked for
_MOST_NAMED = 3
_EXCLUDES = re.compile(r"<>|!=|!~|\bNOT\b", re.IGNORECASE)
_ENGINES: Mapping[Mode, str] = {"similar": "vector", "match": "fts", "hybrid": "hybrid", "where": "relational"}


@dataclass(frozen=True, slots=True)
class QuestionReading:
    """What the lanes have for one reading of a question: per lane a ranking of (type, id) with scores, each record's hit
    there, and the records as they are fused.

    `expanded_by` are the records that the question was moved towards. `filled` are those that the lexical lane has for their
    words alone, though they do not fit the operators, with what their scores were multiplied by to come behind those that
    do. Behind the question as it is typed may come its plain words, whose scores were multiplied by `scale` to come there.
    Where the `gate` closed, the lexical ranking is there, and nothing in `fused` is for it."""

    words: LexicalQuery
    rankings: Mapping[Lane, Sequence[tuple[Key, float]]]
    hits: Mapping[Lane, Mapping[Key, LaneHit]]
    fused: Sequence[Fused]
    notices: tuple[Notice, ...] = ()
    expanded_by: tuple[Key, ...] = ()
    filled: Mapping[Key, float] = field(default_factory=dict)
    scale: float = 1.0
    gate: Gate | None = None

    def words_of(self, key: Key) -> LexicalQuery:
        """What the lexical lane has this record for."""
        return self.words.relaxed if key in self.filled else self.words


@boot.answered
def find(base: Base, intent: Intent) -> FindResult:
    """Answer an intent; raises `errors.UsageError`, `errors.FilterError`, and `errors.Unavailable` where an explicit
    similar search has no usable model."""
    chosen = _plan(base, intent)
    allowed = _allowed(base, intent)
    if not chosen.lanes:
        return _filtered(base, intent, chosen, allowed)
    search = Search(base, intent, chosen, allowed)
    first = search.read(intent.text or "")
    readings = [first, *search.plainly(first)]
    hits = tuple(search.hit(one, fused) for one in readings for fused in one.fused)[: chosen.limit]
    unsaid = (*_unsaid(base, intent), *_nowhere(base, intent, allowed))
    notices = (*boot.notices(base), *chosen.notices, *first.notices, *_said(readings, chosen), *unsaid)
    moved_to = [identity_value(_row(base, key)[1].record.identity) for key in first.expanded_by]
    account = ranking.plan_account(chosen, moved_to, first.gate) if intent.explain else None
    return FindResult(hits, chosen.mode, _ENGINES[chosen.mode], notices, account)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Everything that a search ranks: each lane to its end, beyond the plan's depth; what the plan makes of them, beyond its
    limit, of which the first `fitting` are found by the question as it is typed and the others by its plain words."""

    plan: Plan
    lanes: QuestionReading
    fused: Sequence[Fused]
    fitting: int
    allowed: Allowed


@boot.answered
def rank(base: Base, intent: Intent) -> Ranked:
    """As `find`, without cutting anything off; raises as it does. For a question with a text or a vector."""
    chosen = _plan(base, intent)
    allowed = _allowed(base, intent)
    records = max(sum(base.tree.count(kind) for kind in intent.kinds), chosen.depth)
    search = Search(base, intent, chosen, allowed, records)
    first = search.read(intent.text or "")
    fused = [*first.fused, *(one for reading in search.plainly(first) for one in reading.fused)]
    return Ranked(chosen, first, fused, len(first.fused), allowed)


@stepped("plan")
def _plan(base: Base, intent: Intent) -> Plan:
    return plan(intent, sum(base.tree.count(kind) for kind in intent.kinds), base.settings)


def _allowed(base: Base, intent: Intent) -> Allowed:
    where = intent.where
    if where is None:
        return dict.fromkeys((kind.name for kind in intent.kinds), None)
    with step("filter"):
        return {kind.name: base.sql.where(kind, where) for kind in intent.kinds}


class Search:
    """One question on its way through the lanes of its types. To see what lies `beyond` what counts and is given, so many
    records are ranked."""

    def __init__(self, base: Base, intent: Intent, plan: Plan, allowed: Allowed, beyond: int = 0) -> None:
        self._base, self._intent, self._plan, self._allowed = base, intent, plan, allowed
        self._depth, self._limit = max(plan.depth, beyond), max(plan.limit, beyond)

    def plainly(self, first: QuestionReading) -> list[QuestionReading]:
        """Where the question as it is typed finds fewer records than are asked for because it excludes some: its plain words,
        with what is new by them."""
        if "fts" not in self._plan.lanes or len(first.fused) >= self._plan.limit or not first.words.excluded:
            return []
        plain = self.read(syntax.plain(self._intent.text or ""))
        known = {one.key for one in first.fused}
        new = [one for one in plain.fused if one.key not in known]
        scale = _behind([one.score for one in first.fused], [one.score for one in new])
        scaled = [replace(one, score=one.score * scale) for one in new]
        return [replace(plain, fused=scaled, scale=scale)]

    def read(self, text: str) -> QuestionReading:
        """Run each lane over every type, rank across types, fuse."""
        words, chosen, kinds = syntax.parse(text), self._plan, self._intent.kinds
        hits: dict[Lane, dict[Key, LaneHit]] = {}
        if len(chosen.lanes) > 1:
            with vectors_made_beside(self._base, kinds):
                hits["fts"] = self._lane("fts", words, {}, self._depth)
        vectors: Mapping[str, Vector] = {}
        notices: tuple[Notice, ...] = ()
        if "vector" in chosen.lanes:
            vectors, notices = embed_query(self._base, kinds, text, self._intent.vector, chosen)
        expanded_by: tuple[Key, ...] = ()
        if chosen.expansion.method == "feedback":
            vectors, expanded_by = self._expanded(words, vectors)
        for lane in chosen.lanes:
            if lane not in hits:
                hits[lane] = self._lane(lane, words, vectors, self._depth)
        rankings = {lane: self._ranking(hits[lane], self._depth) for lane in chosen.lanes}
        filled: dict[Key, float] = {}
        if "fts" in hits and (words.phrases or words.prefixes) and len(hits["fts"]) < self._depth:
            rankings["fts"], hits["fts"], filled = self._filled(words, rankings["fts"])
        gate = self._gate(words, rankings, filled)
        counting = {lane: ranking[: chosen.depth] for lane, ranking in rankings.items()}
        if gate and gate.is_closed:
            counting.pop("fts")
            filled = {}
        return QuestionReading(words, rankings, hits, self._fused(counting), notices, expanded_by, filled, gate=gate)

    def by_words(self, words: LexicalQuery) -> QuestionReading:
        """What has exactly these words, and nothing in place of what there is none of."""
        hits = self._lane("fts", words, {}, self._depth)
        return QuestionReading(words, {"fts": self._ranking(hits, self._depth)}, {"fts": hits}, ())

    def _gate(
        self, words: LexicalQuery, rankings: Mapping[Lane, Sequence[tuple[Key, float]]], filled: Mapping[Key, float]
    ) -> Gate | None:
        """Whether the lexical lane counts; None where it always does: without a gate, or with no vectors to count instead."""
        fusion = self._plan.fusion
        if fusion.method != "minmax" or not fusion.gate or not rankings.get("vector") or "fts" not in rankings:
            return None
        best = next((key for key, _ in rankings["fts"]), None)
        if best is None:
            return Gate(fusion.gate, 0.0)
        kind, row = _row(self._base, best)
        asked = words.relaxed if best in filled else words
        return Gate(fusion.gate, self._base.lanes(kind).words.coverage(asked, row.record.id))

    def _filled(
        self, words: LexicalQuery, strict: Sequence[tuple[Key, float]]
    ) -> tuple[list[tuple[Key, float]], dict[Key, LaneHit], dict[Key, float]]:
        """The lexical lane filled to its depth: behind the records that have the phrases and open ends of the question,
        those that have its words. A quoted word is often a quotation."""
        found = self._lane("fts", words.relaxed, {}, self._depth)
        known = {key for key, _ in strict}
        new = [(key, score) for key, score in self._ranking(found, self._depth) if key not in known]
        new = new[: self._depth - len(strict)]
        scale = _behind([score for _, score in strict], [score for _, score in new])
        hits = {key: LaneHit(key[1], score) for key, score in strict} | {key: found[key] for key, _ in new}
        return [*strict, *((key, score * scale) for key, score in new)], hits, {key: scale for key, _ in new}

    def _expanded(
        self, words: LexicalQuery, vectors: Mapping[str, Vector]
    ) -> tuple[dict[str, Vector], tuple[Key, ...]]:
        """The vectors of the question moved towards its first hits, for types with one model together, and which these were.
        How many are asked for does not depend on the limit, so that a record's rank does not either."""
        groups: dict[int, dict[str, Vector]] = {}
        for name, vector in vectors.items():
            groups.setdefault(id(vector), {})[name] = vector
        wanted, moved, moved_to = self._plan.expansion, dict(vectors), list[Key]()
        for group in groups.values():
            hits = self._lane("vector", words, group, wanted.hits)
            keys = [key for key, _ in self._ranking(hits, wanted.hits)]
            found = [
                entry.vector.tolist()
                for key in keys
                for entry in self._base.rows(_row(self._base, key)[0])[key[1]].entries
                if (entry.field, entry.seq) == (hits[key].field, hits[key].seq) and entry.vector is not None
            ]
            question = [float(value) for value in next(iter(group.values()))]
            moved |= dict.fromkeys(group, feedback(question, found, wanted.weight))
            moved_to += keys
        return moved, tuple(moved_to)

    def _lane(self, lane: Lane, words: LexicalQuery, vectors: Mapping[str, Vector], depth: int) -> dict[Key, LaneHit]:
        """What one lane finds over all types; nothing where it was given up."""
        with step("lexical" if lane == "fts" else "vector"):
            return self._asked(lane, words, vectors, depth)

    def _asked(self, lane: Lane, words: LexicalQuery, vectors: Mapping[str, Vector], depth: int) -> dict[Key, LaneHit]:
        """As `_lane`. A hybrid search honours `-word` in both."""
        hits: dict[Key, LaneHit] = {}
        if self._intent.exact:
            words = replace(words, exact=True)
        for kind in self._intent.kinds:
            allowed, lanes = self._allowed[kind.name], self._base.lanes(kind)
            found: Sequence[LaneHit] = ()
            if lane == "fts" and kind.full_text:
                found = lanes.words.ask(words, depth, allowed)
            elif lane == "vector" and kind.name in vectors:
                if self._plan.mode == "hybrid" and words.excluded and kind.full_text:
                    everything = allowed if allowed is not None else IdSet.of(self._base.tree.ids(kind))
                    allowed = everything.without(lanes.words.excluded(words))
                found = lanes.vectors.ask(vectors[kind.name], depth, allowed)
            hits |= {(kind.name, hit.id): hit for hit in found}
        return hits

    def _ranking(self, hits: Mapping[Key, LaneHit], depth: int) -> list[tuple[Key, float]]:
        """Hits of all types in one order; those of one come in it."""
        if len({name for name, _ in hits}) < 2:
            return [(key, hit.score) for key, hit in islice(hits.items(), depth)]
        scores = {key: hit.score for key, hit in hits.items()}
        return [(key, scores[key]) for key in ranked(scores, self.tie, depth)]

    def tie(self, key: Key) -> Any:
        """What records with equal scores are ordered by."""
        return identity_key(self._base.rows(_kind(self._base, key)).identity(key[1])), key[0]

    @stepped("fuse")
    def _fused(self, rankings: Mapping[Lane, Sequence[tuple[Key, float]]]) -> list[Fused]:
        """One lane keeps its own scores; two are fused by the plan. A hybrid search that lost a lane fuses what is left."""
        if self._plan.mode == "hybrid":
            return fuse(rankings, self._plan.fusion, self.tie, self._limit)
        lane = self._plan.lanes[0]
        return [Fused(key, score, {lane: score}, {lane: rank}) for rank, (key, score) in enumerate(rankings[lane], 1)]

    def hit(self, reading: QuestionReading, one: Fused) -> Hit:
        """A record as it is given, with the account of its score. The chunk is shown of the lane in which it ranks best; the
        vector lane goes first on a tie."""
        kind, row = _row(self._base, one.key)
        words, asked, trace = self._base.lanes(kind).words, reading.words_of(one.key), None
        if self._intent.explain:
            terms = words.explain(asked, row.record.id) if "fts" in one.ranks else None
            scales = (reading.filled.get(one.key, 1.0), reading.scale)
            trace = ranking.trace(one, self._plan, terms, scales, reading.gate)
        scores = ranking.score_account(one, self._plan) if self._plan.mode == "hybrid" else None
        lane = min(one.ranks, key=lambda lane: (one.ranks[lane], lane != "vector"))
        best = reading.hits[lane][one.key]
        field, seq = words.chunk(asked, best.id) if lane == "fts" else (best.field, best.seq)
        found = self._base.rows(kind).chunk(best.id, field, seq)
        chunk = ChunkRef(field, seq, found.text, found.start) if found else None
        return _shown(kind, row, _ENGINES[self._plan.mode], one.score, scores=scores, chunk=chunk, trace=trace)


def _behind(scores: Iterable[float], following: Iterable[float]) -> float:
    """What the scores that follow are multiplied by so that none is above those before. None of them is negative."""
    lowest, highest = min(scores, default=math.inf), max(following, default=0.0)
    return lowest / highest if highest > lowest else 1.0


def _kind(base: Base, key: Key) -> RecordType:
    kind = base.ontology.find(key[0])
    assert kind is not None, "a lane is that of a type"
    return kind


def _row(base: Base, key: Key) -> tuple[RecordType, StoredRow]:
    kind = _kind(base, key)
    row = base.tree.by_id(kind, key[1])
    assert row is not None, "a lane returns ids that exist"
    return kind, row


def _said(readings: Sequence[QuestionReading], chosen: Plan) -> tuple[Notice, ...]:
    """That some of what is given does not fit the question as it is typed."""
    found = [(one, reading) for reading in readings for one in reading.fused][: chosen.limit]
    count = sum(reading is not readings[0] or one.key in reading.filled for one, reading in found)
    if not count:
        return ()
    fit = f"{len(found) - count} of {len(found)} results" if count < len(found) else "no result"
    verb = "fit" if len(found) - count > 1 else "fits"
    said = f"{fit} {verb} the question with its quotes, dashes and stars; the others were found by its plain words"
    return (Notice("W_PLAIN", said, "leave the signs out, or ask for fewer with --limit"),)


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


def _nowhere(base: Base, intent: Intent, allowed: Allowed) -> tuple[Notice, ...]:
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


def _filtered(base: Base, intent: Intent, chosen: Plan, allowed: Allowed) -> FindResult:
    """A structured filter: the first of the records that satisfy it, ordered by identity."""
    kinds = {kind.name: kind for kind in intent.kinds}
    ids = {name: allowed[name] or IdSet.of(()) for name in kinds}
    rows = heapq.merge(*(_rows(base, kind, ids[name]) for name, kind in kinds.items()), key=_identity_key)
    hits = tuple(_shown(kinds[row.record.type], row, "relational") for row in islice(rows, chosen.limit))
    account = ranking.plan_account(chosen) if intent.explain else None
    unsaid = (
        *_unsaid(base, intent),
        *_nowhere(base, intent, allowed),
        *_more(sum(map(len, ids.values())), chosen.limit),
    )
    return FindResult(hits, "where", "relational", (*boot.notices(base), *chosen.notices, *unsaid), account)


def _more(satisfy: int, limit: int) -> tuple[Notice, ...]:
    """That a filter alone lets more through than are given: an unranked answer has no tail that matters less."""
    if satisfy <= limit:
        return ()
    return (Notice("W_TRUNCATED", f"{limit:,} of {satisfy:,} records that satisfy the filter", f"--limit {satisfy}"),)


def _rows(base: Base, kind: RecordType, ids: IdSet) -> Iterator[StoredRow]:
    """The rows of these records in the order of their identities: looked up one by one where they are few."""
    if len(ids) > _FEW:
        return base.tree.among(kind, frozenset(ids))
    found = (row for record_id in ids if (row := base.tree.by_id(kind, record_id)) is not None)
    return iter(sorted(found, key=_identity_key))


def _identity_key(row: StoredRow) -> Any:
    return identity_key(row.record.identity)


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
