"""The slots that an inexact product leaves in question: all that may be among the first, however many there are, and no more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.index.cosine import candidates

DOUBT = 2e-5


@given(
    rows=st.integers(1, 3_000),
    depth=st.integers(1, 60),
    values=st.integers(1, 1_000),
    share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=150, deadline=None)
def test_candidates_are_those_that_sorting_all_finds(
    rows: int, depth: int, values: int, share: float, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    products = (chance.integers(-values, values + 1, rows) / (values * 1.5)).astype(np.float32)
    alive = chance.random(rows) < share
    found = candidates(products.copy(), np.arange(rows), alive, depth)
    left = np.sort(products[alive])[::-1]
    if not len(left):
        assert not len(found)
        return
    cut = left[min(depth, len(left)) - 1]
    assert found.tolist() == [at for at in range(rows) if alive[at] and products[at] >= cut - np.float32(DOUBT)]


@pytest.mark.parametrize("place", [0, 63, 64, 9_999, 19_999])
def test_the_one_row_that_counts_is_found_wherever_it_stands(place: int) -> None:
    products = np.zeros(20_000, np.float32)
    products[place] = 1
    assert candidates(products, np.arange(20_000), np.ones(20_000, np.bool_), 1).tolist() == [place]
