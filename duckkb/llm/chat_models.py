"""Requests to a chat model: piece by piece (`stream`), or drained to the whole answer (`predict`).

The registry of chat models: plain data by name, read into settings.

A row is `global.models.NAME` of config.yaml, or a dictionary of a program without a knowledge base."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, Unpack, get_args

from msgspec import Struct

from duckkb.ontology.names import (
    Choice,
    Flag,
    Names,
    Number,
    Rule,
    Text,
    Url,
    VariableName,
    Whole,
    show_value,
    suggest_known_names,
)
from duckkb.ontology.validation import compile_rule
from duckkb.ontology.yaml_source import Document, Section, pointer, root_section
from duckkb.types.chat_messages import (
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
from duckkb.types.errors import Finding, Unavailable, UsageError
from duckkb.types.settings import ChatModelSettings, ProviderSettings, Reasoning, Settings

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


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}")
_REMEDY = "providers: [{base_url: URL, model: NAME, api_key_env: VARIABLE}]"


class RowKey(Struct, frozen=True):
    """A key of a row, or of a provider in it; where it is absent, the default of its settings holds."""

    name: str
    rule: Rule
    meaning: str


ROW_KEYS = (
    RowKey("json_mode", Flag(), "Whether it supports JSON output; if false, requests for JSON are refused without a call."),
    RowKey("tools", Flag(), "Whether it calls tools; if false, requests with tools are refused."),
    RowKey(
        "reasoning", Choice(get_args(Reasoning)),
        "Whether it thinks before it speaks: not at all (none), with the effort that is asked for (native), where a provider's"
        " reasoning_body is sent (mapped: medium and high; low is off), or always (fixed).",
    ),
    RowKey("context_tokens", Whole(512, 1 << 24), "What it reads at once, question and answer together."),
)  # fmt: skip
PROVIDER_KEYS = (
    RowKey("base_url", Url(), "/chat/completions below this address is asked, after `duckkb trust`."),
    RowKey("model", Text(), "The model as this provider calls it; where it is not set, NAME."),
    RowKey("api_key_env", VariableName(), "The environment variable that holds the provider's key."),
    RowKey("timeout_s", Number(0.1, 3_600), "How long one answer may take, in seconds."),
    RowKey("stream_usage", Flag(), "Whether it may be asked to count tokens (stream_options); a few refuse that."),
    RowKey("returns_reasoning", Flag(), "Whether it wants to read again what the model thought, as a few do between calls of tools."),
    RowKey("reasoning_body", Names(), "What a request has besides where reasoning is asked of a `mapped` model, such as {enable_thinking: true}."),
    RowKey("reasoning_off", Names(), "What it has instead where the effort is low, for which a `mapped` model does not think; unset: reasoning_body with each true as false."),
)  # fmt: skip


def read_registry(rows: Mapping[str, Any]) -> dict[str, ChatModelSettings]:
    """Read chat models from plain data: `{NAME: {"providers": [{"base_url": URL, ...}], "json_mode": True, ...}}`.

    Raises `errors.UsageError` (E_CONFIG), with everything that is wrong as its findings.

    >>> read_registry({"small": {"providers": [{"base_url": "http://127.0.0.1:8080/v1"}]}})["small"].providers[0].model
    'small'
    """
    findings: list[Finding] = []
    models = read_models(root_section(Document("registry", rows), "E_CONFIG", findings), {})
    if findings:
        places = [f"{finding.field} {finding.message}" for finding in findings]
        raise UsageError(f"the registry of models is wrong: {places[0]}", "E_CONFIG", _REMEDY, findings=tuple(findings))
    return models


def row_of(settings: Settings, name: str | None) -> ChatModelSettings:
    """Return the row of a name; None: that of `global.ask.model`, or the only one.

    Raises `errors.UsageError` (E_NO_MODEL).
    """
    models, model_name = settings.models, name or settings.ask.model
    if model_name is None and len(models) == 1:
        return next(iter(models.values()))
    if model_name in models:
        return models[str(model_name)]
    if not models:
        raise UsageError("config.yaml has no chat model.", "E_NO_MODEL", f"add global.models: {{NAME: {{{_REMEDY}}}}}")
    if model_name is None:
        message, remedy = (
            f"There are {len(models)} chat models, and none is chosen.",
            f"set global.ask.model: {next(iter(models))}",
        )
        raise UsageError(message, "E_NO_MODEL", remedy)
    raise UsageError(f"No chat model {show_value(model_name)}.", "E_NO_MODEL", suggest_known_names(model_name, models))


def read_models(section: Section, origins: dict[str, str]) -> dict[str, ChatModelSettings]:
    """Read the rows of a section by name; note every problem in the section.

    The place of each given value is added to `origins`.
    """
    names = [name for name in section.value if _is_name(section, name)]
    return {name: _read_model(name, section.sub(name), origins) for name in names}


def _is_name(section: Section, name: str) -> bool:
    if NAME.fullmatch(name):
        return True
    section.problem(
        f"{show_value(name)} cannot name a model", name, remedy="letters, digits and . _ : / - after the first one"
    )
    return False


def _read_model(name: str, row: Section, origins: dict[str, str]) -> ChatModelSettings:
    options = _read_keys(row, ROW_KEYS, f"global.models.{name}", origins, ("providers",))
    providers = []
    for index, value in row.items("providers"):
        if isinstance(value, dict):
            entry = row.entry("providers", index, value)
            provider_options = _read_keys(entry, PROVIDER_KEYS, f"global.models.{name}.providers.{index}", origins)
            providers.append(ProviderSettings(**{"model": name, **provider_options}))
            if options.get("reasoning") == "mapped" and not provider_options.get("reasoning_body"):
                entry.problem(
                    "does not define how to request reasoning", remedy="reasoning_body: {enable_thinking: true}"
                )
        else:
            row.problem(f"must be a mapping, is {show_value(value)}", "providers", index, remedy=_REMEDY)
    if not row.value.get("providers"):
        row.problem("needs at least one provider", remedy=_REMEDY)
    return ChatModelSettings(name, tuple(providers), **options)


def _read_keys(
    section: Section, keys: tuple[RowKey, ...], at: str, origins: dict[str, str], more: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read the keys that are present and valid, by name."""
    absent = [key.name for key in keys if key.name == "api_key_env" and section.value.get(key.name) is None]
    known_values = section.read({key.name: key.rule for key in keys if key.name not in absent}, (*more, *absent))
    values = {name: value for name, value in known_values.items() if value is not None}
    origins.update({f"{at}.{name}": section.place(name) for name in values})
    return {name: float(value) if name == "timeout_s" else value for name, value in values.items()}
