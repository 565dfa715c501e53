"""Values between a server and its workers, each as its length and its bytes.

They are pickled: both ends are processes of duckkb, the sockets between them have no name, and no other process
gets one.

A worker as its server sees it: a process, and the channels at which it answers."""

import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec import Struct

from duckkb import installed
from duckkb.llm.call_pool import CallCounts
from duckkb.operations.dispatch import plain
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.errors import DuckkbError
from duckkb.types.request_context import Caller, Step

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


SIDE_BY_SIDE = 2
"""Requests that one worker answers side by side: while one waits for a model, another is answered."""
CHANNELS = 8
"""Channels of a worker, with those for long requests that wait for the process of SQL."""
LAST_ANSWERS_S = 10.0
"""Seconds for which a worker that is to end continues with requests under way."""
PROGRAM: tuple[str, ...] = ("-P", "-m", "duckkb.server.pool_worker")
SILENT_S = 60.0
"""Seconds without a sign of life after which a worker hangs, and is killed; it sends one each second."""
_OLD_S = 10.0


class Worker:
    """A process that was started for a base. Raises OSError where none can be."""

    def __init__(self, start: Start) -> None:
        if why := installed.describe_replacement():
            raise OSError(why)
        pairs = [socket.socketpair() for _ in range(1 + CHANNELS)]
        theirs = [str(pair[1].fileno()) for pair in pairs]
        try:
            # It inherits only these sockets and stderr; the server handles an interrupt from the keyboard.
            self._process = subprocess.Popen(
                [sys.executable, *PROGRAM, *theirs],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[pair[1].fileno() for pair in pairs],
                start_new_session=True,
            )
        except OSError:
            for local_end, _ in pairs:
                local_end.close()
            raise
        finally:
            for _, remote_end in pairs:
                remote_end.close()
        self._control = pairs[0][0]
        self.channels = [Channel(self, place, local_end) for place, (local_end, _) in enumerate(pairs[1:])]
        self._saying = threading.Lock()
        self.pid, self.is_usable, self.was_ready = self._process.pid, False, False
        self.calls: list[CallCounts] = []
        self._since = monotonic()
        self._killed_later: threading.Timer | None = None
        with suppress(OSError):  # `is_ready` detects a process that has ended
            send(self._control, pack_frame(start))

    @property
    def busy(self) -> int:
        """The number of requests that it works on."""
        return sum(channel.is_busy for channel in self.channels)

    @property
    def is_old(self) -> bool:
        """Return whether the process has run for some seconds."""
        return monotonic() - self._since > _OLD_S

    def is_ready(self) -> bool:
        """Wait until the worker has opened the base; return whether it did.

        That may take minutes, during which the worker reports that it lives.
        """
        self._control.settimeout(SILENT_S)
        try:
            while receive(self._control) is None:
                pass
        except TimeoutError:
            self.kill()
            return False
        except (EOFError, OSError):
            return False
        threading.Thread(target=self._listen, daemon=True).start()
        return True

    def _listen(self) -> None:
        try:
            while True:
                self.calls = receive(self._control)
        except TimeoutError:
            self.kill()
        except (EOFError, OSError):
            return

    def end(self) -> None:
        """Ask the worker to end after the requests under way, within some seconds; do not wait."""
        if self._killed_later is None:
            self._killed_later = threading.Timer(LAST_ANSWERS_S + 1, self.kill)
            self._killed_later.daemon = True
            self._killed_later.start()
            self.tell(LAST_ANSWERS_S)

    def tell(self, what: object) -> None:
        """Send the worker a message; whether it has ended is detected elsewhere."""
        with suppress(OSError), self._saying:
            send(self._control, pack_frame(what))

    def kill(self) -> None:
        """Kill the worker at once."""
        self._process.kill()

    def wait(self) -> int:
        """Wait until the worker ends; return its exit code, or minus the number of the signal."""
        code = self._process.wait()
        self._control.close()
        if self._killed_later is not None:
            self._killed_later.cancel()
        return code


class Channel(Struct, eq=False):
    """A socket at which a worker answers one request at a time; `asked` is the number of the last one."""

    worker: Worker
    place: int
    socket: socket.socket
    is_busy: bool = False
    asked: int = 0

    def stop(self, number: int) -> None:
        """Ask the worker to stop a request for which nobody waits, if it still works on it."""
        self.worker.tell(Stop(self.place, number))
