"""Decides which call is next: a limited number at a time, the tenants in turn, each answered in time or refused.

Equal reads that wait are joined. A call that takes long, as it waits for another process or computes, continues
beside the others: nobody else waits for it.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import anyio
from msgspec import Struct

from duckkb.types.errors import Unavailable
from duckkb.types.request_context import Deadline, apply_deadline

T = TypeVar("T")


class CallLimits(Struct, frozen=True):
    """The limits of calls.

    `slots` calls are under way at once, and beside them `long` calls that have been for `long_after` seconds.
    At most `waiting` calls wait.
    One tenant has `concurrency` calls at once (0: all slots but one; where half of the long ones are taken,
    one). It makes `rate` calls a second, and as many at once as in one second (0: no limit).
    A call is answered within `timeout` seconds (0: no limit). With `dedupe`, equal reads of one caller that
    wait at the same time are joined.
    """

    slots: int = 4
    concurrency: int = 0
    waiting: int = 256
    rate: float = 0.0
    timeout: float = 0.0
    dedupe: bool = True
    long: int = 16
    long_after: float = 0.25


class _Call:
    """A call, and the number of callers that still wait for it.

    Once `begun`, its `deadline` is cancelled where none does.
    """

    def __init__(self, tenant: str, work: Callable[[], Any], key: Hashable) -> None:
        self.tenant, self.work, self.key = tenant, work, key
        self.deadline, self.is_long = Deadline(), False
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(
            lambda future: future.cancelled() or future.exception()
        )  # the future may have no reader left
        self.begun, self.asked_by = False, 0


class Admission:
    """The admission of one server's calls, for use in one event loop."""

    def __init__(self, limits: CallLimits) -> None:
        self.limits = limits
        self._most = limits.concurrency or max(1, limits.slots - 1)
        self._threads = anyio.CapacityLimiter(limits.slots + limits.long)
        self._lines: dict[str, deque[_Call]] = {}  # the next tenant stands first
        self._active: Counter[str] = Counter()
        self._tasks: set[asyncio.Future[None]] = set()
        self._long = 0
        self._shared: dict[Hashable, _Call] = {}
        self._buckets: dict[str, tuple[float, float]] = {}

    @property
    def waiting(self) -> int:
        """The number of calls that have not begun."""
        return sum(map(len, self._lines.values()))

    @property
    def active(self) -> int:
        """The number of calls that are under way."""
        return len(self._tasks)

    async def run(
        self, tenant: str, work: Callable[[], T], timeout: float = 0.0, *, same: Hashable = None, is_write: bool = False
    ) -> T:
        """Run `work` in a thread when its turn comes, and return its result.

        A call that is the `same` as a waiting one shares its answer; a call under way is not shared, since it
        may have read the files before.
        Where nobody waits any more, the deadline of a call under way is cancelled; a write is completed. Raises
        `errors.Unavailable` (E_BUSY, E_TIMEOUT), and what `work` raises.
        """
        self._refuse_hasty(tenant)
        call = self._shared.get(same) if same is not None else None
        if call is None:
            call = self._enqueue(_Call(tenant, work, same))
        call.asked_by += 1
        seconds = min(filter(None, (timeout, self.limits.timeout)), default=None)
        try:
            answers, _ = await asyncio.wait({call.answer}, timeout=seconds)
            if not answers:
                raise _build_timeout_error(call, seconds, is_write)
            return cast("T", call.answer.result())
        finally:
            call.asked_by -= 1
            if not call.asked_by and not call.answer.done():
                if not call.begun:
                    self._lines[call.tenant].remove(call)
                    self._forget(call)
                elif not is_write:
                    call.deadline.cancel()

    def _refuse_hasty(self, tenant: str) -> None:
        """Raise where a tenant's token bucket is empty; it holds the calls of one second."""
        rate = self.limits.rate
        if not rate:
            return
        now, most = time.monotonic(), max(1.0, rate)
        level, at = self._buckets.get(tenant, (most, now))
        level = min(most, level + (now - at) * rate)
        if level < 1:
            raise _build_busy_error(f"more than {rate:g} calls a second", (1 - level) / rate)
        self._buckets[tenant] = level - 1, now

    def _enqueue(self, call: _Call) -> _Call:
        """Put a call at the end of its tenant's line.

        Where too many wait then, the newest of the longest line is refused.
        """
        line = self._lines.setdefault(call.tenant, deque())
        line.append(call)
        if call.key is not None:
            self._shared[call.key] = call
        self._begin()
        if self.waiting > self.limits.waiting:
            last = max(line, *self._lines.values(), key=len).pop()  # of equally long lines its own
            self._forget(last)
            last.answer.set_exception(_build_busy_error(f"{self.limits.waiting} calls wait already", 1))
        return call

    def _begin(self) -> None:
        while len(self._tasks) - min(self._long, self.limits.long) < self.limits.slots and (call := self._take_next()):
            call.begun = True
            self._forget(call)
            self._active[call.tenant] += 1
            self._tasks.add(asyncio.ensure_future(self._perform_call(call)))

    def _take_next(self) -> _Call | None:
        for tenant, line in self._lines.items():
            if line and self._active[tenant] < (self._most if self._long < self.limits.long / 2 else 1):
                del self._lines[tenant]
                call = line.popleft()
                if line:
                    self._lines[tenant] = line
                return call
        return None

    async def _perform_call(self, call: _Call) -> None:
        clock = asyncio.get_running_loop().call_later(self.limits.long_after, self._mark_long, call)
        try:
            with apply_deadline(call.deadline):
                call.answer.set_result(await anyio.to_thread.run_sync(call.work, limiter=self._threads))
        except Exception as problem:
            call.answer.set_exception(problem)
        clock.cancel()
        self._long -= call.is_long
        self._active -= Counter([call.tenant])  # drops counts of zero
        self._tasks.discard(cast("asyncio.Future[None]", asyncio.current_task()))
        self._begin()

    def _mark_long(self, call: _Call) -> None:
        call.is_long = True
        self._long += 1
        self._begin()

    def _forget(self, call: _Call) -> None:
        if call.key is not None and self._shared.get(call.key) is call:
            del self._shared[call.key]
        if not self._lines.get(call.tenant, True):
            del self._lines[call.tenant]


def _build_busy_error(message: str, seconds: float) -> Unavailable:
    after = max(1, math.ceil(seconds))
    return Unavailable(message, "E_BUSY", f"ask again in {after} s, with fewer calls at once", {"retry_after_s": after})


def _build_timeout_error(call: _Call, seconds: float | None, is_write: bool) -> Unavailable:
    outcome = "the call had not begun and was dropped"
    if call.begun:
        outcome = "the call continues in the background" if is_write else "the call was stopped"
    message = f"no answer within {seconds:g} s; {outcome}"
    return Unavailable(message, "E_TIMEOUT", "give it more time, or ask for less", {"begun": call.begun})
