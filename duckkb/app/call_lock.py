"""A lock for one call on a base at a time, which repairs the process after an interrupted call."""

import _imp
import threading
from types import TracebackType


class CallLock:
    """A re-entrant lock that gives back Python's import lock when Ctrl-C ended a call inside an import.

    CPython loses that lock if the signal comes between taking it and the block that returns it. Any thread that
    imports would then wait for ever, threads of Arrow and DuckDB too. Outside importlib's own code, which holds
    it for moments, nobody needs it (https://docs.python.org/3/library/imp.html#imp.lock_held).
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if kind is KeyboardInterrupt:
            give_back_import_lock()


def give_back_import_lock() -> None:
    """Release the import lock as often as this thread holds it; do nothing where it does not."""
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # held by another thread
            return
