"""A pool of engines that answer concurrently, each for one thread at a time; the longest waiter is next."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident
from time import monotonic

from msgspec import Struct

from duckkb import deadline
from duckkb.lanes.sql.process.engine import Engine


class _Waiting(Struct, frozen=True):
    owner: str
    thread: int


class Engines:
    """A pool that runs as many statements at once as it has engines; an engine starts its process when first
    needed.
    """

    def __init__(self, *engines: Engine) -> None:
        self._idle = [*reversed(engines)]  # the last engine is the next: a used engine knows tables already
        self._changed = Condition()
        self._waiting: list[_Waiting] = []
        self._last_turns: dict[str, float] = {}
        self._dropped = 0

    @contextmanager
    def turn(self) -> Iterator[Engine]:
        """Borrow an engine for the block. Raises `errors.Unavailable` (E_TIMEOUT) if none is free before the
        call's deadline.
        """
        with deadline.current().interrupt_when_cancelled(self._notify):
            engine, drop_count = self._take(_Waiting(deadline.current().owner, get_ident()))
        try:
            yield engine
        finally:
            with self._changed:
                if self._dropped != drop_count:
                    engine.drop()
                self._idle.append(engine)
                self._changed.notify_all()

    def drop(self) -> None:
        """Close all engines, busy ones when they finish; the next use opens others."""
        with self._changed:
            self._dropped += 1
            for engine in self._idle:
                engine.drop()

    def _take(self, mine: _Waiting) -> tuple[Engine, int]:
        with self._changed:
            self._waiting.append(mine)
            try:
                while not self._idle or self._find_next() is not mine:
                    deadline.refuse_late()
                    self._changed.wait(deadline.limit_seconds(60))
                self._last_turns[mine.owner] = monotonic()
                return self._idle.pop(), self._dropped
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()

    def _find_next(self) -> _Waiting:
        return min(self._waiting, key=lambda each: self._last_turns.get(each.owner, 0.0))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
