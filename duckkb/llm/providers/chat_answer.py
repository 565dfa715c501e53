"""Assembles a streamed answer from its chunks: text, calls of tools, why it ended and its tokens.

Providers agree on little of it. Every value is checked: one of another type than the protocol has is an error,
and no error repeats it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from uuid import uuid4

from duckkb.messages import ChatEvent, ContentDelta, Finish, ReasoningDelta, ToolCall, ToolCallDone, Usage

_Reason = Literal["stop", "length", "tool_calls", "content_filter"]
_REASONS: dict[str, _Reason] = {
    "stop": "stop", "end_turn": "stop", "eos": "stop", "stop_sequence": "stop", "length": "length", "max_tokens": "length",
    "tool_calls": "tool_calls", "function_call": "tool_calls", "tool_use": "tool_calls", "content_filter": "content_filter",
}  # fmt: skip
_REASONING = ("reasoning_content", "reasoning")
_CACHED = (
    ("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",), ("cached_tokens",), ("cache_read_input_tokens",),
)  # fmt: skip
_MOST_CALLS = 128


class WrongAnswer(Exception):
    """An answer that does not fit the protocol or the request; the text says how and quotes nothing.

    `reason` is one word.
    """

    def __init__(self, said: str, reason: str = "bad_answer") -> None:
        super().__init__(said)
        self.reason = reason


class ChatAnswer:
    """An answer while it comes."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._calls: list[CalledTool] = []
        self._usage: Usage | None = None
        self._reason: _Reason | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the model has ended the answer; the number of tokens may still come."""
        return self._reason is not None

    @property
    def is_complete(self) -> bool:
        """Return whether the model ended the answer by itself, not a limit or a filter."""
        return self._reason in ("stop", "tool_calls")

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def read(self, chunk: object) -> Iterator[ChatEvent]:
        """Yield the pieces of text in a chunk. Raises `WrongAnswer`."""
        whole = _require_object(chunk, "a chunk")
        if whole.get("error"):
            raise WrongAnswer("failed in the middle of its answer")
        choices = whole.get("choices") or []
        if not isinstance(choices, list):
            raise WrongAnswer("choices that are not a list")
        for choice in [_require_object(raw_choice, "a choice") for raw_choice in choices[:1]]:
            yield from self._read(choice)
            self._take_usage(choice)
        self._take_usage(whole)
        self._take_usage(whole.get("x_groq"))

    def end(self) -> Iterator[ChatEvent]:
        """Yield the whole calls, then the end. Raises `WrongAnswer` where no end has come."""
        if self._reason is None:
            raise WrongAnswer("broke off before the end of its answer", "unreachable")
        if self._reason == "tool_calls" and not self._calls:
            raise WrongAnswer("a call of a tool without the call")
        used_ids = set[str]()
        for call in self._calls:
            tool_call = call.build_call(used_ids)
            used_ids.add(tool_call.id)
            yield ToolCallDone(tool_call)
        reason: _Reason = "tool_calls" if self._calls and self._reason == "stop" else self._reason
        yield Finish(reason, self._usage, self._provider)

    def _read(self, choice: Mapping[str, Any]) -> Iterator[ChatEvent]:
        delta = _require_object(choice.get("delta") or choice.get("message") or {}, "a delta")
        if reasoning := next((text for name in _REASONING if (text := _read_text(delta, name))), ""):
            yield ReasoningDelta(reasoning)
        if content := _read_text(delta, "content"):
            yield ContentDelta(content)
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise WrongAnswer("tool_calls that are not a list")
        for raw_call in calls:
            self._take_call(_require_object(raw_call, "a call of a tool"))
        reason = choice.get("finish_reason")
        if reason is not None and reason != "":
            known_reason = _REASONS.get(reason) if isinstance(reason, str) else None
            if known_reason is None:
                raise WrongAnswer("an end for a reason that is not known")
            self._reason = known_reason

    def _take_call(self, piece: Mapping[str, Any]) -> None:
        """Add a piece to the call of its index, of its id, or the last one, unless it begins another."""
        function = _require_object(piece.get("function") or {}, "a function")
        id, name, arguments = (
            _read_text(piece, "id"),
            _read_text(function, "name"),
            _read_arguments(function.get("arguments")),
        )
        index = piece.get("index")
        index = index if type(index) is int else None
        matching_calls = [call for call in self._calls if index is None or call.index == index]
        call = matching_calls[-1] if matching_calls else None
        if call is None or call.is_another(id, name):
            call = CalledTool(index, id)
            self._calls.append(call)
            if len(self._calls) > _MOST_CALLS:
                raise WrongAnswer(f"more than {_MOST_CALLS} calls of tools")
        call.id, call.name = call.id or id, call.name or name
        call.arguments.append(arguments)

    def _take_usage(self, holder: object) -> None:
        usage = usage_of(holder.get("usage")) if isinstance(holder, Mapping) else None
        self._usage = usage or self._usage


class CalledTool:
    """A call that comes in pieces."""

    def __init__(self, index: int | None, id: str) -> None:
        self.index, self.id, self.name = index, id, ""
        self.arguments: list[str] = []

    def is_another(self, id: str, name: str) -> bool:
        """Return whether a piece with this id and name begins another call.

        Some providers give all calls one index, or none, and empty ids; others repeat id and name in each piece.
        """
        if id and self.id:
            return id != self.id
        return bool(name) and bool(self.name) and (name != self.name or _is_whole("".join(self.arguments)))

    def build_call(self, taken: set[str]) -> ToolCall:
        """Return the call with an id that no other call of the answer has."""
        if not self.name:
            raise WrongAnswer("a call of a tool without its name")
        id = self.id if self.id and self.id not in taken else f"call_{uuid4().hex}"
        return ToolCall(id, self.name, "".join(self.arguments) or "{}")


def usage_of(value: object) -> Usage | None:
    """Return the tokens of an answer; None where they are not given as numbers.

    >>> usage_of({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4})
    Usage(prompt=9, completion=2, total=11, cached=4)
    """
    if not isinstance(value, Mapping):
        return None
    prompt = _count(value, "prompt_tokens", "input_tokens")
    completion = _count(value, "completion_tokens", "output_tokens")
    if prompt is None and completion is None:
        return None
    sum_of = (prompt or 0) + (completion or 0)
    total = _count(value, "total_tokens")
    cached_tokens = next(
        (token_count for path in _CACHED if (token_count := _read_path(value, path)) is not None), None
    )
    return Usage(prompt or 0, completion or 0, sum_of if total is None else total, cached_tokens)


def _read_path(value: Mapping[str, Any], path: tuple[str, ...]) -> int | None:
    inside: Any = value
    for name in path[:-1]:
        inside = inside.get(name)
        if not isinstance(inside, Mapping):
            return None
    return _count(inside, path[-1])


def _count(value: Mapping[str, Any], *names: str) -> int | None:
    values = (value.get(name) for name in names)
    return next((number for number in values if type(number) is int and number >= 0), None)


def _require_object(value: object, label: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise WrongAnswer(f"{label} that is not an object")
    return value


def _read_text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise WrongAnswer(f"a {name} that is not a text")
    return text or ""


def _read_arguments(value: object) -> str:
    """Return the JSON text of arguments; a few providers give the value instead."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _is_whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
