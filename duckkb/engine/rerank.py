"""Models in a `query`: scores of its first candidates, and variants of its question. Both are optional.

Where a model is late, fails or may not be asked, the answer goes on without it within its time, and a notice
says so (W_DEGRADED). Answers of a model are cached, also those too late for their question.

`query`: `find` for many questions.

Each is asked in its lanes, all lists are fused, and a reranker's order is blended in.
A plain question is asked in both lanes, together with the variants that an expander writes of it; a typed line
is asked in the lane that it names. Where a model fails, a notice says so, and the answer goes on without it.

Blending of a reranker's scores with the fused order, the last step of `query`.

Pure arithmetic. Each step is kept so that a score can be added up again.

    fused     as `ranking.DOCUMENTS` has it: weight / (60 + rank) over the lists that have the record, and a bonus
    position  exp(-(rank - 1) / 5.5) of the fused rank, at least .01
    final     w x position + (1 - w) x rerank; w is .75 for the fused ranks 1 to 3, .60 for 4 to 10, .40 beyond;
              without a reranker the mean of the lanes' scores: by words |s| / (1 + |s|), by meaning 1 / (1 + distance), the best
              of a lane's lists, and 0 in a lane that did not find the record"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from math import exp, fsum
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import boot, rank_fusion, typed_questions
from duckkb.engine.base import Base
from duckkb.engine.find import HitKey, QuestionReading, Search
from duckkb.engine.rank_fusion import DOCUMENTS, Fused, Intent, RankedList, fuse, plan, rank_keys
from duckkb.engine.text_vectors import batches
from duckkb.engine.typed_questions import Question, Questions
from duckkb.index.embedding_cache import AnswerCache
from duckkb.llm.call_pool import CallPool, side_by_side
from duckkb.llm.embedder_contract import clip_to_tokens, estimate_window_tokens
from duckkb.ports import Reranker
from duckkb.types.errors import DuckkbError, Unavailable
from duckkb.types.queries import FindResult, Hit, Lane, LexicalQuery, Notice, Variant
from duckkb.types.request_context import count_step, step
from duckkb.types.settings import Expansion, RerankSettings, Settings

Key = TypeVar("Key")
Answer = TypeVar("Answer")

_LATE_S = 10.0
"""Seconds for which a late model continues, for the sake of the next question."""
_PROMPT_TOKENS = 128
_REPLY_TOKENS = 512  # tokens of an expander's prompt and reply
_LEAST_TOKENS = 64  # tokens of a text; with fewer it is not judged
_EXPANSIONS = 4  # calls at once in a process; as many questions wait as for rerankers by default
_ROUNDING = 1e-3  # tolerance for scores just outside 0 to 1


class ModelBudget(Struct, frozen=True):
    """The limits of one question; None for the settings. `timeout_ms` covers all requests together.

    Questions of two `caller`s are never joined: the response time would reveal what the other asks.
    """

    candidates: int | None = None
    timeout_ms: int | None = None
    caller: str = ""


class Reranked(Struct, Generic[Key], frozen=True):
    """The scores of the first candidates, from 0 to 1; None where the fused order stays.

    `reason` is then one word for counters (`timeout`, `busy`, `untrusted`, `no_key`, `unreachable`,
    `http_STATUS`, `bad_answer`, `no_logprobs`, `too_long`, `failed`), empty where there is no reranker.
    `asked` counts the texts that were sent to the model; the others were cached.
    """

    scores: Mapping[Key, float] | None = None
    notices: tuple[Notice, ...] = ()
    reason: str = ""
    asked: int = 0


class Expanded(Struct, frozen=True):
    """The variants of a question; `reason` as in `Reranked`."""

    variants: tuple[Variant, ...] = ()
    notices: tuple[Notice, ...] = ()
    reason: str = ""


_SETTINGS = ModelBudget()


def rerank(
    base: Base, question: str, candidates: Sequence[tuple[Key, str]], budget: ModelBudget = _SETTINGS
) -> Reranked[Key]:
    """Rerank the first candidates of a question, best first, each with the text of its best chunk.

    Never raises for a fault of the model, and returns in time: a notice says why there are no scores.
    """
    rerank_settings, model = base.settings.rerank, base.wiring.reranker()
    if model is None or not candidates:
        return Reranked()
    until = _compute_deadline(budget, rerank_settings.timeout_ms)
    selection = candidates[: rerank_settings.max_candidates if budget.candidates is None else budget.candidates]
    try:
        room = room_for_texts(rerank_settings, question)
        texts = {text: clip_to_tokens(text, room) for _, text in selection}
        scores, asked_count = _score_texts(
            base, model, (budget.caller, question), list(dict.fromkeys(texts.values())), until
        )
    except Unavailable as problem:
        message = "The results are not reranked and keep their fused order"
        return Reranked(None, (_note_degradation("rerank", message, problem),), _extract_reason(problem))
    unit = unit_scores(scores)
    truncated_count = sum(text != excerpt for text, excerpt in texts.items())
    return Reranked(
        {key: unit[texts[text]] for key, text in selection}, _note_truncation(truncated_count), asked=asked_count
    )


def expand(base: Base, question: str, budget: ModelBudget = _SETTINGS) -> Expanded:
    """Write variants of a question with the base's expander; never raises for a fault of the model.

    Words for the lexical lane come without operator signs: a model must not exclude records.
    """
    expand_settings, model = base.settings.expand, base.wiring.expander()
    if model is None or not question.strip():
        return Expanded()
    until, answers = _compute_deadline(budget, expand_settings.timeout_ms), _open_answers(base)
    variants = answers.variants(model.fingerprint, question)

    def ask() -> tuple[Variant, ...]:
        with pool.slot(late):
            new_variants = _call_model(lambda: model.variants(question, late - time.monotonic()))
        answers.keep_variants(model.fingerprint, question, new_variants)
        return new_variants

    try:
        if not variants:
            if estimate_window_tokens(question) > expand_settings.context_tokens - _REPLY_TOKENS:
                raise _build_length_error("expand")
            late = until + _LATE_S
            pool = CallPool.get_shared(("expand", str(model.fingerprint)), _EXPANSIONS, 4 * _EXPANSIONS)
            with step("expand"):
                variants = pool.ask((budget.caller, question), ask, until - time.monotonic())
    except Unavailable as problem:
        return Expanded(
            (), (_note_degradation("expand", "The question is not expanded", problem),), _extract_reason(problem)
        )
    plain = (
        Variant(variant.kind, rank_fusion.plain(variant.text)) if variant.kind == "lex" else variant
        for variant in variants
    )
    return Expanded(tuple(variant for variant in plain if variant.text.strip()))


def feedback_of(settings: Settings) -> Expansion:
    """Return how the vector of a `query` moves towards its first hits.

    It follows `global.expansion`, and always applies where `global.expand.method` is `feedback`.
    """
    base = settings.expansion
    return Expansion("feedback", base.weight, base.hits) if settings.expand.method == "feedback" else base


def room_for_texts(wanted: RerankSettings, question: str) -> int:
    """Return the tokens that a reranker reads of a text beside the question; raises `errors.Unavailable` for too
    few.
    """
    room = wanted.context_tokens - _PROMPT_TOKENS - estimate_window_tokens(question)
    if room < _LEAST_TOKENS:
        raise _build_length_error("rerank")
    return room


def score_texts(model: Reranker, question: str, texts: Sequence[str], seconds: float) -> list[float]:
    """Score texts with the model within `seconds`; any fault of the model is `errors.Unavailable` (E_MODEL)."""
    scores = _call_model(lambda: model.scores(question, texts, seconds))
    if len(scores) != len(texts) or not all(math.isfinite(score) for score in scores):
        message = f"The reranker gave no {len(texts)} finite numbers."
        raise Unavailable(message, code="E_MODEL", details={"reason": "bad_answer"})
    return scores


def unit_scores(scores: Mapping[Key, float]) -> dict[Key, float]:
    """Map scores to 0 to 1.

    Scores in that range stay; if any lies outside, all are logits: 1 / (1 + e^-score).
    >>> unit_scores({"a": 0.25, "b": 1.0}), unit_scores({"a": 0.0, "b": -2.0})["a"]
    ({'a': 0.25, 'b': 1.0}, 0.5)
    """
    is_unit = all(-_ROUNDING <= score <= 1 + _ROUNDING for score in scores.values())
    return {key: min(1.0, max(0.0, score)) if is_unit else _compute_sigmoid(score) for key, score in scores.items()}


def _compute_sigmoid(score: float) -> float:
    part = math.exp(-abs(score))  # never too large
    return 1 / (1 + part) if score >= 0 else part / (1 + part)


@count_step("rerank")
def _score_texts(
    base: Base, model: Reranker, asker: tuple[str, str], texts: Sequence[str], until: float
) -> tuple[Mapping[str, float], int]:
    """Return the model's own scores by text, and the number of texts sent to it; raises `errors.Unavailable`."""
    rerank_settings, answers, question = base.settings.rerank, _open_answers(base), asker[1]
    known_scores = answers.scores(model.fingerprint, question, texts)
    missing = tuple(text for text in texts if text not in known_scores)
    if not missing:
        return known_scores, 0
    late = until + _LATE_S
    pool = CallPool.get_shared(
        ("rerank", str(model.fingerprint)), rerank_settings.concurrency, rerank_settings.queue_limit
    )

    def ask_some(some: Sequence[str]) -> list[float]:
        with pool.slot(late):
            return score_texts(model, question, some, late - time.monotonic())

    def ask() -> dict[str, float]:
        new_scores: dict[str, float] = {}
        try:
            for some, outcome in side_by_side(_split_batches(model, missing), ask_some, rerank_settings.concurrency):
                if isinstance(outcome, Unavailable):
                    raise outcome
                new_scores |= zip(some, outcome, strict=True)
        finally:
            answers.keep_scores(model.fingerprint, question, new_scores)
        return new_scores

    key: object = (asker, missing) if rerank_settings.dedupe == "join" else object()
    fresh = pool.ask(key, ask, until - time.monotonic(), waits=rerank_settings.drop_policy == "wait")
    return known_scores | fresh, len(missing)


