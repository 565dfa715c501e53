"""Index entries of records, and how they use the cache."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duckkb.index.cache_database import fts_content, tokens_of
from duckkb.index.cache_parquet import encode
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.index_entries import EntryBuilder, text_key
from duckkb.index.team_cache import TEAM_FILE
from duckkb.index.tokens import JiebaTokenizer
from duckkb.ontology.model import NodeType, SearchField
from duckkb.types.records import Fingerprint, Record, Tokens
from duckkb.types.settings import Settings

MODEL = Fingerprint("acme/model", "abc", 4)
UNIT = np.array([1, 0, 0, 0], dtype=np.float32)


class CountingTokenizer:
    """The real tokenizer, and the texts that it was asked for."""

    def __init__(self) -> None:
        self._real = JiebaTokenizer()
        self.asked: list[str] = []

    @property
    def fingerprint(self) -> Fingerprint:
        return self._real.fingerprint

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        self.asked += texts
        return self._real.tokenize(texts)


def kind(full_text: Sequence[SearchField] = (), vectors: Sequence[SearchField] = ()) -> NodeType:
    return NodeType("Note", "note", ("id",), {}, tuple(full_text), tuple(vectors))


def record(number: int, **fields: Any) -> Record:
    return Record("Note", number, (f"n{number}",), {"id": f"n{number}", **fields}, "", "")


def builder(
    root: Path, tokenizer: CountingTokenizer | None = None, cache: SearchCache | None = None, **settings: Any
) -> EntryBuilder:
    return EntryBuilder(
        tokenizer or CountingTokenizer(),
        Settings(**settings),
        lambda _: MODEL,
        lambda _: {},
        cache or SearchCache.open(root, root / "user"),
    )


BOTH = kind([SearchField("title"), SearchField("body")], [SearchField("body"), SearchField("summary")])


def test_entries_follow_the_fields_and_the_text(tmp_path: Path) -> None:
    body = "One sentence here. Another one there. 内存数据库很快。查询也快。"
    note = record(1, title="DuckDB", body=body, summary="short")
    entries = builder(tmp_path, chunk_size=20).build(BOTH, [note])[0]
    assert [(entry.field, entry.seq) for entry in entries] == [
        ("title", 0),
        *(("body", seq) for seq in range(len(entries) - 2)),
        ("summary", 0),
    ]
    assert "".join(entry.content for entry in entries if entry.field == "body") == body
    assert all(len(entry.content) <= 20 for entry in entries)


def test_each_lane_gets_what_it_searches(tmp_path: Path) -> None:
    title, body, summary = builder(tmp_path).build(BOTH, [record(1, title="a", body="b", summary="c")])[0]
    assert (title.tokens, title.vector_key) == (Tokens("a", "a"), None)
    assert (body.tokens, body.vector_key) == (Tokens("b", "b"), text_key(MODEL, "b"))
    assert (summary.tokens, summary.vector_key) == (None, text_key(MODEL, "c"))
    assert body.vector is None


@pytest.mark.parametrize("missing", [{}, {"body": None}, {"body": ""}, {"body": []}])
def test_a_field_without_text_has_no_entries(tmp_path: Path, missing: Mapping[str, Any]) -> None:
    assert builder(tmp_path).build(BOTH, [record(1, **missing)]) == [()]


def test_a_list_is_one_text(tmp_path: Path) -> None:
    made = builder(tmp_path).build(kind([SearchField("tags")]), [record(1, tags=["内存", "v2.0.1"])])[0]
    assert [entry.content for entry in made] == ["内存\nv2.0.1"]


@pytest.mark.parametrize(
    ("full_text", "vectors", "longest"),
    [
        (SearchField("body"), SearchField("body"), 60),
        (SearchField("body", chunk_size=30), SearchField("body"), 30),
        (SearchField("body", chunk_size=30), SearchField("body", chunk_size=45), 45),
    ],
)
def test_the_size_of_the_field_wins_over_the_base(
    tmp_path: Path, full_text: SearchField, vectors: SearchField, longest: int
) -> None:
    made = builder(tmp_path, chunk_size=60).build(kind([full_text], [vectors]), [record(1, body="x" * 1000)])[0]
    assert longest - 15 < max(len(entry.content) for entry in made) <= longest


def test_without_a_model_no_entry_waits_for_a_vector(tmp_path: Path) -> None:
    cache = SearchCache.open(tmp_path)
    made = EntryBuilder(JiebaTokenizer(), Settings(), lambda _: None, lambda _: {}, cache).build(
        BOTH, [record(1, body="b", summary="c")]
    )[0]
    assert [entry.vector_key for entry in made] == [None, None]


def test_a_text_is_tokenised_once_however_often_it_stands(tmp_path: Path) -> None:
    tokenizer = CountingTokenizer()
    made = builder(tmp_path, tokenizer).build(BOTH, [record(number, title="same", body="same") for number in range(9)])
    assert tokenizer.asked == ["same"]
    assert len(made) == 9


def test_dk_11_a_second_start_computes_nothing(tmp_path: Path) -> None:
    notes = [record(number, title=f"第{number}条", body=f"版本 v{number}.0.1 " * 300) for number in range(40)]
    cache = SearchCache.open(tmp_path, tmp_path / "user")
    before = builder(tmp_path, cache=cache).build(BOTH, notes)
    keys = {entry.vector_key: (entry.content, UNIT) for row in before for entry in row if entry.vector_key}
    cache.add_vectors(keys, MODEL)
    cache.save()
    tokenizer = CountingTokenizer()
    after = builder(tmp_path, tokenizer).build(BOTH, notes)
    assert tokenizer.asked == []
    assert [[entry.tokens for entry in row] for row in after] == [[entry.tokens for entry in row] for row in before]
    assert all((entry.vector is not None) == (entry.vector_key is not None) for row in after for entry in row)


@pytest.mark.long
def test_tokens_of_ascii_texts_are_made_and_never_cached(tmp_path: Path) -> None:
    notes = [record(1, title="the quick fox"), record(2, title="狐狸")]
    cache = SearchCache.open(tmp_path, tmp_path / "user")
    words = JiebaTokenizer().fingerprint
    forged = [(text_key(words, "the quick fox"), b"c" * 16, str(words), b"buy this product")]
    (tmp_path / TEAM_FILE).parent.mkdir(parents=True)
    (tmp_path / TEAM_FILE).write_bytes(encode(forged, []))
    for _ in range(2):
        made = builder(tmp_path, cache=cache)
        assert [row[0].tokens for row in made.build(BOTH, notes)] == JiebaTokenizer().tokenize(
            ["the quick fox", "狐狸"]
        )
        assert made.needs(BOTH, notes).tokens == {text_key(words, "狐狸"): "狐狸"}
        assert cache.tokens([text_key(words, "the quick fox")]) == [None]
        cache.save()
    assert [finding.code for finding in cache.findings] == []


def test_another_model_keeps_the_tokens_and_another_tokenizer_the_vectors(tmp_path: Path) -> None:
    other = Fingerprint("acme/model", "def", 4)
    words = JiebaTokenizer().fingerprint
    assert text_key(MODEL, "text") != text_key(other, "text")
    assert text_key(words, "text") != text_key(JiebaTokenizer(fold="simplified").fingerprint, "text")
    assert text_key(words, "text") != text_key(words, "text ")
    assert len(text_key(words, "")) == len(text_key(MODEL, "\ud800")) == 16


@pytest.mark.long
def test_forged_tokens_are_recomputed_dropped_and_named(tmp_path: Path) -> None:
    notes = [record(number, title=f"诚实的标题 {number}") for number in range(50)]
    words = JiebaTokenizer().fingerprint
    forged = [(text_key(words, note.fields["title"]), b"c" * 16, str(words), b"buy this product") for note in notes]
    (tmp_path / TEAM_FILE).parent.mkdir(parents=True)
    (tmp_path / TEAM_FILE).write_bytes(encode(forged, []))
    cache = SearchCache.open(tmp_path, tmp_path / "user")
    made = builder(tmp_path, cache=cache).build(BOTH, notes)
    assert [row[0].tokens for row in made] == JiebaTokenizer().tokenize([note.fields["title"] for note in notes])
    assert [(finding.code, finding.path) for finding in cache.findings] == [("W_CACHE_UNTRUSTED", TEAM_FILE)]


def test_honest_tokens_from_elsewhere_cost_a_sample(tmp_path: Path) -> None:
    notes = [record(number, title=f"标题 {number}") for number in range(200)]
    made = SearchCache.open(tmp_path)
    builder(tmp_path, cache=made).build(BOTH, notes)
    keys = [text_key(JiebaTokenizer().fingerprint, note.fields["title"]) for note in notes]
    (tmp_path / TEAM_FILE).parent.mkdir(parents=True)
    (tmp_path / TEAM_FILE).write_bytes(made.team_bytes(keys)[TEAM_FILE])
    first, second = CountingTokenizer(), CountingTokenizer()
    builder(tmp_path, first).build(BOTH, notes)
    builder(tmp_path, second).build(BOTH, notes)
    assert (len(first.asked), len(second.asked)) == (32, 0)


@pytest.mark.parametrize(
    "tokens",
    [Tokens("", ""), Tokens("a b", "a b"), Tokens("数据库", "数 据 库"), Tokens("only", ""), Tokens("", "seq")],
)
def test_tokens_survive_their_column(tokens: Tokens) -> None:
    assert tokens_of(fts_content(tokens).encode()) == tokens


def test_words_of_a_record_are_those_of_its_whole_text_where_no_token_is_cached(tmp_path: Path) -> None:
    """Cut between words, a text has the same words in the same order as its chunks together; where a border would lie inside
    of a word, that word is one, and is found."""
    made = builder(tmp_path, chunk_size=40)
    prose = " ".join(f"word{number} see file_{number}.txt, then stop." for number in range(40))
    long = "x" * 90
    note = kind([SearchField("body")], [SearchField("body")])
    for text in (prose, long):
        (whole,) = made.build(note, [record(1, body=text)], "fts")
        (cut,) = made.build(note, [record(1, body=text)])
        assert len(whole) == 1 < len(cut)
        if text is prose:
            tokens = [one.tokens for one in cut if one.tokens]
            assert whole[0].tokens is not None
            assert whole[0].tokens.sequence == " ".join(one.sequence for one in tokens)
            assert sorted(whole[0].tokens.words.split()) == sorted(" ".join(one.words for one in tokens).split())
        else:
            assert whole[0].tokens == Tokens(long, long)


def test_chunks_are_cut_of_what_a_lane_reads_alone(tmp_path: Path) -> None:
    """Texts with other letters have cached tokens, by chunk: they are cut for both lanes alike."""
    made = builder(tmp_path, chunk_size=40)
    note = kind([SearchField("body")], [SearchField("other")])
    given = record(1, body="数据库在文件里。" * 20, other="plain text")
    (words,) = made.build(note, [given], "fts")
    (vectors,) = made.build(note, [given], "vector")
    (both,) = made.build(note, [given])
    assert [one.content for one in (*words, *vectors)] == [one.content for one in both]
    assert {one.field for one in words} == {"body"}
    assert {one.field for one in vectors} == {"other"}
