"""Messages between a process and the one that runs its statements: a length in 8 bytes, then JSON in UTF-8."""

import json
import struct
from typing import IO, Any

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


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
