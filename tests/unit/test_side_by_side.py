"""Calls side by side: each with its own outcome, never more than allowed, and nothing is asked for that nobody has place for."""

import threading
from collections.abc import Iterator

import pytest

from duckkb.llm.call_pool import side_by_side
from duckkb.types.errors import Unavailable
from tests.harness.waiting import HANG_S


def _fails_at_three(number: int) -> int:
    if number == 3:
        raise Unavailable("three")
    return number * number


@pytest.mark.parametrize("width", [1, 4, 40])
def test_every_item_comes_with_its_own_outcome(width: int) -> None:
    found = dict(side_by_side(range(1, 21), _fails_at_three, width))
    problem = found.pop(3)
    assert isinstance(problem, Unavailable) and problem.message == "three"
    assert found == {number: number * number for number in range(1, 21) if number != 3}


@pytest.mark.parametrize("width", [1, 4])
def test_any_other_error_is_raised(width: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(side_by_side([1, 0], lambda number: 1 // number, width))


def test_as_many_run_at_once_as_are_allowed_and_the_next_is_asked_for_when_one_is_free() -> None:
    together = threading.Barrier(3)
    asked: list[int] = []
    given = (asked.append(number) or number for number in range(9))
    found = side_by_side(given, lambda number: (together.wait(HANG_S), number)[1], 3)
    first = next(found)
    assert first[0] == first[1] and asked == [0, 1, 2]
    assert sorted(item for item, _ in found) == sorted({*range(9)} - {first[0]})


def test_who_makes_the_items_may_stop_and_loses_nothing() -> None:
    stop = threading.Event()

    def items() -> Iterator[int]:
        number = 0
        while not stop.is_set():
            yield (number := number + 1)

    made = []
    for item, _ in side_by_side(items(), lambda number: number, 4):
        made.append(item)
        if len(made) == 7:
            stop.set()
    assert len(made) >= 7 and sorted(made) == list(range(1, len(made) + 1))
