"""Laws of the query syntax and of fusion, against oracles that share no code with them."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckkb.engine.rank_fusion import Fused, Profile, RankedList, drop_exclusions, fuse, parse, plain
from duckkb.types.queries import Lane, LexicalQuery
from duckkb.types.settings import Fusion

QUERY = st.text(st.sampled_from('ab "-*内存:()\u3000\t\n🦆') | st.characters(exclude_categories=()), max_size=60)
RANKING = st.lists(st.integers(0, 30), unique=True, max_size=20)


def _fuse(lanes: Mapping[Lane, Sequence[tuple[int, float]]], fusion: Fusion) -> list[Fused]:
    lists = [RankedList(lane, ranking) for lane, ranking in lanes.items()]
    return fuse(lists, Profile(fusion), lambda key: key, 99)


def _rank(record: Fused, lane: Lane) -> int | None:
    part = record.part(lane)
    return part.rank if part else None


@given(QUERY)
def test_every_text_is_a_query(text: str) -> None:
    query = parse(text)
    assert '"' not in query.text
    assert all(piece.strip() for piece in (*query.phrases, *query.excluded, *query.prefixes))
    assert isinstance(drop_exclusions(text), str)
    read = parse(plain(text))
    assert not (read.phrases or read.excluded or read.prefixes), "no sign is left"


@given(st.lists(st.text("abc内存0", min_size=1, max_size=5), max_size=6))
def test_words_without_operators_stay_as_they_are(words: list[str]) -> None:
    text = " ".join(words)
    assert parse(text) == LexicalQuery(text=text)
    assert drop_exclusions(text) == text


@given(st.text("abc内", min_size=1, max_size=5), st.text("xyz存", min_size=1, max_size=5))
def test_each_operator_is_read_as_such(word: str, other: str) -> None:
    query = parse(f'{word} "{word} {other}" -{other}{other} {other}* -"{word}"')
    assert query == LexicalQuery(word, (f"{word} {other}",), (other + other, word), (other,))
    assert drop_exclusions(f'{word} -{other}{other} "{other}"') == f'{word} "{other}"'


NATURAL = [
    "text-embedding-3-small",
    "2024-05-06",
    "a-b",
    "C++ - D",
    "f(x) * y",
    "c# and C++",
    "git reset --hard",
    "ls -l",
]
NATURAL += [
    "at -40 or -1.5 degrees",
    "what does find -H do",
    "**bold** text",
    "“内存”和「数据」 —— 是什么",
    "don't — stop",
    "id:3 (x)",
]


@pytest.mark.parametrize("text", NATURAL)
def test_signs_of_natural_questions_are_no_operators(text: str) -> None:
    query = parse(text)
    assert not (query.excluded or query.prefixes or query.phrases)
    assert drop_exclusions(text) == text


@given(RANKING, RANKING, st.integers(1, 100))
def test_rrf_is_the_sum_of_reciprocal_ranks(vector: list[int], fts: list[int], k: int) -> None:
    lanes = {"vector": [(key, 1.0 - place / 100) for place, key in enumerate(vector)]}
    lanes["fts"] = [(key, 9.0 - place) for place, key in enumerate(fts)]
    found = _fuse(lanes, Fusion("rrf", k=k))
    exact = {
        key: sum((Fraction(1, k + ranking.index(key) + 1) for ranking in (vector, fts) if key in ranking), Fraction())
        for key in {*vector, *fts}
    }
    assert {one.key for one in found} == set(exact)
    assert all(abs(one.score - float(exact[one.key])) < 1e-12 for one in found)
    assert [one.key for one in found] == sorted(exact, key=lambda key: (-float(exact[key]), key))
    assert all(_rank(one, "fts") == (fts.index(one.key) + 1 if one.key in fts else None) for one in found)


@given(
    st.dictionaries(st.integers(0, 20), st.floats(-5, 5), max_size=12),
    st.dictionaries(st.integers(0, 20), st.floats(0, 40), max_size=12),
    st.floats(0, 1),
)
def test_minmax_stays_between_nought_and_one_and_follows_the_weight(
    vector: dict[int, float], fts: dict[int, float], weight: float
) -> None:
    lanes = {
        "vector": sorted(vector.items(), key=lambda item: -item[1]),
        "fts": sorted(fts.items(), key=lambda item: -item[1]),
    }
    found = {one.key: one.score for one in _fuse(lanes, Fusion("minmax", weight=weight))}
    assert all(-1e-12 <= score <= 1 + 1e-12 for score in found.values())
    for key, score in found.items():
        parts = 0.0
        for scores, share in ((vector, weight), (fts, 1 - weight)):
            if key in scores:
                span = max(scores.values()) - min(scores.values())
                parts += share * ((scores[key] - min(scores.values())) / span if span else 0.5)
        assert score == pytest.approx(parts, abs=1e-9)
