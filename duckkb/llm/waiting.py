"""Calls that wait for somebody else: for so long and no longer, or several at the same time. What they leave behind waits on
in a thread of its own and keeps nobody from ending."""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar

from duckkb.errors import Unavailable

Item = TypeVar("Item")
Value = TypeVar("Value")


def wait_within(seconds: float, call: Callable[[], Value]) -> Value | None:
    """What a call gives, or raises, if it does so in time; None where it does not.

    It runs in a thread of its own, which is then left to itself: it waits for somebody else and keeps nobody from ending.
    """
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = call()
        except BaseException as error:  # handed on to the caller, whatever it is
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
    """Each item with what the call gave for it, or with the `errors.Unavailable` that it raised, as they come; any other
    error is raised here. At most `width` calls run at once, and the next item is asked for when one of them is free, so
    whoever makes the items may stop at any time and loses nothing.

    With a width of 1 everything runs in the caller's thread. The others are left to themselves when the caller goes: they
    wait for somebody else and keep nobody from ending.
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
        except BaseException as error:  # handed on to the caller, whatever it is
            results.put((item, error))
