"""Standard input that heeds signals for certain.

Between Python's last look for signals and its read a signal may come: the read then waits for a writer who may never come,
and the signal with it. Here the wait is cut into pieces, after each of which Python looks again.
"""

import io
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE_S = 0.5
_CHUNK = 1 << 20


class _Awaited(io.RawIOBase):
    """A descriptor that is read once there is something to read."""

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
        data = self._taken(len(target))
        target[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        pieces = []
        while piece := self._taken(_CHUNK):
            pieces.append(piece)
        return b"".join(pieces)

    def _taken(self, size: int) -> bytes:
        while not select.select([self._descriptor], [], [], _PIECE_S)[0]:
            pass
        return os.read(self._descriptor, size)


def await_input() -> None:
    """Let `sys.stdin` wait in pieces. Windows can wait so for sockets alone."""
    if os.name != "nt" and isinstance(sys.stdin, io.TextIOWrapper):
        raw = _Awaited(sys.stdin.fileno())
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), sys.stdin.encoding, sys.stdin.errors)
