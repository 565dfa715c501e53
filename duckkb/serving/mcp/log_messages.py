"""Log messages of the protocol about a client's own calls, from the level on that it requested; by default none."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from duckkb.actions.registry.answers import notices_of

SLOW_S = 2.0
"""Seconds from which on a call is reported as slow."""
_LEVELS: tuple[types.LoggingLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
_KEY = "duckkb.log_level"


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """Return what outlives a request: the session over HTTP, the pipe otherwise.

    The SDK has no other way to it.
    """
    return ctx.session._connection


def set_level(ctx: ServerRequestContext[Any, Any], level: types.LoggingLevel) -> None:
    """Send this client messages from this level on."""
    connection_of(ctx).state[_KEY] = level


async def send_of_call(
    ctx: ServerRequestContext[Any, Any], name: str, answer: Mapping[str, Any], failed: bool, seconds: float
) -> None:
    """Send messages on the answer of a tool: an error, degradations, and its duration."""
    if failed:
        error = answer["error"]
        level: types.LoggingLevel = "error" if error["code"] == "E_INTERNAL" else "info"
        await _send(ctx, level, {"tool": name, "code": error["code"], "message": error["message"]})
    for notice in notices_of(answer):
        await _send(ctx, "warning", {"tool": name, **(notice if isinstance(notice, dict) else {"message": notice})})
    took = {"tool": name, "message": f"{name} took {seconds:.3f} s", "ms": round(seconds * 1000)}
    await _send(ctx, "notice" if seconds >= SLOW_S else "debug", took)


async def _send(ctx: ServerRequestContext[Any, Any], level: types.LoggingLevel, data: Mapping[str, Any]) -> None:
    if level not in _select_levels(ctx):
        return
    params = types.LoggingMessageNotificationParams(level=level, logger="duckkb", data=dict(data))
    message = types.LoggingMessageNotification(params=params)
    await ctx.session.send_notification(message, related_request_id=ctx.request_id)


def _select_levels(ctx: ServerRequestContext[Any, Any]) -> frozenset[types.LoggingLevel]:
    """Return the levels to send: from 2026-07-28 on each request says it; before, a request of its own does."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return allowed_log_levels(ctx.protocol_version, ctx.meta)
    level = connection_of(ctx).state.get(_KEY)
    return frozenset(_LEVELS[_LEVELS.index(level) :] if level else ())
