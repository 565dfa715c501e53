"""A real HTTP server on this machine that speaks OpenAI's embeddings protocol, well or badly as a test asks.

with FakeEndpoint() as endpoint:
    endpoint.next(Reply(status=429, headers={"Retry-After": "0.5"}))
    ...OpenAIEndpoint(endpoint.settings(), "key").embed_queries(["a text"])
    assert len(endpoint.asked) == 2
"""

import base64
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import numpy as np
from msgspec import structs

from duckkb.types.settings import EmbeddingSettings
from tests.fakes import HashEmbedder
from tests.harness.waiting import HANG_S

_PIECE = b" " * 65_536


@dataclass(frozen=True)
class Reply:
    """What to answer once instead of the truth. `endless` sends blanks until the client hangs up (or 100 MB are out),
    `dripping` does so slowly, `silent` says nothing until the server closes, `reset` breaks the connection off, `slow_headers`
    sends a header a byte at a time, `body` replaces the vectors; `cut` breaks off in the middle of it, `held` keeps it back until
    the test lets it go, None as a body is the truth. `pieces` are sent one by one until the connection ends: an event among them
    is waited for, None breaks the connection off; with `silent` nothing follows them, and the server waits until the client hangs up."""

    status: int = 200
    body: bytes | None = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False
    dripping: bool = False
    silent: bool = False
    reset: bool = False
    slow_headers: bool = False
    cut: bool = False
    held: threading.Event | None = None
    pieces: "Sequence[bytes | threading.Event | None] | None" = None


@dataclass(frozen=True)
class Asked:
    """One request as it arrived; `at` is in seconds of a clock that only goes forward."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    at: float
    raw: bytes = b""

    @property
    def texts(self) -> list[str]:
        return list(self.body["input"])


class FakeEndpoint:
    """Answers with the vectors of `HashEmbedder`. `most_characters` refuses longer texts with 400, `backwards` turns the
    order of the answer around, `always_base64` sends that whatever was asked for; `always` is the answer while it is set.
    Behind `silent_after` requests it says nothing any more; with `together` it answers when that many have come at once,
    and `most_at_once` is how many it held."""

    def __init__(
        self, dimension: int = 16, most_characters: int = 0, backwards: bool = False, always_base64: bool = False
    ) -> None:
        self.model = HashEmbedder(dimension)
        self.most_characters = most_characters
        self.backwards = backwards
        self.always_base64 = always_base64
        self.asked: list[Asked] = []
        self.sent_bytes = 0
        self.closing = threading.Event()
        self.hung_up = threading.Event()
        self.always: Reply | None = None
        self.silent_after: int | None = None
        self.together: threading.Barrier | None = None
        self.most_at_once = 0
        self._at_once = 0
        self._counting = threading.Lock()
        self._arrival = threading.Condition()
        self._replies: list[Reply] = []
        self._server = _Server(self)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def settings(self, **changes: Any) -> EmbeddingSettings:
        settings = EmbeddingSettings("fake-model", self.url, "FAKE_KEY", timeout_s=120.0, max_retries=0)
        return structs.replace(settings, **changes)

    def next(self, *replies: Reply) -> None:
        """Give these answers to the coming requests, in this order; after them the truth again."""
        self._replies.extend(replies)

    def forget(self) -> None:
        """Forget the answers that were not needed."""
        self._replies.clear()

    @property
    def texts(self) -> list[str]:
        """Every text that was asked for, as often as it was."""
        return [text for asked in self.asked for text in asked.texts]

    def await_requests(self, count: int) -> None:
        """Return once that many requests have arrived."""
        with self._arrival:
            assert self._arrival.wait_for(lambda: len(self.asked) >= count, timeout=HANG_S), len(self.asked)

    def record_request(self, request: Asked) -> None:
        with self._arrival:
            self.asked.append(request)
            self._arrival.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """One request among those that are answered at this moment."""
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self.together:
                self.together.wait(timeout=HANG_S)
            yield
        finally:
            with self._counting:
                self._at_once -= 1

    def reply(self, body: Mapping[str, Any]) -> Reply:
        if self.silent_after is not None and len(self.asked) > self.silent_after:
            return Reply(silent=True)
        if self._replies:
            return self._replies.pop(0)
        if self.always:
            return self.always
        if self.most_characters and any(len(text) > self.most_characters for text in body["input"]):
            error = {"error": {"message": "maximum context length exceeded", "type": "invalid_request_error"}}
            return Reply(400, json.dumps(error).encode())
        return Reply(200, json.dumps(self.answer(body)).encode())

    def answer(self, body: Mapping[str, Any]) -> Any:
        vectors = 3.0 * self.model.embed_passages(
            body["input"]
        )  # not of unit length, as the protocol does not promise it
        as_text = self.always_base64 or body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": _base64(vector) if as_text else vector.tolist()}
            for index, vector in enumerate(vectors)
        ]
        return {"object": "list", "data": data[::-1] if self.backwards else data, "model": body["model"]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: FakeEndpoint) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.endpoint = endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


class _Conversation(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        endpoint = self.server.endpoint
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(raw)
        endpoint.record_request(Asked(self.path, dict(self.headers), body, time.monotonic(), raw))
        with endpoint.held():
            reply = endpoint.reply(body)
            if reply.held:
                reply.held.wait(timeout=HANG_S)
        if reply.body is None:
            reply = replace(reply, body=json.dumps(endpoint.answer(body)).encode())
        if reply.pieces is not None:
            self._send_pieces(reply)
            return
        if reply.silent:
            self._wait_for_the_client()
            return
        if reply.reset:
            self._break_off()
            return
        if reply.slow_headers:
            self._send_headers_slowly()
            return
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        unending, whole = reply.endless or reply.dripping, reply.body or b""
        if not unending:
            self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        sent = whole[: len(whole) // 2] if reply.cut else whole
        self._send_unendingly(reply.dripping) if unending else self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `asked`."""

    def _send_pieces(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Type": "text/event-stream", **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in reply.pieces or ():
            if piece is None:
                self._break_off()
            elif isinstance(piece, bytes):
                self.wfile.write(piece)
            else:
                piece.wait(timeout=HANG_S)
        if reply.silent:
            self._wait_for_the_client()

    def _break_off(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _wait_for_the_client(self) -> None:
        """Until it hangs up, or the server closes."""
        self.connection.settimeout(0.02)
        while not self.server.endpoint.closing.is_set():
            with suppress(TimeoutError):
                if not self.connection.recv(1):
                    self.server.endpoint.hung_up.set()
                    return

    def _send_headers_slowly(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.server.endpoint.closing.wait(0.05):
            self.wfile.write(b"x")

    def _send_unendingly(self, slowly: bool) -> None:
        endpoint, piece = self.server.endpoint, b" " if slowly else _PIECE
        while endpoint.sent_bytes < 100 << 20 and not (slowly and endpoint.closing.wait(0.02)):
            self.wfile.write(piece)
            endpoint.sent_bytes += len(piece)


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
