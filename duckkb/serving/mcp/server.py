"""The MCP server of a base: what each request of the protocol asks of it, over any transport."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from duckkb.actions.registry.next_calls import with_calls_in_notices
from duckkb.actions.registry.offered import ACTIONS
from duckkb.actions.registry.run import failure
from duckkb.caller import Caller
from duckkb.errors import DuckkbError
from duckkb.serving.front import ASKED, Asked, Front
from duckkb.serving.lines import report_unexpected, say
from duckkb.serving.mcp import log_messages, prompts, resources, tools
from duckkb.serving.mcp.brief import shorten_answer, shorten_error
from duckkb.serving.mcp.confirming import ask_confirmation
from duckkb.serving.mcp.subscriptions import Subscriptions, lifespan_of
from duckkb.serving.telemetry.noted import Noted

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
        return types.ListToolsResult(tools=tools.offer_tools(_find_call(ctx).caller, all_tools=self._all_tools))

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
        await log_messages.send_of_call(ctx, given.name, answer, is_error, monotonic() - began)
        short = shorten_error(answer) if is_error else shorten_answer(given.name, given.arguments or {}, answer)
        return tools.result(short, failed=is_error)

    async def set_level(self, ctx: _Context, given: types.SetLevelRequestParams) -> types.EmptyResult:
        log_messages.set_level(ctx, given.level)
        return types.EmptyResult()

    async def subscribe(self, ctx: _Context, given: types.SubscribeRequestParams) -> types.EmptyResult:
        """Subscribe to a resource.

        A resource that cannot be read now is refused as reading it would be: so nobody learns whether it
        exists, and nothing is stored.
        """
        call, connection = _find_call(ctx), log_messages.connection_of(ctx)
        text = await self._read(ctx, resources.read_current_text, given.uri, call.caller)
        _find_subscriptions(ctx).add(connection, given.uri, call, text)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: _Context, given: types.UnsubscribeRequestParams) -> types.EmptyResult:
        _find_subscriptions(ctx).remove(log_messages.connection_of(ctx), given.uri)
        return types.EmptyResult()

    async def list_resources(self, ctx: _Context, _: _Given) -> types.ListResourcesResult:
        entries = await self._read(ctx, resources.offer_resources, _find_call(ctx).caller)
        return types.ListResourcesResult(resources=entries)

    async def list_templates(self, ctx: _Context, _: _Given) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(resources.TEMPLATES))

    async def read_resource(self, ctx: _Context, given: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        contents = await self._read(ctx, resources.read, given.uri, _find_call(ctx).caller)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(self, ctx: _Context, _: _Given) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=prompts.offer_prompts(all_tools=self._all_tools))

    async def get_prompt(self, ctx: _Context, given: types.GetPromptRequestParams) -> types.GetPromptResult:
        return prompts.make_prompt(given.name, given.arguments or {})

    async def complete(self, ctx: _Context, given: types.CompleteRequestParams) -> types.CompleteResult:
        argument = given.argument
        completion = await self._read(
            ctx, resources.complete_argument, argument.name, argument.value, _find_call(ctx).caller
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
        about = await self._read(ctx, resources.instructions, _find_call(ctx).caller)
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
            missing = error["code"] in resources.MISSING
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
        get_tool_input_schema=tools.input_schema,
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
