"""What every embedder promises, checked on each of them: the fake, the offline model, an endpoint on this machine."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from duckkb.llm.providers import NoModel
from duckkb.llm.providers.embedding_endpoint import OpenAIEndpoint
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.ports import Embedder
from duckkb.types.errors import Unavailable
from tests.fake_endpoint import FakeEndpoint
from tests.fakes import HashEmbedder

TEXTS = ["A record is a value.", "记录是一个值。", "", "A record is a value.", "DuckDB内存 2024", "\n"]
LONG = "仓库里的每一行都是一条记录，版本由它管理。" * 60


@pytest.fixture(scope="module")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        "fake with a limit",
        "endpoint",
        "endpoint with a limit",
        pytest.param("q4", marks=pytest.mark.model),
        pytest.param("int8", marks=pytest.mark.model),
        pytest.param("symmetric", marks=pytest.mark.model),
    ],
)
def embedder(request: pytest.FixtureRequest, cache_home: Path) -> Iterator[Embedder]:
    if request.param.startswith("fake"):
        yield HashEmbedder(limit=8 if "limit" in request.param else 0)
    elif request.param.startswith("endpoint"):
        with FakeEndpoint(most_characters=400 if "limit" in request.param else 0) as endpoint:
            yield OpenAIEndpoint(endpoint.settings(batch_size=4, dimensions=16), None)
    else:
        yield LocalE5(cache_home, "int8" if request.param == "int8" else "q4", request.param == "symmetric")


@pytest.mark.long
def test_every_text_gets_a_vector_of_unit_length_and_the_named_dimension(embedder: Embedder) -> None:
    for vectors in (embedder.embed_passages(TEXTS), embedder.embed_queries(TEXTS)):
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS), embedder.fingerprint.dimension)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_no_texts_are_no_vectors(embedder: Embedder) -> None:
    for vectors in (embedder.embed_passages([]), embedder.embed_queries([])):
        assert vectors.shape == (0, embedder.fingerprint.dimension) and vectors.dtype == np.float32
    assert embedder.count_tokens([]) == []


def test_equal_texts_have_equal_vectors_wherever_they_stand(embedder: Embedder) -> None:
    vectors = embedder.embed_passages(TEXTS)
    np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-2)
    np.testing.assert_allclose(embedder.embed_passages(TEXTS[::-1])[::-1], vectors, atol=1e-2)
    assert not np.allclose(vectors[0], vectors[4], atol=1e-2)


@pytest.mark.long
def test_the_end_of_a_long_text_is_not_cut(embedder: Embedder) -> None:
    end = "火星上最高的山是奥林帕斯山，高约二十二公里。"
    plain, other = embedder.embed_passages([LONG, LONG[: -len(end)] + end])
    assert plain @ other < 0.99999


def test_tokens_are_counted_for_each_text(embedder: Embedder) -> None:
    counts = embedder.count_tokens(["", "one", "one two three four five", LONG])
    assert counts[0] == 0 < counts[1] < counts[2] < counts[3]


def test_a_cut_is_what_the_model_reads_in_one_go(embedder: Embedder) -> None:
    words = "one word and another, " * 600
    for passage in (True, False):
        *short, long, strange = embedder.cut(["", "one", "一行记录", words, words + "\ud800"], passage=passage)
        assert [cut.text for cut in short] == ["", "one", "一行记录"] and not any(cut.is_truncated for cut in short)
        assert words.startswith(long.text) and long.text and strange.text
        if long.limit is None:
            assert (long.text, long.tokens) == (words, long.original)
            continue
        assert long.is_truncated and long.tokens == long.limit < long.original
        (again,) = embedder.cut([long.text], passage=passage)
        assert (again.text, again.original, again.tokens) == (long.text, long.tokens, long.tokens)
    assert embedder.cut([], passage=True) == []


def test_the_fingerprint_stays(embedder: Embedder) -> None:
    before = embedder.fingerprint
    embedder.embed_queries(["x"])
    assert embedder.fingerprint == before and hash(before) == hash(embedder.fingerprint)
    assert before.name and before.digest


def broken(cache: Path) -> list[Embedder]:
    cache.write_text("a file where the cache folder belongs")
    with FakeEndpoint() as endpoint:
        closed = endpoint.settings()
    return [HashEmbedder(fail=True), NoModel("there is none"), OpenAIEndpoint(closed, "key"), LocalE5(cache)]


def test_a_model_that_cannot_be_used_says_so_with_one_kind_of_error(tmp_path: Path) -> None:
    for embedder in broken(tmp_path / "cache"):
        for embed in (embedder.embed_passages, embedder.embed_queries):
            with pytest.raises(Unavailable) as caught:
                embed(["text"])
            assert caught.value.code == "E_MODEL" and caught.value.message
        assert embedder.fingerprint.name
