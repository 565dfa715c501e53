"""Signals that end a command: it stops cleanly, with exit code 128 + the signal's number.

A signal may come between Python's last check and a read of stdin. The read would then wait for a writer that
may never come, and the signal with it. So the wait is cut into pieces, and Python checks for signals after
each.
"""

import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_AGAIN_S = 0.001
_PIECE_S = 0.5
_CHUNK = 1 << 20
_asked: list[int] = []


def listen() -> None:
    """Turn the first of these signals into a KeyboardInterrupt; a second signal ends the process at once."""
    for number in _list_signals():
        signal.signal(number, _ask)
    sys.unraisablehook = _handle_unraisable


def is_stop_requested() -> bool:
    """Return whether a signal came."""
    return bool(_asked)


def exit_code(code: int) -> int:
    """Return the exit code of a command that would have ended with `code`."""
    return 128 + _asked[0] if _asked else code


@contextmanager
def await_stop() -> Iterator[None]:
    """Let a signal end the block normally, without a failure."""
    try:
        yield
    except BaseException:  # a signal inside a library may come out as any error
        if not _asked:
            raise
    _asked.clear()


def _list_signals() -> list[signal.Signals]:
    """Return the signals to handle, without those ignored from the start, as under nohup or in the background."""
    return [number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN]


def _ask(number: int, _: FrameType | None) -> None:
    _asked.append(number)
    for signal_number in _list_signals():
        signal.signal(signal_number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _handle_unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """Repeat a signal whose KeyboardInterrupt Python dropped where nothing could catch it, as in a finalizer."""
    if not (_asked and problem.exc_type is KeyboardInterrupt):
        sys.__unraisablehook__(problem)
    elif hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _ask_again)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _ask_again(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Awaited(io.RawIOBase):
    """A descriptor that is read only once there is something to read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer).cast("B")
        data = self._read_piece(len(target))
        target[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        pieces = []
        while piece := self._read_piece(_CHUNK):
            pieces.append(piece)
        return b"".join(pieces)

    def _read_piece(self, size: int) -> bytes:
        while not select.select([self._descriptor], [], [], _PIECE_S)[0]:
            pass
        return os.read(self._descriptor, size)


def await_input() -> None:
    """Make `sys.stdin` wait in pieces. On Windows only sockets can be awaited so, and nothing changes."""
    if os.name != "nt" and isinstance(sys.stdin, io.TextIOWrapper):
        raw = _Awaited(sys.stdin.fileno())
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), sys.stdin.encoding, sys.stdin.errors)
