"""How a server ends: by itself, or soon after a signal, which is no failure and waits for no thread."""

import asyncio
import ctypes
import gc
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_ALLOCATIONS = 5_000
"""How many objects come to be between two looks for those that only point at each other: a request leaves some, and a server, unlike a
command (`duckkb.__main__`), does not end soon."""
_M_ARENA_MAX, _ARENAS = -8, 2
_left: list[asyncio.AbstractEventLoop] = []


def run(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, grace: float) -> None:
    """Run `serve` until it ends, at most `grace` seconds after a signal, of which its event tells. A thread that is still at
    work then is left behind: what it writes is carried out whole or not at all, by the journal."""
    spare_memory()
    loop = asyncio.new_event_loop()
    _left.append(loop)  # tasks that are left behind are not ended, which would wait for their threads
    loop.run_until_complete(_run_until_signal(serve, grace))


def spare_memory() -> None:
    """Have memory stay level in a process that answers for long: garbage is looked for often, and threads have arenas of glibc in
    common, of which each would otherwise keep what it once took (mallopt(3))."""
    gc.set_threshold(_ALLOCATIONS, 10, 10)
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def finish(work: Callable[[], None], seconds: float) -> None:
    """Do something last, for which there are so many seconds."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


async def _run_until_signal(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], grace: float) -> None:
    stop_event, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _ASKING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop_event.set) and None)
    server_task, waiting = asyncio.ensure_future(serve(stop_event)), asyncio.ensure_future(stop_event.wait())
    await asyncio.wait({server_task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not server_task.done():
        await asyncio.wait({server_task}, timeout=grace)
    waiting.cancel()
    if server_task.done():
        server_task.result()
