"""Find: narrow -> plan -> filter -> lanes -> fuse -> hits. A filter is a true pre-filter in every lane."""

import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import islice, product
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents.document_chunks import excerpt_start, line_at
from duckkb.engine import boot, rank_fusion
from duckkb.engine.base import Base
from duckkb.engine.meaning import unsearchable
from duckkb.engine.rank_fusion import (
    LONGEST,
    Contribution,
    Fused,
    Gate,
    Intent,
    Profile,
    QueryKind,
    RankedList,
    feedback,
    fitting_span,
    fuse,
    plan,
    rank_keys,
)
from duckkb.engine.text_vectors import Vector, embed_query, vectors_made_beside
from duckkb.engine.typed_questions import Question
from duckkb.id_set import IdSet
from duckkb.ontology.model import NodeType, RecordType
from duckkb.ontology.names import did_you_mean, nearest, paths_inside, steps_through_lists
from duckkb.storage.line import etag
from duckkb.storage.part import StoredRow
from duckkb.types.errors import FilterError, shell_word
from duckkb.types.queries import (
    NO_WORDS,
    ChunkRef,
    Excerpt,
    FindResult,
    Hit,
    Lane,
    LaneHit,
    LexicalQuery,
    Mode,
    Notice,
    Plan,
)
from duckkb.types.records import identity_key, identity_value
from duckkb.types.request_context import count_step, step

HitKey = tuple[str, int]
Allowed = Mapping[str, IdSet | None]
"""By type the ids that a filter lets through; None without one."""
_PLAIN = (
    Notice(
        "W_PLAIN",
        "no result fits the question with its quotes and stars; all were found by its plain words",
        "leave out the quotes and stars",
    ),
)
_FEW = 256  # records that are looked up one by one; more are picked out of the ids of all parts
_NO_EXCLUSION = re.compile(r"'(?:[^']|'')*'|\bIS\s+NOT\b", re.IGNORECASE)  # texts, and IS NOT NULL
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_PATH = re.compile(r"(?<![\w.])[^\W\d]\w*(?:\.[^\W\d]\w*)+(?![\w(])")
_COMPARED = r"(?<![\w.]){}\s*(<>|!=|[<>]=?|=|NOT\s+I?LIKE\b|I?LIKE\b)\s*('(?:[^']|'')*')"
_EQUAL = re.compile(r"(?<![\w.])([^\W\d][\w.]*)\s*==?\s*('(?:[^']|'')*')")
_ACTIVE = frozenset('"`\\!$')  # what a shell reads inside of double quotes; but no $ before a point
_SOME_ROWS = 1_000  # in which the names inside a nested value are looked for
_MOST_NAMED = 3
_SOME_VALUES, _MOST_VALUES, _LONGEST_VALUE = 6, 40, 60
"""How many values of a field are named; a field with more, or longer ones, is not a field of few values."""
_LOOKED_AT = 4_000  # characters of a document without a chunk of its text
_EXCLUDES = re.compile(r"<>|!=|!~|\bNOT\b", re.IGNORECASE)
_ENGINES: Mapping[Mode, str] = {"similar": "vector", "match": "fts", "hybrid": "hybrid", "where": "relational"}


class QuestionReading(Struct, frozen=True):
    """The lists of all lanes for one reading of a question.

    `words` are what the lexical lane was asked. `expanded_by` are the records that the question was moved towards.
    `is_filled`: no record fits the phrases and open ends of the question, and plain words gave all records here."""

    words: LexicalQuery
    lists: Mapping[Lane, RankedList]
    notices: tuple[Notice, ...] = ()
    expanded_by: tuple[HitKey, ...] = ()
    is_filled: bool = False


