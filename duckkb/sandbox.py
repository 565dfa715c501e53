"""A Python process of its own that is killed when it exceeds its limits: its start, its end and its bounds.

It finds packages where this process does, has no environment and no files but its pipes, and answers on its
former stdout. Its users define what is sent over the pipes.

| | Linux | macOS | elsewhere |
|---|---|---|---|
| memory | address space | resident size, checked every 50 ms | not bounded |
| processor time, files, core dumps | yes | yes | not bounded |
"""

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import subprocess

OVER_MEMORY = 77
"""The exit code of a process that exceeded its memory limit."""
# First, so that the process loads the same version of a package that is in several of these places.
_FIND_PACKAGES = "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); "
_LOOK_S = 0.05


def start(
    program: str,
    arguments: Sequence[str] = (),
    *,
    stdin: IO[bytes] | None = None,
    flags: Sequence[str] = (),
    descriptors: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start a Python program of one line; its `sys.argv[2:]` are the `arguments`.

    Without `stdin`, that is a pipe, as stdout is. `flags` are more options of the interpreter, `descriptors`
    other open files it inherits. Raises OSError, ValueError.
    """
    import subprocess

    return subprocess.Popen(
        # -I: neither the current folder nor variables of the environment can put code into the process
        [sys.executable, "-I", *flags, "-X", "utf8", "-c", _FIND_PACKAGES + program, _import_path(), *arguments],
        stdin=stdin or subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        cwd=os.sep,
        env=None if os.name == "nt" else {},
        start_new_session=True,  # keyboard interrupts go only to the parent
    )


@contextmanager
def kill_after(seconds: float, process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill a process that the block still waits for after `seconds`. Raises RuntimeError where no thread starts."""
    clock = threading.Timer(seconds, process.kill)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a child process and close its pipes."""
    process.kill()
    process.wait()
    close_pipes(process)


def close_pipes(process: "subprocess.Popen[bytes]") -> None:
    """Close this side of the pipes, even where the other side is gone."""
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe:
                pipe.close()


def _import_path() -> str:
    """Return the places where this process finds its packages.

    The current folder is not among them, unless duckkb itself lies there.
    """
    home, here = Path(__file__).resolve().parents[1], Path.cwd()
    folders = [entry for entry in sys.path if Path(entry).is_absolute() and Path(entry).resolve() != here]
    return json.dumps([*folders, str(home)])


# --- the process


def take_stdout() -> IO[bytes]:
    """Return the former stdout, for answers; redirect what libraries print to stderr from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def is_bounded() -> bool:
    """Return whether this system can bound the memory of a process."""
    return find_spec("resource") is not None


class Bounds:
    """The bounds of this process: it dumps no core and writes no file; with `no_files` it opens none."""

    def __init__(self, *, no_files: bool = False, by_address_space: bool = sys.platform == "linux") -> None:
        self._most: int | None = None
        self._by_address_space = by_address_space
        if not is_bounded():
            return
        import resource

        self._sizes = os.open("/proc/self/statm", os.O_RDONLY) if sys.platform == "linux" else None
        with suppress(OSError):  # the kernel's first choice if memory runs out anyway
            Path("/proc/self/oom_score_adj").write_bytes(b"1000")
        if not by_address_space:
            threading.Thread(target=self._watch_memory, daemon=True).start()
        for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, *((resource.RLIMIT_NOFILE,) if no_files else ())):
            resource.setrlimit(limit, (0, 0))

    def allow(self, seconds: float, memory: int) -> None:
        """Allow so many seconds of processor time and bytes of memory from now on; excess ends the process."""
        if not is_bounded():
            return
        import resource

        if self._by_address_space:
            _lower_limit(resource.RLIMIT_AS, self._count_pages(0) * resource.getpagesize() + memory)
        else:
            self._most = self._measure_memory() + memory
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _lower_limit(resource.RLIMIT_CPU, ceil(usage.ru_utime + usage.ru_stime + seconds) + 1)

    def _watch_memory(self) -> NoReturn:
        while self._most is None or self._measure_memory() <= self._most:
            threading.Event().wait(_LOOK_S)
        os._exit(OVER_MEMORY)

    def _measure_memory(self) -> int:
        """Return the bytes in memory, or their maximum where only that is known. (Linux includes a parent's.)"""
        import resource

        if self._sizes is not None:
            return self._count_pages(1) * resource.getpagesize()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def _count_pages(self, column: int) -> int:
        return int(os.pread(self._sizes, 100, 0).split()[column]) if self._sizes is not None else 0


def _lower_limit(limit: int, value: int) -> None:
    import resource

    _, hard = resource.getrlimit(limit)
    with suppress(ValueError, OSError):
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
