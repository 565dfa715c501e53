"""Messages to and from chat models, as frozen values; as plain objects they have the form of OpenAI's protocol.

Nothing here asks a model.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

Speaker = Literal["system", "user", "assistant", "tool"]
Effort = Literal["low", "medium", "high"]


class ToolCall(Struct, frozen=True):
    """A tool call that a model asks for. `arguments` is the JSON text that the model wrote, not validated."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True):
    """A message of a conversation.

    `reasoning` is what a model thought before its answer, kept beside the `content`. A tool's message answers
    the call `tool_call_id`.
    """

    role: Speaker
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None

    def as_object(self) -> dict[str, Any]:
        """Return the message as plain data, which `message_of` reads."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.tool_calls
        ]
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            fields["reasoning_content"] = self.reasoning
        if calls:
            fields["tool_calls"] = calls
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        return fields


def message_of(value: Mapping[str, Any]) -> Message:
    """Read a message from a plain object; null content counts as empty. Raises ValueError for an invalid object."""
    role, content = value.get("role"), value.get("content") or ""
    if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
        raise ValueError("a message has a role (system, user, assistant, tool) and content")
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValueError("tool_calls is a list")
    tool_calls = tuple(map(_call_of, calls))
    tool_call_id, reasoning = value.get("tool_call_id"), value.get("reasoning_content")
    if not isinstance(tool_call_id, str | None) or not isinstance(reasoning, str | None):
        raise ValueError("tool_call_id and reasoning_content are texts")
    return Message(role, content, tool_calls, tool_call_id, reasoning)


def _call_of(value: object) -> ToolCall:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(function, Mapping):
        raise ValueError("a tool call has an id and a function")
    texts = value.get("id"), function.get("name"), function.get("arguments")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("id, name and arguments of a tool call are texts")
    return ToolCall(*map(str, texts))


class Usage(Struct, frozen=True):
    """Token counts of a provider; `cached` are tokens of the prompt it had read before, None if unknown.

    >>> Usage(5, 2, 7) + Usage(1, 1, 2, 1)
    Usage(prompt=6, completion=3, total=9, cached=1)
    """

    prompt: int = 0
    completion: int = 0
    total: int = 0
    cached: int | None = None

    def __add__(self, other: "Usage") -> "Usage":
        cached_counts = [count for count in (self.cached, other.cached) if count is not None]
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.total + other.total,
            sum(cached_counts) if cached_counts else None,
        )


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ChatRequest(Struct, frozen=True):
    """A request to a chat model. A setting of None is left to the provider."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    response_format: Literal["text", "json"] = "text"
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: Effort | None = None


class ReasoningDelta(Struct, frozen=True):
    """A piece of a model's reasoning."""

    text: str


class ContentDelta(Struct, frozen=True):
    """A piece of a model's answer."""

    text: str


class ToolCallDone(Struct, frozen=True):
    """A complete tool call of a model."""

    call: ToolCall


class Finish(Struct, frozen=True):
    """The end of an answer: its reason, its usage (None where the provider reports none), and its provider."""

    reason: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage | None
    provider: str


ChatEvent = ReasoningDelta | ContentDelta | ToolCallDone | Finish
"""An event of a streamed answer; `Finish` comes once and last."""


class Prediction(Struct, frozen=True):
    """A complete answer. `parsed` is the value of an answer in JSON, None for an answer in text."""

    content: str
    finish: Finish
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    parsed: Any = None

    @property
    def message(self) -> Message:
        """The answer as the next message of its conversation."""
        return Message("assistant", self.content, self.tool_calls, None, self.reasoning)