@boot.retry_if_stale
def find(base: Base, intent: Intent) -> FindResult:
    """Answer an intent; raises `errors.UsageError`, `errors.FilterError`, and `errors.Unavailable` where an explicit
    similar search has no usable model."""
    search_plan, intent, allowed_ids, unasked_notices = _prepare(base, intent)
    if not search_plan.lanes:
        filter_result = _answer_filter(base, intent, search_plan, allowed_ids)
        return replace(filter_result, notices=(*filter_result.notices, *unasked_notices))
    search = Search(base, intent, search_plan, allowed_ids)
    reading = search.read(Question("expand", intent.text or ""))
    fused_records, gate = search.fuse(reading)
    words = reading.words.relaxed
    hits = tuple(
        search.hit(record, words, gate, is_filled=reading.is_filled) for record in fused_records[: search_plan.limit]
    )
    unsaid = (*_note_filter(base, intent, allowed_ids), *_note_unsearchable(base, intent, reading))
    notices = (*boot.notices(base), *search_plan.notices, *unasked_notices, *reading.notices, *unsaid)
    moved_to = [identity_value(_find_row(base, key)[1].record.identity) for key in reading.expanded_by]
    account = rank_fusion.plan_account(search_plan, moved_to, gate) if intent.explain else None
    return FindResult(hits, search_plan.mode, _ENGINES[search_plan.mode], notices, account)


class Ranked(Struct, frozen=True):
    """The full ranking of a search: each lane beyond the plan's depth, and the fused list beyond its limit.

    Where the `gate` closed, the lexical list is present but does not count in `fused`."""

    plan: Plan
    reading: QuestionReading
    fused: Sequence[Fused]
    gate: Gate | None
    allowed: Allowed


@boot.retry_if_stale
def rank(base: Base, intent: Intent) -> Ranked:
    """Rank everything, as `find` does without a limit; raises as it does.

    For a question with a text or a vector."""
    search_plan, intent, allowed_ids, _ = _prepare(base, intent)
    records = max(sum(base.tree.count(kind) for kind in intent.kinds), search_plan.depth)
    search = Search(base, intent, search_plan, allowed_ids, records)
    reading = search.read(Question("expand", intent.text or ""))
    fused_records, gate = search.fuse(reading)
    return Ranked(search_plan, reading, fused_records, gate, allowed_ids)


@count_step("plan")
def _plan(base: Base, intent: Intent) -> Plan:
    return plan(intent, sum(base.tree.count(kind) for kind in intent.kinds), base.settings)


def _prepare(base: Base, intent: Intent) -> tuple[Plan, Intent, Allowed, tuple[Notice, ...]]:
    """Filter and plan.

    Types that a filter does not fit are left out, and a notice names those with records. Where it fits none,
    their error is raised, preferably the one that suggests a correct filter."""
    if intent.where is None:
        return _plan(base, intent), intent, dict.fromkeys((kind.name for kind in intent.kinds), None), ()
    allowed_ids, refusals = dict[str, IdSet | None](), dict[str, FilterError]()
    with step("filter"):
        for kind in intent.kinds:
            try:
                allowed_ids[kind.name] = base.sql.where(kind, intent.where)
            except FilterError as error:
                if error.code != FilterError.code:  # a limit was met
                    raise
                refusals[kind.name] = error
    if refusals and not allowed_ids:
        raise max(refusals.values(), key=lambda error: error.correction is not None)
    notices = _report_left_out(
        {kind.name: refusals[kind.name] for kind in intent.kinds if kind.name in refusals and base.tree.count(kind)}
    )
    intent = replace(intent, kinds=tuple(kind for kind in intent.kinds if kind.name in allowed_ids))
    return _plan(base, intent), intent, allowed_ids, notices


def _report_left_out(refusals: Mapping[str, FilterError]) -> tuple[Notice, ...]:
    """Return notices of the types that a filter left out: those that lack its fields, and those whose values do
    not fit."""
    lacking = {name: error.details["field"] for name, error in refusals.items() if "nearest" in error.details}
    fields = ", ".join(map(str, dict.fromkeys(lacking.values())))
    by_reason = dict[str, list[str]]()
    for name, error in refusals.items():
        by_reason.setdefault(f"they have no {fields}" if name in lacking else error.message, []).append(name)
    notices = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        type_list = f"{', '.join(names[:_MOST_NAMED])}{more}"
        message = f"left out, as {reason}: {type_list}" if names[0] in lacking else f"left out: {type_list}. {reason}"
        notices.append(Notice("W_NOT_ASKED", message, f"`duckkb schema {shell_word(names[0])}` has the fields of one"))
    return tuple(notices)


