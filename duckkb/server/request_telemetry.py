"""An ASGI middleware that counts, logs and traces each request.

A request and the steps of its answer as spans, by the API of OpenTelemetry alone.

Nothing happens unless the serving process has set up an SDK."""

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from msgspec import Struct
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from duckkb.server import server_log
from duckkb.server.authentication import NOTED, Noted
from duckkb.server.metrics import METHODS, OTHER, ROUTES, Measures

_TRACER = trace.get_tracer("duckkb", version("duckkb"))
_PARENTS = TraceContextTextMapPropagator()


@contextmanager
def request_span(headers: Mapping[str, str], method: str, noted: Noted) -> Iterator[trace.Span]:
    """Open the span of a request, as a child of its `traceparent`; the steps of its answer become its children."""
    about = {"http.request.method": method}
    parent = _PARENTS.extract(dict(headers))
    span = _TRACER.start_span(method, parent, trace.SpanKind.SERVER, about)
    noted.is_traced = span.is_recording()
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    finally:
        _trace_steps(span, noted)
        span.end()


def current_trace_id(span: trace.Span) -> str:
    """Return 32 hex digits, for log lines; empty where nothing is traced."""
    context = span.get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def describe(span: trace.Span, method: str, noted: Noted, status: int) -> None:
    """Set the attributes of a span when its request is answered, with the route where the path has parameters."""
    if not span.is_recording():
        return
    span.update_name(f"{method} {noted.route}")
    span.set_attribute("http.route", noted.route)
    span.set_attribute("http.response.status_code", status)
    if noted.action:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", noted.action)
    if noted.hits is not None:
        span.set_attribute("duckkb.hits", noted.hits)
    if noted.degraded:
        span.set_attribute("duckkb.degraded", list(noted.degraded))
    if noted.code:
        span.set_attribute("error.type", noted.code)
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)


def _trace_steps(span: trace.Span, notes: Noted) -> None:
    within = trace.set_span_in_context(span)
    for name, begin_ns, end_ns in notes.steps:
        _TRACER.start_span(name, within, start_time=begin_ns).end(end_ns)


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
_ID = re.compile(r"[A-Za-z0-9._:-]{1,40}")
GONE = 499
"""The status of a request whose client left before the answer."""


class RequestLog(Struct, frozen=True):
    """A log of requests, one JSON object a line on stderr.

    Tenants are hashed, and questions are left out unless the operator wants `queries`: then reads can be
    repeated, with `action` and `arguments`. `commit` returns what is served.
    """

    queries: bool = False
    commit: Callable[[], str | None] = lambda: None

    def write(self, noted: Noted, method: str, status: int, seconds: float, trace_id: str) -> None:
        """Write the line of one request."""
        level: server_log.Level = "error" if status >= 500 else "warning" if status >= 400 or noted.code else "info"
        facts = {
            "request_id": noted.request_id,
            "trace_id": trace_id,
            "tenant": tenant_hash(noted.tenant),
            "address": noted.address,
            "route": noted.route,
            "method": method,
            "status": status,
            "ms": round(1000 * seconds, 3),
            "action": noted.action,
            "hits": noted.hits,
            "degraded": list(noted.degraded),
            "code": noted.code,
            "commit": self.commit(),
            "arguments": dict(noted.arguments) if self.queries else None,
        }
        server_log.record(
            "request", level, {name: value for name, value in facts.items() if value not in ("", None, [], {})}
        )


def tenant_hash(tenant: str) -> str:
    """Return a hash that identifies a tenant's lines without its name.

    >>> tenant_hash("acme"), tenant_hash("")
    ('822b33ad87c148a0', '')
    """
    return sha256(tenant.encode()).hexdigest()[:16] if tenant else ""


_FOLDERS = ("/actions", "/web")
"""Routes with others below them; refused requests below count for them."""


class Telemetry:
    """An application whose requests are counted in `measures`, and written to `log` where there is one.

    Answers carry `x-request-id`: the client's own where it is valid.
    """

    def __init__(self, app: _App, measures: Measures, log: RequestLog | None = None) -> None:
        self._app, self._measures, self._log = app, measures, log

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client_id, path = headers.get("x-request-id", ""), scope["path"]
        method = scope["method"] if scope["method"] in METHODS else OTHER
        request_id = client_id if _ID.fullmatch(client_id) else os.urandom(16).hex()
        client = scope.get("client")
        first = f"/{path.split('/')[1]}" if path.startswith("/") else ""
        route = path if path in ROUTES else first if first in _FOLDERS else OTHER
        notes = Noted(route, request_id, address=str(client[0]) if client else "")
        status, start_time = GONE, time.monotonic()

        async def send_and_record(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                remaining_headers = [
                    header for header in message.get("headers", ()) if header[0].lower() != b"x-request-id"
                ]
                message = {**message, "headers": [*remaining_headers, (b"x-request-id", request_id.encode())]}
            await send(message)

        with request_span(headers, method, notes) as span:
            try:
                await self._app({**scope, NOTED: notes}, receive, send_and_record)
            except Exception:
                status = 500
                raise
            finally:
                seconds = time.monotonic() - start_time
                describe(span, method, notes, status)
                self._measures.request(notes.route, method, status, seconds, notes.tenant)
                if self._log is not None:
                    self._log.write(notes, method, status, seconds, current_trace_id(span))
