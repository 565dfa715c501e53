"""Questions whose quotes, dashes and stars find too little: behind what fits them stands what has their words."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.queries import FindResult
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
    ("question", "first", "behind"),
    [
        ('"quick brown"', ["exact"], {"words", "more", "bird"}),
        ('which is "quick brown" here', ["exact"], {"words", "more", "bird"}),
        ('"brown quick"', [], {"words", "more", "exact", "bird"}),
        ("qui*", [], {"exact", "words", "more", "bird"}),
        ("quick -bird", ["more", "words", "exact"], {"bird"}),
        ("how does find -rf work", [], {"flag"}),
        ('"数据文件"', [], {"zh"}),
    ],
)
def test_what_has_the_words_stands_behind_what_fits_and_that_is_said(
    kb: "duckkb.KnowledgeBase", question: str, first: list[str], behind: set[str]
) -> None:
    found = kb.find("Note", question, mode="match", explain=True)
    assert sorted(names(found)[: len(first)]) == sorted(first)
    assert behind <= set(names(found))
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    for hit in found:
        assert sum(term["score"] for term in hit.trace["terms"]) == pytest.approx(hit.score, abs=1e-5)
    if question == "qui*":
        assert not said(found), "all of them fit"
    else:
        (told,) = said(found)
        count = len(first)
        assert told.startswith(f"{count} of {len(found)} results" if count else "no result fits")


def test_nothing_is_filled_up_where_enough_fits_or_no_sign_is_read(kb: "duckkb.KnowledgeBase") -> None:
    enough = kb.find("Note", '"quick brown"', mode="match", limit=1)
    assert (names(enough), said(enough)) == (["exact"], [])
    few = kb.find("Note", "quick -bird", mode="match", limit=3)
    assert ("bird" in names(few), said(few)) == (False, [])
    assert not said(kb.find("Note", "quick brown", mode="match"))
    assert not said(kb.find("Note", '"quick brown"', mode="similar"))


def test_a_filter_holds_for_what_is_filled_up(kb: "duckkb.KnowledgeBase") -> None:
    found = kb.find("Note", '"quick brown" -fur', mode="match", where=f"size < {len(TEXTS['more'])}")
    assert names(found)[0] == "exact" and {"words", "bird"} <= set(names(found)) and "more" not in names(found)


@pytest.mark.parametrize("method", ["rrf", "minmax"])
def test_hybrid_keeps_the_words_of_a_phrase_that_nothing_has(kb: "duckkb.KnowledgeBase", method: str) -> None:
    fusion = duckkb.Fusion(method)
    found = kb.find("Note", '"brown quick"', mode="hybrid", fusion=fusion, explain=True)
    lexical = kb.find("Note", "brown quick", mode="match")
    ranks = {hit.identity: hit.scores["rank"]["fts"] for hit in found}
    assert {name: ranks[name] for name in names(lexical)} == {name: at for at, name in enumerate(names(lexical), 1)}
    assert said(found) and found[0].identity in names(lexical)
    excluded = kb.find("Note", "quick -bird", mode="hybrid", fusion=fusion)
    assert names(excluded)[-1] == "bird" and len(excluded) == len(TEXTS)
    assert [hit.score for hit in excluded] == sorted((hit.score for hit in excluded), reverse=True)
    cut = kb.find("Note", "quick -bird", mode="hybrid", fusion=fusion, limit=6)
    assert names(cut) == names(excluded)[:6] and not said(cut)


def test_why_says_that_a_record_stands_there_for_its_words(kb: "duckkb.KnowledgeBase") -> None:
    phrase = kb.why("Note", "words", '"quick brown"', mode="match")
    assert phrase.is_plain and phrase.rank and phrase.rank > 1 and "stands behind" in phrase.reasons[0]
    negated = kb.why("Note", "bird", "quick -bird", mode="match")
    assert (negated.is_plain, negated.rank, negated.excluded) == (True, 4, ("bird",))
    assert not kb.why("Note", "exact", '"quick brown"', mode="match").is_plain
    below = kb.why("Note", "bird", "quick -bird", mode="match", limit=3)
    assert below.rank is None and "removed it" in below.reasons[0]


def test_a_word_that_is_asked_twice_counts_twice_in_the_account(kb: "duckkb.KnowledgeBase") -> None:
    once, twice = (kb.why("Note", "more", text, mode="match").tokens[0].score for text in ("quick", "quick quick"))
    assert twice == pytest.approx(2 * once)


def test_the_command_line_says_it_on_stderr(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["put", "Note", '{"id": "a", "text": "brown and quick"}']).code == 0
    ran = run_in(root, ["find", "Note", '"quick brown"'])
    assert (ran.code, ran.lines[0]["id"]) == (0, "a") and "no result fits" in ran.err