class Search:
    """A search of questions in the lanes of some types.

    With `beyond`, that many records are ranked past depth and limit."""

    def __init__(self, base: Base, intent: Intent, plan: Plan, allowed: Allowed, beyond: int = 0) -> None:
        self._base, self._intent, self._plan, self._allowed = base, intent, plan, allowed
        self._depth, self._limit = max(plan.depth, beyond), max(plan.limit, beyond)

    def read(
        self, question: Question, limits: LexicalQuery = NO_WORDS, kind: QueryKind = "original"
    ) -> QuestionReading:
        """Run each lane of a question over every type, and rank across types.

        `limits` are phrases and exclusions of other questions that hold for this one too. A lane that a typed
        line asks has a list, even an empty one."""
        search_plan, kinds = self._plan, self._intent.kinds
        lanes = [lane for lane in question.lanes if lane in search_plan.lanes or question.type != "expand"]
        words = self._parse_words(question, limits, lanes)
        hits: dict[Lane, dict[HitKey, LaneHit]] = {}
        is_fallback = False
        if "fts" in lanes:
            with vectors_made_beside(self._base, kinds if len(lanes) > 1 else ()):
                hits["fts"] = self._search_lane("fts", words, {}, self._depth)
            is_fallback = not hits["fts"] and bool(words.phrases or words.prefixes) and question.words is None
        if is_fallback:  # a quoted word is often a quotation
            words = words.relaxed
            hits["fts"] = self._search_lane("fts", words, {}, self._depth)
        vectors: Mapping[str, Vector] = {}
        notices: tuple[Notice, ...] = ()
        if "vector" in lanes and "vector" in search_plan.lanes:
            vectors, notices = embed_query(self._base, kinds, question.text, self._intent.vector, search_plan)
        expanded_by: tuple[HitKey, ...] = ()
        if search_plan.expansion.method == "feedback":
            vectors, expanded_by = self._expand_vectors(words, vectors)
        if "vector" in lanes:
            hits["vector"] = self._search_lane("vector", words, vectors, self._depth)
        lists = {
            lane: RankedList(lane, self._rank_hits(some, self._depth), kind, question.text, words, some)
            for lane, some in hits.items()
        }
        notices += _PLAIN if is_fallback and any(source.ranking for source in lists.values()) else ()
        return QuestionReading(words, lists, notices, expanded_by, is_fallback)

    def _parse_words(self, question: Question, limits: LexicalQuery, lanes: Collection[Lane]) -> LexicalQuery:
        """Return the words for the lexical lane, with the limits; phrases of the question limit this lane alone."""
        if question.words is not None:
            words = question.words
        else:
            reads_signs = self._plan.mode != "similar"
            words = rank_fusion.parse(question.text) if reads_signs else LexicalQuery(rank_fusion.plain(question.text))
        own_phrases = words.phrases if "fts" in lanes else ()
        return replace(words, phrases=(*own_phrases, *limits.phrases), excluded=(*words.excluded, *limits.excluded))

    @count_step("fuse")
    def fuse(self, reading: QuestionReading) -> tuple[list[Fused], Gate | None]:
        """Fuse the lists of a reading by the plan; the gate is None where none was needed.

        A single lane keeps its own scores; a hybrid search that lost a lane fuses what is left."""
        plan, lists = self._plan, reading.lists
        if plan.mode != "hybrid":
            (source,) = lists.values()
            first = enumerate(source.ranking[: plan.depth], 1)
            records = [
                Fused(key, at, [Contribution(source, at, score, 1.0, score)], score) for at, (key, score) in first
            ]
            return records, None
        gate = self._compute_gate(reading)
        counting = [
            replace(source, ranking=source.ranking[: plan.depth])
            for lane, source in lists.items()
            if lane != "fts" or not (gate and gate.is_closed)
        ]
        return fuse(counting, Profile(plan.fusion), self.tie, self._limit), gate

    def _compute_gate(self, reading: QuestionReading) -> Gate | None:
        """Return the gate that decides whether the lexical lane counts.

        None where it always counts: without a gate, or with no vectors to count instead."""
        fusion, lists = self._plan.fusion, reading.lists
        if fusion.method != "minmax" or not fusion.gate or "fts" not in lists:
            return None
        if "vector" not in lists or not lists["vector"].ranking:
            return None
        best = next((key for key, _ in lists["fts"].ranking), None)
        if best is None:
            return Gate(fusion.gate, 0.0)
        kind, row = _find_row(self._base, best)
        return Gate(fusion.gate, self._base.lanes(kind).words.coverage(reading.words, row.record.id))

    def _expand_vectors(
        self, words: LexicalQuery, vectors: Mapping[str, Vector]
    ) -> tuple[dict[str, Vector], tuple[HitKey, ...]]:
        """Move the vectors of the question towards its first hits; return them, and the records used.

        Types with one model are moved together. The number of hits does not depend on the limit, so that a
        record's rank does not either."""
        groups: dict[int, dict[str, Vector]] = {}
        for name, vector in vectors.items():
            groups.setdefault(id(vector), {})[name] = vector
        expansion, moved_vectors, moved_to = self._plan.expansion, dict(vectors), list[HitKey]()
        for group in groups.values():
            hits = self._search_lane("vector", words, group, expansion.hits)
            keys = [key for key, _ in self._rank_hits(hits, expansion.hits)]
            hit_vectors = [
                entry.vector.tolist()
                for key in keys
                for entry in self._base.rows(_find_row(self._base, key)[0])[key[1]].entries
                if (entry.field, entry.seq) == (hits[key].field, hits[key].seq) and entry.vector is not None
            ]
            question = [float(value) for value in next(iter(group.values()))]
            moved_vectors |= dict.fromkeys(group, feedback(question, hit_vectors, expansion.weight))
            moved_to += keys
        return moved_vectors, tuple(moved_to)

    def _search_lane(
        self, lane: Lane, words: LexicalQuery, vectors: Mapping[str, Vector], depth: int
    ) -> dict[HitKey, LaneHit]:
        """Return the hits of one lane over all types; empty where the lane was given up."""
        with step("lexical" if lane == "fts" else "vector"):
            return self._ask_lane(lane, words, vectors, depth)

    def _ask_lane(
        self, lane: Lane, words: LexicalQuery, vectors: Mapping[str, Vector], depth: int
    ) -> dict[HitKey, LaneHit]:
        """Ask one lane over all types. A hybrid search honours phrases and `-word` in both lanes."""
        hits: dict[HitKey, LaneHit] = {}
        if self._intent.exact:
            words = replace(words, exact=True)
        for kind in self._intent.kinds:
            allowed_ids, lanes = self._allowed[kind.name], self._base.lanes(kind)
            lane_hits: Sequence[LaneHit] = ()
            if lane == "fts" and kind.full_text:
                lane_hits = lanes.words.ask(words, depth, allowed_ids)
            elif lane == "vector" and kind.name in vectors:
                if self._plan.mode == "hybrid" and (words.excluded or words.phrases):
                    allowed_ids = self._find_allowed_ids(kind, words)
                lane_hits = lanes.vectors.ask(vectors[kind.name], depth, allowed_ids)
            hits |= {(kind.name, hit.id): hit for hit in lane_hits}
        return hits

    def _find_allowed_ids(self, kind: RecordType, words: LexicalQuery) -> IdSet | None:
        """Return the ids of the allowed records that have the phrases and nothing excluded.

        A type that is not searched by words has no phrase, and excludes nothing."""
        allowed_ids = self._allowed[kind.name]
        if not kind.full_text:
            return IdSet.from_ids(()) if words.phrases else allowed_ids
        lane = self._base.lanes(kind).words
        if words.phrases:
            limits = LexicalQuery(phrases=words.phrases, excluded=words.excluded)
            return IdSet.from_ids(hit.id for hit in lane.ask(limits, self._base.tree.count(kind), allowed_ids))
        everything = allowed_ids if allowed_ids is not None else IdSet.from_ids(self._base.tree.ids(kind))
        return everything.difference(lane.find_excluded_ids(words))

    def _rank_hits(self, hits: Mapping[HitKey, LaneHit], depth: int) -> list[tuple[HitKey, float]]:
        """Rank the hits of all types in one order; those of one type keep theirs."""
        if len({name for name, _ in hits}) < 2:
            return [(key, hit.score) for key, hit in islice(hits.items(), depth)]
        scores = {key: hit.score for key, hit in hits.items()}
        return [(key, scores[key]) for key in rank_keys(scores, self.tie, depth)]

    def tie(self, key: HitKey) -> Any:
        """Return the sort key of records with equal scores."""
        return identity_key(self._base.rows(_find_type(self._base, key)).identity(key[1])), key[0]

    def hit(self, record: Fused, asked: LexicalQuery, gate: Gate | None = None, *, is_filled: bool = False) -> Hit:
        """Make the hit of a record, with the explanation of its score.

        It shows the chunk of the lane in which the record ranks best (the vector lane on a tie), unless that
        has no word of what is `asked` in all lanes and another chunk has."""
        kind, row = _find_row(self._base, record.key)
        words, trace, source = self._base.lanes(kind).words, None, record.best.source
        if self._intent.explain:
            lexical = record.part("fts")
            terms = words.explain(source.words, row.record.id) if lexical else None
            trace = rank_fusion.trace(record, self._plan, terms, gate)
        scores = rank_fusion.score_account(record, self._plan) if self._plan.mode == "hybrid" else None
        best = source.hits[record.key]
        field, seq = words.chunk(source.words, best.id) if source.lane == "fts" else (best.field, best.seq)
        if kind.full_text and self._plan.mode != "similar":
            field, seq = words.chunk(asked, best.id, (field, seq))
        best_chunk = self._base.rows(kind).chunk(best.id, field, seq)
        chunk = ChunkRef(field, seq, best_chunk.text, best_chunk.start) if best_chunk else None
        if trace is not None and chunk is not None:
            start, end = fitting_span(chunk.text, partial(words.weights, asked, field))
            trace["span"] = {"field": field, "start": chunk.start + start, "end": chunk.start + end}
        bare_hit = _to_hit(kind, row, _ENGINES[self._plan.mode], record.score, scores=scores, chunk=chunk, trace=trace)
        return replace(bare_hit, is_filled=is_filled, excerpt=self._build_excerpt(kind, bare_hit, asked))

    def _build_excerpt(self, kind: RecordType, hit: Hit, question_words: LexicalQuery) -> Excerpt | None:
        """Find the line with most of `question_words` in the chunk that a hit shows.

        For a document this is a chunk of its text with such words, even where its title was the match.
        """
        words, chunk = self._base.lanes(kind).words, hit.chunk
        is_document = _is_document(kind)
        if is_document and (chunk is None or chunk.field != "text"):
            field, seq = words.chunk(question_words, hit.id, field="text")
            text_chunk = self._base.rows(kind).chunk(hit.id, field, seq) if field == "text" else None
            chunk = ChunkRef(field, seq, text_chunk.text, text_chunk.start) if text_chunk else None
        if chunk is None:
            chunk = ChunkRef("text", 0, hit.record.get("text", "")[:_LOOKED_AT]) if is_document else None
        if chunk is None:
            return None
        start = chunk.start + fitting_span(chunk.text, partial(words.weights, question_words, chunk.field))[0]
        return Excerpt(chunk.field, start, line_at(hit.record, start) if is_document else None)


