"""`embed` through the real process: its forms, its bits, where it cuts, and what it refuses."""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

import duckkb
from duckkb.app.wiring import wire
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.errors import UsageError
from tests.conftest import NOTES, Ran, make_base, run_in
from tests.fake_endpoint import FakeEndpoint
from tests.fakes import HashEmbedder

LONG = "hello 世界 words and 文字 alike; " * 90


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty base with the offline model."""
    config = NOTES.replace("embedding_model: none", "embedding_model: multilingual-e5-small")
    return make_base(tmp_path_factory.mktemp("embed") / "kb", config)


def floats(words: list[str]) -> np.ndarray:
    assert all(len(word) == 8 and set(word) <= set("0123456789abcdef") for word in words)
    return np.frombuffer(bytes.fromhex("".join(words)), ">f4")


def embed(base: Path, *args: str, stdin: str | bytes = "") -> Ran:
    ran = run_in(base, ["embed", *args], stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


@pytest.mark.model
def test_xd_10_one_line_of_hex_float32_is_the_models_vector_bit_for_bit(base: Path) -> None:
    model = wire(base, OpenOptions())[1].embedder
    for args, vectors in (((), model.embed_queries), (("--passage",), model.embed_passages)):
        ran = embed(base, "内存 and a question", *args)
        (words,), (expected,) = ran.lines, vectors(["内存 and a question"])
        assert ran.out.count("\n") == 1 and ran.err == ""
        assert expected.dtype == np.float32 and floats(words).tolist() == expected.tolist()
        assert floats(words).astype("<f4").tobytes() == expected.tobytes()
        assert [struct.pack(">f", value).hex() for value in floats(words)] == words


@pytest.mark.long
@pytest.mark.model
def test_xd_10_a_text_too_long_is_cut_at_the_last_token_that_fits_and_stderr_says_so(
    base: Path, tmp_path: Path
) -> None:
    model = wire(base, OpenOptions())[1].embedder
    model.count_tokens(["makes sure that the tokenizer is there"])
    (tokenizer,) = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser().glob("duckkb/models/*/tokens.model")
    pieces = SentencePieceProcessor(model_proto=tokenizer.read_bytes()).encode(f"query: {LONG}", out_type=str)
    kept = "".join(pieces[:510]).replace("▁", " ").strip().removeprefix("query: ")  # 512 with a mark before and behind
    assert LONG.startswith(kept)

    (tmp_path / "long").write_text(LONG, "utf-8")
    ran = embed(base, "--input-file", str(tmp_path / "long"), "--json")
    assert ran.line["usage"]["total_tokens"] == 512
    (told,) = ran.err.splitlines()
    assert (
        f"original {len(pieces) + 2}, truncated 512, limit 512 tokens" in told
        and json.loads(told)["notice"] == "W_TRUNCATED"
    )
    with duckkb.open(base, embedder=model) as kb:
        same = kb.embed(kept)
    assert same.vectors == (ran.line["embedding"],) and same.tokens == 512 and same.notices == ()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, FakeEndpoint]]:
    """A base whose model is behind an endpoint, which answers faster than a model loads."""
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        config = NOTES.replace("embedding_model: none", f"embedding_model: far, embedding: {place}")
        root = make_base(tmp_path_factory.mktemp("far") / "kb", config)
        assert run_in(root, ["trust"]).code == 0
        yield root, endpoint


def test_xd_10_a_file_and_stdin_agree_and_stdin_is_read_only_without_both(
    far: tuple[Path, FakeEndpoint], tmp_path: Path
) -> None:
    base, endpoint = far
    (tmp_path / "text").write_bytes("one\r\nfile 文\r\n".encode())
    (from_file,) = embed(base, "--input-file", str(tmp_path / "text"), stdin="not read").lines
    assert embed(base, stdin="one\nfile 文\n").lines == [from_file]
    assert [asked.texts for asked in endpoint.asked[-2:]] == [["one\nfile 文"]] * 2


def test_xd_10_json_and_batch_have_the_same_vectors_in_objects_and_lines(far: tuple[Path, FakeEndpoint]) -> None:
    base, endpoint = far
    lines = embed(base, "--batch", '["one", "一行", "one"]').lines
    whole = embed(base, "--batch", '["one", "一行", "one"]', "--json").line
    single = embed(base, "one", "--json", stdin="not read").line
    assert list(whole) == ["embeddings", "model", "usage"] and list(single) == ["embedding", "model", "usage"]
    assert whole["embeddings"] == lines and len(lines) == 3 and lines[0] == lines[2] == single["embedding"]
    for words, expected in zip(lines, endpoint.model.embed_queries(["one", "一行", "one"]), strict=True):
        np.testing.assert_allclose(floats(words), expected, atol=1e-6)
    assert single["model"] == "far"
    assert set(single["usage"]) == {"prompt_tokens", "total_tokens", "tokens"} and set(single["usage"].values()) == {1}


def test_xd_10_an_endpoint_gets_whole_texts_as_it_does_not_tell_its_limit(far: tuple[Path, FakeEndpoint]) -> None:
    base, endpoint = far
    ran = embed(base, "--batch", json.dumps(["short", LONG.strip()]), "--json")
    assert endpoint.asked[-1].texts == ["short", LONG.strip()] and ran.err == ""
    assert ran.line["usage"]["total_tokens"] > 400, "an estimate"


BAD_TEXTS = [
    ("", "E_USAGE", "empty"),
    (" \t ", "E_USAGE", "white space"),
    (b"\xef\xbb\xbftext", "E_BOM", "byte order mark"),
    (b"text \xff", "E_UTF8", "byte 6"),
    (b"text \xed\xa0\x80", "E_UTF8", "byte 6"),
]
BAD_BATCHES = [
    ("", "E_USAGE", "empty"),
    ("[]", "E_USAGE", "empty array"),
    ('{"a": "b"}', "E_JSON", "not an array"),
    ('"one"', "E_JSON", "not an array"),
    ('["one"', "E_JSON", "column"),
    ("[NaN]", "E_NUMBER", "/0"),
    ('["one", 2]', "E_USAGE", "text 2 of 2"),
    ('["one", null]', "E_USAGE", "text 2 of 2"),
    ('["one", ""]', "E_USAGE", "text 2 of 2"),
    ('["one", "\\n"]', "E_USAGE", "text 2 of 2"),
    ('["one", "a\\u0000"]', "E_NUL", "text 2 of 2"),
    ('["one", "\\ud800"]', "E_SURROGATE", "/1"),
    (b"\xef\xbb\xbf[]", "E_BOM", "byte order mark"),
]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base without a model: what is wrong with a text is said before a model is asked for."""
    return make_base(tmp_path_factory.mktemp("refused") / "kb", NOTES)


