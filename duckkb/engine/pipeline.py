"""`query`: `find` for many questions.

Each is asked in its lanes, all lists are fused, and a reranker's order is blended in.
A plain question is asked in both lanes, together with the variants that an expander writes of it; a typed line
is asked in the lane that it names. Where a model fails, a notice says so, and the answer goes on without it.
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
"""Records for which a question is planned, however many are shown."""


@boot.retry_if_stale
def query(base: Base, intent: Intent, budget: ModelBudget) -> FindResult:
    """Answer the lines of an intent's text with its first `limit` records; the trace of each explains its score.

    Raises `errors.UsageError` (E_QUERY).
    """
    question_set = typed.read(intent.text or "")
    search = _search(base, intent)
    readings, notices = _read(base, search, question_set, budget)
    lists = [source for reading in readings for source in reading.lists.values()]
    is_fallback = any(
        reading.is_filled for reading in readings[: len(question_set.questions)]
    )  # the others are variants
    words = LexicalQuery(" ".join(filter(None, map(_extract_words, question_set.questions))))
    with step("fuse"):
        records = fuse(lists, DOCUMENTS, search.tie)
    hits: dict[Key, Hit] = {}

    def hit(record: Fused) -> Hit:
        if record.key not in hits:
            hits[record.key] = search.hit(record, words, is_filled=is_fallback)
        return hits[record.key]

    rerank_result = _rerank(base, question_set, records, hit, budget)
    lanes = dict.fromkeys(source.lane for source in lists)
    blended_records = blend(records, lanes, rerank_result.scores, search.tie)[: intent.limit]
    final_hits = tuple(replace(hit(entry.record), score=entry.final, trace=entry.account) for entry in blended_records)
    notices = [*boot.notices(base), *dict.fromkeys(notices), *rerank_result.notices]
    return FindResult(final_hits, "hybrid", "query", tuple(notices), _build_account(base, lists, rerank_result))


def _search(base: Base, intent: Intent) -> Search:
    """Plan a search by words and meaning; a lane that is lost is reported and left out."""
    kinds = intent.kinds
    intent = Intent(intent.text, "hybrid", limit=_LIMIT, expansion=feedback_of(base.settings), exact=True, kinds=kinds)
    search_plan = plan(intent, sum(base.tree.count(kind) for kind in kinds), base.settings)
    return Search(base, intent, replace(search_plan, mode="hybrid"), dict.fromkeys(kind.name for kind in kinds))


def _read(
    base: Base, search: Search, question_set: Questions, budget: ModelBudget
) -> tuple[list[QuestionReading], list[Notice]]:
    """Read the questions, each within the exclusions of all.

    The variants of a question that is to be expanded come behind them, and keep to its phrases and exclusions.
    """
    exclusions = [text for question in question_set.questions if question.words for text in question.words.excluded]
    limits = LexicalQuery(excluded=tuple(exclusions))
    readings = [search.read(question, limits) for question in question_set.questions]
    notices = [notice for reading in readings for notice in reading.notices]
    first, words = question_set.questions[0], readings[0].words
    if first.type == "expand":  # an `expand` line is always the only one
        expansion = expand(base, first.text, budget)
        limits = LexicalQuery(phrases=words.phrases, excluded=words.excluded)
        variants = [
            search.read(Question(wording.kind, wording.text), limits, "variant") for wording in expansion.variants
        ]
        notices += [*expansion.notices, *(notice for variant in variants for notice in variant.notices)]
        readings += variants
    return readings, notices


def _extract_words(question: Question) -> str:
    """Return the words of a question, without what it excludes."""
    return question.words.relaxed.text if question.words else syntax.plain(syntax.drop_exclusions(question.text))


def _rerank(
    base: Base, question_set: Questions, records: Sequence[Fused], hit: Callable[[Fused], Hit], budget: ModelBudget
) -> Reranked[Key]:
    """Rerank the first records, each by the chunk that it is shown by."""
    if base.wiring.reranker() is None:
        return Reranked()
    most = base.settings.rerank.max_candidates if budget.candidates is None else budget.candidates
    texts = [(record.key, chunk.text if (chunk := hit(record).chunk) else "") for record in records[:most]]
    query_text = " ".join(filter(None, (question_set.intent, *(question.text for question in question_set.questions))))
    return rerank(base, syntax.drop_exclusions(query_text), texts, budget)


def _build_account(base: Base, lists: Sequence[RankedList], rerank_result: Reranked[Key]) -> dict[str, Any]:
    questions = [
        {"lane": source.lane, "query_kind": source.kind, "query": source.query, "hits": len(source.ranking)}
        for source in lists
    ]
    method = base.settings.rerank.method
    return {
        "mode": "query",
        "questions": questions,
        "expand": base.settings.expand.method,
        "rerank": {"method": method, "asked": rerank_result.asked, "degraded": rerank_result.reason or None},
    }
