"""Who asks: a process of this user, of which the kernel says what else an answer depends on."""

import os
import socket
import stat
import struct
from pathlib import Path

_OF_STATUS = ("Uid", "Gid", "Groups", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Seccomp")
_LIMITS = ("Max cpu time", "Max file size", "Max data size", "Max address space")
_SPACES = ("mnt", "net", "pid", "user")


def pid_of(line: socket.socket) -> int | None:
    """The process at the other end; None where it is not this user's."""
    pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid if uid == os.geteuid() else None


def read_rights(pid: int | str) -> list[object]:
    """The rights of a process, its limits, and the part of the system that it sees. Raises OSError."""
    status = _read_status(pid)
    with Path(f"/proc/{pid}/limits").open(encoding="ascii") as lines:
        limits = [line for line in lines if line.startswith(_LIMITS)]
    spaces = [Path(f"/proc/{pid}/ns/{name}").readlink() for name in _SPACES]
    return [*(status.get(name) for name in _OF_STATUS), limits, spaces, Path(f"/proc/{pid}/root").readlink()]


def streams(pid: int) -> list[int]:
    """Descriptors in the place of the three streams of a process: its terminals, which tell that they are, and how wide; else
    nothing, so that no pipe of its stays open here. Raises OSError, also where it lacks one."""
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
    """Raises OSError."""
    return int(_read_status(pid)["Umask"], 8)


def _read_status(pid: int | str) -> dict[str, str]:
    with Path(f"/proc/{pid}/status").open(encoding="utf-8", errors="replace") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
