"""Values between a server and its workers, each as its length and its bytes.

They are pickled: both ends are processes of duckkb, the sockets between them have no name, and no other process
gets one.
"""

import pickle
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.actions.folder import OpenOptions
from duckkb.actions.registry.answers import plain
from duckkb.caller import Caller
from duckkb.errors import DuckkbError
from duckkb.steps import Step

_LENGTH = struct.Struct(">Q")


class Start(Struct, frozen=True):
    """The base that a worker serves, as the arguments of `Served`."""

    path: str | Path | None
    chosen: OpenOptions
    longest: float | None = 0


class Stop(Struct, frozen=True):
    """A message that nobody waits for the answer to the request of this number, from 1, at this channel."""

    channel: int
    number: int


class Request(Struct, frozen=True):
    """An action, its arguments and its caller.

    It is asked of the base at `commit`, where one is named, and of the tenant's proposal, where there is a
    `message` for what is written. `is_traced`: the steps of the answer are wanted.
    """

    name: str
    given: Mapping[str, Any]
    caller: Caller
    commit: str | None = None
    is_traced: bool = False
    message: str | None = None


class Reply(Struct, frozen=True):
    """The outcome of a request: an answer, an error of duckkb by its class and content, or neither.

    Neither means a defect, which is in the worker's log.
    """

    answer: dict[str, Any] | None = None
    error: tuple[type[DuckkbError], dict[str, Any]] | None = None
    steps: tuple[Step, ...] = ()

    @classmethod
    def from_error(cls, problem: DuckkbError) -> "Reply":
        """Return the reply for an error, whose details become plain data, as they are shown."""
        return cls(error=(type(problem), {**vars(problem), "details": plain(dict(problem.details))}))

    def value(self) -> dict[str, Any]:
        """Return the answer. Raises the error, `Defect` where there is neither."""
        if self.error is not None:
            kind, attributes = self.error
            problem = kind.__new__(kind)
            problem.__dict__.update(attributes)
            raise problem
        if self.answer is None:
            raise Defect
        return self.answer


class Defect(Exception):
    """A failure in a worker that duckkb does not expect."""


def pack_frame(value: Any) -> bytes:
    """Pack a value for `send`. Raises RecursionError for one that is nested too deeply."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def send(channel: socket.socket, frame: bytes) -> None:
    """Send a frame. Raises OSError where nobody is at the other end."""
    channel.sendall(_LENGTH.pack(len(frame)) + frame)


def receive(channel: socket.socket) -> Any:
    """Receive the next value. Raises EOFError or OSError where none comes any more."""
    (length,) = _LENGTH.unpack(_receive_bytes(channel, _LENGTH.size))
    return pickle.loads(_receive_bytes(channel, length))


def _receive_bytes(channel: socket.socket, length: int) -> bytearray:
    buffer = bytearray(length)
    remainder = memoryview(buffer)
    while remainder:
        count = channel.recv_into(remainder)
        if not count:
            raise EOFError
        remainder = remainder[count:]
    return buffer
