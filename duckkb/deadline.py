"""Deadlines: until when the caller waits for what this thread does.

Code that answers for others sets the deadline; code that may take long checks it.

>>> with bound_block(5, "ann"):
...     limit_seconds(3_600) <= 5, limit_seconds(2)
(True, 2)
>>> limit_seconds(3_600), is_over()
(3600, False)
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from time import monotonic

from duckkb.errors import Unavailable


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
