"""An ASGI middleware that counts, logs and traces each request."""

import os
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any

from msgspec import Struct

from duckkb.serving import lines
from duckkb.serving.telemetry import spans
from duckkb.serving.telemetry.measures import METHODS, OTHER, ROUTES, Measures
from duckkb.serving.telemetry.noted import NOTED, Noted

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
        level: lines.Level = "error" if status >= 500 else "warning" if status >= 400 or noted.code else "info"
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
        lines.record(
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

        with spans.request_span(headers, method, notes) as span:
            try:
                await self._app({**scope, NOTED: notes}, receive, send_and_record)
            except Exception:
                status = 500
                raise
            finally:
                seconds = time.monotonic() - start_time
                spans.describe(span, method, notes, status)
                self._measures.request(notes.route, method, status, seconds, notes.tenant)
                if self._log is not None:
                    self._log.write(notes, method, status, seconds, spans.trace_id(span))
