"""The application behind every route of a server.

A server behind a proxy or asked by other sites' pages: the path below which it lies, and the allowed origins."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckkb import installed
from duckkb.operations.catalog import ACTIONS
from duckkb.server import openapi
from duckkb.server.authentication import BearerTokens, get_notes
from duckkb.server.dispatcher import ASKED, Asked, Front, drop_if_client_leaves
from duckkb.server.http_middleware import Doors, Entrance
from duckkb.server.http_statuses import make_error_response, plain
from duckkb.server.mcp_transports import McpMount
from duckkb.server.metrics import CONTENT_TYPE, ROUTES, Measures
from duckkb.server.request_telemetry import GONE
from duckkb.server.server_log import report_unexpected
from duckkb.server.web import site
from duckkb.server.web.page_request import ROOT_PATH, PageGate, Sessions, is_page
from duckkb.types.errors import DuckkbError, Refused, Unavailable, Unreadable, UsageError
from duckkb.types.request_context import Caller

_HEADER = re.compile(r"[a-z0-9-]{1,64}")
_OTHER_HEADERS = ("host", "origin", "cookie", "content-length", "x-forwarded-for", "x-forwarded-proto")
_METHODS = ("GET", "POST", "DELETE")
_SENT = (
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "x-request-id",
    "x-timeout-ms",
)
_READ = ("mcp-session-id", "retry-after", "x-request-id")


def validate_root_path(given: str) -> str:
    """Return a path before all routes, without a slash at its end; raises `errors.UsageError`.

    The path of a route is refused, since a proxy may or may not remove the path.
    """
    path = given.rstrip("/")
    first = f"/{path.removeprefix('/').partition('/')[0]}"
    is_path = not given or (
        path.startswith("/") and "//" not in path and urlsplit(path).path == path and path.isascii()
    )
    if not is_path or not path.isprintable() or " " in path or (path and first in ROUTES):
        raise UsageError(
            f"--root-path must be a path that is not a route of the server, not {given!r}", suggestion="--root-path /kb"
        )
    return path


def validate_origin(given: str) -> str:
    """Return an origin as browsers send it; raises `errors.UsageError`."""
    parts = urlsplit(given.lower())
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or given.lower() != f"{parts.scheme}://{parts.netloc}"
    ):
        raise UsageError(
            f"--allow-origin must be a scheme and a host, not {given!r}",
            suggestion="--allow-origin https://app.example.org",
        )
    return given.lower()


def validate_auth_header(given: str) -> str:
    """Return the name of a header in which a proxy names the tenant, or nothing; raises `errors.UsageError`.

    It is refused where it is no header name, or a header with another meaning here.
    """
    name = given.lower()
    if given and (not _HEADER.fullmatch(name) or name in (*_SENT, *_READ, *_OTHER_HEADERS)):
        message = f"--auth-header must name a header that the server does not use otherwise, not {given!r}"
        raise UsageError(message, suggestion="--auth-header X-Forwarded-User")
    return name


class BelowPath:
    """An ASGI middleware for routes below a path, whether the proxy before it removes that path or not.

    The path is in the scope under `ROOT_PATH`.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (root := self._root_path):
            path: str = scope["path"]
            is_below = path == root or path.startswith(f"{root}/")
            scope = {**scope, ROOT_PATH: root, "path": (path[len(root) :] or "/") if is_below else path}
        await self._app(scope, receive, send)