def _is_document(kind: RecordType) -> bool:
    return isinstance(kind, NodeType) and kind.source is not None


def _find_type(base: Base, key: HitKey) -> RecordType:
    kind = base.ontology.find(key[0])
    assert kind is not None, "a lane is that of a type"
    return kind


def _find_row(base: Base, key: HitKey) -> tuple[RecordType, StoredRow]:
    kind = _find_type(base, key)
    row = base.tree.find_by_id(kind, key[1])
    assert row is not None, "a lane returns ids that exist"
    return kind, row


@boot.retry_if_stale
def match_filter(base: Base, kind: RecordType, where: str) -> tuple[IdSet, tuple[Notice, ...]]:
    """Return the ids of the records that satisfy a filter, and notices. Raises `errors.FilterError`."""
    ids = base.sql.where(kind, where)
    return ids, _note_filter(base, Intent(kinds=(kind,), where=where), {kind.name: ids})


def _note_filter(base: Base, intent: Intent, allowed_ids: Allowed) -> tuple[Notice, ...]:
    """Return notices about a filter: the records that it skips, and where nothing satisfies it, why."""
    return (*_note_skips(base, intent), *_note_dead_paths(base, intent, allowed_ids))


def _note_skips(base: Base, intent: Intent) -> tuple[Notice, ...]:
    """Return notices of records that a negative filter skips, because they lack its field.

    A missing field is neither equal nor unequal to a value.
    """
    if intent.where is None or not _EXCLUDES.search(_NO_EXCLUSION.sub(" ", intent.where)):
        return ()
    conditions = (intent.where, f"NOT ({intent.where}\n)")
    try:
        counts = [len(base.sql.where(kind, condition)) for kind in intent.kinds for condition in conditions]
    except FilterError:  # the longer one is over a limit
        return ()
    skip_count = sum(base.tree.count(kind) for kind in intent.kinds) - sum(counts)
    if not skip_count:
        return ()
    records = "1 record is" if skip_count == 1 else f"{skip_count:,} records are"
    message = f"{records} left out, being neither in nor out of the filter: a value that it compares is missing"
    return (Notice("W_SKIPPED", message, f"to have them too: -w {shell_word(f'coalesce(({intent.where}), TRUE)')}"),)


