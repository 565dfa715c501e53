"""`query`: each question asked in its lane, the lists fused, the first candidates read again by a reranker, both orders blended.

A plain question is asked as it stands in both lanes, and beside it the variants that an expander writes of it; typed lines are
asked each in the lane that it names. What a model could not do is said, and the answer goes on without it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.query import Key, QuestionReading, Search
from duckkb.engine.reranking import ModelBudget, Reranked, expand, feedback_of, rerank
from duckkb.ontology.model import RecordType
from duckkb.queries import NO_WORDS, FindResult, Hit, Lane, LexicalQuery, Notice
from duckkb.search import syntax, typed
from duckkb.search.blend import Blended, Candidate, QueryKind, RankedList, blend, fuse_lists
from duckkb.search.plan import Intent, plan
from duckkb.search.ranking import Fused
from duckkb.search.typed import TypedQuestion
from duckkb.steps import step

_LANES: Mapping[str, Lane] = {"lex": "fts", "vec": "vector", "hyde": "vector"}


class _Lists(Struct):
    """The lists so far, each with the reading that it is of; and what must be said of them."""

    lists: list[RankedList] = []
    readings: list[tuple[Search, QuestionReading]] = []
    is_filled: bool = False
    notices: list[Notice] = []

    def add(self, search: Search, reading: QuestionReading, lane: Lane, kind: QueryKind, text: str) -> None:
        self.lists.append(RankedList(lane, kind, text, reading.rankings.get(lane, ())))
        self.readings.append((search, reading))


@boot.answered
def query(base: Base, kinds: Sequence[RecordType], text: str, limit: int, budget: ModelBudget) -> FindResult:
    """Answer a question with the first `limit` records, each with the account of its score as its trace. Raises
    `errors.UsageError` (E_QUERY)."""
    asked = typed.read(text)
    words = LexicalQuery(" ".join(filter(None, map(_words, asked.questions))))
    found, wanted = _Lists(), " ".join(filter(None, (asked.intent, *(one.text for one in asked.questions))))
    excluded = tuple(text for one in asked.questions if one.words is not None for text in one.words.excluded)
    for question in asked.questions:
        if question.type == "expand":
            _plain(base, kinds, question, found, budget)
        else:
            _typed(base, kinds, question, found, LexicalQuery(excluded=excluded))
    if not found.lists:
        return FindResult((), "hybrid", "query", tuple(found.notices))
    tie = found.readings[0][0].tie
    with step("fuse"):
        candidates = fuse_lists(found.lists, tie)
    shown: dict[Key, Hit] = {}

    def hit(one: Candidate) -> Hit:
        if one.key not in shown:
            shown[one.key] = _hit(found, one, words)
        return shown[one.key]

    reranked, blended = _blended(base, (wanted, candidates), hit, budget, tie)
    hits = tuple(
        replace(hit(one.candidate), score=one.final, trace=one.account, is_filled=found.is_filled)
        for one in blended[:limit]
    )
    notices = (*boot.notices(base), *dict.fromkeys(found.notices), *reranked.notices)
    return FindResult(hits, "hybrid", "query", notices, _account(base, found, reranked))


def _plain(base: Base, kinds: Sequence[RecordType], one: TypedQuestion, found: _Lists, budget: ModelBudget) -> None:
    """A question as it stands, in both lanes, and its variants, which keep to its phrases and exclusions."""
    search = _search(base, kinds, one.text, ("vector", "fts"))
    reading = search.read(one.text)
    found.is_filled = reading.is_filled
    limits = LexicalQuery(phrases=reading.words.phrases, excluded=reading.words.excluded)
    found.notices += reading.notices
    for lane in ("fts", "vector"):
        if lane in reading.rankings:
            found.add(search, reading, lane, "original", one.text)
    expanded = expand(base, one.text, budget)
    found.notices += expanded.notices
    for variant in expanded.variants:
        lane = _LANES[variant.kind]
        other = _search(base, kinds, variant.text, (lane,), limits)
        read = other.read(variant.text)
        found.notices += read.notices
        found.add(other, read, lane, "variant", variant.text)


def _typed(base: Base, kinds: Sequence[RecordType], one: TypedQuestion, found: _Lists, limits: LexicalQuery) -> None:
    """A question in the lane that it names, within the exclusions of all questions."""
    lane = _LANES[one.type]
    search = _search(base, kinds, one.text, (lane,), limits)
    reading = search.by_words(one.words) if one.words is not None else search.read(one.text)
    found.notices += reading.notices
    found.add(search, reading, lane, "original", one.text)


def _search(
    base: Base,
    kinds: Sequence[RecordType],
    text: str,
    lanes: tuple[Lane, ...],
    limits: LexicalQuery = NO_WORDS,
) -> Search:
    """A question to some lanes. One that is lost is said and done without."""
    intent = Intent(text, "hybrid", limit=50, expansion=feedback_of(base.settings), exact=True, kinds=tuple(kinds))
    chosen = plan(intent, max(sum(base.tree.count(kind) for kind in kinds), 1), base.settings)
    served = tuple(lane for lane in chosen.lanes if lane in lanes)
    return Search(
        base,
        intent,
        replace(chosen, mode="hybrid", lanes=served),
        dict.fromkeys(kind.name for kind in kinds),
        limits=limits,
    )


def _words(one: TypedQuestion) -> str:
    """What a question says, without what it excludes."""
    return one.words.relaxed.text if one.words is not None else syntax.plain(syntax.wanted(one.text))


def _hit(found: _Lists, one: Candidate, asked: LexicalQuery) -> Hit:
    """A record as it is given, by the list in which it ranks best; vectors before words where two do."""
    best = min(one.contributions, key=lambda part: (part.rank, part.lane != "vector"))
    for ranked, (search, reading) in zip(found.lists, found.readings, strict=True):
        if (ranked.lane, ranked.query, ranked.kind) == (best.lane, best.query, best.kind):
            return search.hit(
                reading, Fused(one.key, best.score, {best.lane: best.score}, {best.lane: best.rank}), asked
            )
    raise AssertionError("a contribution is of one of the lists")


def _blended(
    base: Base,
    asked: tuple[str, Sequence[Candidate]],
    hit: Callable[[Candidate], Hit],
    budget: ModelBudget,
    tie: Callable[[Key], Any],
) -> tuple[Reranked[Key], list[Blended]]:
    """The candidates in their final order, with what the reranker said. One whose answer does not fit is none."""
    text, candidates = asked
    if base.wiring.reranker() is None:
        return Reranked(), blend(candidates, None, tie)
    most = base.settings.rerank.max_candidates if budget.candidates is None else budget.candidates
    texts = [(one.key, chunk.text if (chunk := hit(one).chunk) else "") for one in candidates[:most]]
    reranked = rerank(base, syntax.wanted(text), texts, budget)
    return reranked, blend(candidates, reranked.scores, tie)


def _account(base: Base, found: _Lists, reranked: Reranked[Key]) -> dict[str, Any]:
    asked = [
        {"lane": one.lane, "query_kind": one.kind, "query": one.query, "hits": len(one.ranking)} for one in found.lists
    ]
    method = base.settings.rerank.method
    return {
        "mode": "query",
        "questions": asked,
        "expand": base.settings.expand.method,
        "rerank": {"method": method, "asked": reranked.asked, "degraded": reranked.reason or None},
    }
