"""The event loop of a run, on which `async def` functions of callers are awaited, and the check of a function's
form.
"""

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from duckkb.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class EventLoop:
    """An event loop in a thread of its own, which starts with the first coroutine.

    Safe to share between threads.
    """

    def __init__(self) -> None:
        self._loop: AbstractEventLoop | None = None
        self._is_closed = False
        self._starting = threading.Lock()

    def settle(self, value: Any, on_start: "Callable[[Future[Any]], object]" = lambda _: None) -> Any:
        """Return a value, or the result of an awaitable; raise what it raises.

        `on_start` gets the future, which can be cancelled.
        """
        if not inspect.isawaitable(value):
            return value
        from asyncio import run_coroutine_threadsafe

        pending = value if inspect.iscoroutine(value) else _await(value)
        with self._starting:
            if self._is_closed:
                pending.close()
                raise RuntimeError("the run has ended")
            future = run_coroutine_threadsafe(pending, self._ensure_loop())
        on_start(future)
        return future.result()

    def close(self) -> None:
        """Cancel what is still awaited and let the thread end, without waiting for it."""
        with self._starting:
            self._is_closed = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _ensure_loop(self) -> "AbstractEventLoop":
        if self._loop is None:
            from asyncio import new_event_loop

            self._loop = new_event_loop()
            threading.Thread(target=_serve, args=(self._loop,), daemon=True, name="event loop of a run").start()
        return self._loop


def refuse_form(what: str, function: object, parameters: int) -> None:
    """Raise `errors.UsageError` for what cannot be called with so many arguments, or is a generator."""
    if not callable(function):
        raise UsageError(f"{what} is not a function", suggestion="give a function, plain or `async def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what} yields, and gives no value", suggestion="return the value, from `def` or `async def`")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have no signature
        return
    try:
        signature.bind(*[None] * parameters)
    except TypeError as error:
        message = f"{what} does not take {parameters} argument{'s' * (parameters > 1)}: {error}"
        raise UsageError(message, suggestion="docs/loop.md lists their arguments") from None


async def _await(value: Any) -> Any:
    return await value


def _serve(loop: "AbstractEventLoop") -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
