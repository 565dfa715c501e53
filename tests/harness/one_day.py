"""A day that does not end while a module's tests run. Records lie in folders of the day on which they came, so a test that
looks for the part of two writes would fail where midnight passes between them."""

import os
import time
from datetime import UTC, datetime, timedelta

from duckkb.app.wiring import SystemClock

BEGAN = "TESTS_BEGAN_AT"
"""The variable that holds when the day's noon was, in seconds of the monotonic clock, which all processes share."""
_NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def now(_: SystemClock) -> str:
    """What `SystemClock.now` says on that day."""
    moment = _NOON + timedelta(seconds=time.monotonic() - float(os.environ[BEGAN]))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
