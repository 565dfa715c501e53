"""Checks that run what answers questions: the model and the segmenters; the backend's engines test themselves."""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from duckkb.errors import Unavailable
from duckkb.indexing.chinese import chinese_words, reference_words
from duckkb.ports import Embedder
from duckkb.review.health.check import Look, Skipped, Surroundings, Verdict, error, ok, warning, worst
from duckkb.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    import numpy as np

_ENGLISH = "The journal is sealed before any file changes."
_CHINESE = "在任何文件改变之前，日志先被封存。"
_ELSEWHERE = "香蕉是黄色的，味道很甜。"
_RUNS = ("我们在北京大学学习知识库与全文检索", "数据在崩溃之后恢复", "研究生命起源")
_OFF_UNIT = 1e-3
_ALIKE = 0.9999


def model(ground: Surroundings) -> Verdict:
    """Runs it, on one English and one Chinese sentence and a question."""
    settings = ground.wiring.settings.embedding
    if settings.model == "none":
        raise Skipped("there is no embedding model (embedding_model: none)")
    embedder = ground.wiring.embedder
    try:
        wrong = list(_wrong(embedder, is_multilingual=embedder.fingerprint.name == DEFAULT_MODEL))
    except Unavailable as problem:
        if problem.code == "E_UNTRUSTED":
            raise Skipped(problem.message) from problem
        return error(problem.message, problem.suggestion or "see global.embedding in config.yaml")
    remedy = (
        "pip install --force-reinstall 'duckkb[local]'" if settings.base_url is None else "ask whoever runs the model"
    )
    return worst([error(said, remedy) for said in wrong], f"{embedder.fingerprint.name} answers in English and Chinese")


def _wrong(embedder: Embedder, *, is_multilingual: bool) -> Iterator[str]:
    texts = [_ENGLISH, _CHINESE, _ELSEWHERE]
    passages, questions = embedder.embed_passages(texts), embedder.embed_queries([_ENGLISH])
    dimension = embedder.fingerprint.dimension or passages.shape[-1]
    if passages.shape != (len(texts), dimension) or questions.shape != (1, dimension):
        yield f"it gives vectors of shape {passages.shape} and {questions.shape}, expected {dimension} numbers a text"
        return
    rows = [*passages, *questions]
    if not all(math.isfinite(float(number)) for row in rows for number in row):
        yield "it gives numbers that are not finite"
    elif any(abs(_cosine(row, row) - 1.0) > _OFF_UNIT for row in rows):
        yield "it gives vectors that are not of unit length"
    else:
        yield from _confused(passages, questions[0], is_multilingual)


def _confused(passages: "np.ndarray", question: "np.ndarray", is_multilingual: bool) -> Iterator[str]:
    same, translated, elsewhere = (_cosine(row, question) for row in passages)
    if max(_cosine(passages[0], passages[1]), _cosine(passages[1], passages[2])) > _ALIKE:
        yield "it gives different texts one vector"
    elif same <= max(translated, elsewhere):
        yield "a text is not nearest to itself"
    elif is_multilingual and translated <= elsewhere:
        yield "a sentence is nearer to another subject than to its own translation"


def _cosine(one: "np.ndarray", other: "np.ndarray") -> float:
    return float(one @ other)


def segmenters(ground: Surroundings) -> Verdict:
    """The fast segmenter against the one that it stands for. Neither may write: no folder is given."""
    fast, reference = chinese_words(None), reference_words(None)
    if fast is reference:
        return warning("rjieba is not installed; jieba does its work, slower", "pip install --upgrade duckkb")
    odd = [run for run in _RUNS if fast(run) != reference(run)]
    if odd:
        return error(f"rjieba and jieba cut these differently: {', '.join(odd)}", "pip install --upgrade duckkb")
    return ok("rjieba and jieba agree")


def self_test(name: str, remedy: str) -> Look:
    """The check that runs a self test of the backend's."""

    def look(ground: Surroundings) -> Verdict:
        test: Callable[[], None] = ground.self_tests[name]
        try:
            test()
        except AssertionError as wrong:
            return error(str(wrong), remedy)
        except ImportError as problem:
            return error(f"it cannot be loaded: {problem}", remedy)
        return ok("answers as it should")

    return look
