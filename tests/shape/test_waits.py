"""How tests wait: what has not come yet is waited for by one bound, which a busy machine does not meet."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.harness.waiting import HANG_S

_TESTS = Path(__file__).parents[1]
_WAITS = {"wait", "join", "result", "wait_for"}
_BRIEF_S = 10
"""A shorter wait is one that a test expects to end without what it waits for."""


def test_a_wait_for_what_comes_has_the_bound_of_all_waits() -> None:
    places = sorted(_TESTS.rglob("*.py"))
    own = [f"{place.relative_to(_TESTS)}:{line}" for place in places for line in _find_own_bounds(place.read_text())]
    assert own == [], "write HANG_S of tests.harness.waiting: a bound of its own fails on a busy machine"


def test_a_bound_of_its_own_is_seen_in_each_form_of_a_wait() -> None:
    waits = ("process.wait(30)", "thread.join(60.0)", "process.communicate(timeout=60)", "wait_for(play(), 30)")
    assert [list(_find_own_bounds(wait)) for wait in waits] == [[1]] * 4
    assert not list(_find_own_bounds("process.wait(HANG_S); other.join(0.2); run(timeout=1800); ', '.join(names)"))


def _find_own_bounds(source: str) -> Iterator[int]:
    """Yield the lines of calls that wait by a number of seconds of their own below `HANG_S`."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            bounds = [word.value for word in call.keywords if word.arg == "timeout"]
            bounds += call.args[-1:] if name in _WAITS else []
            numbers = [bound.value for bound in bounds if isinstance(bound, ast.Constant)]
            if any(isinstance(number, int | float) and _BRIEF_S <= number < HANG_S for number in numbers):
                yield call.lineno
