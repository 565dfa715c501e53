"""A real HTTP server on this machine that answers as chat models do, well or badly as a test asks (`FakeEndpoint`)."""

import json
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

from duckkb.types.settings import ChatModelSettings, ProviderSettings
from tests.fake_endpoint import FakeEndpoint, Reply

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


class FakeChat(FakeEndpoint):
    """Says `said` word by word, and counts in a chunk of its own."""

    said = "Hello there."

    def provider(self, **changes: Any) -> ProviderSettings:
        return ProviderSettings(**{"base_url": self.url, "model": "fake-chat", "timeout_s": 120.0, **changes})

    def row(self, **changes: Any) -> ChatModelSettings:
        return ChatModelSettings(**{"name": "fake", "providers": (self.provider(),), **changes})

    def reply(self, body: Mapping[str, Any]) -> Reply:
        if self.always or self._replies:
            return super().reply(body)
        words = self.said.split(" ")
        said = [delta(content=word if at == 0 else f" {word}") for at, word in enumerate(words)]
        return chunks(*said, finish(), {"choices": [], "usage": USAGE})


def delta(**fields: Any) -> dict[str, Any]:
    """A chunk with a piece of an answer."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def call(index: int | None = None, id: object = None, name: object = None, arguments: object = None) -> dict[str, Any]:
    """A chunk with a piece of a call of a tool; what is None is left out."""
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    given = {key: value for key, value in {"index": index, "id": id}.items() if value is not None}
    return delta(tool_calls=[given | {"type": "function", "function": function}])


def finish(reason: object = "stop", **more: Any) -> dict[str, Any]:
    """A chunk with the end."""
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more}


def event(chunk: object) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def chunks(*parts: "Mapping[str, Any] | bytes | Event | None", done: bool = True, **how: Any) -> Reply:
    """A streamed answer of these chunks; bytes are sent as they are, an event is waited for, None breaks off."""
    sent: Sequence[bytes | Event | None] = [event(part) if isinstance(part, Mapping) else part for part in parts]
    return Reply(pieces=[*sent, DONE] if done else sent, **how)
