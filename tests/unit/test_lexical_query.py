"""A lexical query taken apart: which clauses it becomes, and how lists of scored records are ordered."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duckkb.index.tokens import JiebaTokenizer
from duckkb.index.word_fields import clip_tokens, words_fields
from duckkb.index.word_query import Clause, clauses, is_han
from duckkb.ontology.model import NodeType, SearchField
from duckkb.ports import best_first, is_settled
from duckkb.types.queries import LexicalQuery

TOKENIZER = JiebaTokenizer()
ONE = words_fields(NodeType("A", "a", ("n",), {}, full_text=(SearchField("title"), SearchField("body"))), "english")
SEVERAL = words_fields(
    NodeType(
        "B",
        "b",
        ("n",),
        {},
        full_text=(
            SearchField("title", weight=2.0),
            SearchField("body"),
            SearchField("notes", language="English"),
            SearchField("code", language="none"),
        ),
    ),
    "english",
)


def test_fields_of_one_weight_and_language_share_a_field_of_the_index() -> None:
    assert [(words.weight, words.language, set(words.sources)) for words in ONE] == [
        (1.0, "english", {"title", "body"})
    ]
    assert [(words.weight, words.language, set(words.sources)) for words in SEVERAL] == [
        (2.0, "english", {"title"}),
        (1.0, "english", {"body", "notes"}),
        (1.0, "none", {"code"}),
    ]


def test_words_are_stemmed_by_their_field_and_count_as_often_as_they_are_said() -> None:
    found = clauses(LexicalQuery("Snakes snake"), TOKENIZER, SEVERAL)
    assert found.scored == (
        Clause("word", "words_0", ("snake",), 4.0),
        Clause("word", "words_1", ("snake",), 2.0),
        Clause("word", "words_2", ("snakes",), 1.0),
        Clause("word", "words_2", ("snake",), 1.0),
    )


def test_chinese_characters_are_asked_for_beside_the_words() -> None:
    found = clauses(LexicalQuery("DuckDB内存"), TOKENIZER, ONE)
    assert [(clause.part, clause.text) for clause in found.scored] == [
        ("word", "duckdb"),
        ("word", "内存"),
        ("character", "内"),
        ("character", "存"),
    ]


def test_phrases_prefixes_and_exclusions_become_clauses_of_their_own() -> None:
    query = LexicalQuery("", ("Grass snakes", "?"), ("frogs", "two words", "内", "!"), ("text-emb", "内存"))
    found = clauses(query, TOKENIZER, ONE)
    assert [(clause.part, clause.text) for clause in found.required] == [("phrase", "grass snakes")]
    assert [(clause.part, clause.text) for clause in found.scored] == [("prefix", "text emb*"), ("phrase", "内存")]
    assert [(clause.part, clause.tokens) for clause in found.excluded] == [
        ("phrase", ("frogs",)),
        ("word", ("frog",)),
        ("phrase", ("two", "words")),
        ("phrase", ("内",)),
    ]
    assert not found.only_excludes and not found.is_empty


def test_a_query_without_tokens_has_no_clauses() -> None:
    assert clauses(LexicalQuery("?!", ("...",), ("-",), ("*",)), TOKENIZER, ONE).is_empty


def test_han_is_one_chinese_character() -> None:
    assert all(map(is_han, "内㐀豈々〇𠀀"))
    assert not any(map(is_han, ["a", "か", "한", "内存", "", "，", "🚀"]))


def test_tokens_are_cut_to_what_an_index_holds_and_kept_apart() -> None:
    assert clip_tokens("a b") == "a b"
    assert clip_tokens(f"a {'中' * 20_000} b") == f"a {'中' * 10_000} b"
    assert len(("中" * 10_000).encode()) < 65_530


scores = st.lists(st.sampled_from([9.0, 4.0, 4.000001, 3.999999, 1.0, 0.5, 0.0]), max_size=12).map(
    lambda found: [(score, number) for number, score in enumerate(sorted(found, reverse=True))]
)


@given(scored=scores, depth=st.integers(0, 15), more=st.integers(0, 5))
def test_a_shorter_order_is_the_start_of_a_longer_one(scored: list[tuple[float, int]], depth: int, more: int) -> None:
    longer = best_first(scored, depth + more, lambda number: -number, 1e-6)
    assert best_first(scored, depth, lambda number: -number, 1e-6) == longer[:depth]
    assert len(longer) == min(len(scored), depth + more)


@given(scored=scores)
def test_ties_go_by_identity_and_share_their_score(scored: list[tuple[float, int]]) -> None:
    ordered = best_first(scored, len(scored), lambda number: -number, 1e-6)
    assert all(upper > lower or first > second for (upper, first), (lower, second) in pairwise(ordered))


@given(scored=scores, depth=st.integers(1, 12), cut=st.integers(0, 12))
def test_a_settled_list_needs_no_more(scored: list[tuple[float, int]], depth: int, cut: int) -> None:
    seen = scored[:cut]
    if is_settled(seen, depth, 1e-6):
        assert best_first(seen, depth, lambda number: -number, 1e-6) == best_first(
            scored, depth, lambda number: -number, 1e-6
        )


def test_a_list_is_settled_only_past_the_tie_at_the_depth() -> None:
    assert is_settled([(2.0, 1), (1.0, 2)], 1, 0.0)
    assert not is_settled([(2.0, 1), (2.0, 2)], 1, 0.0)
    assert not is_settled([(2.0, 1)], 1, 0.0)
    assert is_settled([(2.0, 1), (2.0, 2), (1.0, 3)], 1, 0.0)
