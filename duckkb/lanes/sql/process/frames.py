"""Messages between a process and the one that runs its statements: a length in 8 bytes, then JSON in UTF-8."""

import json
import os
import struct
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mmap
    import socket

MOST_FILES = 64
"""Files that are handed over at most: what else there is goes through the pipe."""
_LENGTH = struct.Struct(">Q")


def send(stream: IO[bytes], value: Any) -> None:
    """Write one message."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes], most: int) -> Any:
    """Read one message of at most `most` bytes; raises EOFError at the end and ValueError for what is none."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > most:
        raise ValueError("a message is too long")
    return json.loads(_exactly(stream, length).decode("utf-8", "surrogatepass"))


def can_hand_over() -> bool:
    """Whether this system lets one process give another its open files."""
    import socket

    return hasattr(socket, "send_fds")


def hand_over(channel: "socket.socket", files: Sequence[int]) -> None:
    """Let the other process have open files; the first thing that it is sent."""
    import socket

    socket.send_fds(channel, [b"\0"], files)


def taken_over(channel: "socket.socket") -> "list[mmap.mmap]":
    """The content of the files that were handed over, mapped and closed; raises EOFError where nobody does."""
    import mmap
    import socket

    begun, files, _, _ = socket.recv_fds(channel, 1, MOST_FILES)
    if not begun:
        raise EOFError
    mapped = []
    for file in files:
        mapped.append(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
        os.close(file)
    return mapped


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
