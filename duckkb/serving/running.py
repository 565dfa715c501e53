"""The end of a server: by itself, or soon after a signal, which is no failure and waits for no thread."""

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
"""New objects between two collections of cyclic garbage.

A request leaves some, and a server, unlike a command (`duckkb.__main__`), does not end soon.
"""
_M_ARENA_MAX, _ARENAS = -8, 2
_left: list[asyncio.AbstractEventLoop] = []


def run(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, grace: float) -> None:
    """Run `serve` until it ends, at most `grace` seconds after a signal, which sets its event.

    A thread that still works then is abandoned: its write is carried out whole or not at all, by the journal.
    """
    spare_memory()
    loop = asyncio.new_event_loop()
    _left.append(loop)  # abandoned tasks are not cancelled, since that would wait for their threads
    loop.run_until_complete(_run_until_signal(serve, grace))


def spare_memory() -> None:
    """Keep the memory of a long-running process level.

    Garbage is collected often, and threads share glibc's arenas, each of which would otherwise keep its peak
    (mallopt(3)).
    """
    gc.set_threshold(_ALLOCATIONS, 10, 10)
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def finish(work: Callable[[], None], seconds: float) -> None:
    """Do a last piece of work, with a limit of seconds."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


async def _run_until_signal(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], grace: float) -> None:
    stop_event, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _ASKING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored signals stay ignored, as under nohup
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop_event.set) and None)
    server_task, waiting = asyncio.ensure_future(serve(stop_event)), asyncio.ensure_future(stop_event.wait())
    await asyncio.wait({server_task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not server_task.done():
        await asyncio.wait({server_task}, timeout=grace)
    waiting.cancel()
    if server_task.done():
        server_task.result()
