"""Quotes and dashes limit what is found; where nothing fits the quotes and stars, plain words do, and each line says so."""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duckkb
from duckkb.operations.document_search import SearchOptions
from duckkb.operations.record_lines import hit_lines
from duckkb.types.queries import FindResult
from tests.conftest import NOTES, make_base, run_in
from tests.fakes import HashEmbedder

SETTINGS = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[title, text], vectors: [text]")
TEXTS = {
    "exact": "The quick brown fox runs.",
    "words": "A fox that is quick, with brown fur.",
    "more": "Brown bread is quick to bake, brown and quick.",
    "bird": "A quick crane, the bird.",
    "flag": "find -rf removes every file by force",
    "else": "Nothing of this.",
    "zh": "内存数据库很快，数据在文件里。",
}


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[duckkb.KnowledgeBase]":
    root = make_base(tmp_path_factory.mktemp("plain") / "kb", SETTINGS)
    with duckkb.open(root, embedder=HashEmbedder(16)) as opened:
        opened.put("Note", [{"id": name, "text": text, "size": len(text)} for name, text in TEXTS.items()])
        yield opened


def names(found: FindResult) -> list[str]:
    return [hit.identity for hit in found]


def said(found: FindResult) -> list[str]:
    return [notice.message for notice in found.notices if notice.code == "W_PLAIN"]


@pytest.mark.parametrize(
    ("question", "expected", "is_filled"),
    [
        ('"quick brown"', {"exact"}, False),
        ('which is "quick brown" here', {"exact"}, False),
        ('"brown quick"', {"words", "more", "exact", "bird"}, True),
        ("qui*", {"exact", "words", "more", "bird"}, False),
        ("foxes*", {"exact", "words"}, True),
        ("quick -bird", {"more", "words", "exact"}, False),
        ('"brown quick" -bird', {"words", "more", "exact"}, True),
        ("find -rf", set(), False),
        ('"数据文件"', {"zh"}, True),
    ],
)
def test_what_fits_is_found_and_plain_words_count_where_nothing_does(
    kb: "duckkb.KnowledgeBase", question: str, expected: set[str], is_filled: bool
) -> None:
    found = kb.find("Note", question, mode="match", explain=True)
    assert set(names(found)) == expected
    assert {hit.is_filled for hit in found} <= {is_filled}
    assert [message.startswith("no result fits") for message in said(found)] == [True] * is_filled
    for hit in found:
        assert sum(term["score"] for term in hit.trace["terms"]) == pytest.approx(hit.score, abs=1e-5)


def test_a_similar_search_reads_no_quotes(kb: "duckkb.KnowledgeBase") -> None:
    assert not said(kb.find("Note", '"brown quick"', mode="similar"))


def test_a_filter_holds_for_what_is_filled_up(kb: "duckkb.KnowledgeBase") -> None:
    few = f"size < {len(TEXTS['exact'])}"
    found = kb.find("Note", '"quick brown" -fur', mode="match", where=few)
    assert names(found) == ["bird"] and found[0].is_filled


@pytest.mark.parametrize("method", ["rrf", "minmax"])
def test_hybrid_keeps_the_words_of_a_phrase_that_nothing_has(kb: "duckkb.KnowledgeBase", method: str) -> None:
    fusion = duckkb.Fusion(method)
    found = kb.find("Note", '"brown quick"', mode="hybrid", fusion=fusion, explain=True)
    lexical = kb.find("Note", "brown quick", mode="match")
    ranks = {hit.identity: hit.scores["rank"]["fts"] for hit in found}
    assert {name: ranks[name] for name in names(lexical)} == {name: at for at, name in enumerate(names(lexical), 1)}
    assert said(found) and found[0].identity in names(lexical) and all(hit.is_filled for hit in found)
    assert names(kb.find("Note", '"quick brown"', mode="hybrid", fusion=fusion)) == ["exact"]


def test_why_names_the_phrase_that_a_record_lacks(kb: "duckkb.KnowledgeBase") -> None:
    phrase = kb.why("Note", "words", '"quick brown"', mode="match")
    assert (phrase.is_plain, phrase.rank) == (False, None) and 'does not have "quick brown"' in phrase.reasons[0]
    plain = kb.why("Note", "words", '"brown quick"', mode="match")
    assert plain.is_plain and plain.rank and "found by its plain words" in plain.reasons[0]
    negated = kb.why("Note", "bird", "quick -bird", mode="match")
    assert (negated.rank, negated.excluded) == (None, ("bird",)) and "removed it" in negated.reasons[0]
    assert not kb.why("Note", "exact", '"quick brown"', mode="match").is_plain


