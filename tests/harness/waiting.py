"""A wait for what comes to pass beside a test, and a measure of work that a busy machine does not lengthen."""

import resource
import time
from collections.abc import Callable

HANG_S = 300.0
"""Seconds after which a wait is taken for one that never ends. It measures nothing: a busy machine may be this slow."""


def wait_until(holds: Callable[[], bool]) -> None:
    """Return as soon as `holds` does. Raises AssertionError after `HANG_S` seconds."""
    end = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end, f"it did not come to pass in {HANG_S:.0f} s"
        time.sleep(0.005)


def processor_seconds() -> float:
    """Return the seconds of processor that this process and its children that have ended took."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
