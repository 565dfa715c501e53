"""What a process that runs statements may take of its machine. Used in that process alone, never in one that serves.

| | Linux | macOS | elsewhere |
|---|---|---|---|
| memory | address space | resident size, looked at every 50 ms | not bounded |
| processor time, files, core dumps | yes | yes | not bounded |
"""

import os
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from math import ceil
from pathlib import Path

MEMORY = 3 * 1024**3  # bytes on top of what the process has when a statement begins; the engine's own limit is 2 GB
OVER_MEMORY = 77  # the exit code of a process that took more
UNKNOWN_VERSION = 78  # and of one that found an engine which the walks do not know
_LOOK_SECONDS = 0.05
_THREADS = 2


def available() -> bool:
    """Whether this system can bound the memory of a process."""
    return find_spec("resource") is not None


class Bounds:
    """The bounds of this process. Make it once everything is imported and open: from then on no file opens."""

    def __init__(self, memory: int | None = None, *, by_address_space: bool = sys.platform == "linux") -> None:
        self._memory = min(MEMORY, _half_of_the_machine()) if memory is None else memory
        self._by_address_space = by_address_space
        if not available():
            return
        import resource

        self._sizes = os.open("/proc/self/statm", os.O_RDONLY) if sys.platform == "linux" else None
        with suppress(OSError):  # the kernel's choice, should the machine run out of memory all the same
            Path("/proc/self/oom_score_adj").write_bytes(b"1000")
        if not by_address_space:
            threading.Thread(target=self._look, args=(self._resident(),), daemon=True).start()
        for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
            resource.setrlimit(limit, (0, 0))

    def allow(self, seconds: float) -> None:
        """Give the next statement its memory and its processor time; what overruns ends the process."""
        if not available():
            return
        import resource

        if self._by_address_space:
            _soften(resource.RLIMIT_AS, self._pages(0) * resource.getpagesize() + self._memory)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _soften(resource.RLIMIT_CPU, ceil(usage.ru_utime + usage.ru_stime + seconds * _THREADS) + 1)

    def _look(self, before: int) -> None:
        while self._resident() - before <= self._memory:
            threading.Event().wait(_LOOK_SECONDS)
        os._exit(OVER_MEMORY)

    def _resident(self) -> int:
        """Bytes in memory, at their most where the system tells no more. (Linux counts a parent's in that.)"""
        import resource

        if self._sizes is not None:
            return self._pages(1) * resource.getpagesize()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def _pages(self, column: int) -> int:
        return int(os.pread(self._sizes, 100, 0).split()[column]) if self._sizes is not None else 0


def _soften(limit: int, value: int) -> None:
    import resource

    _, hard = resource.getrlimit(limit)
    with suppress(ValueError, OSError):
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _half_of_the_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return MEMORY