def test_a_word_that_is_asked_twice_counts_twice_in_the_account(kb: "duckkb.KnowledgeBase") -> None:
    once, twice = (kb.why("Note", "more", text, mode="match").tokens[0].score for text in ("quick", "quick quick"))
    assert twice == pytest.approx(2 * once)


VOCABULARY = ("api", "meeting", "rotate", "weekly", "keys", "会议", "接口")
BODIES = [f"{first} {second} {third}" for first, second, third in permutations(VOCABULARY, 3)][::9]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[duckkb.KnowledgeBase]":
    root = make_base(tmp_path_factory.mktemp("doors") / "kb", "global: {embedding_model: none}\n")
    for number, body in enumerate(BODIES):
        (root / "docs").mkdir(exist_ok=True)
        (root / "docs" / f"{number}.md").write_text(f"{body}\n", "utf-8")
    assert run_in(root, ["collection", "add", "docs"]).code == 0
    with duckkb.open(root, embedder=HashEmbedder(16)) as opened:
        opened.index_build()
        yield opened


def lines_of(kb: "duckkb.KnowledgeBase", door: str, question: str) -> list[tuple[str, bool]]:
    """The text and the flag of each line that a door gives."""
    if door in ("match", "hybrid"):
        found = kb.find("docs", question, mode=door, limit=100)
        lines = [line for line, _ in hit_lines(found)]
        return [(line["text"], line.get("_filled", False)) for line in lines]
    how, asked = ("query", f"lex: {question}\nvec: {VOCABULARY[0]}") if door == "lex" else (door, question)
    documents = kb.search_documents(asked, how, SearchOptions(limit=None, full=True))
    return [(line["body"], line.get("_filled", False)) for line in documents]


@pytest.mark.long
@pytest.mark.parametrize("door", ["match", "hybrid", "search", "query", "lex"])
@given(
    words=st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=2),
    excluded=st.sets(st.sampled_from(VOCABULARY), max_size=2),
    phrase=st.lists(st.sampled_from(VOCABULARY), max_size=2, unique=True),
)
def test_no_door_gives_what_is_excluded_and_a_line_without_the_phrase_says_so(
    documents: "duckkb.KnowledgeBase", door: str, words: list[str], excluded: set[str], phrase: list[str]
) -> None:
    quoted = f'"{" ".join(phrase)}"' if phrase else ""
    question = " ".join([*words, quoted, *(f"-{word}" for word in sorted(excluded))])
    fits = [body for body in BODIES if excluded.isdisjoint(body.split()) and " ".join(phrase) in body]
    lines = lines_of(documents, door, question)
    for text, is_filled in lines:
        assert excluded.isdisjoint(text.split())
        assert not (is_filled and fits)
        if door != "lex":  # whose `vec` line has no phrase
            assert is_filled or " ".join(phrase) in text
    if phrase and door in ("match", "search"):
        assert {text.strip() for text, is_filled in lines if not is_filled} == set(fits)


def test_the_command_line_says_it_on_stderr(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["put", "Note", '{"id": "a", "text": "brown and quick"}']).code == 0
    ran = run_in(root, ["find", "Note", '"quick brown"'])
    assert (ran.code, ran.lines[0]["id"], ran.lines[0]["_filled"]) == (0, "a", True) and "no result fits" in ran.err
    for form in ("csv", "table", "json"):
        assert "_filled" in run_in(root, ["find", "Note", '"quick brown"', "--format", form]).out


@pytest.mark.long
def test_lines_of_documents_say_it_in_every_format(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    (root / "docs").mkdir()
    (root / "docs" / "a.md").write_text("brown and quick\n", "utf-8")
    assert run_in(root, ["collection", "add", "docs"]).code == 0
    for verb in ("search", "query"):
        for form in ("jsonl", "json", "table", "csv", "md", "xml", "files"):
            out = run_in(root, [verb, '"quick brown"', "--format", form]).out
            assert "filled" in out.lower(), (verb, form)
            assert "filled" not in run_in(root, [verb, '"and quick"', "--format", form]).out.lower()