def _split_batches(model: Reranker, texts: Sequence[str]) -> "list[Sequence[str]]":
    return list(batches(texts, model.at_once or len(texts)))


def _call_model(call: Callable[[], Answer]) -> Answer:
    """Call a model; every exception becomes `errors.Unavailable`, since callers bring models of their own."""
    try:
        return call()
    except DuckkbError:
        raise
    except Exception as error:  # any exception is possible; its text may quote the input
        message = f"The model failed ({type(error).__name__})."
        raise Unavailable(message, code="E_MODEL", details={"reason": "failed"}) from error


def _open_answers(base: Base) -> AnswerCache:
    return AnswerCache(base.wiring.place.shared, base.wiring.env.cache_limit)


def _compute_deadline(budget: ModelBudget, timeout_ms: int) -> float:
    """Return the end of the wait, by the monotonic clock."""
    return time.monotonic() + (timeout_ms if budget.timeout_ms is None else budget.timeout_ms) / 1000


def _build_length_error(name: str) -> Unavailable:
    remedy = f"ask a shorter question, or raise global.{name}.context_tokens"
    message = "The question is too long for the model."
    return Unavailable(message, code="E_MODEL", suggestion=remedy, details={"reason": "too_long"})


def _extract_reason(problem: Unavailable) -> str:
    return str(problem.details.get("reason", "failed"))


