"""Whose call is next, exactly: what a process shows of it only by chance."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

pytest.importorskip("anyio", reason="serving needs the extra `serve`")

from duckkb.server.admission import Admission, CallLimits
from duckkb.server.application import Bodies
from duckkb.types import request_context
from duckkb.types.errors import Unavailable
from tests.harness.waiting import HANG_S


def _played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), HANG_S))


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_kx_19_tenants_take_turns_and_the_longest_line_is_shortened() -> None:
    async def play() -> None:
        admission, done, held = Admission(CallLimits(slots=1, waiting=6)), list[str](), threading.Event()

        def call(tenant: str, name: str) -> asyncio.Task[None]:
            return asyncio.ensure_future(admission.run(tenant, lambda: (held.wait(HANG_S), done.append(name))[1]))

        calls = [call("a", f"a{number}") for number in range(6)]
        await _settled()
        calls += [call("b", "b0"), call("b", "b1"), call("c", "c0")]
        await _settled()
        assert (admission.active, admission.waiting) == (1, 6)
        held.set()
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert done == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
        assert [at for at, one in enumerate(told) if isinstance(one, Unavailable)] == [4, 5]
        assert (admission.active, admission.waiting) == (0, 0)

    _played(play)


def test_kx_19_equal_reads_that_wait_are_one_and_none_is_answered_with_one_that_had_begun() -> None:
    async def play() -> None:
        admission, held, base, read = Admission(CallLimits(slots=1)), threading.Event(), ["old"], list[str]()

        def slow() -> str:
            read.append(base[0])
            held.wait(HANG_S)
            return read[-1]

        begun = asyncio.ensure_future(admission.run("a", slow, same="q"))
        await _settled()
        while not read:
            await asyncio.sleep(0.01)
        base[0] = "new"
        later = [asyncio.ensure_future(admission.run("a", slow, same="q")) for _ in range(3)]
        await _settled()
        assert (admission.active, admission.waiting) == (1, 1)
        held.set()
        assert [await one for one in (begun, *later)] == ["old", "new", "new", "new"] == [*read[:1], *read[1:] * 3]

    _played(play)


def test_kx_19_who_goes_before_its_turn_leaves_nothing_behind() -> None:
    async def play() -> None:
        admission, held, done = Admission(CallLimits(slots=1)), threading.Event(), list[str]()
        first = asyncio.ensure_future(admission.run("a", lambda: held.wait(HANG_S)))
        await _settled()
        gone = [asyncio.ensure_future(admission.run("a", lambda: done.append("gone"), same="x")) for _ in range(2)]
        stays = asyncio.ensure_future(admission.run("a", lambda: done.append("stays"), same="y"))
        joined = asyncio.ensure_future(admission.run("a", lambda: done.append("never"), 0.01, same="y"))
        await _settled()
        for one in gone:
            one.cancel()
        with pytest.raises(Unavailable) as late:
            await joined
        assert (late.value.code, dict(late.value.details)) == ("E_TIMEOUT", {"begun": False})
        assert admission.waiting == 1
        held.set()
        await asyncio.gather(first, stays)
        assert done == ["stays"] and admission.waiting == 0

    _played(play)


def test_calls_that_take_long_hold_no_slot_and_their_tenants_leave_room_for_others() -> None:
    async def play() -> None:
        limits = CallLimits(slots=2, long=4, long_after=0)
        admission, held, done = Admission(limits), threading.Event(), list[str]()

        def call(tenant: str, work: Callable[[], Any]) -> asyncio.Task[Any]:
            return asyncio.ensure_future(admission.run(tenant, work))

        long = [call(tenant, lambda: held.wait(HANG_S)) for tenant in ("a", "a", "b", "b", "c")]
        while admission.active < 3:
            await asyncio.sleep(0.01)
        assert await call("d", lambda: done.append("d")) is None and done == ["d"]
        assert (admission.active, admission.waiting) == (3, 2), "one of each: half of the long ones are taken"
        held.set()
        assert await asyncio.gather(*long) == [True] * 5
        assert (admission.active, admission.waiting) == (0, 0)

    _played(play)


@pytest.mark.parametrize("goes", ["late", "gone"])
def test_a_read_that_nobody_waits_for_any_more_is_stopped_and_a_write_is_carried_through(goes: str) -> None:
    async def play() -> None:
        admission, stopped, begun = Admission(CallLimits()), list[str](), threading.Semaphore(0)

        def work(name: str) -> None:
            interrupted = threading.Event()
            with request_context.current().interrupt_when_cancelled(interrupted.set):
                begun.release()
                if interrupted.wait(30 if name == "read" else 0):
                    stopped.append(name)

        for name in ("read", "write"):
            asked = admission.run("a", partial(work, name), 0.2 if goes == "late" else 0, is_write=name == "write")
            call = asyncio.ensure_future(asked)
            await asyncio.to_thread(begun.acquire)
            if goes == "gone":
                call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        while admission.active:
            await asyncio.sleep(0.01)
        assert stopped == ["read"]

    _played(play)


def test_kx_19_a_large_body_whose_caller_has_gone_is_read_to_its_end_before_that_tenants_next() -> None:
    async def play() -> None:
        bodies, held, begun = Bodies(), threading.Event(), list[str]()

        def slow(raw: bytes) -> dict[str, Any]:
            begun.append(raw[-2:].decode())
            held.wait(HANG_S)
            return {"of": begun[-1]}

        def read(name: str) -> asyncio.Task[dict[str, Any]]:
            return asyncio.ensure_future(bodies.read(slow, b" " * 1_000_000 + name.encode(), name[0]))

        gone, waits, goes_too = read("a0"), read("a1"), read("a2")
        while not begun:
            await asyncio.sleep(0.01)
        gone.cancel()
        goes_too.cancel()
        other = read("b0")
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        await _settled()
        assert begun == ["a0", "b0"]
        held.set()
        told = await asyncio.gather(gone, waits, goes_too, other, return_exceptions=True)
        assert begun == ["a0", "b0", "a1"]
        assert [type(one) for one in told] == [asyncio.CancelledError, dict, asyncio.CancelledError, dict]

    _played(play)
