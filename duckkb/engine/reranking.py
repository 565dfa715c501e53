"""Models in a `query`: scores of its first candidates, and variants of its question. Both are optional.

Where a model is late, fails or may not be asked, the answer goes on without it within its time, and a notice
says so (W_DEGRADED). Answers of a model are cached, also those too late for their question.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from duckkb.engine.base import Base
from duckkb.engine.vectors import batches
from duckkb.errors import DuckkbError, Unavailable
from duckkb.indexing.answers import AnswerCache
from duckkb.llm.call_pool import CallPool
from duckkb.llm.waiting import side_by_side
from duckkb.llm.windows import clip_to_tokens, estimate_window_tokens
from duckkb.ports import Reranker
from duckkb.queries import Notice, Variant
from duckkb.search import syntax
from duckkb.settings import Expansion, RerankSettings, Settings
from duckkb.steps import count_step, step

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
        Variant(variant.kind, syntax.plain(variant.text)) if variant.kind == "lex" else variant for variant in variants
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
