"""All forms of a word find a record: without accents, the parts of a name, a name with its dot; the form of the question first."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckkb.app.retrievers import MemoryRows
from duckkb.engine.rank_fusion import fitting_span, parse
from duckkb.engine.typed_questions import lexical
from duckkb.index.tokens import JiebaTokenizer, fold
from duckkb.index.word_index import Lexical
from duckkb.types.queries import LexicalQuery
from tests.conformance import lane_suite
from tests.conformance.lane_suite import NOTE, Held, MakeLanes, ids, notes, real_lanes, row

FILLER = " ".join(f"word{number}" for number in range(40))
"""So many words that an index rounds their number, so that it tells no text from one that is longer by a word."""


@pytest.fixture(autouse=True)
def all_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = JiebaTokenizer(forms="all")
    monkeypatch.setattr(lane_suite, "TOKENIZER", tokenizer)
    monkeypatch.setattr("tests.harness.publishing.lanes.TOKENIZER", tokenizer)


def loaded(make: MakeLanes, bodies: Sequence[str]) -> Held:
    lanes = make()
    lanes.load(NOTE, notes(bodies))
    return lanes


def found(lanes: Held, question: "str | LexicalQuery") -> list[int]:
    return ids(lanes.match(NOTE, parse(question) if isinstance(question, str) else question, 50))


CITY = (
    f"the cafe in Zurich {FILLER}",
    f"the café in Zurich {FILLER}",
    f"the cafe in Zürich {FILLER}",
    f"nothing of it {FILLER}",
)


@real_lanes
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("cafe", [1, 3, 2]),
        ("café", [2, 1, 3]),
        ("Zurich", [1, 2, 3]),
        ("ZÜRICH", [3, 1, 2]),
        ('"cafe in zurich"', [1, 2, 3]),
        ('"café in Zürich"', [2, 3, 1]),
        (lexical("caf"), [1, 2, 3]),
        (lexical("café"), [2, 1, 3]),
        (lexical('"cafe in"'), [1, 3, 2]),
    ],
)
def test_a_word_is_found_with_and_without_accents_and_as_it_is_asked_first(
    make: MakeLanes, question: "str | LexicalQuery", first: list[int]
) -> None:
    lanes = loaded(make, CITY)
    assert found(lanes, question) == first
    lanes.apply(NOTE, notes(CITY)[1:2], [])
    assert found(lanes, question) == first


@real_lanes
@pytest.mark.parametrize("word", ["cafe", "café"])
def test_what_is_excluded_is_excluded_with_and_without_accents(make: MakeLanes, word: str) -> None:
    assert found(loaded(make, CITY), f"nothing word1 -{word}") == [4]


@real_lanes
@pytest.mark.parametrize("question", ["cafe", "café", '"café in"'])
def test_the_shares_of_the_terms_are_the_score(make: MakeLanes, question: str) -> None:
    lanes = loaded(make, CITY)
    for hit in lanes.match(NOTE, parse(question), 50):
        told = lanes.explain(NOTE, parse(question), hit.id)
        assert told["score"] == pytest.approx(hit.score)
        assert sum(term["score"] for term in told["terms"]) == pytest.approx(hit.score)


@real_lanes
@pytest.mark.parametrize("question", ["cafe", "café"])
def test_what_is_shown_of_a_record_has_the_word_in_either_form(make: MakeLanes, question: str) -> None:
    lanes = make()
    lanes.load(NOTE, [row(1, body=f"{FILLER}\nthe café\n{FILLER}", size=40), row(2, body="other")])
    query = parse(question)
    field, seq = lanes.words(NOTE).chunk(query, 1)
    (shown,) = (entry.content for entry in lanes.entries(NOTE, 1) if (entry.field, entry.seq) == (field, seq))
    assert "café" in shown
    text = "first\nthe café\nlast"
    start, end = fitting_span(text, lambda texts: lanes.words(NOTE).weights(query, "body", texts))
    assert text[start:end] == "the café"
    assert lanes.words(NOTE).coverage(query, 1) == 1.0


NAMES = (
    f"the user is here {FILLER}",
    f"call getUserName here {FILLER}",
    f"a HTTPServer and its PDFs {FILLER}",
    f"fishing nets: a net and a net and a net {FILLER}",
    f"written for .NET here {FILLER}",
    f"基于.NET的服务 {FILLER}",
)


@real_lanes
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("user", [1, 2]),
        ("getUserName", [2]),
        ("getusername", [2]),
        ("name", [2]),
        ('"get user name"', [2]),
        (lexical("getUser"), [2]),
        (lexical("server"), [3]),
    ],
)
def test_a_name_is_found_by_its_parts_after_the_words_themselves(
    make: MakeLanes, question: "str | LexicalQuery", first: list[int]
) -> None:
    assert found(loaded(make, NAMES), question) == first


@real_lanes
def test_an_open_end_of_several_words_finds_none_of_them_alone(make: MakeLanes) -> None:
    bodies = ("call get_user here", "they get it", "getUserName", "no user")
    assert found(loaded(make, bodies), "get_us*") == [1, 3]


@real_lanes
def test_a_name_with_a_dot_ranks_before_the_word_without(make: MakeLanes) -> None:
    ranked = found(loaded(make, NAMES), ".NET")
    assert set(ranked[:2]) == {5, 6} and ranked[2:] == [4]


ACCENTED = (
    "café",
    "naïve",
    "zürich",
    "łódź",
    "øre",
    "việt",
    "résumés",
    "ёлка",
    "θεός",
    "şey",
    "exposés",
    "æther",
    "añadir",
)
PLAIN = ("report", "running", "e_dup_id", "北京", "データ", "getUserName", "мой")
WORDS = st.lists(st.sampled_from([*ACCENTED, *map(fold, ACCENTED), *PLAIN]), min_size=1, max_size=5)


@given(st.lists(WORDS, min_size=1, max_size=8), WORDS, st.sampled_from(["plain", "phrase", "lex"]))
def test_a_question_without_accents_finds_what_it_finds_with_them(
    texts: list[list[str]], asked: list[str], how: str
) -> None:
    rows = [row(number, body=" ".join(text)) for number, text in enumerate(texts, 1)]
    lane = Lexical(NOTE, MemoryRows(rows), lane_suite.TOKENIZER, "english")
    with_accents, without = (
        {hit.id for hit in lane.ask(_query(text, how), 50)} for text in (" ".join(asked), fold(" ".join(asked)))
    )
    assert with_accents == without


@given(st.sampled_from(ACCENTED), WORDS, st.integers(0, 5), st.sampled_from(["plain", "lex"]), st.integers(0, 30))
def test_of_equal_texts_the_one_in_the_form_of_the_question_comes_first(
    word: str, others: list[str], place: int, how: str, more: int
) -> None:
    words = [other for other in others if fold(other) != fold(word)]
    forms = [word, fold(word)]
    bodies = [" ".join([*words[:place], form, *words[place:], *FILLER.split()[:more]]) for form in forms]
    for wanted in forms:
        for texts in (bodies, bodies[::-1]):  # where nothing else decides, the first does
            lane = Lexical(NOTE, MemoryRows(notes([*texts, "other words"])), lane_suite.TOKENIZER, "english")
            ranked = lane.ask(_query(" ".join([wanted, *words]), how), 2)
            assert texts[ranked[0].id - 1] == bodies[forms.index(wanted)]


def _query(text: str, how: str) -> LexicalQuery:
    if how == "lex":
        return lexical(text)
    return LexicalQuery(phrases=(text,)) if how == "phrase" else LexicalQuery(text)
