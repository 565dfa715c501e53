"""Rows in 8 bits: the cosine that 64 bits find lies between the bounds, and an answer that they shorten is the whole one."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import duckkb.index.cosine as bounds_module
import duckkb.index.vector_index as vectors_module
from duckkb.app.retrievers import MemoryRows
from duckkb.index.cosine import Int8Rows, common_direction, kernel, make_unit, round_rows, unit_query
from duckkb.index.vector_index import CosineLane
from duckkb.ports import Row
from duckkb.types.records import IndexEntry, Record
from tests.conformance.lane_suite import Numbered, StatedRows

SLACK = 4e-6  # what the docstring of `int8_bounds` counts for one row: floats on the way, and the row's length
KINDS = (
    "gaussian",
    "narrow",
    "clustered",
    "one number",
    "near ties",
    "constant",
    "huge",
    "tiny",
    "wide range",
    "zeros",
)


def vectors(kind: str, rows: int, dimension: int, seed: int) -> np.ndarray:
    """Rows as models and people may give them, float32, of any length."""
    draw = np.random.default_rng(seed)
    normal = draw.standard_normal((rows, dimension))
    if kind == "narrow":
        normal = 0.4 * normal + draw.standard_normal(dimension)
    elif kind == "clustered":
        normal = 0.1 * normal + draw.standard_normal((5, dimension))[draw.integers(0, 5, rows)]
    elif kind == "one number":
        normal = 1e-3 * normal
        normal[np.arange(rows), draw.integers(0, dimension, rows)] = draw.choice([-1.0, 1.0], rows)
    elif kind == "near ties":
        normal = normal[:1] + 3e-7 * normal
    elif kind == "constant":
        normal[:] = 1.0
    elif kind in ("huge", "tiny"):
        normal *= 1e18 if kind == "huge" else 1e-18
    elif kind == "wide range":
        normal *= 10.0 ** draw.uniform(-12, 0, (rows, dimension))
    elif kind == "zeros":
        normal[draw.random(rows) < 0.5] = 0
    return normal.astype(np.float32)


def cosines(unit: np.ndarray, query: np.ndarray) -> np.ndarray:
    wide = unit.astype(np.longdouble)
    lengths = np.sqrt((wide * wide).sum(axis=1))
    return np.where(lengths > 0, (wide * query).sum(axis=1) / np.where(lengths > 0, lengths, 1), 0)


@given(
    kind=st.sampled_from(KINDS),
    asked=st.sampled_from(("a row", "far", "the common direction", "one number", "what was lost")),
    rows=st.integers(1, 200),
    dimension=st.sampled_from([1, 2, 7, 64, 384, 1500]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=200, deadline=None)
def test_the_cosine_lies_between_the_bounds(kind: str, asked: str, rows: int, dimension: int, seed: int) -> None:
    unit = vectors(kind, rows, dimension, seed)
    make_unit(unit)
    common = common_direction(unit[: max(rows // 2, 1)])
    copy = Int8Rows(*round_rows(unit, common), common)
    ways = {
        "a row": unit[seed % rows].astype(np.float64),
        "far": np.random.default_rng(seed + 1).standard_normal(dimension),
        "the common direction": common.astype(np.float64),
        "one number": np.eye(dimension)[seed % dimension],
        "what was lost": (unit - copy.numbers[:, :1] * common - copy.numbers[:, 1:2] * copy.levels)[0].astype(
            np.float64
        ),
    }
    query = unit_query(ways[asked] if ways[asked].any() else ways["far"])
    found = copy.bounds(query)
    assert found is not None, "numkong is installed for the tests"
    assert_between(cosines(unit, query), found)


def assert_between(cosines: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> None:
    least, most = bounds
    assert (least - SLACK <= cosines).all(), float((least - cosines).max())
    assert (cosines <= most + SLACK).all(), float((cosines - most).max())


def test_the_bounds_are_narrow_where_all_vectors_have_a_direction_in_common() -> None:
    """As those of models do: without that direction the doubt, half of what lies between, is a quarter of what it is with it."""
    unit = vectors("narrow", 2_000, 384, 1)
    make_unit(unit)
    query, none = unit_query(unit[7]), np.zeros(384, np.float32)
    common = common_direction(unit)
    with_it = Int8Rows(*round_rows(unit, common), common).bounds(query)
    without = Int8Rows(*round_rows(unit, none), none).bounds(query)
    assert with_it is not None and without is not None
    doubts = [float((most - least).mean()) / 2 for least, most in (with_it, without)]
    assert doubts[0] < 0.35 * doubts[1] < 0.02


def held(unit: np.ndarray, chunks: int) -> dict[int, Row]:
    """Records of one to so many chunks each."""
    rows, at = {}, 0
    while at < len(unit):
        own = unit[at : at + 1 + at % chunks]
        number = len(rows) + 1
        entries = tuple(IndexEntry("body", seq, "t", None, b"k%d" % (at + seq), row) for seq, row in enumerate(own))
        rows[number] = Row(Record("Doc", number, (f"n{number:06d}",), {}, "", ""), entries)
        at += len(own)
    return rows


def right(rows: dict[int, Row], query: np.ndarray, depth: int) -> list[tuple[int, int]]:
    """(record, chunk), best first, by cosines in more than 64 bits that are rounded to six decimals."""
    every = [(number, entry.seq, entry.vector) for number, row in rows.items() for entry in row.entries]
    scores = cosines(np.stack([vector for _, _, vector in every]), unit_query(query)).round(6)
    best: dict[int, tuple[float, int]] = {}
    for (number, seq, _), score in zip(every, scores.tolist(), strict=True):
        if number not in best or score > best[number][0]:
            best[number] = (score, seq)
    order = sorted(best, key=lambda number: (-best[number][0], number))[:depth]
    return [(number, best[number][1]) for number in order]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have bounds looked at however few the rows are; how many slots they left, question by question."""
    monkeypatch.setattr(vectors_module, "_BOUNDED_FROM", 1)
    monkeypatch.setattr(vectors_module, "_PICKED_FROM", 1)
    monkeypatch.setattr(vectors_module, "_LEFT_SHARE", 1.0)
    left: list[int] = []
    real = vectors_module.select_candidates_by_bounds

    def counted(*given: object) -> object:
        found = real(*given)  # type: ignore[arg-type]
        if found is not None:
            left.append(len(found))
        return found

    monkeypatch.setattr(vectors_module, "select_candidates_by_bounds", counted)
    return left


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_64_bits_to_the_last_tie(kind: str, looked: list[int]) -> None:
    rows = held(vectors(kind, 900, 48, 3), 3)
    unit = {number: row for number, row in rows.items() if all(entry.vector.any() for entry in row.entries)}
    source, lane = MemoryRows(unit.values()), CosineLane(MemoryRows(unit.values()))
    lane = CosineLane(source)
    few = frozenset(list(unit)[:20])
    for seed in range(8):
        query = vectors(kind, 10, 48, 100 + seed)[9] + 1e-4 * vectors("gaussian", 1, 48, seed)[0]
        assert [(hit.id, hit.seq) for hit in lane.ask(query, 10)] == right(unit, query, 10)
        allowed = {number: row for number, row in unit.items() if number in few}
        assert [(hit.id, hit.seq) for hit in lane.ask(query, 5, few)] == right(allowed, query, 5)
        gone = list(unit)[seed]
        del unit[gone]
        source.change({}, [gone])
    assert len(looked) == 16
    if kind in ("gaussian", "clustered", "narrow"):
        assert max(looked[::2]) < 150, "most of them are ruled out"


