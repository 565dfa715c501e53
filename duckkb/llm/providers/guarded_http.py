"""The HTTP client under the openai client: it bounds what is sent and what is read.

Redirects are not followed, as they could carry texts to another host. Proxies of the environment are used as usual.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from openai import DefaultHttpxClient

from duckkb.llm.call_pool import wait_within
from duckkb.llm.providers.json_endpoint import AnswerLate, AnswerLost, AnswerRefused, OpenCall

_ERROR_BYTES = 4096  # bytes of an error's body: enough for its message
# What an embeddings request needs. The openai client adds more: the platform, and whatever OPENAI_ORG_ID,
# OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS hold, which is not meant for every host.
_SENT = {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"}
_BODY_FORM = {"content-encoding", "content-length", "transfer-encoding"}
_PAUSES = {"retry-after": 1.0, "retry-after-ms": 0.001}  # headers that ask for a pause, with their unit in seconds
_GRACE = 0.5  # seconds; more specific limits should expire first


CALL: ContextVar[OpenCall | None] = ContextVar("call", default=None)
"""The call whose request is being made; the client's own interface cannot pass it."""
# A client before openai 3 writes the whole request into its log, where that is at DEBUG.
logging.getLogger("openai._base_client").addFilter(lambda record: CALL.get() is None)


class GuardedClient(DefaultHttpxClient):
    """A client that sends `key` as the bearer token, or none, and reads every body before returning the answer.

    Raises `AnswerRefused` for a body of more than `most_bytes` or one that takes longer than `seconds`; the
    openai client retries neither. Waiting for a connection or the next bytes is limited to `seconds` as well,
    and so is a whole answer, whose headers may come a byte at a time.
    """

    def __init__(self, key: str | None, seconds: float, most_bytes: int) -> None:
        super().__init__(follow_redirects=False, timeout=seconds)
        self._key = key
        self._seconds = seconds
        self._most_bytes = most_bytes

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        plain = self._build_plain_request(request)
        if call := CALL.get():
            return self._stream_answer(plain, call, options)
        answer = wait_within(self._seconds + _GRACE, lambda: self._fetch_answer(plain, **options))
        if answer is None:
            raise self._make_late_error()
        response, body = answer
        return type(response)(
            response.status_code, headers=self._filter_headers(response), content=body, request=request
        )

    def _stream_answer(self, plain: Any, call: OpenCall, options: dict[str, Any]) -> Any:
        """Return the head of an answer; a thread of its own reads the body piece by piece."""
        plain.headers["Connection"] = "close"  # a connection of its own, which can be cut
        plain.extensions = {**plain.extensions, "trace": call.note}
        threading.Thread(target=self._forward_pieces, args=(plain, call.arrive, options), daemon=True).start()
        response = call.take()
        return type(response)(
            response.status_code, headers=self._filter_headers(response), content=call.rest(), request=plain
        )

    def _forward_pieces(self, plain: Any, arrive: Callable[[Any], None], options: dict[str, Any]) -> None:
        try:
            response = super().send(plain, stream=True, **options)
        except BaseException as error:  # any error is passed on to the caller
            arrive(error)
            return
        try:
            arrive(response)
            for piece in self._iter_pieces(response):
                arrive(piece)
            arrive(None)
        except AnswerRefused as error:
            arrive(error)
        except Exception:  # a connection cut during a read fails in many ways
            arrive(AnswerLost("broke off in the middle of its answer"))
        finally:
            response.close()

    def _iter_pieces(self, response: Any) -> Iterator[bytes]:
        """Yield the decoded body in pieces; of an error only its beginning."""
        limit = remaining = self._most_bytes if response.is_success else _ERROR_BYTES
        for piece in response.iter_bytes():
            if len(piece) > remaining and response.is_success:
                raise AnswerRefused(f"sent more than {limit:,} bytes")
            yield piece[:remaining]
            remaining -= len(piece)
            if remaining < 0:
                return

    def _filter_headers(self, response: Any) -> list[tuple[str, str]]:
        return [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in _BODY_FORM and self._should_keep_header(name.lower(), value)
        ]

    def _fetch_answer(self, request: Any, **options: Any) -> tuple[Any, bytes]:
        response = super().send(request, stream=True, **options)
        try:
            return response, self._read(response)
        finally:
            response.close()

    def _should_keep_header(self, name: str, value: str) -> bool:
        """Return whether a header is passed on: a pause must not exceed the time of an answer."""
        unit = _PAUSES.get(name)
        try:
            return unit is None or 0 <= float(value) * unit <= self._seconds
        except ValueError:
            return False

    def _make_late_error(self) -> AnswerRefused:
        return AnswerLate(f"did not finish its answer in {self._seconds:g} s")

    def _build_plain_request(self, request: Any) -> Any:
        """Build a separate request, as the openai client reads the headers of its own after the answer."""
        headers = {name: value for name, value in request.headers.items() if name.lower() in _SENT}
        headers["User-Agent"] = "duckkb"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        content, extensions = request.read(), request.extensions
        return type(request)(request.method, request.url, headers=headers, content=content, extensions=extensions)

    def _read(self, response: Any) -> bytes:
        """Return the decoded body; of an error only its beginning."""
        body, deadline = bytearray(), time.monotonic() + self._seconds
        for piece in self._iter_pieces(response):
            body += piece
            if time.monotonic() > deadline:
                raise self._make_late_error()
        return bytes(body)
