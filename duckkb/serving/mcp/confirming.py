"""Asks the client's user to confirm writes that delete or replace many records, where the client can ask.

This guards against mistakes of an agent; roles, limits and reviews decide what may be written at all.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from duckkb.errors import Refused

MOST = 10
"""Records that may be deleted, or replaced, without a question."""
_FIRST = "2025-06-18"  # the first revision in which users can be asked
_KEY = "confirm"
_WAIT_S = 600.0
_FORM: dict[str, Any] = {"type": "object", "properties": {}}  # accepting is the answer: the form is empty
Run = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


async def ask_confirmation(
    ctx: ServerRequestContext[Any, Any], given: types.CallToolRequestParams, run: Run
) -> types.InputRequiredResult | None:
    """Return None to continue; or what a client of 2026-07-28 must ask before it calls again.

    `run` gives the receipt for other arguments. Raises `errors.Refused` where the user does not agree, and what
    `run` raises.
    """
    arguments = given.arguments or {}
    if not _can_remove_many(given.name, arguments) or not _can_ask(ctx):
        return None
    receipt = await run({**arguments, "dry_run": True, **({"embed": False} if given.name == "put" else {})})
    deleted_count, updated_count = receipt["deleted"], receipt["updated"]
    if deleted_count + updated_count <= MOST or "branch" in receipt:  # a proposal is reviewed anyway
        return None
    counts = [f"{verb} {count:,}" for verb, count in (("deletes", deleted_count), ("replaces", updated_count)) if count]
    message = f"This {given.name} of {arguments['type']} {' and '.join(counts)} records. Do you want this?"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        answer = (given.input_responses or {}).get(_KEY)
        if answer is None:
            parameters = types.ElicitRequestFormParams(message=message, requested_schema=_FORM)
            return types.InputRequiredResult(input_requests={_KEY: types.ElicitRequest(params=parameters)})
    else:
        answer = await _ask_user(ctx, message)
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        raise Refused("the user did not confirm this write: nothing was written", suggestion="ask the user")
    return None


async def _ask_user(ctx: ServerRequestContext[Any, Any], message: str) -> types.ElicitResult | None:
    try:
        with anyio.move_on_after(_WAIT_S):
            return await ctx.session.elicit_form(message, _FORM, related_request_id=ctx.request_id)
    except MCPError:  # the client declared that it can ask, but cannot
        pass
    return None


def _can_remove_many(name: str, arguments: Mapping[str, Any]) -> bool:
    several = arguments.get("identities" if name == "delete" else "records")
    return (
        name in ("delete", "put")
        and arguments.get("dry_run") is not True
        and (arguments.get("cascade") is True or (isinstance(several, list) and len(several) > MOST))
    )


def _can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    can = ctx.session.client_capabilities
    if ctx.protocol_version < _FIRST or can is None or can.elicitation is None:
        return False
    if can.elicitation.form is None and can.elicitation.url is not None:
        return False
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request
