"""Tools: what they take, what they do, and what they return to whom."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from duckkb.errors import UsageError
from duckkb.llm.loop.calls import CallRecord, ToolError
from duckkb.llm.loop.event_loop import EventLoop, refuse_form
from duckkb.messages import ToolSpec
from duckkb.ontology.reasons import compile_rule

if TYPE_CHECKING:
    from threading import Event

Args = Mapping[str, Any]
Records = tuple[CallRecord, ...]


class TwoSided(Struct, frozen=True):
    """A result with one side for the model, and one for the program that shows the conversation."""

    for_llm: Any
    for_frontend: Any


class ToolContext(Struct, frozen=True):
    """The context of a call, beside its arguments.

    It has the `metadata` of the loop, and the records of the `harness` from before this turn. Once `cancelled`
    is set nobody waits for the result. `key` is the same whenever this one call is executed.
    """

    metadata: Mapping[str, Any]
    harness: Records
    turn: int
    call_id: str
    key: str
    cancelled: "Event"


class Ticket(Struct, frozen=True):
    """A ticket for a call that needs approval; a call that is `approved` already is executed at once."""

    ticket_id: str
    approved: bool = False


class Tool(Struct, frozen=True):
    """A function that a model may call.

    `parameters` is a JSON Schema (2020-12) of an object. `execute` returns a text, a JSON value, or a
    `TwoSided`; it runs beside the other calls of its turn, may raise `ToolError`, and has `timeout_s` seconds.
    A tool with `create_ticket` is executed once somebody approved the call. `discover` tells before each turn
    whether the model sees the tool: True, or a mapping whose `visible` is true.
    A tool that is `idempotent` by `context.key` is executed again where an earlier execution is uncertain. Each
    of the three functions may be `async def`. Raises `errors.UsageError` for functions that cannot be called
    so.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    execute: Callable[[Args, ToolContext], Any]
    timeout_s: float = 60.0
    create_ticket: Callable[[Args, ToolContext], Ticket | Awaitable[Ticket]] | None = None
    discover: Callable[[Records, Mapping[str, Any]], Any] | None = None
    idempotent: bool = False

    def __post_init__(self) -> None:
        for name in ("execute", "create_ticket", "discover"):
            function = getattr(self, name)
            if function is not None or name == "execute":
                refuse_form(f"`{name}` of the tool {self.name!r}", function, 2)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)


def refuse_unsound(tools: Sequence[Tool]) -> None:
    """Raise `errors.UsageError` for a duplicated name, and for parameters that are no JSON Schema."""
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two tools are called {twice!r}", suggestion="give each a different name")
    for tool in tools:
        try:
            compile_rule(tool.parameters)
        except ValueError as error:
            message = f"the parameters of the tool {tool.name!r} are not a JSON Schema: {error}".partition("\n")[0]
            raise UsageError(message, suggestion="correct the schema") from error


def visible(
    tools: Sequence[Tool], records: Records, metadata: Mapping[str, Any], event_loop: EventLoop
) -> dict[str, Tool]:
    """Return the tools that the model sees now; a tool whose `discover` fails is hidden."""
    return {tool.name: tool for tool in tools if _is_visible(tool, records, metadata, event_loop)}


def _is_visible(tool: Tool, records: Records, metadata: Mapping[str, Any], event_loop: EventLoop) -> bool:
    if tool.discover is None:
        return True
    try:
        answer = event_loop.settle(tool.discover(records, metadata))
        return (answer.get("visible") if isinstance(answer, Mapping) else answer) is True
    except Exception:  # any error hides the tool
        return False


def sides(value: Any) -> tuple[str, Any]:
    """Return the text for the model, and the value for the front end (None where there is none).

    Raises ToolError.
    """
    frontend_data = None
    if isinstance(value, TwoSided):
        value, frontend_data = value.for_llm, value.for_frontend
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ToolError("it was executed, and its result has no form in JSON") from None
    return text.encode("utf-8", "replace").decode(), frontend_data  # a lone surrogate cannot be encoded
