"""Vectors that are kept as narrower numbers: what they lose, that it is measured, and that answers are those of what is kept."""

from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import duckkb.lanes.vectors.storage as storage_module
from duckkb.entries import IndexEntry
from duckkb.lanes.memory_rows import MemoryRows
from duckkb.lanes.vectors.cosine import make_unit
from duckkb.lanes.vectors.storage import Nearest, packed, products, questions, recall, unit_blocks
from duckkb.lanes.vectors.vectors import CosineLane
from duckkb.ports import Row, RowVersion
from duckkb.records import Record
from duckkb.settings import VectorSettings, VectorStorage
from tests.conformance.lane_suite import VersionedRows

NARROW: tuple[VectorStorage, ...] = ("float16", "int8")
ALL: tuple[VectorStorage, ...] = ("float32", *NARROW)
ERROR = {"float32": 1e-6, "float16": 1e-3, "int8": 2e-2}
"""More than a cosine in 48 dimensions is off by: half a unit in the last place of each number, all in one direction."""


def made(rows: int, dimension: int = 48, seed: int = 3) -> np.ndarray:
    """Unit vectors around some centres."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((max(rows // 50, 1), dimension))
    found = centres[draw.integers(0, len(centres), rows)] + 0.7 * draw.standard_normal((rows, dimension))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def held(vectors: np.ndarray) -> MemoryRows:
    return MemoryRows(row(number, vector) for number, vector in enumerate(vectors, 1))


def row(record_id: int, vector: "np.ndarray | None") -> Row:
    entry = IndexEntry("body", 0, "t", None, b"k%d" % record_id, vector)
    return Row(Record("Doc", record_id, (f"n{record_id:06d}",), {}, "", ""), (entry,))


def lane(rows: MemoryRows, storage: VectorStorage) -> CosineLane:
    return CosineLane(rows, VectorSettings("exact", storage))


@pytest.mark.parametrize("storage", ALL)
def test_rows_come_back_as_they_were_but_for_rounding(storage: VectorStorage) -> None:
    unit = made(3000)
    unit[7] = 0
    unit[8, 0], unit[9, 1] = 1e-6, -3e-8  # of these 16 bits keep little or nothing
    make_unit(unit)
    stored, scales = packed(unit, storage)
    given = None if storage == "float32" else scales
    back = np.concatenate([block.copy() for _, block in unit_blocks(stored, given)])
    assert np.abs(back - unit).max() < ERROR[storage] and not back[7].any()
    query = made(1, seed=9)[0].astype(np.float64)
    assert np.abs(products(stored, given, query) - back.astype(np.float64) @ query).max() < 2e-6


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 4096, 40_000])
def test_products_of_a_large_matrix_are_those_of_its_rows(
    rows: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, query = made(rows) if rows else np.empty((0, 48), np.float32), made(1, seed=9)[0].astype(np.float64)
    monkeypatch.setattr(storage_module, "LARGE", 0)
    monkeypatch.setattr(storage_module, "_threads", cores)
    found = products(unit, None, query)
    assert found.dtype == np.float32 and found.shape == (rows,)
    assert np.abs(found - unit.astype(np.float64) @ query).max(initial=0) < 1e-6


def test_a_product_needs_no_other_thread_and_tells_what_goes_wrong_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "LARGE", 0)
    unit = made(9000)

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refused)
        found = products(unit, None, unit[8999].astype(np.float64))
    assert abs(found[8999] - 1) < 1e-6 and np.abs(found - unit @ unit[8999]).max() < 1e-6
    with pytest.raises(ValueError, match="broadcast"):
        products(unit, None, np.ones(47))


@pytest.mark.parametrize("storage", NARROW)
def test_bits_of_narrow_floats_are_read_as_numpy_reads_them(storage: VectorStorage) -> None:
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    both = np.concatenate((every, -every))[:, None]
    stored = both if storage == "float16" else np.arange(-127, 128, dtype=np.int8)[:, None]
    ones = np.ones(len(stored), np.float32)
    wide = np.concatenate([block.copy() for _, block in unit_blocks(stored, ones)])
    assert np.array_equal(wide, stored.astype(np.float32))


@pytest.mark.parametrize("storage", ALL)
def test_scores_are_the_cosines_of_what_is_stored(storage: VectorStorage) -> None:
    unit, query = made(1500), made(1, seed=5)[0]
    if storage == "float16":
        stored = unit.astype(np.float16).astype(np.float64)
    elif storage == "int8":
        stored = np.rint(unit / np.abs(unit).max(axis=1, keepdims=True) * np.float32(127)).astype(np.float64)
    else:
        stored = unit.astype(np.float64)
    right = (
        stored @ query.astype(np.float64) / np.linalg.norm(stored, axis=1) / np.linalg.norm(query.astype(np.float64))
    )
    order = np.argsort(-right.round(6), kind="stable")[:20]
    hits = lane(held(unit), storage).ask(query, 20)
    assert [hit.id - 1 for hit in hits] == order.tolist()
    assert [hit.score for hit in hits] == pytest.approx(right[order], abs=1e-6)


@pytest.mark.parametrize("storage", NARROW)
def test_the_account_says_what_rounding_lost(storage: VectorStorage) -> None:
    """Measured here again, by looking at everything."""
    unit = made(3000)
    asked = questions(unit)
    right = np.argsort(-(asked @ unit.T).round(6), axis=1, kind="stable")[:, :10]
    stored, scales = packed(unit, storage)
    wide = stored.astype(np.float32) * scales[:, None]
    kept = np.argsort(-(asked @ wide.T).round(6), axis=1, kind="stable")[:, :10]
    share = sum(len(set(one) & set(other)) for one, other in zip(right, kept, strict=True)) / right.size
    account = lane(held(unit), storage).account()
    assert account is not None and account["storage"] == storage
    assert account["recall"]["storage"] == pytest.approx(share, abs=0.003) and share > 0.9


def test_what_is_nearest_does_not_depend_on_how_rows_are_shown() -> None:
    unit = made(5000)
    asked, whole, parts = questions(unit), Nearest(questions(unit)), Nearest(questions(unit))
    whole.show(unit, 0)
    for start in range(0, 5000, 700):
        parts.show(unit[start : start + 700], start)
    right = np.argsort(-(asked @ unit.T).round(6), axis=1, kind="stable")[:, :10]
    assert len(asked) == 100 and recall(whole.rows, list(right)) > 0.995 and recall(parts.rows, whole.rows) > 0.995


def test_few_rows_and_none_have_a_recall_too() -> None:
    unit = made(4)
    nearest = Nearest(questions(unit))
    assert recall(nearest.rows, nearest.rows) == 1.0
    nearest.show(unit, 0)
    assert [sorted(rows) for rows in nearest.rows] == [[0, 1, 2, 3]] * 4


@pytest.mark.parametrize("storage", NARROW)
def test_a_matrix_on_disk_is_opened_grows_and_is_made_anew_for_another_storage(
    tmp_path: Path, storage: VectorStorage
) -> None:
    unit = made(300)
    rows = {number: row(number, vector) for number, vector in enumerate(unit[:250], 1)}
    log: list[frozenset[int]] = []

    def version() -> RowVersion:
        known = [*log]
        return RowVersion("s", len(known), lambda revision: frozenset().union(*known[revision:]), tmp_path)

    def on_disk(chosen: VectorStorage) -> CosineLane:
        return lane(VersionedRows(rows, version), chosen)

    def in_memory(chosen: VectorStorage) -> CosineLane:
        return lane(MemoryRows(rows.values()), chosen)

    query = unit[299]
    assert on_disk(storage).ask(query, 10) == in_memory(storage).ask(query, 10)
    rows |= {number: row(number, vector) for number, vector in enumerate(unit[250:], 251)}
    del rows[3]
    log.append(frozenset({3, *range(251, 301)}))
    assert on_disk(storage).ask(query, 10) == in_memory(storage).ask(query, 10)
    other = on_disk("float32")
    assert other.ask(query, 10) == in_memory("float32").ask(query, 10)
    account = other.account()
    assert account is not None and account["storage"] == "float32" and account["recall"]["storage"] == 1.0
