"""The warm process: it takes one command line after another, and answers or refuses it.

The client of a warm process: a process of this user; the kernel tells what else an answer depends on.

The output of a command, kept in order until it is complete; and an input that must not be read here.

Detects whether the installation on disk has changed since this process loaded it."""

import gc
import io
import os
import select
import socket
import stat
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec import Struct

import duckkb
from duckkb import warm_client
from duckkb.warm_client import ANSWER, BEGUN, HEAD, LARGEST, OTHER, make_frame

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OF_STATUS = ("Uid", "Gid", "Groups", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Seccomp")
_LIMITS = ("Max cpu time", "Max file size", "Max data size", "Max address space")
_SPACES = ("mnt", "net", "pid", "user")


def pid_of(line: socket.socket) -> int | None:
    """Return the process ID at the other end; None where it is not this user's."""
    pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid if uid == os.geteuid() else None


def read_rights(pid: int | str) -> list[object]:
    """Return the rights of a process, its limits, and its namespaces. Raises OSError."""
    status = _read_status(pid)
    with Path(f"/proc/{pid}/limits").open(encoding="ascii") as lines:
        limits = [line for line in lines if line.startswith(_LIMITS)]
    spaces = [Path(f"/proc/{pid}/ns/{name}").readlink() for name in _SPACES]
    return [*(status.get(name) for name in _OF_STATUS), limits, spaces, Path(f"/proc/{pid}/root").readlink()]


def streams(pid: int) -> list[int]:
    """Open descriptors in place of the three streams of a process.

    Terminals are opened, since they tell that they are terminals, and their width; other streams are replaced
    by nothing, so that no pipe stays open here. Raises OSError, also where a stream is missing.
    """
    descriptors: list[int] = []
    try:
        descriptors.extend(
            _open_terminal(f"/proc/{pid}/fd/{number}") or os.open(os.devnull, os.O_RDWR) for number in range(3)
        )
    except OSError:
        for number in descriptors:
            os.close(number)
        raise
    return descriptors


def _open_terminal(path: str) -> int | None:
    if not stat.S_ISCHR(Path(path).stat().st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    if os.isatty(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def umask(pid: int) -> int:
    """Return the umask of a process. Raises OSError."""
    return int(_read_status(pid)["Umask"], 8)


def _read_status(pid: int | str) -> dict[str, str]:
    with Path(f"/proc/{pid}/status").open(encoding="utf-8", errors="replace") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)


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


_Stamp = tuple[int, int, int]


def stamps() -> dict[Path, _Stamp | None]:
    """Return inode, size and time of change by path; None where the path is absent.

    The paths are every file of duckkb, as presets are data, the folders of libraries, and Python.
    """
    package_folder = Path(duckkb.__file__).parent
    libraries = [path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")]
    files = (path for path in package_folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    paths = [*files, package_folder, *libraries, Path(sys.executable), Path(sys.prefix, "pyvenv.cfg")]
    return {path: _stamp(path) for path in paths}


def is_changed(before: dict[Path, _Stamp | None]) -> bool:
    """Return whether any of these stamps has changed."""
    return any(_stamp(path) != old_stamp for path, old_stamp in before.items())


def _stamp(path: Path) -> _Stamp | None:
    try:
        file_stat = path.stat()
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns


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
        self._installation = stamps()
        self._standing = read_rights("self")

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
        return here == place and not is_changed(self._installation)

    def _take(self, line: socket.socket) -> None:
        """Answer a client; one that leaves, or does not match this process, is no error."""
        line.settimeout(TAKE_S)
        descriptors: list[int] = []
        try:
            pid = pid_of(line)
            if pid is None:
                return
            words = self._read_words(line)
            if not self._is_like(pid):
                raise NotServed("the caller has other rights or limits")
            descriptors += streams(pid)
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
        if is_changed(self._installation):
            raise NotServed("duckkb or a library was changed since")
        return [os.fsdecode(word) for word in fields[len(identity) :]]

    def _receive_bytes(self, line: socket.socket, size: int) -> bytes:
        data = line.recv(min(size, 1 << 20))
        if not data:
            raise ValueError("a torn frame")
        return data

    def _is_like(self, pid: int) -> bool:
        return read_rights(pid) == self._standing

    def _answer(self, words: list[str], pid: int, descriptors: list[int]) -> bytes:
        """Run a command in the client's folder and under its umask; return exit code and output.

        Raises `NotServed`, OSError.
        """
        before = os.umask(umask(pid)), os.fstat(2).st_size
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
