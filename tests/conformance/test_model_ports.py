"""What every reranker and every expander promises, checked on each of them: the fakes, and endpoints on this machine."""

import math
from collections.abc import Iterator

import pytest

from duckkb.llm.providers.reranking_models import ChatExpander, ChatReranker, HttpReranker, TeiReranker
from duckkb.ports import Expander, Reranker
from duckkb.types.errors import Unavailable
from tests.fake_endpoint import Reply
from tests.fake_models import FakeModels
from tests.fakes import FixedExpander, WordReranker

TEXTS = ["nothing", "DuckDB内存 is the memory", "", "memory 内存", "DuckDB内存 is the memory"]


@pytest.fixture(params=["fake", "fake with logits", "http", "http with logits", "tei", "chat"])
def rerankers(request: pytest.FixtureRequest) -> Iterator[tuple[Reranker, Reranker]]:
    """One that answers, and one that cannot."""
    judge = WordReranker(gives_logits="logits" in request.param)
    broken = WordReranker()
    broken.fail = True
    if request.param.startswith("fake"):
        yield judge, broken
        return
    kinds: dict[str, type[HttpReranker | ChatReranker]] = {"tei": TeiReranker, "chat": ChatReranker}
    kind = kinds.get(request.param, HttpReranker)
    with FakeModels() as endpoint, FakeModels() as other:
        endpoint.judge, other.always = judge, Reply(status=400)
        yield kind(endpoint.rerank()), kind(other.rerank())


def test_kx_05_every_text_has_a_finite_score_and_better_ones_a_higher_one(
    rerankers: tuple[Reranker, Reranker],
) -> None:
    model, broken = rerankers
    found = model.scores("is the DuckDB内存 memory", TEXTS, 10.0)
    assert len(found) == len(TEXTS) and all(math.isfinite(score) for score in found)
    assert found[1] == found[4] > found[3] > found[0] == found[2]
    assert model.scores("a question", [], 10.0) == [] and model.at_once >= 0
    assert model.fingerprint == model.fingerprint != broken.fingerprint or isinstance(model, WordReranker)
    with pytest.raises(Unavailable) as caught:
        broken.scores("q", ["t"], 10.0)
    assert caught.value.code == "E_MODEL" and caught.value.details["reason"]


@pytest.mark.parametrize("kind", ["fake", "chat"])
def test_kx_05_variants_are_of_one_line_and_not_the_question(kind: str) -> None:
    with FakeModels() as endpoint:
        model: Expander = FixedExpander() if kind == "fake" else ChatExpander(endpoint.expand())
        found = model.variants("where is the memory", 10.0)
    assert found and all(one.kind in ("lex", "vec", "hyde") and one.text.isprintable() and one.text for one in found)
    assert "where is the memory" not in [one.text for one in found] and str(model.fingerprint)
    failing = FixedExpander()
    failing.fail = True
    for broken in (failing, model) if kind == "chat" else (failing,):  # the endpoint is gone by now
        with pytest.raises(Unavailable) as caught:
            broken.variants("q", 10.0)
        assert caught.value.code == "E_MODEL" and caught.value.details["reason"]