def _note_degradation(part: str, message: str, problem: Unavailable) -> Notice:
    return Notice(
        "W_DEGRADED", f"{message}: {problem.message}", problem.suggestion, f"{part}_{_extract_reason(problem)}"
    )


def _note_truncation(count: int) -> tuple[Notice, ...]:
    if not count:
        return ()
    message = f"{count} texts are longer than the reranker reads, and were judged by their beginning"
    return (Notice("W_TRUNCATED", message, "raise global.rerank.context_tokens, where the model reads more"),)


_DECAY, _LEAST_POSITION = 5.5, 0.01
_BLENDS = ((3, 0.75), (10, 0.60))
_BLEND_BEYOND = 0.40
_PLACES = 12  # decimals in which scores are compared


class Blended(Struct, frozen=True):
    """A record with its `final` score, and the `rerank` score (0 to 1) in it, None where it was not reranked.

    `lanes` are its scores (0 to 1) in the lanes that were asked; `weights` are those of position and rerank score.
    """

    record: Fused
    lanes: Mapping[Lane, float]
    weights: tuple[float, float]
    rerank: float | None
    final: float

    @property
    def account(self) -> dict[str, Any]:
        """Everything that the final score is made of, for `--explain`."""
        return {
            "contributions": [
                {
                    "lane": part.source.lane,
                    "query_kind": part.source.kind,
                    "query": part.source.query,
                    "rank": part.rank,
                    "weight": part.weight,
                    "raw_score": part.score,
                    "contribution": part.value,
                }
                for part in self.record.parts
            ],
            "base_score": self.record.base,
            "bonus": self.record.bonus,
            "fused_rank": self.record.rank,
            "position_score": _score_position(self.record.rank),
            "lane_scores": dict(self.lanes),
            "weights": {"position": self.weights[0], "rerank": self.weights[1]},
            "rerank_score": self.rerank,
            "final": self.final,
        }


