"""Requests to a chat model: piece by piece (`stream`), or drained to the whole answer (`predict`)."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, Unpack, get_args

from duckkb.errors import Unavailable, UsageError
from duckkb.messages import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Effort,
    Finish,
    Message,
    Prediction,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
    ToolSpec,
    message_of,
)
from duckkb.ontology.reasons import compile_rule
from duckkb.ontology.rules import Choice, Number, Rule, Whole
from duckkb.ontology.source import pointer

if TYPE_CHECKING:
    from threading import Event

    from duckkb.ports import ChatModel

Prompt = str | Sequence[Message | Mapping[str, Any]]
"""The input of a model: one text of the user, or messages, as values or as plain objects of OpenAI's protocol."""
_RULES: Mapping[str, Rule] = {
    "tool_choice": Choice(("auto", "none", "required")),
    "response_format": Choice(("text", "json")),
    "temperature": Number(0, 2),
    "top_p": Number(0, 1),
    "max_tokens": Whole(1, 1 << 24),
    "reasoning_effort": Choice(get_args(Effort)),
}
_MOST_PROBLEMS = 10


class Asking(TypedDict, total=False):
    """The settings of a request, as in `messages.ChatRequest`; the provider decides those left out."""

    tools: Sequence[ToolSpec]
    tool_choice: Literal["auto", "none", "required"]
    response_format: Literal["text", "json"]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    reasoning_effort: Effort | None


def stream(
    model: "ChatModel", prompt: Prompt, *, cancel: "Event | None" = None, **how: Unpack[Asking]
) -> Iterator[ChatEvent]:
    """Yield the answer piece by piece, as `ports.ChatModel.stream` does.

    Raises `errors.UsageError` for settings out of range too.
    """
    return model.stream(request(prompt, **how), cancel)


def predict(
    model: "ChatModel",
    prompt: Prompt,
    *,
    schema: Mapping[str, Any] | None = None,
    cancel: "Event | None" = None,
    **how: Unpack[Asking],
) -> Prediction:
    """Return the whole answer.

    With `response_format="json"` its value is `parsed`, an object or an array. A JSON Schema (2020-12) asks for
    JSON by itself, and the value satisfies it.

    Raises as `stream` does; and `errors.Unavailable` (E_MODEL) where the answer is not JSON, or does not
    satisfy the schema: then `details` have `raw`, the text as it came, and for a schema the `problems`.
    """
    checker = _compile_schema(schema) if schema is not None else None
    if schema is not None:
        how["response_format"] = "json"
    chat_request = request(prompt, **how)
    answer = drain(model.stream(chat_request, cancel))
    if chat_request.response_format == "text" or answer.tool_calls:
        return answer
    value = _parse_answer(answer)
    if checker is not None:
        _hold_against(checker, value, answer)
    return Prediction(answer.content, answer.finish, answer.reasoning, answer.tool_calls, value)


def request(prompt: Prompt, **how: Unpack[Asking]) -> ChatRequest:
    """Return the request as a value; raises `errors.UsageError` for invalid messages, and settings out of range."""
    messages = (Message("user", prompt),) if isinstance(prompt, str) else tuple(map(_parse_message, prompt))
    if not messages:
        raise UsageError("a chat model was asked nothing", suggestion="give a prompt, or messages")
    if unknown := sorted(how.keys() - Asking.__annotations__.keys()):
        raise UsageError(f"a chat model is not asked with {unknown[0]!r}", suggestion=", ".join(Asking.__annotations__))
    for name, rule in _RULES.items():
        value = how.get(name)
        problem = rule.problem(value) if value is not None else None
        if problem:
            raise UsageError(f"{name} {problem}")
    if how.get("tool_choice") == "required" and not how.get("tools"):
        raise UsageError("a tool call is required, but no tools are available", suggestion="give tools")
    return ChatRequest(
        messages,
        tuple(how.get("tools", ())),
        how.get("tool_choice", "auto"),
        how.get("response_format", "text"),
        how.get("temperature"),
        how.get("top_p"),
        how.get("max_tokens"),
        how.get("reasoning_effort"),
    )


def drain(events: Iterable[ChatEvent]) -> Prediction:
    """Return the whole answer of its pieces."""
    content_parts: list[str] = []
    reasoning_parts: list[str] = []
    calls: list[ToolCall] = []
    finish: Finish | None = None
    for event in events:
        match event:
            case ContentDelta(text):
                content_parts.append(text)
            case ReasoningDelta(text):
                reasoning_parts.append(text)
            case ToolCallDone(call):
                calls.append(call)
            case Finish():
                finish = event
    if finish is None:
        raise Unavailable("The answer of a chat model broke off.", code="E_MODEL", details={"reason": "unreachable"})
    return Prediction("".join(content_parts), finish, "".join(reasoning_parts) or None, tuple(calls))


def _parse_message(value: Message | Mapping[str, Any]) -> Message:
    try:
        return value if isinstance(value, Message) else message_of(value)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parse_answer(answer: Prediction) -> Any:
    try:
        value = json.loads(answer.content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        cut = " (it was cut off at the limit of its length)" if answer.finish.reason == "length" else ""
        raise _make_answer_error(answer, "not_json", f"is not JSON{cut}") from None
    if not isinstance(value, (dict, list)):
        raise _make_answer_error(answer, "not_json", "is neither an object nor an array")
    return value


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which JSON does not have."""
    raise ValueError(name)


def _compile_schema(schema: Mapping[str, Any]) -> Any:
    try:
        return compile_rule(dict(schema))
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"the schema of the answer is not valid: {reason}", suggestion="give a JSON Schema (2020-12)"
        ) from None


def _hold_against(checker: Any, value: Any, answer: Prediction) -> None:
    wrong = [
        {"field": pointer(*error.instance_path), "message": error.message.partition("\n")[0]}
        for error in islice(checker.iter_errors(value), _MOST_PROBLEMS)
    ]
    if wrong:
        first = wrong[0]
        message = f"does not fit the schema: {first['field']} {first['message']}".replace("  ", " ")
        raise _make_answer_error(answer, "schema", message, problems=wrong)


def _make_answer_error(answer: Prediction, reason: str, message: str, **more: Any) -> Unavailable:
    details = {"reason": reason, "provider": answer.finish.provider, "raw": answer.content, **more}
    remedy = "ask again, describe the JSON in the prompt, or use another model"
    return Unavailable(f"The answer of {answer.finish.provider} {message}.", "E_MODEL", remedy, details)
