"""The vector lane as every one has it, against a brute-force one: exact cosines, the best chunk, pending vectors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ports import Row
from duckkb.types.errors import UsageError
from duckkb.types.queries import LaneHit, LexicalQuery
from duckkb.types.records import identity_key
from tests.conformance.lane_suite import LANES, NOTE, MakeLanes, every_lane, ids, notes, row, vector, waiting_lanes

TEXTS = st.text(alphabet="ab 中文c. ", max_size=40)


def brute_force(rows: list[Row], query: np.ndarray, depth: int, allowed: frozenset[int] | None) -> list[LaneHit]:
    """Cosine of every chunk one by one; the greatest of a record, ties by identity and by place."""
    hits = []
    for found in rows:
        if allowed is not None and found.record.id not in allowed:
            continue
        scored = [(cosine(entry.vector, query), entry) for entry in found.entries if entry.vector is not None]
        if scored:
            best = max(score for score, _ in scored)
            entry = next(entry for score, entry in scored if score == best)
            hits.append(
                (best, identity_key(found.record.identity), LaneHit(found.record.id, best, entry.field, entry.seq))
            )
    hits.sort(key=lambda hit: (-hit[0], hit[1]))
    return [hit for _, _, hit in hits[:depth]]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    dot = sum(float(a) * float(b) for a, b in zip(one, other, strict=True))
    lengths = sum(float(a) ** 2 for a in one) ** 0.5 * sum(float(b) ** 2 for b in other) ** 0.5
    return round(float(dot / lengths), 6)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=25),
    question=TEXTS,
    depth=st.integers(1, 30),
    chosen=st.none() | st.sets(st.integers(1, 30)),
)
@settings(max_examples=60, deadline=None)
def test_every_lane_agrees_with_brute_force(
    texts: list[str], question: str, depth: int, chosen: set[int] | None
) -> None:
    rows = [row(number, name=f"n{number * 7 % 26}", body=text, size=12) for number, text in enumerate(texts, 1)]
    allowed = None if chosen is None else frozenset(chosen)
    wanted = brute_force(rows, vector(question), depth, allowed)
    for make in LANES.values():
        lanes = make()
        lanes.load(NOTE, rows)
        answered = lanes.similar(NOTE, vector(question), depth, allowed)
        assert [hit.score for hit in answered] == pytest.approx([hit.score for hit in wanted], abs=2e-6)
        assert {hit.id for hit in answered} == {hit.id for hit in wanted} or _equal_at_the_cut(wanted)


def _equal_at_the_cut(wanted: list[LaneHit]) -> bool:
    """Rounding may part what is equal at the last place; then either order is right."""
    return len(wanted) > 1 and abs(wanted[-1].score - wanted[-2].score) < 2e-6


@every_lane
def test_identical_chunks_tie_and_go_by_identity(make: MakeLanes) -> None:
    lanes = make()
    names = [f"name {number * 7919 % 1000:03d}" for number in range(1000)]
    lanes.load(NOTE, [row(number, name=name, body="一样的文字 the same") for number, name in enumerate(names, 1)])
    hits = lanes.similar(NOTE, vector("the same 文字"), 40)
    assert [names[hit.id - 1] for hit in hits] == sorted(names)[:40]
    assert len({hit.score for hit in hits}) == 1
    assert lanes.similar(NOTE, vector("the same 文字"), 7) == hits[:7]


@every_lane
def test_a_hit_is_shown_by_its_nearest_chunk(make: MakeLanes) -> None:
    lanes = make()
    body = "about snakes and grass.\n\n" * 3 + "数据库内存引擎\n\n" + "about snakes and grass.\n\n" * 3
    lanes.load(NOTE, [row(1, body=body, size=30), row(2, body="snakes")])
    hit = lanes.similar(NOTE, vector("数据库内存引擎"), 1)[0]
    assert hit.id == 1
    assert "数据库内存引擎" in lanes.entries(NOTE, 1)[hit.seq].content


@every_lane
def test_a_huge_depth_is_as_many_as_there_are_and_none_is_none(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, notes(["one", "two", ""]))
    assert set(ids(lanes.similar(NOTE, vector("one"), 10**12))) == {1, 2}
    assert lanes.similar(NOTE, vector("one"), 0) == []
    assert lanes.similar(NOTE, vector("one"), 5, frozenset()) == []
    assert lanes.similar(NOTE, vector("one"), 5, frozenset({3, 99})) == []


@every_lane
@pytest.mark.parametrize(
    "query",
    [
        np.zeros(64, np.float32),
        np.full(64, np.nan, np.float32),
        [1e308] * 63 + [float("inf")],
        np.ones((2, 64), np.float32),
        [[1.0], [1.0, 2.0]],
        ["one"] * 64,
        np.ones(63, np.float32),
        [],
    ],
    ids=["zero", "not a number", "infinite", "two rows", "ragged", "words", "another dimension", "empty"],
)
def test_a_query_vector_that_is_none_is_refused(make: MakeLanes, query: Any) -> None:
    lanes = make()
    lanes.load(NOTE, notes(["one", "two"]))
    with pytest.raises(UsageError) as refused:
        lanes.similar(NOTE, query, 5)
    assert refused.value.exit_code == 2 and refused.value.suggestion


@every_lane
def test_without_vectors_nothing_is_similar(make: MakeLanes) -> None:
    lanes = make()
    assert lanes.similar(NOTE, vector("one"), 5) == []
    lanes.load(NOTE, [row(1, body="one", embedded=False)])
    assert lanes.similar(NOTE, vector("one"), 5) == []


@waiting_lanes
def test_pending_chunks_are_named_once_and_take_their_vectors(make: MakeLanes) -> None:
    lanes = make()
    bodies = ["one", "two", "two", "", "四"]
    lanes.load(NOTE, [row(number, body=body, embedded=number == 1) for number, body in enumerate(bodies, 1)])
    assert dict(lanes.list_missing_texts(NOTE)) == {b"two": "two", "四".encode(): "四"}
    assert len(lanes.list_missing_texts(NOTE)) == 2

    assert ids(lanes.similar(NOTE, vector("two"), 5)) == [1]
    lanes.fill(NOTE, {b"two": vector("two"), b"never asked for": vector("x")})
    assert ids(lanes.similar(NOTE, vector("two"), 5))[:2] == [2, 3]
    assert [key for key, _ in lanes.list_missing_texts(NOTE)] == ["四".encode()]
    assert lanes.entries(NOTE, 2)[0].vector is not None
    assert lanes.entries(NOTE, 5)[0].vector is None

    lanes.fill(NOTE, {"四".encode(): vector("四")})
    assert lanes.list_missing_texts(NOTE) == []
    assert ids(lanes.match(NOTE, LexicalQuery("two"), 5)) == [2, 3]


@waiting_lanes
def test_pending_follows_changes(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, [row(1, body="one", embedded=False), row(2, body="one", embedded=False)])
    assert len(lanes.list_missing_texts(NOTE)) == 1
    lanes.apply(NOTE, [row(3, body="three", embedded=False), row(2, body="two")], [])
    assert {text for _, text in lanes.list_missing_texts(NOTE)} == {"one", "three"}
    lanes.apply(NOTE, [], [1])
    assert {text for _, text in lanes.list_missing_texts(NOTE)} == {"three"}


@every_lane
def test_vectors_of_any_length_are_compared_by_angle(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, [row(1, body="one", embedded=False), row(2, body="two", embedded=False)])
    lanes.fill(NOTE, {b"one": vector("one") * 40, b"two": vector("two") / 40})
    hits = lanes.similar(NOTE, vector("two") * 3, 2)
    assert ids(hits) == [2, 1]
    assert hits[0].score == 1.0
