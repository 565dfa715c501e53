"""MCP over streamable HTTP, on this machine alone: POST /mcp, without sessions, answers as JSON.

A client that wants a session opens one at /mcp?session=1; an id that was given to nobody, or whose session has ended, answers 404.
Every request carries a bearer token.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Literal
from urllib.parse import parse_qs

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from duckkb.errors import DuckkbError, Unavailable
from duckkb.serving import running
from duckkb.serving.lines import say, take_over
from duckkb.serving.mcp.server import AUDIT, CALLER
from duckkb.serving.tenants import BearerTokens, Denial, bearer
from duckkb.values import dataclass

MOST_BYTES = 4 * 1024 * 1024
_HOST = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_MOST_CONNECTIONS = 512
_LAST_ANSWERS_S = 5
_SESSION = "mcp-session-id"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions are open at most, and after how many seconds without a request one ends."""

    sessions: int = 100
    idle: float = 1800.0


class McpApp:
    """The ASGI application behind /mcp. `running` has to be held around its life."""

    def __init__(self, server: Server[Any], tokens: BearerTokens, limits: SessionLimits) -> None:
        self._tokens = tokens
        self._plain, self._sessions = (
            StreamableHTTPSessionManager(
                server,
                json_response=True,
                stateless=stateless,
                security_settings=TransportSecuritySettings(
                    allowed_hosts=[f"{name}:*" for name in _NAMES],
                    allowed_origins=[f"http://{name}:*" for name in _NAMES],
                ),
                max_request_body_size=MOST_BYTES,
                session_idle_timeout=limits.idle,
                max_sessions=limits.sessions,
            )
            for stateless in (True, False)
        )

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for one in (self._plain, self._sessions):
                await stack.enter_async_context(one.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        caller = await asyncio.to_thread(self._tokens.authenticate, bearer(headers.get("authorization")))
        if isinstance(caller, Denial):
            await asyncio.to_thread(self._note, caller)
            await _refused(caller.status, caller.code, caller.message)(scope, receive, send)
            return
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        keeps = _SESSION in headers or asked.get("session") == ["1"]
        if not keeps and scope["method"] != "POST":
            told = "without a session there is POST alone; /mcp?session=1 opens one"
            await _refused(405, "E_USAGE", told)(scope, receive, send)
            return
        # A session belongs to the tenant that opened it: the SDK compares the `user`.
        user = AuthenticatedUser(AccessToken(token="", client_id=caller.tenant, scopes=[]))
        given = {**scope, CALLER: caller, AUDIT: self._tokens.audit, "user": user}
        await (self._sessions if keeps else self._plain).handle_request(given, receive, send)

    def _note(self, denial: Denial) -> None:
        try:
            self._tokens.audit("", "mcp", denial.code)
        except DuckkbError as problem:
            say(f"mcp: {problem.code} {problem.message}")
        if denial.problem is not None:
            say(f"mcp: {denial.problem.code} {denial.problem.message}")


def _refused(status: Literal[401, 403, 405, 503], code: str, message: str) -> JSONResponse:
    headers = {401: {"www-authenticate": "Bearer"}, 405: {"allow": "POST"}, 503: {"retry-after": "1"}}.get(status)
    return JSONResponse({"error": {"code": code, "message": message, "suggestion": ""}}, status, headers)


def bind(port: int) -> socket.socket:
    """A socket on this machine alone; port 0 is one that is free. Raises `errors.Unavailable` (E_PORT)."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((_HOST, port))
    except OSError as error:
        bound.close()
        said = f"port {port} of {_HOST} cannot be served: {error.strerror or error}"
        raise Unavailable(said, "E_PORT", "end what serves there, or name another --port") from error
    return bound


def url_of(bound: socket.socket) -> str:
    """Where clients find what is served there."""
    return f"http://{_HOST}:{bound.getsockname()[1]}/mcp"


class _Uvicorn(uvicorn.Server):
    """Leaves signals to whoever runs it, and tells when it takes requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def serve(app: McpApp, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal comes; what is under way then has some seconds to end. `ready` is told when requests are taken."""
    take_over("mcp", "anyio", "asyncio", "uvicorn", "sse_starlette")
    config = uvicorn.Config(
        Starlette(routes=[Route("/mcp", app)], lifespan=app.running),
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ws="none",
    )
    server = _Uvicorn(config, ready)

    async def until(asked: asyncio.Event) -> None:
        async def stop() -> None:
            await asked.wait()
            server.should_exit = True

        stopping = asyncio.ensure_future(stop())
        await server.serve([bound])
        stopping.cancel()

    running.run(until, grace=_LAST_ANSWERS_S + 1)
