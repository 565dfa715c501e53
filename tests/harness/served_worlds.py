"""A base of `worlds` behind a server that is a process of its own, asked byte by byte, whatever route is asked.

As a script it is `duckkb` with the embedder and the clock of `worlds`; with WORLDS_LEFT_OUT it is a server that asks the whole base
and leaves out of each answer what the caller may not see. Given numbers it is a worker of such a server.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb.__main__ import main
from duckkb.server import pool_worker, tenant_changes, worker_channel
from duckkb.server.dispatcher import Served
from duckkb.types.request_context import Caller
from tests.fakes import HashEmbedder
from tests.harness import forks, worlds
from tests.harness.servers import Server, ask, served
from tests.harness.waiting import wait_until

_LEFT_OUT = "WORLDS_LEFT_OUT"
_DIFFER = {"date", "x-request-id"}


@dataclass(frozen=True)
class Reply:
    """Of an answer all that its client can read, but what names the moment."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Door:
    """A server of a base, and the tokens of a viewer and an editor who may see `worlds.GRANTED`."""

    def __init__(self, server: Server, tokens: Mapping[str, str]) -> None:
        self._connection, self._tokens = server.connection(), tokens

    def ask(self, method: str, route: str, role: str, body: Any = None, headers: Mapping[str, str] = {}) -> Reply:
        found, told = ask(self._connection, method, route, self._tokens[role], body, headers)
        kept = [(name.lower(), value) for name, value in found.getheaders() if name.lower() not in _DIFFER]
        return Reply(found.status, tuple(sorted(kept)), told)


@contextmanager
def door(root: Path, *, left_out: bool = False, workers: int = 0) -> Iterator[Door]:
    tokens = tokens_of(root)
    around = {"DUCKKB_CACHE_HOME": str(root.with_name(f"{root.name}-cache")), **({_LEFT_OUT: "1"} if left_out else {})}
    log, program = root.with_name(f"{root.name}-log"), "tests.harness.served_worlds"
    args = ("serve", "--log", "off", "--workers", str(workers))
    with served(root, *args, log=log, program=program, **around) as server:
        asked = Door(server, tokens)
        wait_until(lambda: asked.ask("GET", "/ready", "viewer").status == 200)  # not before its last worker came up
        yield asked


def tokens_of(root: Path) -> dict[str, str]:
    """A viewer and an editor, who are granted also types that the base has not, or no longer."""
    tokens, granted = dict[str, str](), tuple(sorted(worlds.GRANTED))
    for role in ("viewer", "editor"):
        tokens[role] = tenant_changes.add(root, role, (), role)["token"]  # type: ignore[arg-type]
        tenant_changes._change(root, "grant", role, lambda all, id=role: replace(all[id], types=granted), 60)  # type: ignore[misc]
    return tokens


def printed(root: Path, args: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of `duckkb` with the embedder and the clock of `worlds`."""
    around = {**os.environ, "PYTHONUTF8": "1", "DUCKKB_CACHE_HOME": str(root.with_name(f"{root.name}-cache"))}
    if forks.possible():
        return forks.forks().output(f"{__name__}:command", args, root, env=around)
    command = [sys.executable, "-m", __name__, *args]
    around["PYTHONPATH"] = str(forks.ROOT)
    done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, env=around, check=False)
    return done.returncode, done.stdout, done.stderr


def command(*args: str) -> None:
    _as_worlds()
    forks.command(*args)


def _as_worlds() -> None:
    begin = Served.__init__

    def as_worlds(self: Served, path: Any, chosen: Any, *more: Any) -> None:
        begin(self, path, replace(chosen, embedder=HashEmbedder(), clock=worlds.CLOCK), *more)

    Served.__init__ = as_worlds  # type: ignore[method-assign]


def _serve() -> None:
    run = Served.run

    def leaving_out(self: Served, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        return worlds.left_out(run(self, name, given, replace(caller, types=None)))

    _as_worlds()
    if os.environ.get(_LEFT_OUT):
        Served.run = leaving_out  # type: ignore[method-assign]
    if all(map(str.isdigit, sys.argv[1:])):
        pool_worker.main(sys.argv[1:])
    worker_channel.PROGRAM = ("-m", "tests.harness.served_worlds")
    main()


if __name__ == "__main__":
    _serve()
