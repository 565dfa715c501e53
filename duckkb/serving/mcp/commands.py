"""What `duckkb mcp` does. The libraries behind it are imported here alone, when they are needed: they cost more than most
commands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb.errors import Refused
from duckkb.values import dataclass

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from duckkb.actions.folder import OpenOptions

_CLOSE_S = 0.4

BasePath = str | Path | None
"""Where the base lies, as `app.open` takes it."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens on this machine (port 0: one that is free), how many sessions it keeps, and how many seconds one may
    be idle. `in_background`: it is the one that `stop` ends."""

    port: int = 8181
    sessions: int = 100
    idle: float = 1800.0
    in_background: bool = False


def serve_stdio(path: BasePath, chosen: "OpenOptions") -> None:
    """Serve one client over stdin and stdout until it goes or a signal comes. Raises `errors.Refused` (E_REFUSED) without the
    extra `serve`."""
    _refuse_without_libraries()
    from duckkb.serving.mcp import stdio

    with _server(path, chosen) as server:
        stdio.serve(server)


def serve_http(
    path: BasePath, chosen: "OpenOptions", listening: Listening, tell: Callable[[dict[str, Any]], None]
) -> None:
    """Serve over HTTP until a signal comes; `tell` is given the `url`, and where the `token` is found, once requests are taken.
    Raises `errors.StateError` (E_NO_KB), `errors.Unavailable` (E_PORT, E_TENANTS, E_IO), `errors.Refused` (E_SERVING)."""
    _refuse_without_libraries()
    from duckkb.actions.folder import find
    from duckkb.serving.mcp import http
    from duckkb.serving.mcp.daemon import Daemon
    from duckkb.serving.tenants import BearerTokens

    root = find(path)
    tokens = BearerTokens(root)
    token, daemon = tokens.prepare(), Daemon.of(root)
    held = daemon.hold() if listening.in_background else None
    with _server(path, chosen) as server, http.bind(listening.port) as bound:
        url = http.url_of(bound)

        def ready() -> None:
            if held is not None:
                daemon.tell(held, url)
            tell({"url": url, "token": token})

        http.serve(http.McpApp(server, tokens, http.SessionLimits(listening.sessions, listening.idle)), bound, ready)


def start(path: BasePath, command: list[str]) -> dict[str, Any]:
    """Start `serve_http` in the background, by this command line; its `pid` and `url`. As `daemon.Daemon.start`."""
    _refuse_without_libraries()
    from duckkb.actions.folder import find
    from duckkb.serving.mcp.daemon import Daemon

    return Daemon.of(find(path)).start(command)


def stop(path: BasePath) -> dict[str, Any]:
    """End that one; its `pid` and `url`. As `daemon.Daemon.stop`."""
    from duckkb.actions.folder import find
    from duckkb.serving.mcp.daemon import Daemon

    return Daemon.of(find(path)).stop()


@contextmanager
def _server(path: BasePath, chosen: "OpenOptions") -> "Iterator[Server[Any]]":
    """A server of a base, which is closed afterwards unless a call holds it up."""
    from duckkb.serving import running
    from duckkb.serving.mcp.served import Served
    from duckkb.serving.mcp.server import make

    served = Served(path, chosen)
    try:
        yield make(served)
    finally:
        running.finish(served.close, _CLOSE_S)


def _refuse_without_libraries() -> None:
    if not all(find_spec(name) for name in ("mcp", "uvicorn", "starlette")):
        raise Refused("serving needs the extra `serve`", suggestion="pip install 'duckkb[serve]'")
