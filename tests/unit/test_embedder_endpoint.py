"""The endpoint's embedder against a real server on this machine that answers well and badly."""

import json
import socket
import traceback
from typing import Any

import numpy as np
import pytest

from duckkb.llm.providers.embedding_endpoint import OpenAIEndpoint
from duckkb.types.errors import Unavailable
from tests.fake_endpoint import FakeEndpoint, Reply

KEY = "sk-secret-of-the-test"
TEXTS = ["a git repository is a knowledge base", "知识库就是一个仓库", "", "知识库就是一个仓库"]


def one_vector(embedding: object, index: object = 0) -> bytes:
    return json.dumps({"data": [{"index": index, "embedding": embedding}]}).encode()


def unavailable(embedder: OpenAIEndpoint, texts: list[str]) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        embedder.embed_passages(texts)
    return caught.value


def test_vectors_come_in_the_order_of_the_texts_and_with_unit_length() -> None:
    with FakeEndpoint() as endpoint:
        vectors = OpenAIEndpoint(endpoint.settings(), KEY).embed_passages(TEXTS)
        expected = endpoint.model.embed_passages(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


@pytest.mark.parametrize("habit", [{"backwards": True}, {"always_base64": True}], ids=str)
def test_order_and_encoding_of_the_answer_are_the_servers_own_business(habit: dict[str, bool]) -> None:
    with FakeEndpoint(**habit) as endpoint:
        vectors = OpenAIEndpoint(endpoint.settings(), KEY).embed_passages(TEXTS)
        np.testing.assert_allclose(vectors, endpoint.model.embed_passages(TEXTS), atol=1e-6)


def test_an_answer_without_indices_is_taken_in_its_order() -> None:
    with FakeEndpoint() as endpoint:
        endpoint.next(Reply(body=json.dumps({"data": [{"embedding": [3, 4]}, {"embedding": [0, 2]}]}).encode()))
        vectors = OpenAIEndpoint(endpoint.settings(), KEY).embed_passages(["a", "b"])
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0.0, 1.0]], atol=1e-7)


def test_texts_are_asked_for_in_batches() -> None:
    with FakeEndpoint() as endpoint:
        texts = [f"text {number}" for number in range(7)]
        vectors = OpenAIEndpoint(endpoint.settings(batch_size=3), KEY).embed_passages(texts)
        assert [len(asked.texts) for asked in endpoint.asked] == [3, 3, 1]
        np.testing.assert_allclose(vectors, endpoint.model.embed_passages(texts), atol=1e-6)


def test_no_texts_ask_nobody() -> None:
    with FakeEndpoint() as endpoint:
        assert OpenAIEndpoint(endpoint.settings(dimensions=16), KEY).embed_queries([]).shape == (0, 16)
        assert endpoint.asked == []


def test_an_empty_text_is_never_sent_but_has_a_vector() -> None:
    with FakeEndpoint() as endpoint:
        vectors = OpenAIEndpoint(endpoint.settings(), KEY).embed_passages(["", "\n"])
        assert endpoint.asked[0].texts == [" ", " "]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def test_a_request_holds_the_key_and_the_settings_and_nothing_about_the_machine() -> None:
    with FakeEndpoint() as endpoint:
        OpenAIEndpoint(endpoint.settings(dimensions=16), KEY).embed_queries(["一"])
        OpenAIEndpoint(endpoint.settings(), None).embed_queries(["一"])
        first, second = endpoint.asked
    assert first.path == "/v1/embeddings"
    assert first.body == {"input": ["一"], "model": "fake-model", "dimensions": 16, "encoding_format": "float"}
    assert first.headers["Authorization"] == f"Bearer {KEY}"
    assert "Authorization" not in second.headers and "dimensions" not in second.body
    known = {"host", "accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent"}
    assert {name.lower() for name in first.headers} <= known | {"authorization"}


