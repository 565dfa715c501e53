"""The checks of every request: its origin, its caller, its size and its speed."""

import asyncio
import re
from collections.abc import Container, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckkb.server.authentication import FORGED, BearerTokens, Denial, Noted, bearer, get_notes
from duckkb.server.dispatcher import ASKED, Asked
from duckkb.server.http_statuses import HEADERS, make_error_response, plain
from duckkb.server.request_telemetry import GONE
from duckkb.server.server_log import report_unexpected
from duckkb.server.web.page_request import ROOT as PAGES
from duckkb.server.web.page_request import VISITOR, PageGate, is_page, is_static
from duckkb.types.errors import Refused, Unavailable, UsageError
from duckkb.types.request_context import Caller

MOST_BYTES = 4 * 1024 * 1024
LOOPBACK = ("127.0.0.1", "localhost", "::1")
BODY_S = 10.0
"""Seconds within which a body must arrive."""
PROXIED = "duckkb.proxied"
"""Key in a scope: whether the request is from a trusted proxy."""
_AGAIN = "duckkb.again"
"""Key in a scope: the function that identifies the caller of a request again; pages have none."""
_OPEN = ("/health", "/ready", "/openapi.json")
_WHOLE = re.compile(r"[0-9]{1,9}")


class Doors(Struct, frozen=True):
    """The ways in which a server is asked.

    `others` are names under which the server is asked besides this machine's own; `origins` are those of other
    sites whose pages may ask what programs ask. With `metrics_open`, /metrics needs no token; with `edits`,
    pages have forms that propose changes of records.
    `auth_header` is the header in which a proxy names the tenant of a request, which then needs no token, and
    no sign-in on pages (lower case; empty: none).
    """

    others: tuple[str, ...] = ()
    metrics_open: bool = False
    edits: bool = False
    origins: tuple[str, ...] = ()
    auth_header: str = ""

    def is_open(self, path: str) -> bool:
        """Return whether a route needs no token."""
        return path in _OPEN or (self.metrics_open and path == "/metrics")

    @property
    def names(self) -> frozenset[str]:
        """The names that the headers Host and Origin may have."""
        return frozenset((*LOOPBACK, *(name.lower().strip("[]") for name in self.others)))


