"""Rerankers and the expander against a real server on this machine that answers well and badly."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from duckkb.llm.providers import make_expander, make_reranker
from duckkb.llm.providers.reranking_models import ChatExpander, ChatReranker, HttpReranker, TeiReranker
from duckkb.types.errors import Unavailable
from duckkb.types.queries import Variant
from duckkb.types.settings import RerankSettings
from tests.fake_endpoint import Reply
from tests.fake_models import SAID, FakeModels, encoded, verdict
from tests.fakes import WordReranker

KEY, QUESTION = "sk-secret-of-the-test", "where is the memory 内存"
TEXTS = ["the memory", "nothing of it", "", "where is 内存"]
Faulty = Callable[[float], object]


def refusal(call: Faulty, seconds: float = 5.0) -> Unavailable:
    """The error of a call, which repeats neither the key nor the question, nor what the server said."""
    with pytest.raises(Unavailable) as caught:
        call(seconds)
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert (
        caught.value.code == "E_MODEL" and KEY not in told and "内存" not in told and "SAID BY THE SERVER" not in told
    )
    return caught.value


def results(*pairs: tuple[object, object]) -> Reply:
    return Reply(body=encoded({"results": [{"index": at, "relevance_score": score} for at, score in pairs]}))


def test_kx_13_a_rerank_request_holds_what_the_protocol_asks_for_to_the_byte() -> None:
    with FakeModels() as endpoint:
        found = HttpReranker(endpoint.rerank(), KEY).scores(QUESTION, TEXTS, 5.0)
        HttpReranker(endpoint.rerank(base_url=endpoint.url + "/"), None).scores("q", ["t"], 5.0)
        first, second = endpoint.asked
    assert found == WordReranker().scores(QUESTION, TEXTS, 5.0), "by index, in whatever order they come"
    assert (first.path, second.path) == ("/v1/rerank", "/v1/rerank")
    asked = rb'"query":"where is the memory \u5185\u5b58","documents":["the memory","nothing of it"," ","where is \u5185\u5b58"]'
    assert first.raw == b'{"model":"judge",' + asked + b',"top_n":4}'
    assert first.headers == {
        "Host": endpoint.url.removeprefix("http://").removesuffix("/v1"), "Accept-Encoding": "identity",
        "Content-Length": str(len(first.raw)), "Content-Type": "application/json", "Accept": "application/json",
        "User-Agent": "duckkb", "Authorization": f"Bearer {KEY}", "Connection": "close",
    }  # fmt: skip
    assert "Authorization" not in second.headers


def test_kx_13_a_chat_is_asked_for_one_token_and_its_probabilities() -> None:
    with FakeModels() as endpoint:
        found = ChatReranker(endpoint.rerank("chat"), KEY).scores("where is 内存", ["is 内存 here", "no"], 5.0)
        first = endpoint.asked[0]
    assert found == pytest.approx([2 / 3, 0.0])
    assert (first.path, first.headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert first.raw == (
        rb'{"model":"judge","messages":[{"role":"system","content":"Judge whether the passage answers the question. Say one'
        rb' word: \"yes\" or \"no\"."},{"role":"user","content":"Question: where is \u5185\u5b58\n\nPassage:\nis \u5185\u5b58'
        rb' here"}],"max_tokens":1,"temperature":0,"logprobs":true,"top_logprobs":20}'
    )


def test_kx_13_yes_and_no_count_in_every_spelling_and_nothing_else_does() -> None:
    said = {"YES": 0.1, " yes": 0.2, "\u2581Yes": 0.1, "No": 0.1, "\u0120no": 0.05, "yesterday": 0.3, "none": 0.2}
    with FakeModels() as endpoint:
        endpoint.next(Reply(body=encoded(verdict(said))), Reply(body=encoded(verdict({"no": 1e-300}))))
        found = ChatReranker(endpoint.rerank("chat"), None).scores("q", ["a", "b"], 5.0)
    assert found == pytest.approx([0.4 / 0.55, 0.0])


WRONG_RESULTS = {
    "an index that no document has": results((0, 0.1), (1, 0.1), (2, 0.1), (4, 0.1)),
    "an index below zero": results((0, 0.1), (1, 0.1), (2, 0.1), (-1, 0.1)),
    "an index that is no number": results((0, 0.1), (1, 0.1), (2, 0.1), (True, 0.1)),
    "an index twice": results((0, 0.1), (1, 0.1), (2, 0.1), (2, 0.1)),
    "fewer results": results((0, 0.1), (1, 0.1), (2, 0.1)),
    "more results": results((0, 0.1), (1, 0.1), (2, 0.1), (3, 0.1), (4, 0.1)),
    "NaN": results((0, float("nan")), (1, 0.1), (2, 0.1), (3, 0.1)),
    "infinity": results((0, float("inf")), (1, 0.1), (2, 0.1), (3, 0.1)),
    "a huge integer": results((0, 10**400), (1, 0.1), (2, 0.1), (3, 0.1)),
    "a text as score": results((0, "0.1"), (1, 0.1), (2, 0.1), (3, 0.1)),
    "no results": Reply(body=b'{"error": "SAID BY THE SERVER"}'),
    "a list": Reply(body=b"[1, 2]"),
    "garbage": Reply(body=b"SAID BY THE SERVER {"),
    "deep": Reply(body=b"[" * 100_000),
    "HTML": Reply(body=b"<html>SAID BY THE SERVER"),
    "a huge answer": Reply(endless=True),
    "nothing": Reply(body=b""),
}


@pytest.mark.parametrize("fault", WRONG_RESULTS)
def test_kx_13_an_answer_that_does_not_fit_is_refused_and_not_asked_for_again(fault: str) -> None:
    with FakeModels() as endpoint:
        endpoint.always = WRONG_RESULTS[fault]
        error = refusal(lambda seconds: HttpReranker(endpoint.rerank(), KEY).scores(QUESTION, TEXTS, seconds))
        assert (error.details["reason"], len(endpoint.asked)) == ("bad_answer", 1)


def test_kx_13_text_embeddings_inference_is_asked_and_read_in_its_own_words() -> None:
    with FakeModels() as endpoint:
        settings = endpoint.rerank("tei", base_url=endpoint.url.removesuffix("/v1"))
        model = make_reranker(settings, trusted=True, secret=lambda _: None)
        assert isinstance(model, TeiReranker) and model.at_once == 32
        assert model.scores(QUESTION, TEXTS, 5.0) == WordReranker().scores(QUESTION, TEXTS, 5.0)
        (first,) = endpoint.asked
        asked = (
            rb'"texts":["the memory","nothing of it"," ","where is \u5185\u5b58"],"raw_scores":false,"truncate":true}'
        )
        assert (first.path, first.raw) == ("/rerank", rb'{"query":"where is the memory \u5185\u5b58",' + asked)
        good: list[dict[str, object]] = [{"index": at, "score": 0.5} for at in range(4)]
        wrong: list[object] = [[*good[:3], one] for one in (
            {"score": 0.5}, {"index": 4, "score": 0.5}, {"index": 2, "score": 0.5}, {"index": 3}, {"index": 3, "score": None},
            {"index": 3, "score": float("nan")}, {"index": 3, "relevance_score": 0.5}, 3,
        )]  # fmt: skip
        for answer in (
            *wrong,
            good[:3],
            [*good, good[0]],
            [],
            {"results": good},
            {"error": "SAID BY THE SERVER"},
            None,
        ):
            endpoint.next(Reply(body=encoded(answer)))
            error = refusal(lambda seconds: model.scores(QUESTION, TEXTS, seconds))
            assert error.details["reason"] == "bad_answer", answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"choices": [{"message": {"content": "yes"}}]}, "no_logprobs"),
        ({"choices": [{"message": {"content": "yes"}, "logprobs": None}]}, "no_logprobs"),
        ({"choices": [{"logprobs": {"content": []}}]}, "no_logprobs"),
        ({"choices": [{"logprobs": {"content": [{"token": "yes", "logprob": 0.0}]}}]}, "no_logprobs"),
        ({"choices": []}, "no_logprobs"),
        ([], "no_logprobs"),
        (verdict({"Perhaps": 0.9, "sure": 0.1}), "bad_answer"),
        ({"choices": [{"logprobs": {"content": [
            {"token": "yes", "logprob": float("nan"), "top_logprobs": []}]}}]}, "bad_answer"),
    ],
    ids=str,
)  # fmt: skip
def test_kx_13_a_chat_without_probabilities_is_refused_and_its_prose_is_not_read(answer: object, reason: str) -> None:
    with FakeModels() as endpoint:
        endpoint.always = Reply(body=encoded(answer))
        error = refusal(lambda seconds: ChatReranker(endpoint.rerank("chat"), KEY).scores(QUESTION, ["a"], seconds))
    assert error.details["reason"] == reason


LATE = {
    "silent": Reply(silent=True),
    "dripping": Reply(dripping=True),
    "slow headers": Reply(slow_headers=True),
    "a pause beyond the time": Reply(status=429, headers={"Retry-After": "600"}),
}


@pytest.mark.parametrize("fault", LATE)
def test_kx_13_no_server_is_waited_for_beyond_the_time_that_is_given(fault: str) -> None:
    with FakeModels() as endpoint:
        endpoint.always = LATE[fault]
        error = refusal(lambda seconds: HttpReranker(endpoint.rerank(), KEY).scores(QUESTION, TEXTS, seconds), 0.3)
        assert len(endpoint.asked) <= 1, "who had waited out the pause would have asked again"
    assert error.details["reason"] == ("http_429" if "pause" in fault else "timeout")


@pytest.mark.long
@pytest.mark.parametrize("fault", [Reply(503), Reply(reset=True), Reply(body=b'{"results": []}', cut=True)], ids=str)
def test_kx_13_a_server_that_fails_is_asked_again_twice(fault: Reply) -> None:
    with FakeModels() as endpoint:
        endpoint.next(fault, fault)
        model = HttpReranker(endpoint.rerank(), KEY)
        assert model.scores("q", ["q"], 10.0) == [1.0] and len(endpoint.asked) == 3
        endpoint.next(fault, fault, fault)
        error = refusal(lambda seconds: model.scores("q", ["q"], seconds), 10.0)
        assert len(endpoint.asked) == 6
    assert error.details["reason"] == ("http_503" if fault.status == 503 else "unreachable")


def test_kx_13_a_busy_server_is_asked_again_after_the_time_it_names() -> None:
    with FakeModels() as endpoint:
        endpoint.next(Reply(status=429, headers={"Retry-After": "0.6"}))
        assert HttpReranker(endpoint.rerank(), KEY).scores("q", ["q"], 10.0) == [1.0]
        first, second = endpoint.asked
    assert second.at - first.at >= 0.6


@pytest.mark.parametrize(
    ("status", "reason"), [(307, "http_307"), (308, "http_308"), (401, "http_401"), (400, "http_400")]
)
def test_kx_20_what_is_refused_is_not_repeated_and_no_redirect_is_followed(status: int, reason: str) -> None:
    with FakeModels() as elsewhere, FakeModels() as endpoint:
        said = KEY.encode() + b" SAID BY THE SERVER"
        endpoint.always = Reply(status, said, {"Location": f"{elsewhere.url}/rerank"})
        settings = endpoint.rerank(api_key_env="SOME_KEY")
        error = refusal(lambda seconds: HttpReranker(settings, KEY).scores(QUESTION, TEXTS, seconds))
        assert (error.details["reason"], len(endpoint.asked), elsewhere.asked) == (reason, 1, [])
    assert status != 401 or "SOME_KEY" in error.suggestion


def test_kx_13_nobody_there_is_said_at_once() -> None:
    with FakeModels() as endpoint:
        settings = endpoint.rerank()
    error = refusal(lambda seconds: HttpReranker(settings, KEY).scores(QUESTION, TEXTS, seconds), 30.0)
    assert error.details["reason"] == "unreachable", "who had waited out the time would call it a timeout"


def test_kx_13_a_key_that_no_header_carries_is_not_sent() -> None:
    with FakeModels() as endpoint:
        error = refusal(lambda seconds: HttpReranker(endpoint.rerank(), KEY + "\nü").scores("q", ["t"], seconds))
        assert error.details["reason"] == "no_key" and endpoint.asked == []


def test_kx_13_variants_are_the_lines_that_are_typed_and_new() -> None:
    long = "hyde: " + "x" * 2_000
    with FakeModels() as endpoint:
        model = ChatExpander(endpoint.expand(), KEY)
        assert model.variants("memory?", 5.0) == (
            Variant("lex", "memory -store"), Variant("vec", "where is it kept?"), Variant("hyde", "It is kept in memory."),
        )  # fmt: skip
        request = endpoint.asked[0]
        endpoint.said = (
            f"Here you are:\n  LEX :  memory 内存 \nvec: MEMORY?\nvec:\nlex: more\n{long}\n1. hyde: x\nhyde: \x1b[2J"
        )
        assert model.variants("memory?", 5.0) == (Variant("lex", "memory 内存"),)
        for said in ("", "I cannot help with that.", "vec: memory?", None):
            endpoint.said = said  # type: ignore[assignment]
            assert refusal(lambda seconds: model.variants("memory?", seconds)).details["reason"] == "bad_answer"
    assert request.path == "/v1/chat/completions" and SAID not in str(request.body)
    assert (request.body["messages"][1], request.body["temperature"]) == ({"role": "user", "content": "memory?"}, 0)
    assert set(request.body) == {"model", "messages", "max_tokens", "temperature"}


def test_kx_20_an_endpoint_that_is_not_trusted_is_not_asked_for_its_key() -> None:
    asked: list[str] = []

    def secret(name: str) -> None:
        asked.append(name)

    with FakeModels() as endpoint:
        settings: Any = {"api_key_env": "SOME_KEY"}
        rerank, expand = endpoint.rerank(**settings), endpoint.expand(**settings)
        for trusted, code, reason in ((False, "E_UNTRUSTED", "untrusted"), (True, "E_MODEL", "no_key")):
            judge = make_reranker(rerank, trusted=trusted, secret=secret)
            writer = make_expander(expand, trusted=trusted, secret=secret)
            assert judge and writer
            with pytest.raises(Unavailable) as first:
                judge.scores("q", ["t"], 1.0)
            with pytest.raises(Unavailable) as second:
                writer.variants("q", 1.0)
            assert {(one.value.code, one.value.details["reason"]) for one in (first, second)} == {(code, reason)}
            assert bool(asked) is trusted
        assert judge.fingerprint == HttpReranker(rerank, "key").fingerprint
    assert endpoint.asked == []
    assert make_reranker(RerankSettings(), trusted=True, secret=secret) is None


def test_kx_13_a_fingerprint_is_of_model_address_and_protocol() -> None:
    with FakeModels() as endpoint:
        one, other = endpoint.rerank(), RerankSettings("http", "other", endpoint.url)
        prints = [
            HttpReranker(one, None),
            HttpReranker(other, None),
            HttpReranker(RerankSettings("http", "judge"), None),
        ]
        distinct = {str(model.fingerprint) for model in (*prints, ChatReranker(endpoint.rerank("chat"), None))}
        slower = endpoint.rerank(timeout_ms=1, concurrency=1)
        assert len(distinct) == 4
        assert HttpReranker(slower, "key").fingerprint == HttpReranker(one, None).fingerprint
