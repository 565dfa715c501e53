"""One call on a base at a time, and a process that is sound after a call was interrupted."""

import _imp
import threading
from types import TracebackType


class CallLock:
    """A lock that the same thread may take again. A call that Ctrl-C ended in the middle of an import gives back Python's
    import lock: CPython loses it if the signal comes between taking it and the block that returns it, and from then on any
    thread that imports would wait for ever, those of Arrow and DuckDB too. Outside of importlib's own code, which holds it
    for moments, nobody needs it (https://docs.python.org/3/library/imp.html#imp.lock_held)."""

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
    """Release the import lock as often as this thread holds it; nothing where another holds it, or nobody does."""
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # held by another thread
            return
