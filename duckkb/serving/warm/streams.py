"""The output of a command, kept in order until it is complete; and an input that must not be read here."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from duckkb.warm_client import HEAD, LARGEST

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class NotServed(BaseException):
    """Raised where the command has to run in the client's process.

    It is a BaseException, so that no command catches it, as none catches the end of a process.
    """


class Printed:
    """The pieces of output in the order in which they were written: 1 for stdout, 2 for stderr."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, stream: int, data: bytes) -> None:
        self._pieces.append(bytes([stream]) + len(data).to_bytes(HEAD, "little") + data)
        self._size += len(self._pieces[-1])
        if self._size >= LARGEST:
            raise NotServed("more than is held in memory")

    def answer(self, code: int) -> bytes:
        return bytes([code]) + b"".join(self._pieces)


class _Captured(io.RawIOBase):
    """A stand-in for a client's stream: a terminal or not, as the original, but nothing is written to it."""

    def __init__(self, stream: int, descriptor: int, printed: Printed) -> None:
        self._stream, self._descriptor, self._printed = stream, descriptor, printed

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer") -> int:
        piece = bytes(data)
        self._printed.add(self._stream, piece)
        return len(piece)


class _Unread:
    """A stand-in for the client's stdin, whose content has not been handed over."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def __getattr__(self, name: str) -> Any:
        raise NotServed("it reads stdin")


@contextmanager
def take_streams(descriptors: list[int]) -> Iterator[Printed]:
    """Replace the streams of `sys` by the client's, by their descriptors, while a command runs."""
    output, names = Printed(), ("stdin", "stdout", "stderr")
    before = [getattr(sys, name) for name in (*names, "__stdin__", "__stdout__", "__stderr__")]
    writers = [_wrap_text(_Captured(number, descriptors[number], output)) for number in (1, 2)]
    for name, stream in zip(names, (cast("TextIO", _Unread(descriptors[0])), *writers), strict=True):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    try:
        yield output
        for stream in writers:
            stream.flush()
    finally:
        for name, stream in zip((*names, "__stdin__", "__stdout__", "__stderr__"), before, strict=True):
            setattr(sys, name, stream)


def _wrap_text(raw: io.RawIOBase) -> TextIO:
    """Wrap a raw stream as `__main__` does."""
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=raw.isatty())
