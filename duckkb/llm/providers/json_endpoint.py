"""JSON over HTTP with a limit of time, whatever the server does; used for rerankers and chat models.

It uses the standard library, since a process that only reranks should not load the openai client. Requests go
straight to the trusted host: redirects count as unusable answers, and no proxy is used. No error repeats a
server's text, which may quote the key.

A request under way: its limit of time, its cancellation, and how its connection is cut."""

import json
import math
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import count
from queue import Empty, SimpleQueue
from threading import Timer
from typing import Any, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

from duckkb.types.errors import Unavailable
from duckkb.types.records import Fingerprint
from duckkb.types.settings import ExpandSettings, RerankSettings

_REPEATS = 2
_PAUSE_S = 0.1  # before the first repeat, twice as long before the next; unless the server names another
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_SLACK_BYTES = 1 << 20
_ECHO = 4  # an answer may be so many times the request: some servers return the documents, escaped


class _Answer(Struct, frozen=True):
    status: int
    pause_s: float | None
    body: bytes


class JsonEndpoint:
    """The endpoint of one model.

    `name` is that of its settings, `rerank` or `expand`; `refusal` is raised instead of asking it.
    Safe to share between threads. Every fault is an `errors.Unavailable` with code `E_MODEL` and, in
    `details["reason"]`, one word for counters: `timeout`, `unreachable`, `http_STATUS` or `bad_answer`. None
    contains the key or the question.
    """

    def __init__(
        self,
        name: str,
        settings: RerankSettings | ExpandSettings,
        key: str | None = None,
        refusal: Unavailable | None = None,
    ) -> None:
        self._name, self._settings, self._refusal = name, settings, refusal
        self._key = key.strip() if key else None
        self._address = urlsplit(settings.base_url)

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""
        return self._settings.model or ""

    @property
    def host(self) -> str:
        """The host and port, for messages."""
        return f"{self._address.hostname}:{self._address.port}" if self._address.port else str(self._address.hostname)

    def fingerprint(self, prompt: str = "") -> Fingerprint:
        """Return the fingerprint of model, address, protocol and prompt, without a request."""
        parts = [self._name, self._settings.method, self._settings.base_url.rstrip("/"), self.model, prompt]
        return Fingerprint(self.model, sha256(json.dumps(parts).encode()).hexdigest()[:16])

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> Any:
        """Post a JSON value and return the JSON answer.

        A server that is busy, fails or breaks off is asked up to twice more, after the pause that it names,
        where time is left.
        """
        if self._refusal:
            raise self._refusal
        data, until = json.dumps(body, separators=(",", ":")).encode(), time.monotonic() + seconds
        for attempt in count():
            answer = self._try_request(path, data, until, is_last=attempt == _REPEATS)
            if answer is not None and 200 <= answer.status < 300:
                return self._read(answer.body, most=_SLACK_BYTES + _ECHO * len(data))
            pause = _PAUSE_S * 2**attempt
            if answer is not None:
                pause = pause if answer.pause_s is None else answer.pause_s
                is_over = attempt == _REPEATS or time.monotonic() + pause >= until
                if answer.status not in _BUSY or is_over:
                    self._refuse(answer.status)
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
        raise AssertionError("the loop ends by an answer or a fault")

    def fault(self, reason: str, what: str, suggestion: str = "") -> Unavailable:
        """Return an error that says what the model at this host did."""
        suggestion = suggestion or f"check global.{self._name} in config.yaml, and what runs at {self.host}"
        message = f"The {self._name} model at {self.host} {what}."
        return Unavailable(message, code="E_MODEL", suggestion=suggestion, details={"reason": reason})

    def bad(self, what: str) -> Unavailable:
        """Return the fault for an answer that cannot be used."""
        return self.fault("bad_answer", f"gave an answer that cannot be used: {what}")

    def _refuse(self, status: int) -> NoReturn:
        if status in (401, 403):
            variable = self._settings.api_key_env
            remedy = f"check the key in {variable}" if variable else f"set global.{self._name}.api_key_env"
            raise self.fault(f"http_{status}", f"refused the key (HTTP {status})", remedy)
        if status in _BUSY:
            raise self.fault(f"http_{status}", f"failed (HTTP {status})", "try again later")
        raise self.fault(f"http_{status}", f"refused the request (HTTP {status})")

    def _try_request(self, path: str, data: bytes, until: float, *, is_last: bool) -> _Answer | None:
        """Send one request; return None where the connection was lost, unless it is the last try."""
        try:
            return self._send_request(path, data, until)
        except (OSError, HTTPException, ValueError, AttributeError) as error:
            # A connection cut during a read fails in many ways, of TLS and of http.client
            if time.monotonic() >= until or isinstance(error, TimeoutError):
                raise self.fault("timeout", "did not answer in time") from None
            if is_last or isinstance(error, (ConnectionRefusedError, socket.gaierror)):
                raise self.fault("unreachable", "could not be reached, or broke off") from None
            return None

    def _send_request(self, path: str, data: bytes, until: float) -> _Answer:
        connection = self._connection(max(0.001, until - time.monotonic()))
        connection.connect()
        # A limit for the whole answer: each late byte would restart the socket's own
        cut = Timer(max(0.0, until - time.monotonic()), _cut, (connection.sock,))
        cut.daemon = True
        cut.start()
        try:
            connection.request("POST", self._address.path.rstrip("/") + path, data, self._build_headers())
            response = connection.getresponse()
            most = _SLACK_BYTES + _ECHO * len(data) + 1
            body = response.read(most)
            if time.monotonic() >= until:
                raise TimeoutError
            if response.length and len(body) < most:  # http.client does not report this for a limited read
                raise HTTPException
            return _Answer(response.status, _pause(response), body)
        finally:
            cut.cancel()
            connection.close()

    def _connection(self, seconds: float) -> HTTPConnection:
        host, port = str(self._address.hostname), self._address.port
        if self._address.scheme == "http":
            return HTTPConnection(host, port, timeout=seconds)
        from ssl import create_default_context

        return HTTPSConnection(host, port, timeout=seconds, context=create_default_context())

    def _build_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "duckkb"}
        if self._key:
            if not (self._key.isascii() and self._key.isprintable()):
                problem = "cannot be sent this key, which has characters that a header does not carry"
                raise self.fault("no_key", problem, f"check the key in {self._settings.api_key_env}")
            headers["Authorization"] = f"Bearer {self._key}"
        return headers | {"Connection": "close"}

    def _read(self, body: bytes, most: int) -> Any:
        if len(body) > most:
            raise self.bad(f"more than {most:,} bytes")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self.bad("not JSON") from None


