"""Tools: the actions of the registry as MCP offers them, and their answers as MCP gives them."""

import json
from functools import cache
from typing import Any

import mcp_types as types

from duckkb.actions.registry import shapes
from duckkb.actions.registry.action import Action
from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller


def offered(caller: Caller) -> list[types.Tool]:
    """What a caller may ask for."""
    return [_tool(name) for name, action in ACTIONS.items() if action.is_for(caller)]


def input_schema(name: str) -> dict[str, Any] | None:
    """What a tool takes; None where there is no such tool."""
    return _tool(name).input_schema if name in ACTIONS else None


def result(answer: dict[str, Any], *, failed: bool = False) -> types.CallToolResult:
    """An answer, or an error, as structured content and as the same text."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    sound = text.encode("utf-8", "replace").decode()  # half a surrogate has no form on the wire
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=sound)]
    return types.CallToolResult(content=content, structured_content=json.loads(sound), is_error=failed)


@cache
def _tool(name: str) -> types.Tool:
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
        output_schema=_output(action),
        annotations=hints,
    )


def _output(action: Action) -> dict[str, Any]:
    """Clients hold the structured content of errors against it too."""
    own = dict(action.output)
    shared: dict[str, Any] = {key: own.pop(key) for key in ("$schema", "$defs") if key in own}
    return {**shared, "type": "object", "anyOf": [own, dict(shapes.ERROR)]}
