"""Commands as processes that need no start of Python: a warm process forks for each, and `main` runs in the fork.

What a command imports is there already; all else is its own: environment, folder, streams, exit code. With
DUCKKB_TEST_FORK=0 every command starts from nothing, as it does for users. `duckkb` in a shell script comes by a socket.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

PATIENCE = 300.0
_WARM = (
    "actions.asking", "actions.caring", "actions.collecting", "actions.branches", "actions.reading",
    "actions.tracing", "actions.vector_run", "actions.writing", "actions.diffing", "actions.folder", "actions.impact",
    "app.knowledge", "actions.branches", "actions.vector_store", "lanes.type_lanes", "lanes.lexical.lexical",
    "lanes.sql.tables", "cli.verbs.base", "cli.verbs.care", "cli.verbs.collect", "cli.verbs.diff", "cli.verbs.find", "cli.git_driver", "cli.verbs.health",
    "cli.verbs.impact", "cli.verbs.index", "cli.lines", "cli.main", "cli.verbs.merge", "cli.verbs.propose", "cli.verbs.provenance", "cli.verbs.read",
    "cli.verbs.vector", "cli.verbs.write", "engine.at", "engine.graph", "engine.guard", "engine.index.plan", "engine.index.repair", "engine.write",
    "indexing.cache_format", "indexing.chinese", "indexing.cache_store", "indexing.tokens",
    "llm.providers.local", "ontology.presets", "ontology.snapshot", "review.reports.formats",
    "review.diff.markdown", "review.diff.patch", "review.diff.text", "review.impact.impact_report", "review.merging.merge",
    "review.merging.resolve", "review.propose", "review.provenance.history", "review.impact.why",
    "truth.git.git_changes", "truth.git.patch", "truth.files.render",
)  # fmt: skip
_LIBRARIES = ("git", "jsonschema_rs", "numpy.ma", "numpy.typing", "rjieba")
# What `duckkb` is in a script: it hands its streams and all else to the warm process, and ends as the command does.
_CLIENT = """\
import array, json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
asked = json.dumps({"args": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
server.sendmsg([len(asked).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
server.sendall(asked)
code = int(server.recv(16) or b"70")
os._exit(code if code >= 0 else 128 - code)
"""


class Forks:
    """The warm process, and what the commands print."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks")
        self._lock = threading.Lock()
        self._count = 0
        self._socket = str(Path(self._folder.name, "socket"))
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", __file__, self._socket],
            cwd=self._folder.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self.close)

    def run(self, args: Sequence[str], root: Path, stdin: bytes, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Exit code (negative: the signal that ended it), stdout and stderr of one command."""
        with self._lock:
            self._count += 1
            place = Path(self._folder.name, str(self._count))
        (given, out, err) = (place.with_suffix(end) for end in (".in", ".out", ".err"))
        given.write_bytes(stdin)
        streams = {"stdin": str(given), "out": str(out), "err": str(err)}
        pid = self._ask({"args": list(args), "cwd": str(root), "env": dict(env), **streams})
        deadline, pause = time.monotonic() + PATIENCE, 0.001
        while (code := self._ask({"wait": pid})) is None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(0.01, pause * 1.2)
        said = out.read_bytes(), err.read_bytes()
        for path in (given, out, err):
            path.unlink()
        return code, *said

    def _ask(self, what: dict[str, Any]) -> Any:
        with self._lock:
            assert self._server.stdin is not None and self._server.stdout is not None
            self._server.stdin.write(json.dumps(what).encode() + b"\n")
            self._server.stdin.flush()
            return json.loads(self._server.stdout.readline())

    def script(self) -> str:
        """The text of a program for /bin/sh that runs a command line by the warm process."""
        client = Path(self._folder.name, "client.py")
        client.write_text(_CLIENT, "utf-8")
        self._ask({})  # it listens
        return f'#!/bin/sh\nexec {sys.executable} -I -S {client} {self._socket} "$@"\n'

    def close(self) -> None:
        self._server.communicate(timeout=PATIENCE)
        self._folder.cleanup()


@lru_cache(maxsize=1)
def forks() -> Forks:
    """The one warm process of this test process."""
    return Forks()


def serve(place: str) -> None:
    """Answer until stdin ends: a command with the PID of its process, a question for a PID with its exit code or null.
    Scripts come by the socket at `place`."""
    from importlib import import_module

    for name in (*(f"duckkb.{name}" for name in _WARM), *_LIBRARIES):
        import_module(name)
    commands, scripts = os.fdopen(os.dup(0), "rb", buffering=0), socket.socket(socket.AF_UNIX)
    scripts.bind(place)
    scripts.listen(100)
    left: list[int] = []
    while True:
        ready, _, _ = select.select([commands, scripts], [], [])
        if scripts in ready:
            left.append(_hosted(scripts, commands.fileno()))
            left = [pid for pid in left if not os.waitpid(pid, os.WNOHANG)[0]]
        if commands in ready:
            line = commands.readline()
            if not line:
                return
            os.write(1, json.dumps(_answer(json.loads(line), commands.fileno(), scripts)).encode() + b"\n")


def _answer(asked: dict[str, Any], commands: int, scripts: socket.socket) -> int | None:
    if "wait" in asked:
        ended, status = os.waitpid(asked["wait"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    if not asked:
        return None
    pid = os.fork()
    if pid == 0:
        scripts.close()
        os.close(commands)
        streams = []
        for number, path in enumerate((asked["stdin"], asked["out"], asked["err"])):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
            streams.append(os.open(path, flags, 0o644))
        _become(asked, streams)
    return pid


def _hosted(scripts: socket.socket, commands: int) -> int:
    """A process that starts the command a script asks for, waits, and tells the script how it ended; its PID."""
    caller, _ = scripts.accept()
    with caller:
        host = os.fork()
        if host:
            return host
        scripts.close()
        os.close(commands)
        head, streams, _, _ = socket.recv_fds(caller, 8, 3)
        asked = caller.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        command = os.fork()
        if command == 0:
            caller.detach()
            _become(json.loads(asked), streams)
        for number in (*streams, 0, 1, 2):
            os.close(number)
        _, status = os.waitpid(command, 0)
        caller.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)


def _become(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    from duckkb.__main__ import main

    for number, opened in enumerate(streams):
        os.dup2(opened, number)
    os.closerange(3, 256)
    # What the streams know of their files is not so any more.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, errors = ("w" if number else "r"), ("backslashreplace" if number == 2 else "strict")
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors=errors, newline="\n", closefd=False))
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = ["duckkb", *asked["args"]]
    try:
        main()
    finally:
        os._exit(70)


if __name__ == "__main__":
    serve(sys.argv[1])
