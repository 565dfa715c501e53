"""The application behind every route of a server."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from duckkb import installed
from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller
from duckkb.errors import DuckkbError, Refused, Unavailable, Unreadable, UsageError
from duckkb.serving.front import ASKED, Asked, Front, drop_if_client_leaves
from duckkb.serving.http import openapi, questions
from duckkb.serving.http.entrance import Doors, Entrance
from duckkb.serving.http.reaching import open_to
from duckkb.serving.lines import report_unexpected
from duckkb.serving.mcp.mount import McpMount
from duckkb.serving.statuses import make_error_response, plain
from duckkb.serving.telemetry.measures import CONTENT_TYPE, Measures
from duckkb.serving.telemetry.middleware import GONE
from duckkb.serving.telemetry.noted import get_notes
from duckkb.serving.tenants import BearerTokens
from duckkb.serving.web import site
from duckkb.serving.web.gate import ROOT_PATH, PageGate
from duckkb.serving.web.sessions import Sessions

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

        return await _respond(request, partial(self._bodies.read, questions.body), answer)

    async def query(self, request: Request) -> Response:
        return await _respond(request, partial(self._bodies.read, questions.read), self._query)

    async def _query(self, call: Asked, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            arguments, left_out = questions.narrow_arguments(arguments, call.caller)
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
