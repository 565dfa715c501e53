"""A chat model at an endpoint with OpenAI's protocol, asked through the `openai` client; answers are always
streamed.

The client neither waits nor retries: `llm.failover` decides which provider is asked next. Errors repeat nothing
of a server but one line on what is wrong with a request.
"""

import json
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from duckkb.errors import Unavailable
from duckkb.llm.providers.chat_answer import ChatAnswer, WrongAnswer
from duckkb.llm.providers.open_call import AnswerRefused, OpenCall
from duckkb.llm.providers.openai_client import EXPLAINED, explanation, is_sendable, open_client
from duckkb.messages import ChatEvent, ChatRequest, Message, ToolSpec
from duckkb.settings import ChatModelSettings, ProviderSettings

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_MOST_BYTES = 64 << 20
"""Bytes of one answer at most: providers send up to 300 bytes around each token."""


class ChatEndpoint:
    """A provider of a model (`llm.failover.ChatProvider`). Its creator has checked that the host is trusted.

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
