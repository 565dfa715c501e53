"""A limit for calls that have none of their own, or none that holds."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T | None:
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
    value: T | None = outcome.get("value")
    return value
