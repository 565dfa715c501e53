"""A bounded pool of calls to a model: limits for the calls under way in a process, and for the questions that
wait.

Equal questions asked at the same time share one answer. A caller waits for a limited time; the call goes on for
the others.
"""

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from duckkb.errors import Unavailable

_POOLS: dict[tuple[object, ...], "CallPool"] = {}
_MAKING = threading.Lock()


class CallCounts(Struct, frozen=True):
    """The counts of one pool.

    It has the requests that may be under way, that are, and that wait; since the pool was made, the requests
    that got their turn and those that did not in time; the questions given up as late, and those refused
    because too many waited. `model` is `rerank` or `expand`.
    """

    model: str
    size: int
    active: int
    waiting: int
    acquired: int
    timed_out: int
    late: int
    refused: int


def counts() -> list[CallCounts]:
    """Return the counts of all pools of this process."""
    with _MAKING:
        return [pool.count_calls(key[1]) for key, pool in _POOLS.items() if key[0] == os.getpid()]


class _Flight:
    """A question under way, with its answer or error once it is `done`."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self, call: Callable[[], Any]) -> None:
        try:
            self.value = call()
        except BaseException as error:  # any error is passed on to those who asked
            self.error = error


class CallPool:
    """A pool of `width` requests at once; `queue_limit` more questions may wait, besides those that ask to wait
    anyway.
    """

    def __init__(self, width: int, queue_limit: int) -> None:
        self._width, self._most = width, width + queue_limit
        self._slots = threading.Semaphore(width)
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight] = {}
        self._active = self._waiting = self._acquired = self._timed_out = self._late = self._refused = 0

    @classmethod
    def get_shared(cls, name: object, width: int, queue_limit: int) -> "CallPool":
        """Return this process's pool for a model, shared by all callers."""
        key = (os.getpid(), name, width, queue_limit)  # a fork must not inherit locks of the parent's threads
        with _MAKING:
            return _POOLS.setdefault(key, cls(width, queue_limit))

    def count_calls(self, name: object) -> CallCounts:
        """Return the counts of the pool, under the name that it was made for."""
        model = str(name[0] if isinstance(name, tuple) else name)
        with self._lock:
            slots = (self._width, self._active, self._waiting, self._acquired, self._timed_out)
            return CallCounts(model, *slots, self._late, self._refused)

    def ask(self, question: Hashable, call: Callable[[], Any], seconds: float, *, waits: bool = False) -> Any:
        """Return what the call gives, or raise what it raises; equal questions share one call.

        The call runs in a thread of its own. Raises `errors.Unavailable`, with `details["reason"]`: `timeout`
        where it takes longer than `seconds`, after which the call goes on by itself; `busy` where too many
        questions are under way, unless it `waits`.
        """
        with self._lock:
            flight = self._flights.get(question)
            if flight is None:
                if len(self._flights) >= self._most and not waits:
                    self._refused += 1
                    message = f"{len(self._flights)} questions are under way at the model already."
                    remedy = "try again later, or raise global.rerank.queue_limit"
                    raise Unavailable(message, code="E_MODEL", suggestion=remedy, details={"reason": "busy"})
                flight = self._flights[question] = _Flight()
                threading.Thread(target=self._run, args=(question, flight, call), daemon=True).start()
        if not flight.done.wait(max(0.0, seconds)):
            with self._lock:
                self._late += 1
            raise _late()
        if flight.error is not None:
            raise flight.error
        return flight.value

    @contextmanager
    def slot(self, until: float) -> Iterator[None]:
        """Hold one of the requests that may be under way while the block runs.

        Raises `errors.Unavailable` (`timeout`) where none becomes free until `until`, a time of the monotonic clock.
        """
        with self._lock:
            self._waiting += 1
        got = self._slots.acquire(timeout=max(0.0, until - time.monotonic()))
        with self._lock:
            self._waiting -= 1
            self._active += got
            self._acquired += got
            self._timed_out += not got
        if not got:
            raise _late()
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
            self._slots.release()

    def _run(self, question: Hashable, flight: _Flight, call: Callable[[], Any]) -> None:
        flight.run(call)
        with self._lock:
            del self._flights[question]
        flight.done.set()


def _late() -> Unavailable:
    remedy = "ask again, as a late answer is kept, or raise timeout_ms"
    return Unavailable(
        "The model did not answer in time.", code="E_MODEL", suggestion=remedy, details={"reason": "timeout"}
    )