@pytest.mark.parametrize("batch", [False, True], ids=["text", "batch"])
def test_xd_10_each_flaw_of_a_text_is_told_apart_wherever_it_came_from(
    refusals: Path, batch: bool, tmp_path: Path
) -> None:
    """Through the API but for one process each way, as a process for each would take long."""
    with duckkb.open(refusals, embedder=HashEmbedder()) as kb:
        nul = ("one\0", "E_NUL", "NUL character at 4") if not batch else ('["one\0"]', "E_NUL", "byte 6")
        for given, code, said in [*(BAD_BATCHES if batch else BAD_TEXTS), nul]:
            data = given.encode() if isinstance(given, str) else given
            path = tmp_path / "given"
            path.write_bytes(data)
            with path.open("rb") as stdin:
                sources = [(None, None, stdin, 2), (None, str(path), None, 1)]
                if b"\0" not in data:
                    sources.append((os.fsdecode(data), None, None, 2))
                for text, file, stream, exit_code in sources:
                    with pytest.raises(UsageError) as caught:
                        kb.embed_input(text, file, batch=batch, stdin=stream)
                    found = caught.value
                    assert (found.code, found.exit_code) == (code, exit_code), (given, found)
                    assert said in found.message and found.suggestion, (given, found)


@pytest.mark.parametrize(
    ("args", "stdin", "code", "exit_code"),
    [
        ([], "", "E_USAGE", 2),
        ([], b"\xff", "E_UTF8", 2),
        (["--batch", '["one", 2]'], "", "E_USAGE", 2),
        (["x", "--input-file", "config.yaml"], "", "E_USAGE", 2),
        (["--input-file", "nothing"], "", "E_PATH", 2),
        (["--input-file", "."], "", "E_PATH", 2),
        (["--input-file", "blank"], "", "E_USAGE", 1),
    ],
)
def test_xd_10_refusals_leave_stdout_empty(
    refusals: Path, args: list[str], stdin: str, code: str, exit_code: int
) -> None:
    (refusals / "blank").write_text(" \r\n\r\n")
    ran = run_in(refusals, ["embed", *args, "--json"], stdin=stdin)
    assert (ran.code, ran.out, ran.error["code"]) == (exit_code, "", code), ran.err


def test_xd_10_a_text_over_the_limit_of_a_record_is_refused_unread(refusals: Path, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 8_388_609)
    with duckkb.open(refusals, embedder=HashEmbedder()) as kb, pytest.raises(UsageError) as caught:
        kb.embed_input(None, str(tmp_path / "large"))
    assert (caught.value.code, caught.value.exit_code) == ("E_TOO_LARGE", 1)


def test_xd_10_the_library_truncates_and_refuses_alike(refusals: Path) -> None:
    with duckkb.open(refusals, embedder=HashEmbedder(limit=3)) as kb:
        answer = kb.embed(["one two three", "one two three four"], passage=True)
        assert answer.vectors[0] == answer.vectors[1] and answer.tokens == 6
        (notice,) = answer.notices
        assert notice.code == "W_TRUNCATED" and "text 2" in notice.message
        assert "original 4, truncated 3, limit 3 tokens" in notice.message
        assert kb.embed("one").vectors == kb.embed(("one",)).vectors
        for wrong in ("", [], ["a", ""], ["\ud800"], ["a\0"], [3], 3, None, b"text"):
            with pytest.raises(UsageError):
                kb.embed(wrong)