def _note_dead_paths(base: Base, intent: Intent, allowed_ids: Allowed) -> tuple[Notice, ...]:
    """Return notices of a filter's paths that lead to no value in any record, where it matches nothing.

    These are mistyped names inside a nested value, which no schema knows.
    """
    if intent.where is None or any(allowed_ids.values()):
        return ()
    lacking = [
        (kind, path)
        for path in dict.fromkeys(_PATH.findall(_QUOTED.sub(" ", intent.where)))
        for kind in intent.kinds
        if base.tree.count(kind) and not _has_value(base, kind, path)
    ]
    notices = []
    for kind, path in lacking[:_MOST_NAMED]:
        some = [row.record.fields for row in islice(base.tree.rows(kind), _SOME_ROWS)]
        steps = steps_through_lists(some, path)
        if len(steps) > 1:
            message = f"{path} of {kind.name} is inside a list: {steps[0]} has several values, and a filter asks whether one fits"
            notices.append(Notice("W_NO_VALUE", message, _list_filter(intent.where, path, steps)))
        else:
            message = f"no record of {kind.name} has {path}"
            notices.append(Notice("W_NO_VALUE", message, did_you_mean(path, paths_inside(some, path))))
    return (*notices, *islice(_name_stored_values(base, intent.where, intent.kinds), _MOST_NAMED))


