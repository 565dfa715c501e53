"""MCP over stdin and stdout: one JSON-RPC message a line, nothing else, even where a library prints.

MCP over streamable HTTP, as a part of the server's application: POST /mcp, without sessions, answers as JSON.

A client that wants a session opens one at /mcp?session=1, whose answers are streams, so that its user can be
asked questions meanwhile. An unknown id, another tenant's id, or that of an ended session answers 404."""

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, BinaryIO
from urllib.parse import parse_qs

import anyio
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from msgspec import Struct
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from duckkb.server import listening
from duckkb.server.dispatcher import ASKED, drop_if_client_leaves
from duckkb.server.server_log import take_over

MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one message, as over HTTP."""
_GRACE_S = 0.3
_LAST_ANSWERS_S = 60.0
_LOOK_S = 0.01

_Ids = Counter[tuple[type, str]]


def serve(server: Server[Any]) -> None:
    """Serve until stdin ends, or a signal comes. Calls that are under way when stdin ends are answered first."""
    take_over("mcp", "anyio", "asyncio")
    incoming, outgoing = _claim()
    listening.run(lambda stop_event: _Wire(server, incoming, outgoing).serve(stop_event), grace=_GRACE_S)


def _claim() -> tuple[BinaryIO, int]:
    """Reserve stdin and stdout for messages.

    Their own numbers become an empty input and stderr, for child processes too.
    """
    sys.stdout.flush()
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


class _Wire:
    """The transport between the two streams of the process and those of the server; it counts unanswered requests."""

    def __init__(self, server: Server[Any], incoming: BinaryIO, outgoing: int) -> None:
        self._server, self._incoming, self._outgoing = server, incoming, outgoing
        self._unanswered: _Ids = Counter()

    async def serve(self, asked: asyncio.Event) -> None:
        request_sender, request_receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        reply_sender, telling = anyio.create_memory_object_stream[SessionMessage](0)
        self._refusals = reply_sender.clone()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in _iter_lines(self._incoming):
                asyncio.run_coroutine_threadsafe(self._take(line, request_sender), loop).result()
            asyncio.run_coroutine_threadsafe(self._end(request_sender), loop).result()

        def run_reader() -> None:
            with suppress(Exception):  # the loop has ended
                read()

        threading.Thread(target=run_reader, daemon=True).start()
        async with anyio.create_task_group() as group:
            group.start_soon(self._write, telling, asked)
            await self._server.run(request_receiver, reply_sender, self._server.create_initialization_options())

    async def _take(self, line: bytes | None, request_sender: Any) -> None:
        """Pass a line to the server, or answer what is wrong with it."""
        try:
            if line is None:
                raise _Refused(types.INVALID_REQUEST, f"a message has at most {MOST_BYTES:,} bytes")
            message = _parse_message(line)
        except _Refused as problem:
            refusal = types.JSONRPCError(
                jsonrpc="2.0", id=problem.id, error=types.ErrorData(code=problem.code, message=problem.said)
            )
            await self._refusals.send(SessionMessage(refusal))
            return
        if isinstance(message, types.JSONRPCRequest):
            self._unanswered[_build_key(message.id)] += 1
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._unanswered.pop(_build_key((message.params or {}).get("requestId")), None)
        await request_sender.send(SessionMessage(message))

    async def _end(self, request_sender: Any) -> None:
        with anyio.move_on_after(_LAST_ANSWERS_S):
            while self._unanswered.total():
                await anyio.sleep(_LOOK_S)
        await self._refusals.aclose()
        await request_sender.aclose()

    async def _write(self, telling: Any, stop_event: asyncio.Event) -> None:
        async for envelope in telling:
            message = envelope.message
            frame = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            if not await anyio.to_thread.run_sync(_write_all, self._outgoing, frame, abandon_on_cancel=True):
                stop_event.set()  # the reader is gone
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                self._unanswered -= Counter([_build_key(message.id)])  # drops counts of zero


class _Refused(Exception):
    def __init__(self, code: int, said: str, id: Any = None) -> None:
        self.code, self.said = code, said
        self.id = id if isinstance(id, int | str) and not isinstance(id, bool) else None


def _iter_lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines that are not blank; None for one that is too long, which is never held whole."""
    while line := stream.readline(MOST_BYTES + 1):
        if len(line) > MOST_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MOST_BYTES)
            yield None
        elif line.strip():
            yield line


def _parse_message(line: bytes) -> types.JSONRPCMessage:
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        pass
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _Refused(types.PARSE_ERROR, "the line is not JSON") from None
    request_id = value.get("id") if isinstance(value, dict) else None
    raise _Refused(types.INVALID_REQUEST, "the line is not a JSON-RPC message", request_id)


def _build_key(id: Any) -> tuple[type, str]:
    return type(id), str(id)


def _write_all(descriptor: int, frame: bytes) -> bool:
    """Write the whole frame; return whether the reader took it."""
    remainder = memoryview(frame)
    try:
        while remainder:
            remainder = remainder[os.write(descriptor, remainder) :]
    except OSError:
        return False
    return True


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
