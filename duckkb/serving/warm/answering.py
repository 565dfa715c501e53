"""The warm process: it takes one command line after another, and answers or refuses it."""

import gc
import os
import select
import socket
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from duckkb import warm_client
from duckkb.serving.warm import installation, peer
from duckkb.serving.warm.streams import NotServed, take_streams
from duckkb.warm_client import ANSWER, BEGUN, HEAD, LARGEST, OTHER, make_frame

TICK_S, TAKE_S, GIVE_S = 2.0, 1.0, 10.0
MEMORY_S = 300.0
_INTERNAL = (b"E_INTERNAL", b"a defect in duckkb")


class Commands(Struct, frozen=True):
    """The functions with which a warm process runs commands.

    `run` prints to `sys.stdout` and `sys.stderr`, and returns the exit code. `is_asked_to_end` returns whether
    a signal asked this process to end. `let_go` frees memory once nobody asked for a while, and `hold` undoes
    that for the next command.
    """

    run: Callable[[list[str]], int]
    is_asked_to_end: Callable[[], bool]
    hold: Callable[[], None]
    let_go: Callable[[], None]


class Patience(Struct, frozen=True):
    """The seconds without a command until memory is freed, and until the process ends."""

    memory: float
    life: float


class Warm:
    """The warm process of the base in the folder `root`, which is its resolved path.

    It is created before anything changes the environment. It controls this process's folder, umask, streams and
    warnings, so a process has only one.
    """

    def __init__(self, root: Path, commands: Commands, patience: Patience) -> None:
        self._root, self._commands, self._patience = root, commands, patience
        self._identity = warm_client.identity(os.fspath(root))
        self._installation = installation.stamps()
        self._standing = peer.read_rights("self")

    def serve(self, listener: socket.socket, target: str) -> None:
        """Answer at the socket `target` until nobody asked for long, or the base, the socket or the installation
        changed.
        """
        place = os.lstat(target).st_ino
        last, holds = time.monotonic(), True
        while not self._commands.is_asked_to_end():
            if select.select([listener], [], [], TICK_S)[0]:
                if not holds:
                    self._commands.hold()
                line, _ = listener.accept()
                with line:
                    self._take(line)
                last, holds = time.monotonic(), True
                gc.collect()
                continue
            idle = time.monotonic() - last
            if idle > self._patience.life or not self._is_current(target, place):
                return
            if holds and idle > self._patience.memory:
                self._commands.let_go()
                holds = False

    def _is_current(self, target: str, place: int) -> bool:
        try:
            here = os.lstat(target).st_ino
            (self._root / "config.yaml").lstat()
        except OSError:
            return False
        return here == place and not installation.is_changed(self._installation)

    def _take(self, line: socket.socket) -> None:
        """Answer a client; one that leaves, or does not match this process, is no error."""
        line.settimeout(TAKE_S)
        descriptors: list[int] = []
        try:
            pid = peer.pid_of(line)
            if pid is None:
                return
            words = self._read_words(line)
            if not self._is_like(pid):
                raise NotServed("the caller has other rights or limits")
            descriptors += peer.streams(pid)
            line.sendall(make_frame(BEGUN))
            answer = self._answer(words, pid, descriptors)
            line.settimeout(GIVE_S)
            line.sendall(make_frame(ANSWER, answer))
        except NotServed as why:
            with suppress(OSError):
                line.sendall(make_frame(OTHER, str(why).encode()))
        except (OSError, ValueError):
            return
        finally:
            for number in descriptors:
                os.close(number)

    def _read_words(self, line: socket.socket) -> list[str]:
        """Read the command line, once the client's environment equals this process's.

        Raises `NotServed`, OSError, ValueError.
        """
        header = b""
        while len(header) < 1 + HEAD:
            header += self._receive_bytes(line, 1 + HEAD - len(header))
        size = int.from_bytes(header[1:], "little")
        if header[:1] != BEGUN or size > LARGEST:
            raise ValueError("no frame")
        body = bytearray()
        while len(body) < size:
            body += self._receive_bytes(line, size - len(body))
        count, *fields = bytes(body).split(b"\0")
        identity = fields[: int(count)]
        if identity != self._identity:
            raise NotServed("another base, environment, Python or duckkb")
        if installation.is_changed(self._installation):
            raise NotServed("duckkb or a library was changed since")
        return [os.fsdecode(word) for word in fields[len(identity) :]]

    def _receive_bytes(self, line: socket.socket, size: int) -> bytes:
        data = line.recv(min(size, 1 << 20))
        if not data:
            raise ValueError("a torn frame")
        return data

    def _is_like(self, pid: int) -> bool:
        return peer.read_rights(pid) == self._standing

    def _answer(self, words: list[str], pid: int, descriptors: list[int]) -> bytes:
        """Run a command in the client's folder and under its umask; return exit code and output.

        Raises `NotServed`, OSError.
        """
        before = os.umask(peer.umask(pid)), os.fstat(2).st_size
        try:
            os.chdir(f"/proc/{pid}/cwd")
            sys.argv[1:] = words
            with warnings.catch_warnings(), take_streams(descriptors) as output:
                code = self._commands.run(words)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise NotServed(f"it ended with {type(error).__name__}") from error
        finally:
            os.umask(before[0])
            os.chdir("/")
        answer = output.answer(code)
        if (
            self._commands.is_asked_to_end()
            or os.fstat(2).st_size != before[1]
            or any(marker in answer for marker in _INTERNAL)
        ):
            raise NotServed("it did not end as it should")
        return answer