def _name_stored_values(base: Base, where: str, kinds: Iterable[RecordType]) -> Iterator[Notice]:
    """Yield the texts that a filter compares with and that no record has, with those that there are: in another case, near, or few."""
    for (path, text), kind in product(_EQUAL.findall(where), kinds):
        with suppress(FilterError):  # what stands left of the sign is no field of this type
            if base.sql.where(kind, f"{path} = {text}"):
                continue
            row = next(_load_rows(base, kind, base.sql.where(kind, f"lower({path}) = lower({text})")), None)
            fields: Any = row.record.fields if row else None
            value = reduce(_take_value, path.split("."), fields)
            if isinstance(value, str):
                message = f"no record of {kind.name} has {path} = {text}; some have {_quote(value)}"
                yield Notice("W_NO_VALUE", message, _filter_option(where.replace(text, _quote(value))))
            elif values := _list_values(base, kind, path):
                near = nearest(text[1:-1].replace("''", "'"), values)
                if near is None and len(values) > _MOST_VALUES:
                    continue
                ordered = [*dict.fromkeys([near, *values] if near else values)]
                more = f" and {len(values) - _SOME_VALUES} more" if len(values) > _SOME_VALUES else ""
                values_text = ", ".join(map(_quote, ordered[:_SOME_VALUES])) + more
                message = f"no record of {kind.name} has {path} = {text}; there {'is' if len(values) == 1 else 'are'} {values_text}"
                yield Notice("W_NO_VALUE", message, _filter_option(where.replace(text, _quote(near))) if near else "")


def _list_values(base: Base, kind: RecordType, path: str) -> list[str]:
    """The short texts at a path of the first records, the most frequent first."""
    records = (row.record.fields for row in islice(base.tree.rows(kind), _SOME_ROWS))
    values: Iterator[Any] = (reduce(_take_value, path.split("."), fields) for fields in records)
    counts = Counter(value for value in values if isinstance(value, str) and 0 < len(value) <= _LONGEST_VALUE)
    return sorted(counts, key=lambda value: (-counts[value], value))


