"""The matrix behind the vector lane: it follows changes, forgets the dead, and stays exact under equal and near rows."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.app.retrievers import MemoryRows
from duckkb.index.vector_index import CosineLane
from duckkb.ports import Row
from duckkb.types.errors import StateError
from duckkb.types.queries import LaneHit
from duckkb.types.records import IndexEntry, Record

DIMENSION = 8


def unit(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=dimension)
    return (made / np.linalg.norm(made)).astype(np.float32)


def row(record_id: int, vectors: Sequence["np.ndarray | None"]) -> Row:
    entries = tuple(IndexEntry("body", seq, f"{seq}", None, b"k", vector) for seq, vector in enumerate(vectors))
    return Row(Record("Doc", record_id, (f"n{record_id:04d}",), {}, "", ""), entries)


def nearest(rows: dict[int, Row], query: np.ndarray, depth: int) -> list[tuple[int, int]]:
    """(record, chunk) best first, with one product per chunk in 64 bits."""
    best = []
    for record_id, found in rows.items():
        scored = [
            (-round(float(np.dot(entry.vector.astype(float), query.astype(float))), 5), entry.seq)
            for entry in found.entries
            if entry.vector is not None
        ]
        if scored:
            score, seq = min(scored)
            best.append((score, f"n{record_id:04d}", record_id, seq))
    return [(record_id, seq) for _, _, record_id, seq in sorted(best)[:depth]]


def places(hits: Sequence[LaneHit]) -> list[tuple[int, int]]:
    return [(hit.id, hit.seq) for hit in hits]


seeds = st.lists(st.none() | st.integers(0, 12), max_size=4)
changes = st.lists(st.tuples(st.integers(1, 12), st.none() | seeds), max_size=30)


@given(start=st.dictionaries(st.integers(1, 12), seeds, max_size=12), steps=changes)
@settings(max_examples=150, deadline=None)
def test_the_matrix_follows_every_change(
    start: dict[int, list[int | None]], steps: list[tuple[int, list[int | None] | None]]
) -> None:
    def made(record_id: int, chosen: list[int | None]) -> Row:
        return row(record_id, [None if seed is None else unit(seed) for seed in chosen])

    rows = {record_id: made(record_id, chosen) for record_id, chosen in start.items()}
    held, query = MemoryRows(rows.values()), unit(99)
    lane = CosineLane(held)
    for record_id, chosen in [(0, None), *steps]:
        if chosen is None:
            rows.pop(record_id, None)
            held.change({}, [record_id])
        else:
            rows[record_id] = made(record_id, chosen)
            held.change({record_id: rows[record_id]})
        assert places(lane.ask(query, 50)) == nearest(rows, query, 50)
        assert places(lane.ask(query, 2, frozenset({1, 2, 3}))) == nearest(
            {key: value for key, value in rows.items() if key < 4}, query, 2
        )


def test_dead_rows_are_dropped_once_they_are_a_quarter() -> None:
    rows = {number: row(number, [unit(number)]) for number in range(1, 101)}
    held = MemoryRows(rows.values())
    lane = CosineLane(held)
    lane.ask(unit(0), 1)
    for step in range(200):
        number = step % 100 + 1
        rows[number] = row(number, [unit(1000 + step), unit(2000 + step)])
        held.change({number: rows[number]})
        lane.ask(unit(0), 1)
        assert len(lane._records.view.ids) <= 135
    assert places(lane.ask(unit(0), 100)) == nearest(rows, unit(0), 100)


def test_equal_rows_score_alike_wherever_they_stand() -> None:
    equal = unit(5, 384)
    rows = {
        number: row(number, [equal if number % 3 == 0 else unit(10_000 + number, 384)]) for number in range(1, 1500)
    }
    hits = CosineLane(MemoryRows(rows.values())).ask(unit(6, 384) + 3 * equal, 499)
    assert [hit.id for hit in hits] == list(range(3, 1500, 3))
    assert len({hit.score for hit in hits}) == 1


def test_rows_that_only_a_32_bit_product_tells_apart_tie() -> None:
    draw = np.random.default_rng(8)
    centre = unit(5, 384)
    near = [(centre + draw.normal(size=384) * 3e-7).astype(np.float32) for _ in range(400)]
    rows = {number: row(number, [vector]) for number, vector in enumerate(near, 1)}
    query = unit(6, 384) + centre
    exact = {
        number: round(
            float(np.dot(vector.astype(float), query) / np.linalg.norm(vector.astype(float)) / np.linalg.norm(query)), 6
        )
        for number, vector in enumerate(near, 1)
    }
    assert len(set(exact.values())) < 20
    hits = CosineLane(MemoryRows(rows.values())).ask(query, 7)
    assert [hit.id for hit in hits] == sorted(exact, key=lambda number: (-exact[number], number))[:7]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 1.0])
def test_few_and_many_allowed_records_give_the_same_order(share: float) -> None:
    rows = {number: row(number, [unit(number), unit(number + 5000)]) for number in range(1, 1001)}
    lane = CosineLane(MemoryRows(rows.values()))
    allowed = frozenset(range(1, int(1000 * share) + 1))
    everything = lane.ask(unit(0), 1000)
    assert lane.ask(unit(0), 30, allowed) == [hit for hit in everything if hit.id in allowed][:30]


def test_a_zero_row_is_near_to_nothing() -> None:
    rows = {1: row(1, [np.zeros(DIMENSION, np.float32)]), 2: row(2, [-unit(3)]), 3: row(3, [unit(3)])}
    assert [(hit.id, hit.score) for hit in CosineLane(MemoryRows(rows.values())).ask(unit(3), 3)] == [
        (3, 1.0),
        (1, 0.0),
        (2, -1.0),
    ]


def test_rows_of_several_dimensions_are_named() -> None:
    with pytest.raises(StateError, match="dimension") as refused:
        CosineLane(MemoryRows([row(1, [unit(1)]), row(2, [unit(1, 4)])])).ask(unit(1), 1)
    assert refused.value.code == "E_MODEL"
