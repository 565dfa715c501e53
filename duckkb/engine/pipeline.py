"""`query`: `find` for many questions. Each is asked in its lanes, all lists are fused, a reranker reads the first records again,
and both orders are blended.

A plain question is asked as it stands in both lanes, and beside it the variants that an expander writes of it; typed lines are
asked each in the lane that it names. What a model could not do is said, and the answer goes on without it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.query import Key, QuestionReading, Search
from duckkb.engine.reranking import ModelBudget, Reranked, expand, feedback_of, rerank
from duckkb.queries import FindResult, Hit, LexicalQuery, Notice
from duckkb.search import syntax, typed
from duckkb.search.blend import blend
from duckkb.search.plan import Intent, plan
from duckkb.search.ranking import DOCUMENTS, Fused, RankedList, fuse
from duckkb.search.typed import Question, Questions
from duckkb.steps import step

_LIMIT = 50
"""Records for which a question is planned, whatever is shown of them."""


@boot.answered
def query(base: Base, intent: Intent, budget: ModelBudget) -> FindResult:
    """Answer the lines of an intent's text with its first `limit` records, each with the account of its score as its trace.
    Raises `errors.UsageError` (E_QUERY)."""
    asked = typed.read(intent.text or "")
    search = _search(base, intent)
    readings, notices = _read(base, search, asked, budget)
    lists = [source for reading in readings for source in reading.lists.values()]
    is_filled = any(reading.is_filled for reading in readings[: len(asked.questions)])  # behind them are variants
    words = LexicalQuery(" ".join(filter(None, map(_words, asked.questions))))
    with step("fuse"):
        records = fuse(lists, DOCUMENTS, search.tie)
    hits: dict[Key, Hit] = {}

    def hit(record: Fused) -> Hit:
        if record.key not in hits:
            hits[record.key] = search.hit(record, words, is_filled=is_filled)
        return hits[record.key]

    reranked = _rerank(base, asked, records, hit, budget)
    lanes = dict.fromkeys(source.lane for source in lists)
    blended = blend(records, lanes, reranked.scores, search.tie)[: intent.limit]
    shown = tuple(replace(hit(one.record), score=one.final, trace=one.account) for one in blended)
    notices = [*boot.notices(base), *dict.fromkeys(notices), *reranked.notices]
    return FindResult(shown, "hybrid", "query", tuple(notices), _account(base, lists, reranked))


def _search(base: Base, intent: Intent) -> Search:
    """Plan a search by words and meaning; a lane that is lost is said and done without."""
    kinds = intent.kinds
    intent = Intent(intent.text, "hybrid", limit=_LIMIT, expansion=feedback_of(base.settings), exact=True, kinds=kinds)
    chosen = plan(intent, sum(base.tree.count(kind) for kind in kinds), base.settings)
    return Search(base, intent, replace(chosen, mode="hybrid"), dict.fromkeys(kind.name for kind in kinds))


def _read(
    base: Base, search: Search, asked: Questions, budget: ModelBudget
) -> tuple[list[QuestionReading], list[Notice]]:
    """Read the questions, each within the exclusions of all; behind them the variants of one that is to be expanded, which
    keep to its phrases and exclusions."""
    excluded = [text for question in asked.questions if question.words for text in question.words.excluded]
    limits = LexicalQuery(excluded=tuple(excluded))
    readings = [search.read(question, limits) for question in asked.questions]
    notices = [notice for reading in readings for notice in reading.notices]
    first, words = asked.questions[0], readings[0].words
    if first.type == "expand":  # and alone
        expanded = expand(base, first.text, budget)
        limits = LexicalQuery(phrases=words.phrases, excluded=words.excluded)
        variants = [search.read(Question(one.kind, one.text), limits, "variant") for one in expanded.variants]
        notices += [*expanded.notices, *(notice for variant in variants for notice in variant.notices)]
        readings += variants
    return readings, notices


def _words(question: Question) -> str:
    """What a question says, without what it excludes."""
    return question.words.relaxed.text if question.words else syntax.plain(syntax.wanted(question.text))


def _rerank(
    base: Base, asked: Questions, records: Sequence[Fused], hit: Callable[[Fused], Hit], budget: ModelBudget
) -> Reranked[Key]:
    """Have the reranker judge the first records, each by the chunk that it is shown by."""
    if base.wiring.reranker() is None:
        return Reranked()
    most = base.settings.rerank.max_candidates if budget.candidates is None else budget.candidates
    texts = [(record.key, chunk.text if (chunk := hit(record).chunk) else "") for record in records[:most]]
    wanted = " ".join(filter(None, (asked.intent, *(question.text for question in asked.questions))))
    return rerank(base, syntax.wanted(wanted), texts, budget)


def _account(base: Base, lists: Sequence[RankedList], reranked: Reranked[Key]) -> dict[str, Any]:
    questions = [
        {"lane": one.lane, "query_kind": one.kind, "query": one.query, "hits": len(one.ranking)} for one in lists
    ]
    method = base.settings.rerank.method
    return {
        "mode": "query",
        "questions": questions,
        "expand": base.settings.expand.method,
        "rerank": {"method": method, "asked": reranked.asked, "degraded": reranked.reason or None},
    }