class Entrance:
    """An ASGI middleware that checks requests; those that need a token get an `Asked`."""

    def __init__(self, app: ASGIApp, tokens: BearerTokens, doors: Doors, gate: PageGate) -> None:
        self._app, self._tokens, self._doors, self._names, self._gate = app, tokens, doors, doors.names, gate
        self._strangers = gate.sessions.strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False
        if is_page(scope["path"]):
            send, get_notes(scope).route = self._gate.add_headers(send), PAGES

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            refusal = await self._handle_request(scope, receive, send_and_note)
            if refusal is not None:
                await refusal(scope, receive, send_and_note)
        except asyncio.CancelledError:  # the server ends, and its grace period is over
            if not begun:
                await make_error_response(Unavailable("the server ends", suggestion="ask again in a moment"))(
                    scope, receive, send_and_note
                )
        except Exception as problem:
            report_unexpected(f"http {get_notes(scope).route}", problem)
            if not begun:
                await make_error_response(problem)(scope, receive, send_and_note)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Handle a request; return the refusal, or None once it was answered."""
        headers = Headers(scope=scope)
        origins = () if is_page(scope["path"]) else self._doors.origins
        if (foreign := _refuse_foreign(headers, self._names, origins)) is not None:
            return foreign
        who = await self._identify_caller(scope, headers)
        if isinstance(who, Response):
            return who
        try:
            self._attach_call(scope, headers, who)
        except UsageError as problem:
            return make_error_response(problem)
        if scope["method"] in ("POST", "PUT", "PATCH") and not self._doors.is_open(scope["path"]):
            body = await _read_body(headers, receive)
            if not isinstance(body, bytes):
                return body
            receive = _replay_body(body, receive)
        await self._app(scope, receive, send)
        return None

    async def _identify_caller(self, scope: Scope, headers: Headers) -> Caller | Response | None:
        """Return the caller by a page's session, else by a token; None where none is needed."""
        path = scope["path"]
        names = headers.getlist(self._doors.auth_header) if self._doors.auth_header else []
        is_proxy, name = scope.get(PROXIED, False), ",".join(names)  # several headers join to a name that no tenant has
        if is_page(path):
            return await self._receive_visitor(scope, headers, name if names and is_proxy else None)
        if names and not is_proxy:
            return await self._refuse_caller(FORGED, scope)
        if self._doors.is_open(path):
            return None
        authorize = partial(self._tokens.authenticate, bearer(headers.get("authorization")))
        scope[_AGAIN] = again = partial(self._tokens.resolve_tenant_name, name) if names else authorize
        outcome = await asyncio.to_thread(again)
        return await self._refuse_caller(outcome, scope) if isinstance(outcome, Denial) else outcome

    async def _receive_visitor(self, scope: Scope, headers: Headers, name: str | None) -> Caller | Response | None:
        """Return the caller of a page, or an answer; `name` is the tenant that a proxy names.

        A refused visitor gets a page that says why.
        """
        proxy_caller = None
        if name is not None and not is_static(scope["path"]):
            proxy_caller = await asyncio.to_thread(self._tokens.resolve_tenant_name, name)
        action, notes = "http /web", get_notes(scope)
        if (
            isinstance(proxy_caller, Denial)
            and (busy := await self._strangers.refuse(proxy_caller, action, notes)) is not None
        ):
            return make_error_response(busy)
        visitor = await asyncio.to_thread(self._gate.admit, scope, headers, proxy_caller)
        if isinstance(visitor, Response):
            return visitor
        scope[VISITOR] = visitor
        return visitor.caller

    async def _refuse_caller(self, denial: Denial, scope: Scope) -> Response:
        notes = get_notes(scope)
        if (busy := await self._strangers.refuse(denial, f"http {notes.route}", notes)) is not None:
            return make_error_response(busy)
        error = {"code": denial.code, "message": denial.message, "suggestion": ""}
        return plain({"error": error}, denial.status, HEADERS.get(denial.status))

    def _attach_call(self, scope: Scope, headers: Headers, who: Caller | None) -> None:
        """Attach the `Asked` to the scope. Raises `errors.UsageError` (E_ARGUMENT)."""
        if who is not None:
            notes = get_notes(scope)
            notes.tenant = who.tenant
            audit = partial(_write_audit, self._tokens, who.tenant, notes)
            scope[ASKED] = Asked(who, notes, _parse_timeout(headers), audit, scope.get(_AGAIN))


def _write_audit(tokens: BearerTokens, tenant: str, notes: Noted, action: str, outcome: str) -> None:
    tokens.audit(tenant, action, outcome, notes.request_id, notes.address)


def _refuse_foreign(headers: Headers, names: frozenset[str], origins: Container[str]) -> Response | None:
    """Refuse a request for another host or from another origin.

    A page in a browser can send requests to this machine, under a name of its own:
    https://en.wikipedia.org/wiki/DNS_rebinding
    """
    if _name(f"//{headers.get('host', '')}") not in names:
        return make_error_response(Refused("this server does not accept that host name", "E_HOST"), 421)
    origin = headers.get("origin")
    if origin is not None and origin not in origins and _name(origin) not in names:
        return make_error_response(Refused("pages of other sites may not use this server", "E_HOST"), 403)
    return None


def _name(url: str) -> str | None:
    with suppress(ValueError):
        return urlsplit(url).hostname
    return None


def _parse_timeout(headers: Mapping[str, str]) -> float:
    value = headers.get("x-timeout-ms")
    if value is None:
        return 0.0
    if not _WHOLE.fullmatch(value) or not int(value):
        raise UsageError("x-timeout-ms is not a number of milliseconds", "E_ARGUMENT", "x-timeout-ms: 2000")
    return int(value) / 1000


async def _read_body(headers: Headers, receive: Receive) -> bytes | Response:
    """Return the whole body, or the refusal."""
    length = headers.get("content-length", "0")
    if len(length) > 15 or int(length) > MOST_BYTES:
        return _refuse_size()
    pieces, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return Response(status_code=GONE)
                piece = message.get("body", b"")
                pieces.append(piece)
                size += len(piece)
                if size > MOST_BYTES:
                    return _refuse_size()
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        return make_error_response(
            UsageError(f"the body did not arrive within {BODY_S:g} s", "E_BODY", "send it at once"), 408
        )


def _refuse_size() -> Response:
    message = f"a body has at most {MOST_BYTES:,} bytes"
    return make_error_response(UsageError(message, "E_BODY", "send less at once"), 413)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body as if it came now; then whatever comes."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay_message() -> Message:
        return messages.pop() if messages else await receive()

    return replay_message
