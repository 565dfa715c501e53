"""Lexical scores against BM25 written out in plain Python, and what laziness and small changes promise."""

import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from duckkb.app.retrievers import MemoryRows
from duckkb.index.tokens import PlainTokenizer
from duckkb.index.word_index import Lexical
from duckkb.ontology.model import NodeType, SearchField
from duckkb.ports import Row
from duckkb.types.errors import UsageError
from duckkb.types.queries import LexicalQuery
from duckkb.types.records import IndexEntry, Record, Tokens

DOC = NodeType("Doc", "doc", ("name",), {}, full_text=(SearchField("body"),))
K1, B = 1.2, 0.75


def doc(record_id: int, body: str) -> Row:
    entry = IndexEntry("body", 0, body, Tokens(body, body))
    return Row(Record("Doc", record_id, (record_id,), {}, "", ""), (entry,))


def lexical(bodies: Sequence[str], language: str = "none") -> tuple[Lexical, MemoryRows]:
    rows = MemoryRows(doc(number, body) for number, body in enumerate(bodies, 1))
    return Lexical(DOC, rows, PlainTokenizer(), language), rows


def bm25(bodies: Sequence[str], query: str) -> dict[int, float]:
    """Robertson and Zaragoza (2009), with the idf that is never negative; lengths are exact."""
    texts = [Counter(body.split()) for body in bodies]
    average = sum(text.total() for text in texts) / len(texts)
    scores: dict[int, float] = {}
    for word in query.split():
        holders = sum(word in text for text in texts)
        idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
        for number, text in enumerate(texts, 1):
            if word in text:
                norm = K1 * (1 - B + B * text.total() / average)
                scores[number] = scores.get(number, 0) + idf * (K1 + 1) * text[word] / (text[word] + norm)
    return scores


@pytest.mark.parametrize("seed", range(12))
def test_scores_are_bm25(seed: int) -> None:
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(30)]
    # Up to 39 words a text: that far the index stores lengths exactly.
    bodies = [" ".join(draw.choices(words, weights=range(1, 31), k=draw.randint(1, 39))) for _ in range(200)]
    query = " ".join(draw.choices(words, weights=range(1, 31), k=12))
    expected = bm25(bodies, query)
    hits = lexical(bodies)[0].ask(LexicalQuery(query), 200)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-4)
    assert [hit.id for hit in hits] == sorted(expected, key=lambda number: (-round(expected[number], 5), number))


@pytest.mark.parametrize("seed", range(4))
def test_scores_of_long_texts_are_bm25_but_for_rounded_lengths(seed: int) -> None:
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(300)]
    bodies = [" ".join(draw.choices(words, k=draw.randint(50, 3000))) for _ in range(60)]
    expected = bm25(bodies, "w1 w2 w3")
    hits = lexical(bodies)[0].ask(LexicalQuery("w1 w2 w3"), 60)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, rel=0.05)


def test_a_word_counts_as_often_as_the_query_says_it_and_the_account_adds_up() -> None:
    found, _ = lexical(["red blue", "blue green", "red", "blue blue 内存"])
    once = {hit.id: hit.score for hit in found.ask(LexicalQuery("red"), 9)}
    thrice = {hit.id: hit.score for hit in found.ask(LexicalQuery("red red red"), 9)}
    assert thrice == pytest.approx({number: 3 * score for number, score in once.items()})
    query = LexicalQuery("red blue red 内 red 内")
    for hit in found.ask(query, 9):
        told = found.explain(query, hit.id)
        assert sum(term["score"] for term in told["terms"]) == pytest.approx(hit.score) == told["score"]


def test_equal_scores_of_many_terms_tie_exactly() -> None:
    draw = random.Random(3)
    words = [f"w{number}" for number in range(60)]
    bodies = [" ".join(draw.choices(words, k=draw.randint(3, 15))) for _ in range(3000)]
    same = set(draw.sample(range(3000), 100))
    bodies = ["w1 w5 w9 w20 w33" if number in same else body for number, body in enumerate(bodies)]
    hits = lexical(bodies)[0].ask(LexicalQuery("w33 w20 w1 w9 w5"), 100)
    assert [hit.id - 1 for hit in hits[: len(same)]] == sorted(same)
    assert len({hit.score for hit in hits[: len(same)]}) == 1


def test_a_large_index_made_by_two_threads_scores_as_bm25() -> None:
    bodies = [f"common w{number % 1000} {'x ' * (number % 5)}" for number in range(20_500)]
    hits = lexical(bodies)[0].ask(LexicalQuery("w7 common"), 15)
    expected = bm25(bodies, "w7 common")
    ranked = sorted(expected, key=lambda number: (-round(expected[number], 5), number))
    assert [hit.id for hit in hits] == ranked[:15]


def test_few_changes_are_followed_and_many_build_the_index_anew() -> None:
    bodies = [f"common w{number}" for number in range(1000)]
    found, rows = lexical(bodies)
    for changed in range(1, 40):
        rows.change({changed: doc(changed, "other")})
        assert found.ask(LexicalQuery("other"), 50)[-1].id == changed
    assert 0 < found._added - len(rows) <= len(rows) // 50


