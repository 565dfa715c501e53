"""Callers: what a request may see and do.

Deadlines: until when the caller waits for what this thread does.

Code that answers for others sets the deadline; code that may take long checks it.

>>> with bound_block(5, "ann"):
...     limit_seconds(3_600) <= 5, limit_seconds(2)
(True, 2)
>>> limit_seconds(3_600), is_over()
(3600, False)

Timed steps of an answer, for a server that traces. By default nothing is recorded, and a step costs a look-up.

>>> with record_steps() as steps:
...     with step("plan"):
...         pass
>>> [name for name, begun, ended in steps], is_recording()
(['plan'], False)"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from time import monotonic
from typing import Literal, ParamSpec, TypeVar

from msgspec import Struct

from duckkb.types.errors import Unavailable

Role = Literal["viewer", "editor", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "editor", "admin")
"""The roles in ascending order; each includes the rights of those before it."""


class Caller(Struct, frozen=True):
    """A caller: its `tenant` (a name for logs and limits), its `role`, and the types and collections it may see.

    Types None means all of them.
    """

    tenant: str = ""
    role: Role = "admin"
    types: frozenset[str] | None = None

    def may(self, role: Role) -> bool:
        """Return whether the caller has this role or a higher one.

        >>> Caller(role="editor").may("viewer"), Caller(role="viewer").may("editor")
        (True, False)
        """
        return ROLES.index(self.role) >= ROLES.index(role)


class Deadline:
    """The deadline of one call. Several threads may use it."""

    def __init__(self) -> None:
        self.owner = ""
        self.is_cancelled = False
        self._end = math.inf
        self._lock = Lock()
        self._interrupts: list[Callable[[], object]] = []

    def shorten(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now, unless it ends earlier already."""
        self._end = min(self._end, monotonic() + seconds)

    def cancel(self) -> None:
        """End the deadline now, since nobody waits any more; code that checks it stops."""
        with self._lock:
            self.is_cancelled = True
            for interrupt in self._interrupts:
                interrupt()

    @property
    def left(self) -> float:
        """The seconds until the deadline; none once it was cancelled."""
        return 0.0 if self.is_cancelled else max(0.0, self._end - monotonic())

    @contextmanager
    def interrupt_when_cancelled(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Call `interrupt` when the deadline is cancelled inside the block, or was before it.

        `interrupt` is never called after the block has ended.
        """
        with self._lock:
            self._interrupts.append(interrupt)
            if self.is_cancelled:
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


_CURRENT: ContextVar[Deadline | None] = ContextVar("duckkb_deadline", default=None)


def current() -> Deadline:
    """Return the deadline of the call for which this thread works, else a deadline that never ends."""
    return _CURRENT.get() or Deadline()


@contextmanager
def apply_deadline(deadline: Deadline) -> Iterator[None]:
    """Apply a deadline inside the block, for this thread and for threads that copy its context."""
    before = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(before)


@contextmanager
def bound_block(seconds: float | None, owner: str) -> Iterator[None]:
    """Work for `owner` inside the block, and end its deadline after so many seconds (None: add no bound)."""
    with apply_deadline(current()):
        current().owner = owner
        if seconds is not None:
            current().shorten(seconds)
        yield


def limit_seconds(seconds: float) -> float:
    """Return the smaller of `seconds` and the seconds left until the deadline."""
    return min(seconds, current().left)


def is_over() -> bool:
    """Return whether the deadline has passed or was cancelled."""
    return not current().left


def refuse_late() -> None:
    """Raise `errors.Unavailable` (E_TIMEOUT) where the deadline has passed or was cancelled."""
    if is_over():
        raise late()


def late() -> Unavailable:
    """Return the error for work that was stopped at its deadline."""
    return Unavailable("the call was stopped: its time is over, or its client has gone", "E_TIMEOUT", "ask for less")


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
