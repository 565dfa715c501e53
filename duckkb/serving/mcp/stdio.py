"""MCP over stdin and stdout: one JSON-RPC message a line, nothing else, even where a library prints."""

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from duckkb.serving import running
from duckkb.serving.lines import take_over

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
    running.run(lambda stop_event: _Wire(server, incoming, outgoing).serve(stop_event), grace=_GRACE_S)


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