def blend(
    records: Sequence[Fused], lanes: Collection[Lane], rerank: Mapping[Any, float] | None, tie: Callable[[Any], Any]
) -> list[Blended]:
    """Blend the fused order with a reranker's scores (0 to 1).

    The reranked records, which are the first of the fused list, come by falling final score, ties by `tie`. The
    records behind them stay as they are fused, with only the part of their position. With None, where no
    reranker answered, all stay as they are fused, and `final` is the mean of their scores in the `lanes` that
    were asked.

    Raises ValueError where scores are out of range, or are not those of the first records: a partial answer is
    refused.
    """
    if rerank is None:
        return [_score_record(record, lanes, None, is_read=False) for record in records]
    results = [_score_record(record, lanes, rerank.get(record.key)) for record in records]
    first = {result.record.key: result for result in results[: len(rerank)]}
    if first.keys() != rerank.keys():
        raise ValueError("a reranker scores the first candidates, all of them and no others")
    if not all(0.0 <= score <= 1.0 for score in rerank.values()):
        raise ValueError("a rerank score is between 0 and 1")
    order = rank_keys({key: round(result.final, _PLACES) for key, result in first.items()}, tie, len(first))
    return [*(first[key] for key in order), *results[len(rerank) :]]


def _score_record(record: Fused, lanes: Collection[Lane], rerank: float | None, *, is_read: bool = True) -> Blended:
    """Score a record. `is_read`: the reranker has judged the first records."""
    scores = dict.fromkeys(lanes, 0.0)
    for part in record.parts:
        score = lexical_score(part.score) if part.source.lane == "fts" else vector_score(part.score)
        scores[part.source.lane] = max(scores[part.source.lane], score)
    if not is_read:
        return Blended(record, scores, (0.0, 0.0), None, fsum(scores.values()) / len(scores))
    weight = next((weight for last, weight in _BLENDS if record.rank <= last), _BLEND_BEYOND)
    final = weight * _score_position(record.rank) + (1 - weight) * (rerank or 0.0)
    return Blended(record, scores, (weight, 1 - weight), rerank, final)


def _score_position(rank: int) -> float:
    return max(_LEAST_POSITION, exp(-(rank - 1) / _DECAY))


def lexical_score(raw: float) -> float:
    """Return the displayed form of a BM25 score, 0 to 1: |s| / (1 + |s|)."""
    return abs(raw) / (1 + abs(raw))


def vector_score(cosine: float) -> float:
    """Return the displayed form of a cosine: 1 / (1 + distance), where distance is 1 - cosine; so 1/3 to 1."""
    return 1 / (1 + max(0.0, 1 - cosine))


_LIMIT = 50
"""Records for which a question is planned, however many are shown."""


@boot.retry_if_stale
def query(base: Base, intent: Intent, budget: ModelBudget) -> FindResult:
    """Answer the lines of an intent's text with its first `limit` records; the trace of each explains its score.

    Raises `errors.UsageError` (E_QUERY).
    """
    question_set = typed_questions.read(intent.text or "")
    search = _search(base, intent)
    readings, notices = _read(base, search, question_set, budget)
    lists = [source for reading in readings for source in reading.lists.values()]
    is_fallback = any(
        reading.is_filled for reading in readings[: len(question_set.questions)]
    )  # the others are variants
    words = LexicalQuery(" ".join(filter(None, map(_extract_words, question_set.questions))))
    with step("fuse"):
        records = fuse(lists, DOCUMENTS, search.tie)
    hits: dict[HitKey, Hit] = {}

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
    return (
        question.words.relaxed.text if question.words else rank_fusion.plain(rank_fusion.drop_exclusions(question.text))
    )


def _rerank(
    base: Base, question_set: Questions, records: Sequence[Fused], hit: Callable[[Fused], Hit], budget: ModelBudget
) -> Reranked[HitKey]:
    """Rerank the first records, each by the chunk that it is shown by."""
    if base.wiring.reranker() is None:
        return Reranked()
    most = base.settings.rerank.max_candidates if budget.candidates is None else budget.candidates
    texts = [(record.key, chunk.text if (chunk := hit(record).chunk) else "") for record in records[:most]]
    query_text = " ".join(filter(None, (question_set.intent, *(question.text for question in question_set.questions))))
    return rerank(base, rank_fusion.drop_exclusions(query_text), texts, budget)


def _build_account(base: Base, lists: Sequence[RankedList], rerank_result: Reranked[HitKey]) -> dict[str, Any]:
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
