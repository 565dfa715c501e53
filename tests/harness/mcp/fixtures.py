"""`duckkb mcp`, with the tools, resources and prompts that the official suite calls by name, and a bearer token for whoever brings
none, as the suite cannot: all else, from the socket to the registry, is the product's.

    DUCKKB_MCP_TOKEN=... python -m tests.harness.mcp.fixtures --kb BASE mcp --http --port 0
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from duckkb.__main__ import main
from duckkb.server import mcp_server
from duckkb.server.mcp_resources import make_prompt

_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
_WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
_PAUSE_S = 0.02
Context = ServerRequestContext[Any, Any]
Content = list[types.ContentBlock]


def _text(text: str) -> Content:
    return [types.TextContent(type="text", text=text)]


def _image() -> types.ImageContent:
    return types.ImageContent(type="image", data=_PNG, mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    held = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=held)


async def _logging(ctx: Context, _: dict[str, Any]) -> Content:
    for step in ("started", "processing data", "completed"):
        await ctx.session.send_log_message("info", f"Tool execution {step}", related_request_id=ctx.request_id)
        await asyncio.sleep(_PAUSE_S)
    return _text("logged")


async def _progress(ctx: Context, _: dict[str, Any]) -> Content:
    for step in (0.0, 50.0, 100.0):
        await ctx.session.report_progress(step, 100.0)
        await asyncio.sleep(_PAUSE_S)
    return _text("done")


async def _elicit(ctx: Context, message: str, **properties: dict[str, Any]) -> Content:
    schema = {"type": "object", "properties": properties, "required": []}
    answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return _text(f"Elicitation completed: action={answer.action}, content={answer.content}")


async def _sampling(ctx: Context, given: dict[str, Any]) -> Content:
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=given["prompt"]))
    answer = await ctx.session.create_message([asked], max_tokens=100, related_request_id=ctx.request_id)
    return _text(f"LLM response: {answer.content}")


async def _reconnection(ctx: Context, _: dict[str, Any]) -> Content:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(_PAUSE_S)
    return _text("reconnected")


async def _failing(_: Context, __: dict[str, Any]) -> Content:
    raise ValueError("This tool intentionally returns an error for testing")


def _always(content: Content) -> Callable[[Context, dict[str, Any]], Awaitable[Content]]:
    async def told(_: Context, __: dict[str, Any]) -> Content:
        return content

    return told


_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
_TOOLS: dict[str, Callable[[Context, dict[str, Any]], Awaitable[Content]]] = {
    "test_simple_text": _always(_text("This is a simple text response for testing.")),
    "test_image_content": _always([_image()]),
    "test_audio_content": _always([types.AudioContent(type="audio", data=_WAV, mime_type="audio/wav")]),
    "test_embedded_resource": _always([_embedded("test://embedded-resource", "text/plain", "An embedded resource.")]),
    "test_multiple_content_types": _always(
        [*_text("Several:"), _image(), _embedded("test://mixed", "application/json", '{"test":"data"}')]
    ),
    "test_tool_with_logging": _logging,
    "test_tool_with_progress": _progress,
    "test_error_handling": _failing,
    "test_sampling": _sampling,
    "test_elicitation": lambda ctx, given: _elicit(ctx, given["message"], username={"type": "string"}),
    "test_elicitation_sep1034_defaults": lambda ctx, _: _elicit(
        ctx,
        "Defaults",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": lambda ctx, _: _elicit(
        ctx,
        "Enums",
        untitledSingle={"type": "string", "enum": _OPTIONS},
        titledSingle={"type": "string", "oneOf": _TITLED},
        legacyEnum={"type": "string", "enum": _OPTIONS, "enumNames": _OPTIONS},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        titledMulti={"type": "array", "items": {"anyOf": _TITLED}},
    ),
    "test_reconnection": _reconnection,
    "json_schema_2020_12_tool": _always(_text("a schema")),
}
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
_PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


def _prompt(name: str, given: dict[str, str]) -> types.GetPromptResult:
    contents: dict[str, Content] = {
        "test_simple_prompt": _text("This is a simple prompt for testing."),
        "test_prompt_with_arguments": _text(f"arg1={given.get('arg1')!r}, arg2={given.get('arg2')!r}"),
        "test_prompt_with_embedded_resource": [_embedded(given.get("resourceUri", ""), "text/plain", "Embedded.")],
        "test_prompt_with_image": [_image()],
    }
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in contents[name]])


def _resource(uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=_PNG)
    found = re.fullmatch("test://template/(.+)/data", uri)
    if found is None and uri != "test://static-text":
        return None
    return types.TextResourceContents(uri=uri, mime_type="text/plain", text=found[1] if found else "Static text.")


_WATCHING: dict[str, Any] = {
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
}


def with_fixtures(server: Server[Any]) -> Server[Any]:
    """The server with the suite's names beside its own."""

    def own(method: str) -> Callable[[Context, Any], Awaitable[Any]]:
        entry = server.get_request_handler(method)
        assert entry is not None, method
        return entry.handler

    list_tools, call_tool, read, list_prompts = map(own, ("tools/list", "tools/call", "resources/read", "prompts/list"))

    async def tools(ctx: Context, given: Any) -> types.ListToolsResult:
        product_tools = (await list_tools(ctx, given)).tools
        more = [types.Tool(name=name, description=name, input_schema=_SCHEMA) for name in _TOOLS]
        return types.ListToolsResult(tools=[*product_tools, *more])

    async def call(ctx: Context, given: types.CallToolRequestParams) -> Any:
        if given.name not in _TOOLS:
            return await call_tool(ctx, given)
        try:
            return types.CallToolResult(content=await _TOOLS[given.name](ctx, given.arguments or {}))
        except ValueError as problem:
            return types.CallToolResult(content=_text(str(problem)), is_error=True)

    async def resource(ctx: Context, given: types.ReadResourceRequestParams) -> Any:
        found = _resource(given.uri)
        return await read(ctx, given) if found is None else types.ReadResourceResult(contents=[found])

    def watching(of_product: Callable[[Context, Any], Awaitable[Any]]) -> Callable[[Context, Any], Awaitable[Any]]:
        async def watch(ctx: Context, given: Any) -> Any:
            return types.EmptyResult() if given.uri == "test://watched-resource" else await of_product(ctx, given)

        return watch

    async def prompts(ctx: Context, given: Any) -> types.ListPromptsResult:
        more = [types.Prompt(name=name, description=name) for name in _PROMPTS]
        return types.ListPromptsResult(prompts=[*(await list_prompts(ctx, given)).prompts, *more])

    async def prompt(_: Context, given: types.GetPromptRequestParams) -> types.GetPromptResult:
        chosen = given.arguments or {}
        return _prompt(given.name, chosen) if given.name in _PROMPTS else make_prompt(given.name, chosen)

    if server.get_request_handler("resources/subscribe") is not None:
        for method, params in _WATCHING.items():
            server.add_request_handler(method, params, watching(own(method)))
    server.add_request_handler("tools/list", types.PaginatedRequestParams, tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, resource)
    server.add_request_handler("prompts/list", types.PaginatedRequestParams, prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, prompt)
    return server


class _Bearing:
    """An application whose clients bring the server token though they have none."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._header = app, (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


if __name__ == "__main__":
    make, config = mcp_server.make, uvicorn.Config.__init__

    def bearing(self: uvicorn.Config, app: Any, *args: Any, **given: Any) -> None:
        config(self, _Bearing(app, os.environ["DUCKKB_MCP_TOKEN"]), *args, **given)

    mcp_server.make = lambda *given, **named: with_fixtures(make(*given, **named))
    uvicorn.Config.__init__ = bearing  # type: ignore[method-assign]
    main()