@pytest.mark.parametrize("words", [90, 100_000])
def test_a_text_that_was_much_of_all_text_is_not_counted_once_it_is_gone(words: int) -> None:
    """One document of a thousand is little; its tokens may be most of them, and the average length would be of them."""
    found, rows = lexical(
        [f"common {'w' * (number % 7 + 1)}" for number in range(999)] + [" ".join(["common"] * words)]
    )
    found.ask(LexicalQuery("common"), 1)
    rows.change({1000: doc(1000, "other")})
    fresh = Lexical(DOC, MemoryRows(rows.some(rows)), PlainTokenizer(), "none")
    for question in (
        LexicalQuery("common"),
        LexicalQuery(phrases=("common ww",)),
        LexicalQuery("com", prefixes=("com",)),
    ):
        ranks, wanted = ({hit.id: hit.score for hit in lane.ask(question, 1000)} for lane in (found, fresh))
        assert ranks == pytest.approx(wanted, rel=0.05)
    assert found._dead.get("sequence", 0) == (0 if words > 100 else words)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_scores_are_those_of_the_records_whatever_was_there_before(seed: int) -> None:
    """After each of many changes an index that follows ranks, scores and explains as one that is made of the same records."""
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(200)]

    def text() -> str:
        return " ".join(draw.choices(words, weights=range(1, 201), k=int(draw.lognormvariate(3.5, 1)) + 1)) + " 石头"

    questions = (
        LexicalQuery("w3 w150 w199 w4", exact=True),
        LexicalQuery("w1", exact=True),
        LexicalQuery("w120 石", prefixes=("w12",), exact=True),
        LexicalQuery("w7", phrases=("w199 w198",), exact=True),
        LexicalQuery("w150", excluded=("w199",), exact=True),
    )
    followed, rows = lexical([text() for _ in range(600)])
    followed.ask(LexicalQuery("石"), 1)
    drifted = 0
    for step in range(24):
        changed = draw.sample(range(1, 601), 1 + step % 2)
        gone = {changed.pop()} if step % 5 == 4 else ()
        rows.change({number: doc(number, text() * draw.choice([1, 1, 9])) for number in changed}, gone)
        fresh = Lexical(DOC, MemoryRows(rows.some(rows)), PlainTokenizer(), "none")
        for question in questions:
            for depth, allowed in ((10, None), (600, None), (5, frozenset(range(1, 200)))):
                expected = fresh.ask(question, depth, allowed)
                assert followed.ask(question, depth, allowed) == expected, (step, question)
                quick = {hit.id: hit.score for hit in followed.ask(replace(question, exact=False), depth, allowed)}
                near = {hit.id: hit.score for hit in expected if hit.id in quick}
                assert len(near) >= 0.8 * len(quick)
                assert near == pytest.approx({number: quick[number] for number in near}, rel=0.05)
            for hit in expected[:1]:
                told, wanted = (one.explain(question, hit.id) for one in (followed, fresh))
                assert told == wanted and round(told["score"], 6) == hit.score
                assert followed.coverage(question, hit.id) == fresh.coverage(question, hit.id)
        drifted += followed._added > len(rows)
    assert drifted > 5, "replaced documents were there to be counted"


def test_the_order_of_tokens_is_indexed_when_a_question_first_asks_for_it_and_changes_no_other_answer() -> None:
    """Plain words, then a phrase, a prefix, an exclusion and a Chinese character, with changes between: each answer is
    that of an index that was asked nothing before."""
    questions = (
        LexicalQuery("river stone"),
        LexicalQuery(phrases=("stone river",)),
        LexicalQuery("river", prefixes=("sto",)),
        LexicalQuery("river", excluded=("cloud",)),
        LexicalQuery("石"),
    )
    bodies = ["river stone", "stone river 石 头", "cloud river", "stove cloud", "", "river river 石"]
    for first in questions:
        asked, rows = lexical(bodies)
        for number, question in enumerate((first, *questions), 10):
            rows.change({number: doc(number, f"stone river {number} 石")})
            fresh = Lexical(DOC, MemoryRows(rows.some(rows)), PlainTokenizer(), "none")
            assert asked.ask(question, 50) == fresh.ask(question, 50)


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(UsageError, match="klingon"):
        lexical(["a"], "klingon")


def test_filters_import_no_index_and_words_no_database() -> None:
    program = """
import sys
from duckkb.app.retrievers import MemoryRows
from duckkb.sql.runtime_tables import Tables
from duckkb.app.retrievers import TypeLanes
from duckkb.ontology.model import NodeType, Ontology, SearchField
from duckkb.ports import Row
from duckkb.types.queries import LexicalQuery
from duckkb.types.records import Record
from duckkb.types.settings import Settings

kind = NodeType("Doc", "doc", ("name",), {}, full_text=(SearchField("body"),))
rows = MemoryRows([Row(Record("Doc", 1, ("a",), {"name": "a"}, "2024-01-01T00:00:00.000000Z", "2024-01-01T00:00:00.000000Z"))])
lanes = TypeLanes(kind, rows, None, Settings())
assert not {"tantivy", "numpy", "duckdb", "pyarrow"} & set(sys.modules), "loading"
assert lanes.words.ask(LexicalQuery(), 5) == []
assert not {"numpy", "duckdb", "pyarrow"} & set(sys.modules), "words"
assert Tables(Ontology({"Doc": kind}), lambda _: rows).where(kind, "name = 'a'") == {1}
"""
    subprocess.run([sys.executable, "-c", program], check=True)
