"""The MCP server of a base: what each request of the protocol asks of it, over any transport.

Asks the client's user to confirm writes that delete or replace many records, where the client can ask.

This guards against mistakes of an agent; roles, limits and reviews decide what may be written at all.

Log messages of the protocol about a client's own calls, from the level on that it requested; by default none."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import failure, notices_of, with_calls_in_notices
from duckkb.server import mcp_answers, mcp_resources
from duckkb.server.authentication import Noted
from duckkb.server.dispatcher import ASKED, Asked, Front
from duckkb.server.mcp_answers import shorten_answer, shorten_error
from duckkb.server.mcp_resources import Subscriptions, lifespan_of
from duckkb.server.server_log import report_unexpected, say
from duckkb.types.errors import DuckkbError, Refused
from duckkb.types.request_context import Caller

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
_LEVEL_KEY = "duckkb.log_level"


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """Return what outlives a request: the session over HTTP, the pipe otherwise.

    The SDK has no other way to it.
    """
    return ctx.session._connection


def set_level(ctx: ServerRequestContext[Any, Any], level: types.LoggingLevel) -> None:
    """Send this client messages from this level on."""
    connection_of(ctx).state[_LEVEL_KEY] = level


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
    level = connection_of(ctx).state.get(_LEVEL_KEY)
    return frozenset(_LEVELS[_LEVELS.index(level) :] if level else ())


_NOT_FOUND = -32002
"""The error code of a missing resource until 2025-11-25; later revisions have no code of its own for it."""

_Context = ServerRequestContext[Any, Any]
_Given = types.PaginatedRequestParams | None
T = TypeVar("T")


class _Doors:
    """The handlers of requests; each works in a thread, for its caller."""

    def __init__(self, front: Front, *, all_tools: bool) -> None:
        self._front, self._all_tools = front, all_tools

    async def list_tools(self, ctx: _Context, _: _Given) -> types.ListToolsResult:
        return types.ListToolsResult(tools=mcp_answers.offer_tools(_find_call(ctx).caller, all_tools=self._all_tools))

    async def call_tool(
        self, ctx: _Context, given: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if given.name not in ACTIONS:
            raise MCPError(types.INVALID_PARAMS, "unknown tool; tools/list lists the tools")
        run, began = partial(self._front.run, _find_call(ctx), given.name), monotonic()
        try:
            if (question := await ask_confirmation(ctx, given, run)) is not None:
                return question
            answer, is_error = with_calls_in_notices(await run(given.arguments or {})), False
        except Exception as problem:
            if not isinstance(problem, DuckkbError):
                report_unexpected(f"mcp {given.name}", problem)
            answer, is_error = failure(problem, for_calls=True), True
        await send_of_call(ctx, given.name, answer, is_error, monotonic() - began)
        short = shorten_error(answer) if is_error else shorten_answer(given.name, given.arguments or {}, answer)
        return mcp_answers.make_result(short, failed=is_error)

    async def set_level(self, ctx: _Context, given: types.SetLevelRequestParams) -> types.EmptyResult:
        set_level(ctx, given.level)
        return types.EmptyResult()

    async def subscribe(self, ctx: _Context, given: types.SubscribeRequestParams) -> types.EmptyResult:
        """Subscribe to a resource.

        A resource that cannot be read now is refused as reading it would be: so nobody learns whether it
        exists, and nothing is stored.
        """
        call, connection = _find_call(ctx), connection_of(ctx)
        text = await self._read(ctx, mcp_resources.read_current_text, given.uri, call.caller)
        _find_subscriptions(ctx).add(connection, given.uri, call, text)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: _Context, given: types.UnsubscribeRequestParams) -> types.EmptyResult:
        _find_subscriptions(ctx).remove(connection_of(ctx), given.uri)
        return types.EmptyResult()

    async def list_resources(self, ctx: _Context, _: _Given) -> types.ListResourcesResult:
        entries = await self._read(ctx, mcp_resources.offer_resources, _find_call(ctx).caller)
        return types.ListResourcesResult(resources=entries)

    async def list_templates(self, ctx: _Context, _: _Given) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(mcp_resources.TEMPLATES))

    async def read_resource(self, ctx: _Context, given: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        contents = await self._read(ctx, mcp_resources.read, given.uri, _find_call(ctx).caller)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(self, ctx: _Context, _: _Given) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=mcp_resources.offer_prompts(all_tools=self._all_tools))

    async def get_prompt(self, ctx: _Context, given: types.GetPromptRequestParams) -> types.GetPromptResult:
        return mcp_resources.make_prompt(given.name, given.arguments or {})

    async def complete(self, ctx: _Context, given: types.CompleteRequestParams) -> types.CompleteResult:
        argument = given.argument
        completion = await self._read(
            ctx, mcp_resources.complete_argument, argument.name, argument.value, _find_call(ctx).caller
        )
        return types.CompleteResult(completion=completion)

    async def instruct(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        """Handle a request, after auditing it where it came by HTTP.

        The greeting of a new client gets instructions for this caller, which name no other caller's types.
        """
        if ctx.request is not None and ctx.request_id is not None:
            try:
                await anyio.to_thread.run_sync(_note, ctx)
            except DuckkbError as problem:
                say(f"mcp: {problem.code} {problem.message}")
                raise MCPError(types.INTERNAL_ERROR, "the server cannot write its audit log") from None
        try:
            result = await call_next(ctx)
        except (MCPError, ValidationError):
            raise
        except Exception as problem:  # the SDK would send its text to the client
            report_unexpected(f"mcp {ctx.method}", problem)
            raise MCPError(types.INTERNAL_ERROR, "a bug in duckkb") from None
        if ctx.method not in ("initialize", "server/discover") or not isinstance(result, Mapping):
            return result
        about = await self._read(ctx, mcp_resources.instructions, _find_call(ctx).caller)
        return {**result, "instructions": about}

    async def _read(self, ctx: _Context, reader: Callable[..., T], *arguments: Any) -> T:
        """Read from the base, as `Front.read`; errors become those of the protocol."""
        try:
            return await self._front.read(_find_call(ctx), reader, *arguments)
        except Exception as problem:
            if not isinstance(problem, DuckkbError):
                report_unexpected(f"mcp {ctx.method}", problem)
            error: dict[str, Any] = failure(problem, for_calls=True)["error"]
            is_old = ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS
            missing = error["code"] in mcp_resources.MISSING
            error_code = types.INVALID_PARAMS if isinstance(problem, DuckkbError) else types.INTERNAL_ERROR
            code = _NOT_FOUND if missing and is_old else error_code
            raise MCPError(code, error["message"], error) from None


def make(front: Front, *, notifies: bool = False, all_tools: bool = False) -> Server[Any]:
    """Make a server that any number of transports may run.

    `notifies`: the transports reach a client between its requests too, so that it may subscribe to changes, and
    to log messages of its own calls. `all_tools`: it lists every tool, not the common ones alone; each can be
    called.
    """
    doors = _Doors(front, all_tools=all_tools)
    server: Server[Any] = Server(
        "duckkb",
        version=version("duckkb"),
        title="duckkb",
        get_tool_input_schema=mcp_answers.input_schema,
        on_list_tools=doors.list_tools,
        on_call_tool=doors.call_tool,
        on_list_resources=doors.list_resources,
        on_list_resource_templates=doors.list_templates,
        on_read_resource=doors.read_resource,
        on_list_prompts=doors.list_prompts,
        on_get_prompt=doors.get_prompt,
        on_completion=doors.complete,
        **({"lifespan": lifespan_of(front)} if notifies else {}),
    )
    if notifies:
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, doors.set_level)
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, doors.subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, doors.unsubscribe)
    server.middleware.append(doors.instruct)
    return server


def _find_subscriptions(ctx: _Context) -> Subscriptions:
    subscriptions: Subscriptions = ctx.lifespan_context
    return subscriptions


def _note(ctx: _Context) -> None:
    call, params = _find_call(ctx), ctx.params or {}
    name = params.get("name")  # its type has not been checked yet
    if ctx.method == "tools/call" and isinstance(name, str) and name in ACTIONS:
        call.decide(f"mcp {ctx.method}", name, params.get("arguments"))
    else:
        call.audit(f"mcp {ctx.method}", "allowed")


def _find_call(ctx: _Context) -> Asked:
    """Return the call: over HTTP that of the request; over a pipe, one with all rights."""
    if ctx.request is None:
        return Asked(Caller(), Noted())
    call: Asked = ctx.request.scope[ASKED]
    return call