def open_to(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Let pages of these origins read what programs are answered; a browser's preflight needs no token.

    The server's own pages are not opened to other origins.
    """
    if not origins:
        return app
    cors_app = CORSMiddleware(app, origins, _METHODS, _SENT, expose_headers=_READ)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_program_route = scope["type"] == "http" and not is_page(scope["path"])
        await (cors_app if is_program_route else app)(scope, receive, send)

    return answer


_PROBE_S = 2.0
_SETTLED_S = 1.0
_SMALL = 8 * 1024
"""Bytes that are checked within some milliseconds, whatever they hold."""


def application(
    front: Front, sessions: Sessions, tokens: BearerTokens, mount: McpMount, measures: Measures, doors: Doors
) -> ASGIApp:
    """Build the application: /mcp belongs to the mount, and the pages to `sessions`."""
    routes = _Routes(front, measures, doors.metrics_open)
    measures.watch("calls_waiting", "Calls that wait for their turn", lambda: float(front.admission.waiting))
    measures.watch("calls_active", "Calls under way", lambda: float(front.admission.active))
    app = Starlette(
        routes=[
            Route("/mcp", mount),
            Route("/query", routes.query, methods=["POST"]),
            Route("/search", routes.query, methods=["POST"]),
            Route("/actions/{name}", routes.action, methods=["POST"]),
            Route("/health", routes.health),
            Route("/ready", routes.ready),
            Route("/metrics", routes.metrics),
            Route("/openapi.json", routes.openapi),
            *site.routes(front, sessions, edits=doors.edits),
        ],
        exception_handlers={HTTPException: _refuse_route},
        lifespan=mount.run_lifespan,
    )
    return open_to(Entrance(app, tokens, doors, PageGate(sessions)), doors.origins)


class _Routes:
    def __init__(self, front: Front, measures: Measures, metrics_open: bool) -> None:
        self._front, self._measures, self._metrics_open = front, measures, metrics_open
        self._began, self._ready, self._bodies = time.monotonic(), Readiness(front), Bodies()

    async def action(self, request: Request) -> Response:
        name, get_notes(request.scope).route = request.path_params["name"], "/actions"
        if name not in ACTIONS:
            raise HTTPException(404)

        async def answer(call: Asked, body: dict[str, Any]) -> dict[str, Any]:
            await asyncio.to_thread(call.decide, "http", name, body)
            return await self._front.run(call, name, body)

        return await _respond(request, partial(self._bodies.read, openapi.parse_body), answer)

    async def query(self, request: Request) -> Response:
        return await _respond(request, partial(self._bodies.read, openapi.read_questions), self._query)

    async def _query(self, call: Asked, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            arguments, left_out = openapi.narrow_arguments(arguments, call.caller)
        except Exception:
            await asyncio.to_thread(call.audit, "http query", "E_FORBIDDEN")
            raise
        await asyncio.to_thread(call.decide, "http", "query", arguments)
        message = f"{left_out} of the named collections were left out: you cannot see collections of these names"
        warnings = [{"code": "W_LEFT_OUT", "message": message, "count": left_out}] if left_out else []
        return await self._front.run(call, "query", arguments) | {"warnings": warnings}

    async def health(self, _: Request) -> Response:
        return plain({"status": "alive", "uptime_s": round(time.monotonic() - self._began, 3)})

    async def ready(self, _: Request) -> Response:
        if await self._ready.now():
            now = await asyncio.to_thread(installed.current)
            replacement = {} if now == installed.get_running_version() else {"installed": now, "restart": True}
            return plain({"status": "ready", "version": installed.get_running_version(), **replacement})
        return make_error_response(Unavailable("temporarily unavailable", suggestion="ask again in a moment"))

    async def metrics(self, request: Request) -> Response:
        call: Asked | None = request.scope.get(ASKED)
        if call is not None and call.caller.types is not None:  # measures count other tenants' records too
            await asyncio.to_thread(call.audit, "http metrics", "E_FORBIDDEN")
            return make_error_response(Refused("metrics need access to the whole base", "E_FORBIDDEN"))
        return Response(await asyncio.to_thread(self._measures.text), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return plain(openapi.document(self._metrics_open, request.scope.get(ROOT_PATH, "")))


class Bodies:
    """A reader of request bodies.

    Checking megabytes takes seconds, as every fault in them is searched for. So one such body of each tenant is
    read at a time, in a thread, and nobody else waits for it. A reading whose client has left keeps its turn to
    its end.
    """

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Lock] = {}

    async def read(self, reader: Callable[[bytes], dict[str, Any]], raw: bytes, tenant: str) -> dict[str, Any]:
        """Return what `reader` makes of the body. Raises what it raises."""
        if len(raw) <= _SMALL:
            return reader(raw)
        turn = self._turns.setdefault(tenant, asyncio.Lock())
        await turn.acquire()

        def release_turn(reading: asyncio.Future[dict[str, Any]]) -> None:
            turn.release()
            if not reading.cancelled():
                reading.exception()  # otherwise asyncio reports an exception that was never retrieved

        reading = asyncio.ensure_future(anyio.to_thread.run_sync(reader, raw, limiter=anyio.CapacityLimiter(1)))
        reading.add_done_callback(release_turn)
        return await asyncio.shield(reading)


class Readiness:
    """A check that the base is open and that no interrupted write is left, run once at a time for all requests.

    A check that takes long, behind other calls, changes nothing.
    """

    def __init__(self, front: Front) -> None:
        self._front, self._is_ready, self._at = front, False, 0.0
        self._look: asyncio.Future[None] | None = None
        self._thread = anyio.CapacityLimiter(1)

    async def now(self) -> bool:
        if self._look is None and time.monotonic() - self._at > _SETTLED_S:
            self._look = asyncio.ensure_future(self._probe_base())
        if self._look is not None:
            await asyncio.wait({self._look}, timeout=_PROBE_S)
        return self._is_ready

    async def _probe_base(self) -> None:
        try:
            look = partial(self._front.served.run, "types", {}, Caller("server"))
            await anyio.to_thread.run_sync(look, limiter=self._thread)
            self._is_ready = self._front.served.is_up
        except Unreadable:  # records of some types are unreadable; callers of other types are answered
            self._is_ready = self._front.served.is_up
        except Exception:
            self._is_ready = False
        self._at, self._look = time.monotonic(), None


async def _respond(
    request: Request,
    read: Callable[[bytes, str], Coroutine[Any, Any, dict[str, Any]]],
    answer: Callable[[Asked, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]],
) -> Response:
    """Return the answer or the error. For a client who leaves before its turn, no work is done."""
    call, raw = request.scope[ASKED], await request.body()

    async def run_call() -> dict[str, Any]:
        return await answer(call, await read(raw, call.caller.tenant))

    try:
        result = await drop_if_client_leaves(request.receive, run_call())
        return Response(status_code=GONE) if result is None else plain(result)
    except Exception as problem:
        get_notes(request.scope).code = problem.code if isinstance(problem, DuckkbError) else "E_INTERNAL"
        if not isinstance(problem, DuckkbError):
            report_unexpected(f"http {get_notes(request.scope).route}", problem)
        return make_error_response(problem)


async def _refuse_route(_: Request, problem: Exception) -> Response:
    """Refuse a request to an unknown route, or with a method that the route lacks."""
    assert isinstance(problem, HTTPException)
    message = "unknown route" if problem.status_code == 404 else "this route does not allow that method"
    return make_error_response(
        UsageError(message, suggestion="GET /openapi.json"), problem.status_code, **(problem.headers or {})
    )
