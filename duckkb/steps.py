"""Timed steps of an answer, for a server that traces. By default nothing is recorded, and a step costs a look-up.

>>> with record_steps() as steps:
...     with step("plan"):
...         pass
>>> [name for name, begun, ended in steps], is_recording()
(['plan'], False)
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Value = TypeVar("Value")

Step = tuple[str, int, int]
"""A name, and its begin and end: nanoseconds since 1970, on the clock that all processes of a machine share."""

_FOUND: ContextVar[list[Step] | None] = ContextVar("duckkb_steps", default=None)
_UNTIMED = nullcontext()


@contextmanager
def record_steps() -> Iterator[list[Step]]:
    """Record the steps of this thread, and of threads that copy its context, until the block ends."""
    steps: list[Step] = []
    before = _FOUND.set(steps)
    try:
        yield steps
    finally:
        _FOUND.reset(before)


def is_recording() -> bool:
    """Return whether steps are being recorded."""
    return _FOUND.get() is not None


def add(steps: Iterable[Step]) -> None:
    """Add the steps of another process that worked for this one."""
    sink = _FOUND.get()
    if sink is not None:
        sink.extend((name, begin_ns, end_ns) for name, begin_ns, end_ns in steps)


def step(name: str) -> AbstractContextManager[None]:
    """Record the block as a step."""
    sink = _FOUND.get()
    return _UNTIMED if sink is None else _time_step(name, sink)


def count_step(name: str) -> Callable[[Callable[Given, Value]], Callable[Given, Value]]:
    """Record each call of the function as a step."""

    def decorate(function: Callable[Given, Value]) -> Callable[Given, Value]:
        @wraps(function)
        def run_step(*given: Given.args, **named: Given.kwargs) -> Value:
            with step(name):
                return function(*given, **named)

        return run_step

    return decorate


@contextmanager
def _time_step(name: str, found: list[Step]) -> Iterator[None]:
    begin_ns = time.time_ns()
    try:
        yield
    finally:
        found.append((name, begin_ns, time.time_ns()))
