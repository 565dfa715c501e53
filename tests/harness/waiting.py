"""A wait for what comes to pass beside a test."""

import time
from collections.abc import Callable

BOUND_S = 120.0
"""Seconds after which what has not come to pass is a failure."""


def wait_until(holds: Callable[[], bool]) -> None:
    """Return as soon as `holds` does. Raises AssertionError after `BOUND_S` seconds."""
    end = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < end, f"it did not come to pass in {BOUND_S:.0f} s"
        time.sleep(0.005)
