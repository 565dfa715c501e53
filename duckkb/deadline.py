"""Until when somebody waits for what this thread does. Whoever answers for others sets it; what may take long heeds it.

>>> with bounded(5, "ann"):
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
    """Of one call. May be asked by several threads."""

    def __init__(self) -> None:
        self.owner = ""
        self.is_cancelled = False
        self._end = math.inf
        self._lock = Lock()
        self._interrupts: list[Callable[[], object]] = []

    def shorten(self, seconds: float) -> None:
        """Have it be over after so many seconds, unless it is before."""
        self._end = min(self._end, monotonic() + seconds)

    def cancel(self) -> None:
        """Nobody waits any more: what heeds it ends now."""
        with self._lock:
            self.is_cancelled = True
            for interrupt in self._interrupts:
                interrupt()

    @property
    def left(self) -> float:
        """Seconds; none once it was cancelled."""
        return 0.0 if self.is_cancelled else max(0.0, self._end - monotonic())

    @contextmanager
    def interrupt_when_cancelled(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """`interrupt` is called where the deadline is cancelled before the block ends, or was before; not after it has ended."""
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
    """That of the call for which this thread works; else one that is never over."""
    return _CURRENT.get() or Deadline()


@contextmanager
def apply_deadline(deadline: Deadline) -> Iterator[None]:
    """The block, in this thread and those that take its context over, works for this call."""
    before = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(before)


@contextmanager
def bound_block(seconds: float | None, owner: str) -> Iterator[None]:
    """The block works for `owner`, and is over after so many seconds (None: no bound of its own)."""
    with apply_deadline(current()):
        current().owner = owner
        if seconds is not None:
            current().shorten(seconds)
        yield


def limit_seconds(seconds: float) -> float:
    """So many seconds, or those that are left."""
    return min(seconds, current().left)


def is_over() -> bool:
    """Whether nobody waits any more."""
    return not current().left


def refuse_late() -> None:
    """Raises `errors.Unavailable` (E_TIMEOUT) where nobody waits any more."""
    if is_over():
        raise late()


def late() -> Unavailable:
    """The error for what was stopped because nobody waits any more."""
    return Unavailable("the call was stopped: its time is over, or its client has gone", "E_TIMEOUT", "ask for less")