def number(value: Any) -> float | None:
    """Return a finite number of an answer; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def _pause(response: HTTPResponse) -> float | None:
    """Return the seconds that Retry-After names; None without one, or with a date."""
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _cut(open_socket: socket.socket) -> None:
    """Shut a socket down from another thread, so that its reader goes on."""
    with suppress(OSError):
        socket.socket.shutdown(open_socket, socket.SHUT_RDWR)


_WATCH_S = 0.05  # between two checks of `cancel`
_AT_ONCE_S = 1.0  # for what may follow the end of an answer


class AnswerRefused(Exception):
    """An answer that is not read to its end; the text says why. `reason` is one word for counters."""

    reason = "bad_answer"


class AnswerLate(AnswerRefused):
    """An answer that was not there in time."""

    reason = "timeout"


class AnswerLost(AnswerRefused):
    """An answer whose connection was lost on the way."""

    reason = "unreachable"


class AnswerUnwanted(AnswerRefused):
    """An answer that nobody waits for any more."""

    reason = "cancelled"


class OpenCall:
    """A request whose answer is read as it comes, for a limited time in all, or until `cancel` is set.

    Then its connection is cut, at whatever stage it is.
    """

    def __init__(self, seconds: float, cancel: threading.Event | None = None) -> None:
        self._seconds, self._cancel = seconds, cancel
        self._until = time.monotonic() + seconds
        self._sockets: list[Any] = []
        self._is_over = False
        self._lock = threading.Lock()
        self._arrived: SimpleQueue[tuple[float, Any]] = SimpleQueue()

    def arrive(self, found: Any) -> None:
        """Take what the reading thread has received: the response, pieces of its body, None at the end, or an
        error.
        """
        self._arrived.put((time.monotonic(), found))

    def note(self, event: str, info: dict[str, Any]) -> None:
        """Take the client's trace events, and keep the opened connection, so that it can be cut."""
        stream = info.get("return_value") if event.endswith(("connect_tcp.complete", "start_tls.complete")) else None
        if stream is not None:
            with self._lock:
                self._sockets.append(stream.get_extra_info("socket"))
                is_over = self._is_over
            if is_over:
                self.cut()

    def cut(self) -> None:
        """Cut the connection, so that the reader goes on, and the server knows."""
        with self._lock:
            self._is_over, sockets = True, list(self._sockets)
        for open_socket in sockets:
            with suppress(OSError, TypeError):
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def hurry(self) -> None:
        """Wait no longer than a moment for the rest, once the wanted part is there."""
        self._until = min(self._until, time.monotonic() + _AT_ONCE_S)

    def take(self) -> Any:
        """Return the next thing that arrived in time, even where it is asked for late.

        Raises the error that arrived in its place, `AnswerLate` or `AnswerUnwanted`.
        """
        while True:
            if self._cancel is not None and self._cancel.is_set():
                self.cut()
                raise AnswerUnwanted("was not waited for")
            remaining = max(0.0, self._until - time.monotonic())
            try:
                at, item = self._arrived.get(
                    timeout=min(remaining, _WATCH_S) if self._cancel is not None else remaining
                )
            except Empty:
                if remaining > 0:
                    continue
                at, item = math.inf, None
            if at > self._until:
                self.cut()
                raise AnswerLate(f"did not finish its answer in {self._seconds:g} s")
            if isinstance(item, BaseException):
                raise item
            return item

    def rest(self) -> Iterator[bytes]:
        """Yield the pieces of the body."""
        while (piece := self.take()) is not None:
            yield piece
