"""A reranker and an expander as a base asks them: in time, once for each text, never before trust, and said where they fail."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from duckkb.app.wiring import wire
from duckkb.engine.base import Base
from duckkb.engine.boot import boot
from duckkb.engine.rerank import ModelBudget, expand, feedback_of, rerank
from duckkb.index.cache_database import FILE, CacheStore
from duckkb.operations import lifecycle
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.errors import OntologyError
from duckkb.types.queries import Variant
from duckkb.types.settings import Expansion
from tests.conftest import make_base, run_in
from tests.fake_endpoint import Reply
from tests.fake_models import FakeModels, encoded
from tests.fakes import FixedExpander, WordReranker

QUESTION = "where is the memory"
FOUND = [("a", "the memory is here"), ("b", "nothing"), ("c", "where is the memory")]
SCORES = {"a": 0.75, "b": 0.0, "c": 1.0}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def opened(root: Path, *lines: str, trust: bool = True, **models: Any) -> Iterator[Base]:
    if not root.exists():
        make_base(root, "\n".join(["global:", "  embedding_model: none", *(f"  {line}" for line in lines)]) + "\n")
    if trust and lines:
        lifecycle.trust(root)
    base = boot(wire(root, OpenOptions(**models))[1])
    try:
        yield base
    finally:
        base.close()


def judged_by(endpoint: FakeModels, method: str = "http", **changes: object) -> str:
    given = {"method": method, "model": "judge", "base_url": endpoint.url, "timeout_ms": 20_000, **changes}
    return f"rerank: {{{', '.join(f'{key}: {value}' for key, value in given.items())}}}"


def written_by(endpoint: FakeModels, **changes: object) -> str:
    return judged_by(endpoint, "chat", **changes).replace("rerank:", "expand:", 1)


def texts_asked(endpoint: FakeModels) -> list[str]:
    return [text for asked in endpoint.asked for text in asked.body["documents"]]


def test_kx_05_candidates_are_scored_up_to_the_limit_and_each_text_is_asked_for_once(tmp_path: Path) -> None:
    judge = WordReranker()
    with opened(tmp_path / "kb", reranker=judge) as base:
        many = [*FOUND, ("again", "nothing"), *((f"x{number}", f"memory {number}") for number in range(40))]
        found = rerank(base, QUESTION, many)
        assert found.scores and list(found.scores) == [key for key, _ in many[:30]], "30 by default"
        assert (found.notices, found.asked, [len(some) for some in judge.asked]) == ((), 29, [29])
        assert SCORES.items() <= found.scores.items() and found.scores["again"] == 0.0
        few = rerank(base, QUESTION, many, ModelBudget(candidates=2))
        assert (few.scores, few.asked) == ({"a": 0.75, "b": 0.0}, 0)
        assert rerank(base, QUESTION, []).scores is None and len(judge.asked) == 1


def test_kx_05_logits_come_to_0_to_1_alike_whatever_was_known_before(tmp_path: Path) -> None:
    judge, chosen = WordReranker(gives_logits=True), [("c", FOUND[2][1]), ("b", "nothing")]
    with opened(tmp_path / "kb", reranker=judge) as base:
        assert rerank(base, QUESTION, [("half", "where is it")]).scores == {"half": 0.0}, "alone it is one of 0 to 1"
        mixed = rerank(base, QUESTION, [("half", "where is it"), *chosen]).scores
        assert mixed == pytest.approx({"half": 0.5, "c": 0.9933071, "b": 0.0066929}, abs=1e-6)
        assert judge.asked == [["where is it"], ["where is the memory", "nothing"]]


def test_kx_13_without_a_model_there_are_no_scores_and_nothing_to_say(tmp_path: Path) -> None:
    with opened(tmp_path / "kb") as base:
        assert (rerank(base, QUESTION, FOUND).scores, rerank(base, QUESTION, FOUND).notices) == (None, ())
        assert (expand(base, QUESTION).variants, expand(base, QUESTION).notices) == ((), ())


def test_kx_20_nothing_is_asked_before_trust_not_even_on_this_machine(tmp_path: Path) -> None:
    with FakeModels() as endpoint:
        lines = judged_by(endpoint, api_key_env="SOME_KEY"), written_by(endpoint)
        with opened(tmp_path / "kb", *lines, trust=False) as base:
            for said in (rerank(base, QUESTION, FOUND), expand(base, QUESTION)):
                assert said.reason == "untrusted" and said.notices[0].code == "W_DEGRADED"
                assert "127.0.0.1" in said.notices[0].message and "duckkb trust" in said.notices[0].remedy
        shown = run_in(tmp_path / "kb", ["trust", "--show", "--json"]).line
        assert shown["demands"] == {
            "global.rerank.base_url": endpoint.url, "global.expand.base_url": endpoint.url,
            "global.rerank.api_key_env": "SOME_KEY",
        }  # fmt: skip
        assert not shown["trusted"] and endpoint.asked == []
        told = run_in(tmp_path / "kb", ["status", "--json"]).line["endpoints"]
        assert told == {"global.rerank.base_url": endpoint.url, "global.expand.base_url": endpoint.url}


def test_kx_13_an_answer_is_asked_for_once_for_all_bases_and_a_damaged_one_again(tmp_path: Path) -> None:
    with FakeModels() as endpoint:
        for name in ("one", "two"):
            with opened(tmp_path / name, judged_by(endpoint), written_by(endpoint)) as base:
                assert rerank(base, QUESTION, FOUND).scores == SCORES
                assert len(expand(base, QUESTION).variants) == 3
            assert len(endpoint.asked) == 2
        with opened(tmp_path / "one", judged_by(endpoint), written_by(endpoint)) as base:
            assert rerank(base, QUESTION, [*FOUND, ("d", "new memory")]).asked == 1
            assert rerank(base, "another question", FOUND).asked == 3, "a score is of a question and a text"
            _spoil(tmp_path / "cache")
            del endpoint.asked[:]
            assert (rerank(base, QUESTION, FOUND).scores, len(expand(base, QUESTION).variants)) == (SCORES, 3)
            assert len(endpoint.asked) == 2, "what is damaged is no answer"
        store = CacheStore(tmp_path / "cache" / "duckkb" / "shared")
        assert len(store.surplus(1)) >= 5, "answers go with what else was not used for longest"
        store.close()


def _spoil(cache: Path) -> None:
    with closing(sqlite3.connect(cache / "duckkb" / "shared" / FILE)) as file, file:
        assert file.execute("UPDATE row SET payload = zeroblob(8) WHERE kind = 'answer'").rowcount >= 5


@pytest.mark.long
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=500), "http_500"),
        (Reply(status=429, headers={"Retry-After": "600"}), "http_429"),
        (Reply(status=404), "http_404"),
        (Reply(silent=True), "timeout"),
        (Reply(dripping=True), "timeout"),
        (Reply(reset=True), "unreachable"),
        (Reply(body=encoded({"results": [{"index": 0, "relevance_score": 1}]})), "bad_answer"),
        (Reply(body=b"garbage"), "bad_answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kx_13_a_fault_keeps_the_order_in_time_and_says_why(tmp_path: Path, reply: Reply, reason: str) -> None:
    with FakeModels() as endpoint:
        endpoint.always = reply
        patience = {"timeout_ms": 400} if reason == "timeout" else {}
        with opened(tmp_path / "kb", judged_by(endpoint, **patience), written_by(endpoint, **patience)) as base:
            found, asked = rerank(base, QUESTION, FOUND), expand(base, QUESTION)
            assert (found.scores, found.reason, asked.variants, asked.reason) == (None, reason, (), reason)
            assert [notice.code for notice in (*found.notices, *asked.notices)] == ["W_DEGRADED"] * 2
            endpoint.always = None
            endpoint.closing.set()
            if reason != "timeout":  # what was late goes on by itself for a while
                assert rerank(base, QUESTION, FOUND).scores == SCORES, "a fault is not kept"


def test_kx_13_a_chat_without_logprobs_is_said_and_one_with_them_is_asked_side_by_side(tmp_path: Path) -> None:
    with FakeModels() as endpoint, opened(tmp_path / "kb", judged_by(endpoint, "chat", concurrency=2)) as base:
        endpoint.always = Reply(body=encoded({"choices": [{"message": {"content": "yes"}}]}))
        assert rerank(base, QUESTION, FOUND[:1]).reason == "no_logprobs"
        endpoint.always, endpoint.together, endpoint.most_at_once = None, threading.Barrier(2), 0
        found = rerank(base, QUESTION, [*FOUND, ("d", "where it is")])
        assert found.scores == pytest.approx({"a": 0.75, "b": 0.0, "c": 1.0, "d": 0.5})
        assert endpoint.most_at_once == 2, "never more than concurrency"


def test_kx_19_a_late_answer_is_shared_by_who_asks_the_same_meanwhile_and_kept(tmp_path: Path) -> None:
    with FakeModels() as endpoint:
        release = threading.Event()
        endpoint.always = Reply(body=None, held=release)
        with opened(tmp_path / "kb", judged_by(endpoint)) as base:
            late = rerank(base, QUESTION, FOUND, ModelBudget(timeout_ms=150))
            assert (late.scores, late.reason) == (None, "timeout")
            other = rerank(base, QUESTION, FOUND, ModelBudget(timeout_ms=150, caller="somebody else"))
            assert other.reason == "timeout"
            endpoint.await_requests(2)  # never joined across callers
            threading.Timer(0.2, release.set).start()
            assert rerank(base, QUESTION, FOUND).scores == SCORES
            assert len(endpoint.asked) == 2, "the request that was under way"
            assert rerank(base, QUESTION, FOUND).asked == 0


@pytest.mark.parametrize("policy", ["timeout_fallback", "wait"])
def test_kx_19_a_full_queue_falls_back_at_once_or_waits_its_time(tmp_path: Path, policy: str) -> None:
    with FakeModels() as endpoint:
        release = threading.Event()
        endpoint.always = Reply(body=None, held=release)
        full = {"concurrency": 1, "queue_limit": 0, "drop_policy": policy, "dedupe": '"off"'}
        with opened(tmp_path / "kb", judged_by(endpoint, **full)) as base:
            assert rerank(base, QUESTION, FOUND, ModelBudget(timeout_ms=100)).reason == "timeout"
            endpoint.await_requests(1)
            second = rerank(base, QUESTION, FOUND, ModelBudget(timeout_ms=100))
            assert second.reason == ("busy" if policy == "timeout_fallback" else "timeout")
            assert len(endpoint.asked) == 1, "one request at a time"
            release.set()
            if policy == "wait":
                assert rerank(base, "where", [("c", "where")]).scores == {"c": 1.0}


def test_kx_05_a_text_over_the_models_context_is_judged_by_its_beginning_and_said(tmp_path: Path) -> None:
    with FakeModels() as endpoint, opened(tmp_path / "kb", judged_by(endpoint, context_tokens=512)) as base:
        found = rerank(base, "memory", [("long", "memory " + "内" * 4_000 + " end"), ("b", "short")])
        assert [notice.code for notice in found.notices] == ["W_TRUNCATED"] and found.scores
        assert texts_asked(endpoint) == ["memory " + "内" * 380, "short"]
        assert rerank(base, "内" * 600, FOUND).reason == "too_long"


def test_kx_05_variants_of_words_rule_nothing_out_and_a_models_own_fault_degrades(tmp_path: Path) -> None:
    writer = FixedExpander(Variant("lex", 'memory -store "held here"'), Variant("lex", '""'), Variant("hyde", "it -is"))
    judge = WordReranker()
    with opened(tmp_path / "kb", reranker=judge, expander=writer) as base:
        plain, hyde = expand(base, QUESTION).variants
        assert (plain.text.split(), hyde.text) == (["memory", "store", "held", "here"], "it -is")
        judge.scores = lambda *asked: [float("nan")] * 3  # type: ignore[method-assign]
        writer.variants = lambda *asked: 1 / 0  # type: ignore[assignment,return-value]
        assert rerank(base, QUESTION, FOUND).reason == "bad_answer"
        assert expand(base, QUESTION).variants, "what is known needs no model"
        assert expand(base, "another").reason == "failed"
        assert expand(base, "内" * 1_600).reason == "too_long"


def test_kx_05_feedback_is_chosen_by_either_setting(tmp_path: Path) -> None:
    lines = {"expand: {method: feedback}": "feedback", "expansion: {weight: 0.5}": "none"}
    for number, (line, method) in enumerate(lines.items()):
        with opened(tmp_path / str(number), line) as base:
            weight = base.settings.expansion.weight
            assert feedback_of(base.settings) == Expansion(method, weight, 3)  # type: ignore[arg-type]
            assert expand(base, QUESTION).variants == () and base.wiring.expander() is None


@pytest.mark.parametrize(
    "line",
    ["rerank: {method: http}", "rerank: {method: tei}", "expand: {method: chat, base_url: 'http://localhost:1'}"],
)
def test_kx_20_an_endpoint_needs_the_name_of_a_model(tmp_path: Path, line: str) -> None:
    with pytest.raises(OntologyError) as caught, opened(tmp_path / "kb", line, trust=False):
        pass
    (finding,) = caught.value.findings
    assert (finding.line, "model" in finding.remedy) == (3, True)
