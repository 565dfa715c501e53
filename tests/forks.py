"""Commands as processes that need no start of Python: a warm process forks for each, and `main` runs in the fork.

What a command imports is there already; all else is its own: environment, folder, streams, exit code. With
DUCKKB_TEST_FORK=0 every command starts from nothing, as it does for users.
"""

import atexit
import json
import os
import signal
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
    "app.knowledge", "backends.duckdb.backend", "backends.duckdb.lexical", "backends.duckdb.tables", "cli.base", "cli.care",
    "cli.collect", "cli.find", "cli.health", "cli.index", "cli.lines", "cli.main", "cli.read", "cli.table", "cli.vector", "cli.write",
    "indexing.cache_format", "ontology.presets",
)  # fmt: skip


class Forks:
    """The warm process, and what the commands print."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks")
        self._lock = threading.Lock()
        self._count = 0
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", __file__],
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

    def close(self) -> None:
        self._server.communicate(timeout=PATIENCE)
        self._folder.cleanup()


@lru_cache(maxsize=1)
def forks() -> Forks:
    """The one warm process of this test process."""
    return Forks()


def serve() -> None:
    """Answer until stdin ends: a command with the PID of its process, a question for a PID with its exit code or null."""
    from importlib import import_module

    for name in _WARM:
        import_module(f"duckkb.{name}")
    commands = os.fdopen(os.dup(0), "rb", buffering=0)
    while line := commands.readline():
        asked = json.loads(line)
        answer: int | None
        if "wait" in asked:
            ended, status = os.waitpid(asked["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        else:
            answer = os.fork() or _become(asked, commands.fileno())
        os.write(1, json.dumps(answer).encode() + b"\n")


def _become(asked: dict[str, Any], commands: int) -> NoReturn:
    from duckkb.__main__ import main

    for number, path in ((0, asked["stdin"]), (1, asked["out"]), (2, asked["err"])):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.close(commands)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = ["duckkb", *asked["args"]]
    try:
        main()
    finally:
        os._exit(70)


if __name__ == "__main__":
    serve()