def _quote(text: str) -> str:
    """A text as a filter writes it."""
    return "'{}'".format(text.replace("'", "''"))


def _list_filter(where: str, path: str, steps: Sequence[str]) -> str:
    """Return the option that asks the values inside lists what the filter asks of `path`."""
    comparison = re.search(_COMPARED.format(re.escape(path)), where, re.IGNORECASE)
    condition = f"{comparison[1]} {comparison[2]}" if comparison else "LIKE '%TEXT%'"
    for depth in range(len(steps) - 1, 0, -1):
        name, outer = f"x{depth}", f"x{depth - 1}"
        inside = f"{name}->>'$.{steps[depth]}' {condition}" if depth == len(steps) - 1 else condition
        values = steps[0] if depth == 1 else f"{outer}.{steps[depth - 1]}"
        values = values if values.isidentifier() else f"CAST({values} AS JSON[])"
        condition = f"len(list_filter({values}, lambda {name}: {inside})) > 0"
    return _filter_option(condition)


def _take_value(outer: Any, name: str) -> Any:
    return outer.get(name) if isinstance(outer, Mapping) else None


def _filter_option(condition: str) -> str:
    """Return the option with this filter, quoted for a shell."""
    is_active = bool(set(condition.replace("'$.", "")) & _ACTIVE)
    return "-w " + (shell_word(condition) if is_active else f'"{condition}"')


def _note_unsearchable(base: Base, intent: Intent, reading: QuestionReading) -> tuple[Notice, ...]:
    """Return notices of types from which no record was found by meaning, because none can be."""
    if "vector" not in reading.lists or intent.vector is not None:
        return ()
    compared_types = {name for name, _ in reading.lists["vector"].hits}
    return base.filter_notices(unsearchable(base, [kind for kind in intent.kinds if kind.name not in compared_types]))


def _has_value(base: Base, kind: RecordType, path: str) -> bool:
    try:
        return len(base.sql.where(kind, f"{path} IS NOT NULL")) > 0
    except FilterError:  # the name of a function's result, or of a variable
        return True


def _answer_filter(base: Base, intent: Intent, search_plan: Plan, allowed_ids: Allowed) -> FindResult:
    """Answer a filter without a text: the first records that satisfy it, ordered by identity."""
    kinds = {kind.name: kind for kind in intent.kinds}
    ids = {name: allowed_ids[name] or IdSet.from_ids(()) for name in kinds}
    rows = heapq.merge(*(_load_rows(base, kind, ids[name]) for name, kind in kinds.items()), key=_to_identity_key)
    hits = tuple(_to_hit(kinds[row.record.type], row, "relational") for row in islice(rows, search_plan.limit))
    account = rank_fusion.plan_account(search_plan) if intent.explain else None
    unsaid = (
        *_note_filter(base, intent, allowed_ids),
        *_note_truncation(sum(map(len, ids.values())), search_plan.limit),
    )
    return FindResult(hits, "where", "relational", (*boot.notices(base), *search_plan.notices, *unsaid), account)


def _note_truncation(satisfy: int, limit: int) -> tuple[Notice, ...]:
    """Return a notice where a filter alone matches more than `limit`; an unranked answer has no less relevant
    tail.
    """
    if satisfy <= limit:
        return ()
    return (Notice("W_TRUNCATED", f"{limit:,} of {satisfy:,} records that satisfy the filter", f"--limit {satisfy}"),)


def _load_rows(base: Base, kind: RecordType, ids: IdSet) -> Iterator[StoredRow]:
    """Yield the rows of these records in the order of their identities; a few are looked up singly."""
    if len(ids) > _FEW:
        return base.tree.select_rows(kind, frozenset(ids))
    rows = (row for record_id in ids if (row := base.tree.find_by_id(kind, record_id)) is not None)
    return iter(sorted(rows, key=_to_identity_key))


def _to_identity_key(row: StoredRow) -> Any:
    return identity_key(row.record.identity)


def _to_hit(kind: RecordType, row: StoredRow, engine: str, score: float | None = None, **more: Any) -> Hit:
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
        in_collection=kind.is_collection,
        excerpt=excerpt_start(record.fields, LONGEST) if _is_document(kind) else None,
        **more,
    )