def test_a_text_over_the_servers_limit_is_split_and_its_parts_are_averaged() -> None:
    long_text = "第一部分讲存储。" * 40 + "Part two is about search. " * 20
    with FakeEndpoint(most_characters=300) as endpoint:
        vectors = OpenAIEndpoint(endpoint.settings(), KEY).embed_passages(["short", long_text, "短"])
        answered = [asked.texts for asked in endpoint.asked if max(map(len, asked.texts)) <= 300]
        assert "".join("".join(texts) for texts in answered).replace("short", "").replace("短", "") == long_text
        expected = endpoint.model.embed_passages(["short", "短"])
    np.testing.assert_allclose(vectors[[0, 2]], expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def test_a_server_that_refuses_short_texts_too_is_given_up_soon() -> None:
    with FakeEndpoint(most_characters=1) as endpoint:
        error = unavailable(OpenAIEndpoint(endpoint.settings(), KEY), ["some text or other"] * 64)
        assert len(endpoint.asked) <= 8
    assert error.code == "E_MODEL"
    assert "maximum context length exceeded" in error.message


def test_a_busy_server_is_asked_again_after_the_time_it_names() -> None:
    with FakeEndpoint() as endpoint:
        endpoint.next(Reply(status=429, headers={"Retry-After": "0.8"}))
        OpenAIEndpoint(endpoint.settings(max_retries=1), KEY).embed_queries(["x"])
        first, second = endpoint.asked
    assert second.at - first.at >= 0.8  # the client's own first pause is at most half a second


def test_retries_end_at_the_number_that_is_set() -> None:
    with FakeEndpoint() as endpoint:
        endpoint.next(*[Reply(status=503, headers={"Retry-After": "0.01"})] * 5)
        error = unavailable(OpenAIEndpoint(endpoint.settings(max_retries=2), KEY), ["x"])
        assert len(endpoint.asked) == 3
    assert error.code == "E_MODEL"


FAULTS = {
    "html": Reply(body=b"<html>Welcome to the wifi</html>", headers={"Content-Type": "text/html"}),
    "empty": Reply(body=b""),
    "not an object": Reply(body=b"[1]"),
    "no data": Reply(body=b"{}"),
    "data of strings": Reply(body=b'{"data": ["a"]}'),
    "nested too deeply": Reply(body=b"[" * 100_000),
    "an integer of 5000 digits": Reply(body=b'{"data": [{"index": 0, "embedding": [' + b"9" * 5000 + b"]}]}"),
    "too few": Reply(body=b'{"data": []}'),
    "too many": Reply(body=json.dumps({"data": [{"index": at, "embedding": [1.0]} for at in (0, 1)]}).encode()),
    "another index": Reply(body=one_vector([1.0], index=1)),
    "an index that is a list": Reply(body=one_vector([1.0], index=[0])),
    "not a number": Reply(body=b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'),
    "infinite": Reply(body=b'{"data": [{"index": 0, "embedding": [1e999, 1.0]}]}'),
    "past a double": Reply(body=b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b"]}]}"),
    "zeros": Reply(body=one_vector([0.0, 0.0])),
    "no numbers": Reply(body=one_vector([])),
    "words": Reply(body=one_vector(["a", "b"])),
    "a nested list": Reply(body=one_vector([[1.0, 2.0], [3.0]])),
    "null": Reply(body=one_vector(None)),
    "an object": Reply(body=one_vector({"a": 1})),
    "broken base64": Reply(body=one_vector("???")),
    "base64 of an odd length": Reply(body=one_vector("YWJjZGU=")),
    "400": Reply(status=400, body=b'{"error": {"message": "unknown model"}}'),
    "401": Reply(status=401, body=json.dumps({"error": {"message": f"Incorrect key: {KEY}"}}).encode()),
    "403": Reply(status=403, body=KEY.encode()),
    "404 that repeats the key": Reply(status=404, body=json.dumps({"message": f"no \x1b[31m{KEY}"}).encode()),
    "429": Reply(status=429),
    "429 for an hour": Reply(status=429, headers={"Retry-After": "3600"}),
    "500": Reply(status=500, body=b"<html>" + b"oops" * 100_000),
    "an endless error": Reply(status=500, endless=True),
    "an endless answer": Reply(endless=True),
    "gzip that is none": Reply(body=b"plain", headers={"Content-Encoding": "gzip"}),
}


@pytest.mark.long
@pytest.mark.parametrize("reply", FAULTS.values(), ids=FAULTS.keys())
def test_a_bad_answer_is_one_clear_sentence_without_the_key(reply: Reply) -> None:
    with FakeEndpoint() as endpoint:
        endpoint.next(reply)
        embedder = OpenAIEndpoint(endpoint.settings(), KEY)
        error = unavailable(embedder, ["text"])
        assert endpoint.sent_bytes < 50 << 20
        assert embedder.embed_passages(["text"]).shape == (1, 16)  # one bad answer spoils nothing
    assert error.code == "E_MODEL" and error.suggestion
    assert error.message.startswith(f"The embedding endpoint {embedder.host} ")
    assert len(error.message) < 400 and error.message.isprintable()
    assert KEY not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("reply", [Reply(silent=True), Reply(dripping=True)], ids=["silent", "dripping"])
def test_a_server_that_does_not_come_to_an_end_runs_into_the_time_limit(reply: Reply) -> None:
    with FakeEndpoint() as endpoint:
        endpoint.next(reply)
        error = unavailable(OpenAIEndpoint(endpoint.settings(timeout_s=0.2), KEY), ["text"])
    assert error.code == "E_MODEL" and "0.2 s" in error.message


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with FakeEndpoint() as endpoint:
        settings = endpoint.settings(base_url=f"http://127.0.0.1:{port}/v1")
    error = unavailable(OpenAIEndpoint(settings, KEY), ["text"])
    assert error.code == "E_MODEL" and f"127.0.0.1:{port}" in error.message


def test_texts_do_not_follow_a_redirect_to_another_host() -> None:
    with FakeEndpoint() as elsewhere, FakeEndpoint() as endpoint:
        endpoint.next(Reply(status=307, headers={"Location": f"{elsewhere.url}/embeddings"}))
        error = unavailable(OpenAIEndpoint(endpoint.settings(), KEY), ["text"])
        assert elsewhere.asked == []
    assert error.code == "E_MODEL" and "307" in error.message


def test_a_model_that_was_exchanged_for_one_of_another_dimension_is_noticed() -> None:
    with FakeEndpoint() as endpoint:
        embedder = OpenAIEndpoint(endpoint.settings(), KEY)
        embedder.embed_passages(["text"])
        endpoint.next(Reply(body=one_vector([1.0, 2.0])))
        assert unavailable(embedder, ["text"]).code == "E_MODEL"
        endpoint.next(Reply(body=one_vector([1.0, 2.0])))
        assert unavailable(OpenAIEndpoint(endpoint.settings(dimensions=16), KEY), ["text"]).code == "E_MODEL"


def test_vectors_of_two_dimensions_in_one_answer_are_refused() -> None:
    body = {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}
    with FakeEndpoint() as endpoint:
        endpoint.next(Reply(body=json.dumps(body).encode()))
        assert unavailable(OpenAIEndpoint(endpoint.settings(), KEY), ["a", "b"]).code == "E_MODEL"


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it() -> None:
    with FakeEndpoint() as endpoint:
        error = unavailable(OpenAIEndpoint(endpoint.settings(), "schlüssel\nX-Evil: 1"), ["text"])
        assert endpoint.asked == []
    assert "schlüssel" not in "".join(traceback.format_exception(error))


def test_the_fingerprint_covers_all_that_shapes_a_vector_and_asks_nobody() -> None:
    with FakeEndpoint() as endpoint:
        settings = endpoint.settings()
        changes: list[dict[str, Any]] = [
            {},
            {"model": "b"},
            {"base_url": "http://b/v1"},
            {"dimensions": 8},
            {"symmetric": True},
        ]
        prints = [OpenAIEndpoint(endpoint.settings(**change), KEY).fingerprint for change in changes]
        assert endpoint.asked == []
    assert len(set(prints)) == len(changes)
    assert prints[0] == OpenAIEndpoint(settings, None).fingerprint
    assert (prints[0].name, prints[0].dimension, prints[3].dimension) == ("fake-model", 0, 8)


def test_tokens_are_estimated_without_asking() -> None:
    with FakeEndpoint() as endpoint:
        assert OpenAIEndpoint(endpoint.settings(), KEY).count_tokens(["", "word", "words here", "知识库"]) == [
            0,
            1,
            3,
            3,
        ]
        assert endpoint.asked == []
