"""How a server ends: by itself, or soon after a signal, which is no failure and waits for no thread."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_left: list[asyncio.AbstractEventLoop] = []


def run(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, grace: float) -> None:
    """Run `serve` until it ends, at most `grace` seconds after a signal, of which its event tells. A thread that is still at
    work then is left behind: what it writes is carried out whole or not at all, by the journal."""
    loop = asyncio.new_event_loop()
    _left.append(loop)  # tasks that are left behind are not ended, which would wait for their threads
    loop.run_until_complete(_until_asked(serve, grace))


def finish(work: Callable[[], None], seconds: float) -> None:
    """Do something last, for which there are so many seconds."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


async def _until_asked(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], grace: float) -> None:
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _ASKING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(asked.set) and None)
    served, waiting = asyncio.ensure_future(serve(asked)), asyncio.ensure_future(asked.wait())
    await asyncio.wait({served, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not served.done():
        await asyncio.wait({served}, timeout=grace)
    waiting.cancel()
    if served.done():
        served.result()
