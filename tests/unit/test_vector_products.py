"""Products of a matrix with a vector, in one thread or several, and the scores that come of them."""

from threading import Thread

import numpy as np
import pytest

import duckkb.index.cosine as cosine_module
from duckkb.app.retrievers import MemoryRows
from duckkb.index.cosine import multiply_rows
from duckkb.index.vector_index import CosineLane
from duckkb.ports import Row
from duckkb.types.records import IndexEntry, Record


def unit_rows(rows: int, dimension: int = 48, seed: int = 3) -> np.ndarray:
    """Unit vectors around some centres."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((max(rows // 50, 1), dimension))
    found = centres[draw.integers(0, len(centres), rows)] + 0.7 * draw.standard_normal((rows, dimension))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 4096, 40_000])
def test_products_of_a_large_matrix_are_those_of_its_rows(
    rows: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, query = unit_rows(rows) if rows else np.empty((0, 48), np.float32), unit_rows(1, seed=9)[0].astype(float)
    monkeypatch.setattr(cosine_module, "LARGE", 0)
    monkeypatch.setattr(cosine_module, "_threads", cores)
    products = multiply_rows(unit, query)
    assert products.dtype == np.float32 and products.shape == (rows,)
    assert np.abs(products - unit.astype(np.float64) @ query).max(initial=0) < 1e-6


def test_a_product_needs_no_other_thread_and_tells_what_goes_wrong_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cosine_module, "LARGE", 0)
    unit = unit_rows(9000)

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refused)
        products = multiply_rows(unit, unit[8999].astype(np.float64))
    assert abs(products[8999] - 1) < 1e-6 and np.abs(products - unit @ unit[8999]).max() < 1e-6
    with pytest.raises(ValueError, match="broadcast"):
        multiply_rows(unit, np.ones(47))


def test_scores_are_the_cosines_of_what_is_stored() -> None:
    unit, query = unit_rows(1500), unit_rows(1, seed=5)[0]
    rows = {}
    for number, vector in enumerate(unit, 1):
        entry = IndexEntry("body", 0, "t", None, b"k%d" % number, vector)
        rows[number] = Row(Record("Doc", number, (f"n{number:06d}",), {}, "", ""), (entry,))
    stored = unit.astype(np.float64)
    right = stored @ query.astype(float) / np.linalg.norm(stored, axis=1) / np.linalg.norm(query.astype(float))
    order = np.argsort(-right.round(6), kind="stable")[:20]
    hits = CosineLane(MemoryRows(rows.values())).ask(query, 20)
    assert [hit.id - 1 for hit in hits] == order.tolist()
    assert [hit.score for hit in hits] == pytest.approx(right[order], abs=1e-6)
