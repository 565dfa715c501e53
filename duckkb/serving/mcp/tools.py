"""Tools: the actions of the registry as MCP lists them, and their answers as MCP returns them."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import mcp_types as types

from duckkb.actions.registry.action import Action
from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller
from duckkb.serving.mcp.brief import shorten_schema

COMMON = frozenset(
    (
        "types",
        "schema",
        "find",
        "query",
        "get",
        "list",
        "sql",
        "neighbors",
        "put",
        "delete",
        "memory_search",
        "memory_put",
    )
)
"""Names of the tools that most agents need. Each definition costs a model about 500 tokens in every conversation."""


def offer_tools(caller: Caller, *, all_tools: bool = True) -> list[types.Tool]:
    """List the tools that a caller may use: all of them, or the common ones."""
    return [
        _build_tool(name) for name, action in ACTIONS.items() if action.is_for(caller) and (all_tools or name in COMMON)
    ]


def input_schema(name: str) -> dict[str, Any] | None:
    """Return the JSON Schema of a tool's arguments; None where there is no such tool."""
    return _build_tool(name).input_schema if name in ACTIONS else None


def result(answer: dict[str, Any], *, failed: bool = False) -> types.CallToolResult:
    """Return an answer, or an error, as structured content and as the same text."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    sound = text.encode("utf-8", "replace").decode()  # half a surrogate has no form on the wire
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=sound)]
    return types.CallToolResult(content=content, structured_content=json.loads(sound), is_error=failed)


@cache
def _build_tool(name: str) -> types.Tool:
    action = ACTIONS[name]
    hints = types.ToolAnnotations(
        read_only_hint=not action.writes,
        destructive_hint=action.writes and action.repeats,  # also a put: it replaces the record that is there
        idempotent_hint=action.repeats,  # a write that changes nothing writes nothing; what counts does each time
        open_world_hint=False,
    )
    return types.Tool(
        name=name,
        title=action.summary.removesuffix("."),
        description=action.description,
        input_schema=dict(action.input),
        output_schema=_build_output_schema(action),
        annotations=hints,
    )


def _build_output_schema(action: Action) -> dict[str, Any]:
    """Return the schema of an answer, without descriptions, which `docs/actions.md` has.

    Clients validate the structured content of errors against it too.
    """
    schema = _strip_descriptions(shorten_schema(action.name))
    definitions: dict[str, Any] = {key: schema.pop(key) for key in ("$schema", "$defs") if key in schema}
    return {**definitions, "type": "object", "anyOf": [schema, {"required": ["error"]}]}


def _strip_descriptions(schema: Any, *, of_names: bool = False) -> Any:
    """Return a JSON Schema without its descriptions.

    An object that is `of_names` maps names, of which one may be `description`.
    """
    if isinstance(schema, Mapping):
        return {
            key: _strip_descriptions(value, of_names=key in ("properties", "$defs") and not of_names)
            for key, value in schema.items()
            if of_names or key != "description"
        }
    return [_strip_descriptions(each) for each in schema] if isinstance(schema, list | tuple) else schema
