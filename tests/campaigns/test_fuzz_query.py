"""Fuzzing of queries: every text is a query, the lane answers each of them, and a megabyte of operators ends soon."""

from typing import Any

import pytest

from duckkb.engine.rank_fusion import drop_exclusions, parse, plain
from duckkb.index.text_chunks import chunk
from duckkb.index.tokens import JiebaTokenizer, PlainTokenizer
from duckkb.index.vector_index import unit_query
from duckkb.types.errors import UsageError
from duckkb.types.queries import LexicalQuery
from tests.harness.campaign import Campaign
from tests.harness.fuzz.loop import Run, hold, limited
from tests.harness.fuzz.query import LaneTarget, SyntaxTarget


def test_queries_that_grow_from_valid_ones_are_read_as_a_reader_by_hand_reads_them(campaign: Campaign) -> None:
    hold(campaign, SyntaxTarget(), campaign.pick(1_500, 50_000))


def test_the_lexical_lane_answers_every_query(campaign: Campaign) -> None:
    hold(campaign, LaneTarget(), campaign.pick(700, 14_000))


# A row of one piece, up to a megabyte of it; {} is a number, so that no piece is like another.
ROWS = [
    '"a" ', '"a{} b" ', "-a ", "-a{} ", "a* ", "a{}* ", "a*", "*", '"', "-", " ", "a", "w{} ", "\u5185\u5b58\u6570\u636e\u5e93", "\U0001f9ea", '-"a b" ',
    ".", "a.b-c", "a\u0301", "1", "\u200b", "'s", "\U0001f1e8", "\u0e01", '-"', '"*', "\u3000-",
]  # fmt: skip


def _row(piece: str, size: int) -> str:
    length = len(piece) + 4 * ("{}" in piece)
    return "".join(piece.format(number) if "{}" in piece else piece for number in range(size // length))


@pytest.fixture(scope="module")
def lane() -> Any:
    return LaneTarget().lanes[0].lexical


@pytest.mark.parametrize("piece", ROWS, ids=lambda piece: piece.encode("unicode_escape").decode())
def test_a_megabyte_of_one_piece_is_answered(campaign: Campaign, lane: Any, piece: str) -> None:
    text = _row(piece, campaign.pick(30_000, 1_000_000))
    for query in (text, f'"{text}"', f"-{text}", f"{text.rstrip()}*"):
        with limited(60):
            read = parse(query)
            drop_exclusions(query)
            lane.ask(read, 10)
            lane.ask(parse(plain(query)), 10)
            lane.find_excluded_ids(read)
            campaign.count("queries of up to a megabyte")


def test_a_prefix_behind_very_many_words_is_answered(lane: Any) -> None:
    """Tantivy refuses to follow more than 16,384 tokens and continuations of a phrase."""
    for size in (4_000, 16_383, 16_384, 50_000):
        with limited(60):
            assert lane.ask(parse("a-" * size + "ra*"), 10) is not None


def test_what_a_query_says_twice_is_asked_for_once(lane: Any) -> None:
    for once in ('"ranking"', "ranking -fusion", "rank*"):
        twice = " ".join([once, *once.split(" ")[-1:] * 3])
        assert [hit.score for hit in lane.ask(parse(twice), 50)] == [hit.score for hit in lane.ask(parse(once), 50)]


TEXTS = [
    ".",
    "!?",
    ",",
    ":",
    '."',
    ".\n",
    "\n",
    "\r\n",
    " ",
    "\u3002",
    "\U0001f1e8",
    "\u200d",
    "a\u0301\u0316",
    "\u0301",
    "x",
]


@pytest.mark.parametrize("piece", TEXTS, ids=lambda piece: piece.encode("unicode_escape").decode())
def test_texts_of_one_piece_are_cut_into_chunks_in_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    for size in (100, 800, 50_000):
        with limited(20):
            made = chunk(text, size)
        assert "".join(one.text for one in made) == text and max(len(one.text) for one in made) <= size


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0316\u0301", "\u0344", "\u0f73", "\u0301\u200d\u0316"])
def test_a_pile_of_marks_is_tokenized_in_time(marks: str) -> None:
    piles = "a" + "\u0301" * 60_000 + "\u0316" * 60_000 + "b" + marks * 60_000
    for tokenizer in (JiebaTokenizer(), PlainTokenizer()):
        with limited(20):
            (tokens,) = tokenizer.tokenize([piles])
        assert tokens.words


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e308, 1e200, 1.0, 1e-200, 5e-324])
def test_a_query_vector_points_somewhere_however_long_it_is(size: float) -> None:
    assert unit_query([size, size]) == pytest.approx([0.5**0.5] * 2)
    assert unit_query([0.0, -size]) == pytest.approx([0.0, -1.0])


@pytest.mark.parametrize(
    "vector", [[], [0.0], [float("nan")], [10**400], [[1.0]], "abc", None, [1, "a"], [float("inf")], [1j]]
)
def test_what_is_no_vector_is_refused(vector: Any) -> None:
    with pytest.raises(UsageError):
        unit_query(vector)


def _without_prefixes(text: str) -> LexicalQuery:
    read = parse(text)
    return LexicalQuery(read.text, read.phrases, read.excluded)


def _excluding_flags(text: str) -> LexicalQuery:
    read = parse(text)
    flags = tuple(word[1:] for word in read.text.split(" ") if word[:1] == "-" and word[1:].isalpha())
    return LexicalQuery(read.text, read.phrases, read.excluded + flags, read.prefixes)


def _stumbling(text: str) -> LexicalQuery:
    return parse(text.encode("ascii").decode())


@pytest.mark.parametrize(
    "reader", [_without_prefixes, _excluding_flags, _stumbling], ids=["forgets prefixes", "takes flags", "stumbles"]
)
def test_control_a_weak_reader_of_queries_is_found_out(campaign: Campaign, reader: Any) -> None:
    assert Run[str](enough=1).fuzz(SyntaxTarget(reader), campaign.random("control"), 200).finds
