"""The warm process of a base: where it is found, how it starts, and how it ends."""

import ctypes
import gc
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from duckkb import config, warm_client
from duckkb.app import wiring
from duckkb.operations.lifecycle import find
from duckkb.server.server_daemon import Daemon
from duckkb.server.tenant_files import refuse_foreign
from duckkb.server.warm_process import Commands, Patience, Warm
from duckkb.types.errors import DuckkbError, NotFound, Refused, Unavailable

_BACKLOG = 16
_START_S, _LOOK_S = 120.0, 0.02


def place(path: str | Path | None) -> Daemon:
    """Return the warm process of a caller's base.

    Raises `errors.StateError` (E_NO_KB), `errors.Refused` (E_WARM) where its socket would lie in files that git
    delivers, and where the system cannot identify clients.
    """
    root = find(path).resolve()
    if not hasattr(socket, "SO_PEERCRED") or not Path("/proc/self/status").exists():
        raise Refused(
            "this system does not identify callers, so no warm process is started", "E_WARM", "leave --warm out"
        )
    folder = Path(warm_client.run_folder())
    if config.apart(root, folder) != folder:
        raise Refused(
            f"{folder} is inside the base", "E_WARM", "set XDG_RUNTIME_DIR or XDG_STATE_HOME to a folder outside of it"
        )
    return Daemon(root, folder)


def start(path: str | Path | None, idle: float) -> dict[str, Any]:
    """Start the warm process, and wait until it answers; return `pid` and `socket`, even of one that runs already."""
    daemon = place(path)
    try:
        return _describe_daemon(daemon.start(["serve", "--warm", "--in-background", "--idle", str(idle)]))
    except (Refused, Unavailable):  # it runs already, or another start was faster
        deadline = time.monotonic() + _START_S
        while (server := daemon.read_status()) is not None:
            if server or time.monotonic() > deadline:
                return _describe_daemon(server)
            time.sleep(_LOOK_S)
        raise


def stop(path: str | Path | None) -> dict[str, Any]:
    """End the warm process; return its `pid` and `socket`.

    Raises `errors.NotFound` (E_WARM) where none runs, `errors.Unavailable` where it does not end.
    """
    daemon = place(path)
    try:
        return _describe_daemon(daemon.stop())
    except NotFound as problem:
        raise NotFound(f"no warm process of {daemon.root} is running", "E_WARM", "duckkb serve --warm") from problem


def serve(path: str | Path | None, commands: Commands, patience: Patience) -> None:
    """Be the warm process until it is to end.

    Raises `errors.Refused` (E_SERVING) where another is, `errors.Unavailable` (E_TENANTS) where others can
    reach the folder of its socket.
    """
    daemon = place(path)
    descriptor = daemon.hold()
    refuse_foreign(daemon.folder, daemon.folder.lstat(), folder=True)
    target = warm_client.socket_of(os.fspath(daemon.root), os.fspath(daemon.folder))
    warm = Warm(daemon.root, commands, patience)
    if not stat.S_ISREG(os.fstat(2).st_mode):
        os.dup2(os.memfd_create("printed"), 2)
    os.dup2(2, 1)  # the size of this file reveals what a library prints past Python
    os.chdir("/")
    commands.hold()
    with suppress(DuckkbError):  # the next command reports it
        wiring.warm_up(daemon.root)
    gc.collect()
    gc.freeze()
    with _open_listener(target) as listener:
        daemon.tell(descriptor, target)
        try:
            warm.serve(listener, target)
        finally:
            with suppress(OSError):
                Path(target).unlink()


def start_after_question(path: str | None) -> None:
    """Start the warm process in the background after an embedded question, where this machine wants it.

    Nobody waits for it, and its errors are dropped.
    """
    with suppress(DuckkbError, OSError, ValueError):
        if config.read_environment(find(path)).daemon == "auto":
            daemon = place(path)
            if daemon.read_status() is None:
                daemon.begin(["serve", "--warm", "--in-background"])


def let_go() -> None:
    """Free memory that only the next question needs."""
    wiring.keep_models(False)
    gc.unfreeze()
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _open_listener(target: str) -> socket.socket:
    """Open a socket for this user alone; it appears once it takes requests.

    Raises `errors.Unavailable` (E_IO).
    """
    listener = socket.socket(socket.AF_UNIX)
    draft = f"{target[:-5]}.{os.getpid()}"
    before = os.umask(0o177)
    try:
        Path(draft).unlink(missing_ok=True)
        listener.bind(draft)
        listener.listen(_BACKLOG)
        Path(draft).rename(target)
    except OSError as error:
        listener.close()
        message = f"{target} cannot be made: {error.strerror or error}"
        raise Unavailable(message, "E_IO", "set XDG_RUNTIME_DIR to a folder of yours with a short name") from error
    finally:
        os.umask(before)
    return listener


def _describe_daemon(server: dict[str, Any]) -> dict[str, Any]:
    return {"pid": server.get("pid"), "socket": server.get("url")}
