"""Every lane after changes: it answers as a fresh one does, filters exactly, and lets filters and SQL see the same."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ports import Row, SqlLimits
from duckkb.types.errors import FilterError
from duckkb.types.queries import LaneHit, LexicalQuery
from tests.conformance.lane_suite import (
    LANES,
    NOTE,
    SILENT,
    Held,
    MakeLanes,
    every_lane,
    ids,
    notes,
    real_lanes,
    row,
    vector,
)

WORDS = ["red", "green", "blue", "red green", "red red blue", "内存", "数据 red", "", "green green blue 内存"]
QUERIES = [
    LexicalQuery("red"),
    LexicalQuery("green blue"),
    LexicalQuery("内存 red"),
    LexicalQuery("red", excluded=("blue",)),
    LexicalQuery(excluded=("red",)),
    LexicalQuery(phrases=("green blue",)),
    LexicalQuery(prefixes=("gre",)),
]
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(1, 60), st.sampled_from(WORDS), max_size=5), st.sets(st.integers(1, 60), max_size=3)
    ),
    min_size=1,
    max_size=6,
)


def body(record_id: int, text: str) -> Row:
    return row(record_id, title=f"t{record_id % 3}", body=text)


def answers(lanes: Held, query: LexicalQuery) -> list[LaneHit]:
    return lanes.match(NOTE, query, 100)


@pytest.mark.long
@given(
    start=st.dictionaries(st.integers(1, 60), st.sampled_from(WORDS), max_size=40),
    steps=STEPS,
    asked_between=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_changed_lane_answers_as_a_fresh_one(
    start: dict[int, str], steps: list[tuple[dict[int, str], set[int]]], asked_between: bool
) -> None:
    for make in LANES.values():
        changed, fresh, texts = make(), make(), dict(start)
        changed.load(NOTE, [body(number, text) for number, text in start.items()])
        for new, gone in steps:
            if asked_between:
                answers(changed, QUERIES[0])
                changed.similar(NOTE, vector("red"), 5)
                changed.list_missing_texts(NOTE)
            changed.apply(NOTE, [body(number, text) for number, text in new.items()], gone - new.keys())
            texts = {number: text for number, text in texts.items() if number not in gone} | new
        fresh.load(NOTE, [body(number, text) for number, text in sorted(texts.items())])

        for query in QUERIES:
            before, after = answers(fresh, query), answers(changed, query)
            assert ids(after) == ids(before)
            assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before], abs=1e-4)
        assert changed.similar(NOTE, vector("red"), 50) == fresh.similar(NOTE, vector("red"), 50)
        assert changed.where(NOTE, "body LIKE '%red%'") == fresh.where(NOTE, "body LIKE '%red%'")


@every_lane
def test_a_few_changes_among_many_records_show_at_once(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, notes(f"common word{number}" for number in range(600)))
    assert len(lanes.match(NOTE, LexicalQuery("common"), 1000)) == 600
    lanes.apply(NOTE, [row(5, body="rare"), row(601, body="common rare")], [6, 7, 12345])
    assert set(ids(lanes.match(NOTE, LexicalQuery("rare"), 10))) == {5, 601}
    assert set(ids(lanes.match(NOTE, LexicalQuery("common"), 1000))) == set(range(1, 602)) - {5, 6, 7}
    assert lanes.match(NOTE, LexicalQuery("word4"), 10) == []
    assert lanes.explain(NOTE, LexicalQuery("word5"), 6) == {"score": 0.0, "terms": []}


@every_lane
def test_an_id_in_both_upserts_and_gone_is_kept(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, notes(["old"]))
    lanes.apply(NOTE, [row(1, body="new")], [1])
    assert ids(lanes.match(NOTE, LexicalQuery("new"), 5)) == [1]
    assert lanes.where(NOTE, "body = 'new'") == {1}


@every_lane
def test_load_replaces_everything_of_one_type_and_nothing_of_another(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, notes(["first", "second"]))
    lanes.load(SILENT, [row(7, SILENT)])
    assert lanes.where(NOTE, "true") == {1, 2}
    lanes.load(NOTE, [row(9, body="third")])
    assert lanes.where(NOTE, "true") == {9}
    assert ids(lanes.match(NOTE, LexicalQuery("first second third"), 5)) == [9]
    assert lanes.where(SILENT, "name = 'n00007'") == {7}


@every_lane
def test_deleting_everything_leaves_nothing_to_find(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, notes(["one", "two"]))
    assert len(answers(lanes, LexicalQuery("one two"))) == 2
    assert len(lanes.similar(NOTE, vector("one"), 5)) == 2
    lanes.apply(NOTE, [], [1, 2])
    assert answers(lanes, LexicalQuery("one two")) == []
    assert answers(lanes, LexicalQuery(excluded=("one",))) == []
    assert lanes.find_excluded_ids(NOTE, LexicalQuery(excluded=("one",))) == frozenset()
    assert lanes.similar(NOTE, vector("one"), 5) == []
    assert lanes.where(NOTE, "true") == frozenset()


@real_lanes
def test_sql_sees_records_and_the_search_index_as_they_are_now(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, [row(1, body="one", embedded=False), row(2, body="二")])
    count = "SELECT count(*), count(vector) FROM search_index WHERE source_table = 'note'"
    assert lanes.sql(count, SqlLimits()).rows == ((2, 1),)
    lanes.fill(NOTE, {b"one": vector("one")})
    assert lanes.sql(count, SqlLimits()).rows == ((2, 2),)
    lanes.apply(NOTE, [row(3, body="three")], [1])
    assert lanes.sql("SELECT __id, body FROM note ORDER BY __id", SqlLimits()).rows == ((2, "二"), (3, "three"))
    assert lanes.sql(count, SqlLimits()).rows == ((2, 2),)


@every_lane
def test_a_refused_condition_says_so(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, notes(["one"]))
    with pytest.raises(FilterError):
        lanes.where(NOTE, "1=1; DROP TABLE note")


@cache
def many(name: str) -> Held:
    """3,000 records: enough for both ways to filter."""
    lanes = LANES[name]()
    lanes.load(
        NOTE, notes(f"{WORDS[number % 9]} word{number % 40} {'filler ' * (number % 7)}" for number in range(3_000))
    )
    return lanes


@pytest.mark.long
@pytest.mark.parametrize("name", LANES)
@given(
    query=st.sampled_from([*QUERIES, LexicalQuery("word7 red"), LexicalQuery("filler")]),
    modulus=st.sampled_from([1, 2, 3, 50, 700]),
    below=st.sampled_from([3_000, 2_900, 1_000, 40]),
    depth=st.sampled_from([1, 7, 50, 400, 5_000]),
)
@settings(max_examples=60, deadline=None)
def test_xd_06_a_filter_gives_the_best_of_what_is_allowed(
    name: str, query: LexicalQuery, modulus: int, below: int, depth: int
) -> None:
    lanes = many(name)
    allowed = frozenset(number for number in range(1, 3_001) if number % modulus == 0 and number <= below)
    everything = lanes.match(NOTE, query, 3_000)
    wanted = [hit for hit in everything if hit.id in allowed][:depth]
    answered = lanes.match(NOTE, query, depth, allowed)
    assert [hit.score for hit in answered] == pytest.approx([hit.score for hit in wanted], abs=1e-4)
    assert ids(answered) == ids(wanted)

    nearest = lanes.similar(NOTE, vector("red word7"), 3_000)
    assert (
        lanes.similar(NOTE, vector("red word7"), depth, allowed)
        == [hit for hit in nearest if hit.id in allowed][:depth]
    )
