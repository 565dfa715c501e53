"""`serve --daemon`: one server of a base in the background, recorded in the user's state folder, ended by `serve
stop`.

The server locks that file for as long as it lives, so the file of a killed server counts for nothing, whichever
process has its number now.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from duckkb import config, locks
from duckkb.atomic_write import NO_FOLLOW
from duckkb.server.tenant_files import refuse_foreign
from duckkb.types.errors import DuckkbError, NotFound, Refused, Unavailable, shell_word

_START_S, _END_S, _HOLD_S, _LOOK_S = 120.0, 15.0, 1.0, 0.02
_MOST_BYTES = 10_000


class Daemon(Struct, frozen=True):
    """The background server of the base in the folder `root`, which is its resolved path."""

    root: Path
    folder: Path

    @classmethod
    def from_root(cls, root: Path) -> "Daemon":
        place = root.resolve()
        return cls(place, config.read_environment(place).state_home / "mcp")

    def start(self, command: Sequence[str]) -> dict[str, Any]:
        """Start a server by a command line of duckkb, which must `hold` this; return its `pid` and `url` once it
        is ready.

        Raises `errors.Refused` (E_SERVING) where one serves already, `errors.Unavailable` (E_SERVING, E_IO)
        where it does not start.
        """
        running = self.read_status()
        if running is not None:
            raise _build_serving_refusal(running)
        with os.fdopen(self._open_file("log", os.O_WRONLY | os.O_TRUNC), "wb") as log:
            child = self.begin(command, log)
        deadline = time.monotonic() + _START_S
        while child.poll() is None and time.monotonic() < deadline:
            server = self.read_status()
            if server is not None and server.get("pid") == child.pid:
                return server
            time.sleep(_LOOK_S)
        child.kill()
        child.wait()
        log_file = self._path("log")
        output = " ".join(log_file.read_text("utf-8", "replace").split())[-500:] or "it said nothing"
        raise Unavailable(f"the server did not start: {output}", "E_SERVING", f"cat {shell_word(str(log_file))}")

    def begin(self, command: Sequence[str], log: "IO[bytes] | int" = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """Start a process of a command line of duckkb that shares nothing with this one. Raises OSError."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "duckkb", "--kb", str(self.root), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=self.root.anchor,
            start_new_session=True,
        )

    def hold(self) -> int:
        """Become the base's server until this process ends; return a descriptor for `tell`.

        Raises `errors.Refused` (E_SERVING) where another is, `errors.Unavailable` (E_IO).
        """
        descriptor = self._open_file("pid", os.O_RDWR)
        # Another process may be checking the lock at this moment.
        if not locks.wait_for_lock(descriptor, exclusive=True, deadline=time.monotonic() + _HOLD_S):
            raise _build_serving_refusal(_read(descriptor))
        os.ftruncate(descriptor, 0)
        return descriptor

    def tell(self, descriptor: int, url: str) -> None:
        """Publish that the server takes requests at `url`."""
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode(), 0)

    @classmethod
    def describe(cls, root: Path) -> dict[str, Any] | None:
        """Describe the server of the base in a folder as `running` does; `error` where others can access its file."""
        try:
            return cls.from_root(root).read_status()
        except DuckkbError as problem:
            return {"error": problem.message}

    def read_status(self) -> dict[str, Any] | None:
        """Return the `pid` and `url` of the server, `{}` while it starts; None where none serves.

        Raises `errors.Unavailable`.
        """
        if not self._path("pid").exists():
            return None
        descriptor = self._open_file("pid", os.O_RDONLY)
        try:
            return None if locks.try_lock(descriptor, exclusive=False) else _read(descriptor)
        finally:
            os.close(descriptor)

    def stop(self) -> dict[str, Any]:
        """End the server, and no other process; return its `pid` and `url`.

        Raises `errors.NotFound` (E_SERVING) where none serves, `errors.Unavailable` (E_SERVING) where it does
        not end.
        """
        server = self.read_status()
        if server is None:
            raise NotFound(f"no background server of {self.root} is running", "E_SERVING", "duckkb serve --daemon")
        pid = server.get("pid")
        if not isinstance(pid, int):
            raise Unavailable("the server is starting", "E_SERVING", "ask again in a moment")
        with suppress(ProcessLookupError):
            self._end(pid, server)
        deadline = time.monotonic() + _END_S
        while self.read_status() == server:
            if time.monotonic() > deadline:
                raise Unavailable(f"the server ({pid}) does not stop", "E_SERVING", f"kill -9 {pid}")
            time.sleep(_LOOK_S)
        return server

    def _end(self, pid: int, server: dict[str, Any]) -> None:
        """End the process, if the lock is still held once a handle to it is open; raises ProcessLookupError.

        The handle keeps the process number from being reused.
        """
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGTERM)
            return
        process = os.pidfd_open(pid)
        try:
            if self.read_status() == server:
                signal.pidfd_send_signal(process, signal.SIGTERM)
        finally:
            os.close(process)

    def _path(self, kind: str) -> Path:
        return self.folder / f"{sha256(os.fsencode(self.root)).hexdigest()[:32]}.{kind}"

    def _open_file(self, kind: str, flags: int) -> int:
        """Open a file of this user alone, created where it is missing.

        Raises `errors.Unavailable` (E_IO, E_TENANTS).
        """
        path = self._path(kind)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, flags | os.O_CREAT | NO_FOLLOW, 0o600)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror or error}"
            raise Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base") from error
        try:
            refuse_foreign(path, os.fstat(descriptor))
        except Unavailable:
            os.close(descriptor)
            raise
        return descriptor


def _read(descriptor: int) -> dict[str, Any]:
    with suppress(ValueError):
        value = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return value if isinstance(value, dict) else {}
    return {}


def _build_serving_refusal(server: dict[str, Any]) -> Refused:
    where = f" at {server['url']} (process {server['pid']})" if server else ""
    return Refused(f"a background server of this base is already running{where}", "E_SERVING", "duckkb serve stop")
