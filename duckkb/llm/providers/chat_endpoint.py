"""A chat model at an endpoint with OpenAI's protocol, asked through the `openai` client; answers are always
streamed.

The client neither waits nor retries: `llm.call_pool` decides which provider is asked next. Errors repeat nothing
of a server but one line on what is wrong with a request.

Assembles a streamed answer from its chunks: text, calls of tools, why it ended and its tokens.

Providers agree on little of it. Every value is checked: one of another type than the protocol has is an error,
and no error repeats it."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from duckkb.llm.providers.embedding_endpoint import EXPLAINED, explanation, is_sendable, open_client
from duckkb.llm.providers.json_endpoint import AnswerRefused, OpenCall
from duckkb.types.chat_messages import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finish,
    Message,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
    ToolSpec,
    Usage,
)
from duckkb.types.errors import Unavailable
from duckkb.types.settings import ChatModelSettings, ProviderSettings

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

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


_MOST_BYTES = 64 << 20
"""Bytes of one answer at most: providers send up to 300 bytes around each token."""


class ChatEndpoint:
    """A provider of a model (`llm.call_pool.ChatProvider`). Its creator has checked that the host is trusted.

    Safe to share between threads. No error contains the key, or anything of the conversation.
    """

    def __init__(
        self, model: ChatModelSettings, provider: ProviderSettings, secret: Callable[[str], str | None]
    ) -> None:
        """Take the settings; `secret` is asked for the key at each call."""
        self._model, self._provider, self._secret = model, provider, secret
        self._opened_with: tuple[OpenAI, str | None] | None = None
        self._making = threading.Lock()

    @property
    def name(self) -> str:
        return self._provider.name

    def stream(self, request: ChatRequest, cancel: threading.Event | None = None) -> Iterator[ChatEvent]:
        """Stream the answer, as `ports.ChatModel.stream`; cut the connection when `cancel` is set, or reading
        stops.
        """
        answer, call = ChatAnswer(self.name), OpenCall(self._provider.timeout_s, cancel)
        try:
            try:
                for chunk in self._stream_chunks(request, call):
                    yield from answer.read(chunk)
                    if answer.is_finished:
                        call.hurry()
            except Unavailable:
                if not answer.is_finished:  # after the end, only the number of tokens may come
                    raise
            if request.tool_choice == "required" and request.tools and answer.is_complete and not answer.has_calls:
                raise WrongAnswer(
                    "answered in prose, but the request required a tool call (tool_choice: required)", "ignored"
                )
            yield from answer.end()
            if answer.has_calls and (not request.tools or request.tool_choice == "none"):
                raise WrongAnswer("called a tool, but the request allowed none", "ignored")
        except WrongAnswer as error:
            raise self._convert_wrong_answer(error) from None

    def _stream_chunks(self, request: ChatRequest, call: OpenCall) -> Iterator[object]:
        """Yield the server's chunks; each fault is an `errors.Unavailable`."""
        client, key = self._get_client()
        from openai import APIConnectionError, APIError, APIStatusError

        try:
            yield from self._send_request(client, request, call)
        except APIStatusError as error:
            raise self._convert_status_error(error, key) from None
        except AnswerRefused as error:
            raise self._convert_refusal(error) from None
        except APIConnectionError as error:
            if isinstance(error.__cause__, AnswerRefused):  # openai 2 wraps it, openai 3 lets it pass
                raise self._convert_refusal(error.__cause__) from None
            problem = "could not be reached, or broke off"
            raise self._make_fault("unreachable", problem, "check its base_url and the network") from None
        except APIError:
            raise self._make_fault("bad_answer", "failed in the middle of its answer", "try again later") from None
        except (ValueError, RecursionError):
            raise self._convert_wrong_answer(WrongAnswer("not JSON")) from None
        finally:
            call.cut()

    def _send_request(self, client: "OpenAI", request: ChatRequest, call: OpenCall) -> Iterator[object]:
        from openai import Stream

        from duckkb.llm.providers.guarded_http import CALL

        CALL.set(call)
        try:
            body = self._build_body(request)
            # With `object` chunks come as plain data: a hostile server's values do not become a model's fields.
            stream = client.post("/chat/completions", cast_to=object, body=body, stream=True, stream_cls=Stream[object])
        finally:
            CALL.set(None)
        form = stream.response.headers.get("content-type", "")
        if "json" in form:  # a whole answer, of a server that does not stream
            yield json.loads(stream.response.read())
        elif "event-stream" in form:
            yield from stream
        else:
            raise WrongAnswer("neither events nor JSON")

    def _build_body(self, request: ChatRequest) -> dict[str, Any]:
        model, provider = self._model, self._provider
        body: dict[str, Any] = {
            "model": provider.model,
            "messages": [*map(self._build_message, request.messages)],
            "stream": True,
        }
        if provider.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [*map(_build_tool, request.tools)]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if request.response_format == "json":
            body["response_format"] = {"type": "json_object"}
        if request.reasoning_effort is not None and model.reasoning == "mapped":
            body |= provider.map_effort(request.reasoning_effort)
        is_native = (
            model.reasoning == "native"
        )  # servers that know efforts use the new name of this limit, which counts reasoning too
        options = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_completion_tokens" if is_native else "max_tokens": request.max_tokens,
            "reasoning_effort": request.reasoning_effort if is_native else None,
        }
        return body | {name: value for name, value in options.items() if value is not None}

    def _build_message(self, message: Message) -> dict[str, Any]:
        fields = message.as_object()
        if not self._provider.returns_reasoning:
            fields.pop("reasoning_content", None)
        return fields

    def _get_client(self) -> "tuple[OpenAI, str | None]":
        """Return a client for the present key, and that key."""
        variable = self._provider.api_key_env
        key = ((self._secret(variable) if variable else None) or "").strip() or None
        if variable and not key:
            problem = f"has no key: the variable {variable} is not set"
            raise self._make_fault("no_key", problem, f"export {variable}=KEY")
        if not is_sendable(key):
            problem = "cannot be sent this key, which has characters that a header does not carry"
            raise self._make_fault("no_key", problem, f"check the key in {variable}")
        with self._making:
            if self._opened_with is None or self._opened_with[1] != key:
                self._opened_with = (
                    open_client(self._provider.base_url, key, self._provider.timeout_s, _MOST_BYTES),
                    key,
                )
            return self._opened_with

    def _convert_status_error(self, error: "APIStatusError", key: str | None) -> Unavailable:
        status, variable = error.status_code, self._provider.api_key_env
        reason = f"http_{status}"
        if status in (401, 403):
            remedy = f"set {variable} to a valid key" if variable else "name the key's variable in its api_key_env"
            return self._make_fault(reason, f"refused the key (HTTP {status})", remedy)
        if status == 429:
            return self._make_fault(reason, "asks to be asked less often (HTTP 429)", "wait, or add another provider")
        if 300 <= status < 400:
            return self._make_fault(
                reason, f"points elsewhere (HTTP {status})", "set its base_url to the final address"
            )
        if status in EXPLAINED:
            server_message = explanation(error.body, key)
            remedy = f"check the row global.models.{self._model.name}, and the request"
            return self._make_fault(reason, f"refused the request (HTTP {status}){server_message}", remedy)
        return self._make_fault(reason, f"failed (HTTP {status})", "try again later")

    def _convert_refusal(self, error: AnswerRefused) -> Unavailable:
        if error.reason == "cancelled":
            message = f"The answer of the chat model {self._model.name} was cancelled."
            return Unavailable(message, code="E_CANCELLED", details={"reason": "cancelled"})
        return self._make_fault(error.reason, str(error), "try again, or raise its timeout_s")

    def _convert_wrong_answer(self, error: WrongAnswer) -> Unavailable:
        if error.reason == "bad_answer":
            return self._make_fault(error.reason, f"gave an answer that cannot be used: {error}")
        return self._make_fault(error.reason, str(error), "try again, or ask another provider")

    def _make_fault(self, reason: str, problem: str, suggestion: str = "") -> Unavailable:
        suggestion = suggestion or f"check what runs at {self._provider.host}"
        return Unavailable(f"The provider {self.name} {problem}.", "E_MODEL", suggestion, {"reason": reason})


def _build_tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
