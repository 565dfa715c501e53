"""The client of a warm process: a process of this user; the kernel tells what else an answer depends on."""

import os
import socket
import stat
import struct
from pathlib import Path

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
