"""MCP over streamable HTTP, as a part of the server's application: POST /mcp, without sessions, answers as JSON.

A client that wants a session opens one at /mcp?session=1, whose answers are streams, so that its user can be
asked questions meanwhile. An unknown id, another tenant's id, or that of an ended session answers 404.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from duckkb.serving.front import ASKED, drop_if_client_leaves

_SESSION = "mcp-session-id"
_NO_BATCH = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32600, "message": "MCP has no batches: send each request by itself"},
}


class SessionLimits(Struct, frozen=True):
    """The limits of sessions: how many of one tenant are open, and the idle seconds after which one ends."""

    sessions: int = 100
    idle: float = 1800.0


class McpMount:
    """The ASGI application behind /mcp. Its requests have passed the entrance, and have an `Asked`.

    Sessions have the server that notifies. `running` must be entered around its life.
    """

    def __init__(self, plain: Server[Any], notifying: Server[Any], limits: SessionLimits) -> None:
        self._plain_server, self._notifying, self._limits = plain, notifying, limits
        self._plain = self._build_manager(stateless=True)
        # One manager a tenant, so that sessions are private, and no tenant uses up another's.
        self._sessions: dict[str, StreamableHTTPSessionManager] = {}
        self._beginning = anyio.Lock()
        self._running: TaskGroup

    def _build_manager(self, *, stateless: bool) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            self._plain_server if stateless else self._notifying,
            json_response=stateless,
            stateless=stateless,
            # The entrance checks hosts and origins.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=self._limits.idle,
            max_sessions=self._limits.sessions,
        )

    @asynccontextmanager
    async def run_lifespan(self, _: object = None) -> AsyncIterator[None]:
        async with self._plain.run(), anyio.create_task_group() as self._running:
            yield
            self._running.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        keeps = _SESSION in Headers(scope=scope) or parameters.get("session") == ["1"]
        if not keeps and scope["method"] != "POST":
            message = "without a session only POST works; /mcp?session=1 opens one"
            error = {"code": "E_USAGE", "message": message, "suggestion": ""}
            await JSONResponse({"error": error}, 405, {"allow": "POST"})(scope, receive, send)
            return
        replay = receive
        if scope["method"] == "POST":
            whole = await receive()  # the entrance has read the whole body
            if whole.get("body", b"").lstrip().startswith(b"["):
                await JSONResponse(_NO_BATCH, 400)(scope, receive, send)
                return
            replay = _replay_message(whole, receive if keeps else None)
        if keeps:
            sessions = await self._provide_sessions(scope[ASKED].caller.tenant)
            await sessions.handle_request(scope, replay, send)
            return
        await drop_if_client_leaves(receive, self._plain.handle_request(scope, replay, send))

    async def _provide_sessions(self, tenant: str) -> StreamableHTTPSessionManager:
        async with self._beginning:
            if tenant not in self._sessions:
                manager = self._build_manager(stateless=False)
                await self._running.start(_run_manager, manager)
                self._sessions[tenant] = manager
        return self._sessions[tenant]


def _replay_message(message: Message, then: Receive | None) -> Receive:
    """Return a receiver of one message, and of what comes `then`.

    Without `then`, the departure of the client is noticed elsewhere.
    """
    messages = [message]

    async def receive_message() -> Message:
        while not messages:
            if then is not None:
                return await then()
            await anyio.sleep_forever()
        return messages.pop()

    return receive_message


async def _run_manager(manager: StreamableHTTPSessionManager, *, task_status: TaskStatus[None]) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()
