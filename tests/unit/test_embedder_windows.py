"""Cutting long texts and joining the vectors of their pieces: laws."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from duckkb.llm.embedder_contract import halves, spans, unit_mean


@given(length=some.integers(0, 5000), limit=some.integers(1, 600))
def test_windows_cover_everything_once_within_the_limit_and_evenly(length: int, limit: int) -> None:
    windows = spans(length, limit)
    assert [place for start, end in windows for place in range(start, end)] == list(range(length))
    sizes = [end - start for start, end in windows]
    assert max(sizes) <= limit and max(sizes) - min(sizes) <= 1
    assert len(windows) == max(1, -(-length // limit))


@given(some.text(alphabet="ab。. \n，字", min_size=2, max_size=200))
def test_halves_make_the_text_again_and_neither_is_empty_or_most_of_it(text: str) -> None:
    left, right = halves(text)
    assert left + right == text
    assert left and right
    assert max(len(left), len(right)) <= len(text) * 3 / 4 + 1


def test_a_text_is_cut_at_the_best_boundary_near_its_middle() -> None:
    assert halves("第一句话。第二句话，再说一点")[0] == "第一句话。"
    assert halves("one line\nanother. line")[0] == "one line\n"
    assert halves("it costs 3.14 euros or so")[0] == "it costs 3.14 "
    assert halves("一二三四")[0] == "一二"


@given(some.lists(some.lists(some.floats(-1, 1, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_mean_of_unit_vectors_is_a_unit_vector(rows: list[list[float]]) -> None:
    matrix = np.array(rows, np.float32) + np.float32(1e-3)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True) + np.float32(1e-12)
    mean = unit_mean(matrix, range(1, len(rows) + 1))
    assert abs(np.linalg.norm(mean) - 1.0) < 1e-3


def test_opposite_vectors_have_a_mean_all_the_same() -> None:
    mean = unit_mean(np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32), [7, 7])
    assert mean.tolist() == [1.0, 0.0]


def test_longer_pieces_weigh_more() -> None:
    first, second = unit_mean(np.eye(2, dtype=np.float32), [3, 1])
    assert first > second > 0.0
