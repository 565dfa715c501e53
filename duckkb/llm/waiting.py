"""Calls that wait for somebody else: with a limit of time, or several at once.

An abandoned call continues in a thread of its own, which does not keep the process from ending.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar

from duckkb.errors import Unavailable

Item = TypeVar("Item")
Value = TypeVar("Value")


def wait_within(seconds: float, call: Callable[[], Value]) -> Value | None:
    """Return what a call gives, or raise what it raises; None where it takes longer than `seconds`.

    It runs in a thread of its own, which is then abandoned and does not keep the process from ending.
    """
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = call()
        except BaseException as error:  # any error is passed on to the caller
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if "error" in outcome:
        raise outcome["error"]
    value: Value | None = outcome.get("value")
    return value


def side_by_side(
    items: Iterable[Item], call: Callable[[Item], Value], width: int
) -> Iterator[tuple[Item, Value | Unavailable]]:
    """Yield each item with the result of the call, or with the `errors.Unavailable` that it raised, as they
    finish.

    Any other error is raised here. At most `width` calls run at once, and the next item is taken when one of
    them is free, so the producer of items may stop at any time and loses nothing.

    With a width of 1 everything runs in the caller's thread. Other threads are abandoned when the caller stops;
    they do not keep the process from ending.
    """
    if width <= 1:
        yield from ((item, _try_item(call, item)) for item in items)
        return
    tasks: SimpleQueue[Item | None] = SimpleQueue()
    results: SimpleQueue[tuple[Item, Value | BaseException]] = SimpleQueue()
    threads = 0
    source = iter(items)
    try:
        running = 0
        while True:
            while running < width and (item := next(source, None)) is not None:
                if running == threads:
                    threading.Thread(target=_process_items, args=(call, tasks, results), daemon=True).start()
                    threads += 1
                tasks.put(item)
                running += 1
            if not running:
                return
            finished_item, outcome = results.get()
            running -= 1
            if isinstance(outcome, BaseException) and not isinstance(outcome, Unavailable):
                raise outcome
            yield finished_item, outcome
    finally:
        for _ in range(threads):
            tasks.put(None)


def _try_item(call: Callable[[Item], Value], item: Item) -> Value | Unavailable:
    try:
        return call(item)
    except Unavailable as problem:
        return problem


def _process_items(
    call: Callable[[Item], Value],
    tasks: "SimpleQueue[Item | None]",
    results: "SimpleQueue[tuple[Item, Value | BaseException]]",
) -> None:
    while (item := tasks.get()) is not None:
        try:
            results.put((item, call(item)))
        except BaseException as error:  # any error is passed on to the caller
            results.put((item, error))