def test_one_row_that_is_worth_looking_at_is_left_of_many(looked: list[int]) -> None:
    unit = vectors("gaussian", 20_000, 64, 5)
    lane = CosineLane(MemoryRows(held(unit, 1).values()))
    assert lane.ask(unit[17_000], 1)[0].id == 17_001 and looked == [1]


@pytest.mark.parametrize("what", ["missing", "broken", "wrong"])
def test_without_a_kernel_that_is_right_all_are_compared(
    what: str, looked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("numkong")
    module.__spec__ = ModuleSpec("numkong", None)

    def cdist(levels: np.ndarray, asked: np.ndarray, metric: str, *, out: np.ndarray) -> None:
        if what == "broken":
            raise ValueError("illegal instruction")
        out[:] = levels.astype(np.float32) @ asked.T.astype(np.float32)
        out[-1] += 1

    module.cdist = cdist  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numkong", None if what == "missing" else module)
    kernel.cache_clear()
    try:
        rows = held(vectors("narrow", 300, 48, 3), 2)
        query = vectors("narrow", 1, 48, 3)[0]
        hits = CosineLane(MemoryRows(rows.values())).ask(query, 20)
        assert [(hit.id, hit.seq) for hit in hits] == right(rows, query, 20) and not looked
    finally:
        kernel.cache_clear()


def test_threads_share_the_rows(looked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    unit = vectors("narrow", 5_000, 48, 3)
    make_unit(unit)
    common = common_direction(unit)
    copy, query = Int8Rows(*round_rows(unit, common), common), unit_query(unit[3])
    alone = copy.bounds(query)
    monkeypatch.setattr(bounds_module, "LARGE", 0)
    monkeypatch.setattr(bounds_module, "_STRETCH", 700)
    shared = copy.bounds(query)
    assert alone is not None and shared is not None
    assert np.array_equal(alone[0], shared[0]) and np.array_equal(alone[1], shared[1])


@pytest.mark.parametrize("chunks", [1, 3])
def test_the_copy_lies_beside_the_matrix_and_follows_it(tmp_path: Path, looked: list[int], chunks: int) -> None:
    unit = vectors("narrow", 600, 48, 3)
    rows = held(unit, chunks)
    later = {number: rows.pop(number) for number in list(rows)[-40:]}
    numbers = Numbered()
    numbers.change(rows)

    def hits() -> list[tuple[int, int]]:
        lane = CosineLane(StatedRows(rows, lambda: numbers.state(tmp_path)))
        return [(hit.id, hit.seq) for hit in lane.ask(unit[-1], 10)]

    def files() -> set[str]:
        return {path.name for path in (tmp_path / "vectors").rglob("*") if path.is_file()}

    assert hits() == right(rows, unit[-1], 10) and {"matrix", "copy", "bounds", "slots"} <= files()
    rows |= later
    del rows[3]
    numbers.change(later, [3])
    assert hits() == right(rows, unit[-1], 10)
    assert hits() == right(rows, unit[-1], 10)  # by a process that opens what lies there
    assert len(looked) == 3


def test_a_matrix_made_without_the_kernel_has_no_copy_and_is_compared_in_full_by_who_has_it(
    tmp_path: Path, looked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = vectors("narrow", 600, 48, 3)
    rows = held(unit, 1)

    def hits() -> list[tuple[int, int]]:
        lane = CosineLane(StatedRows(rows, lambda: Numbered().state(tmp_path)))
        return [(hit.id, hit.seq) for hit in lane.ask(unit[-1], 10)]

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "numkong", None)
        assert hits() == right(rows, unit[-1], 10)
    names = {path.name for path in (tmp_path / "vectors").rglob("*") if path.is_file()}
    assert {"matrix", "slots"} <= names and not {"copy", "bounds"} & names
    assert hits() == right(rows, unit[-1], 10) and not looked
