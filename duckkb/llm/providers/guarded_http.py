"""The HTTP client under the openai client: it sends no more than was asked for and takes no more than was expected.

Redirects are not followed, as they could carry texts to another host. Proxies of the environment are used as usual.
"""

import time
from typing import Any

from openai import DefaultHttpxClient

from duckkb.llm.waiting import within

_ERROR_BYTES = 4096  # of an error's body: enough for its message
# What an embeddings request needs. The openai client adds more: the platform, and whatever OPENAI_ORG_ID,
# OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS hold, which is not meant for every host.
_SENT = {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"}
_BODY_FORM = {"content-encoding", "content-length", "transfer-encoding"}
_PAUSES = {"retry-after": 1.0, "retry-after-ms": 0.001}  # headers that ask for a pause, with their unit in seconds
_GRACE = 0.5  # seconds, so that limits which know what they waited for come first


class AnswerRefused(Exception):
    """An answer that is not worth reading to its end; the text says why."""


class GuardedClient(DefaultHttpxClient):
    """Sends `key` as the bearer token, or none, and reads every body before anyone sees the answer.

    Raises `AnswerRefused` for a body of more than `most_bytes` or one that takes longer than `seconds`; the openai client
    retries neither. Waiting for a connection or the next bytes is limited to `seconds` as well, and so is the whole of an
    answer, whose headers may come a byte at a time.
    """

    def __init__(self, key: str | None, seconds: float, most_bytes: int) -> None:
        super().__init__(follow_redirects=False, timeout=seconds)
        self._key = key
        self._seconds = seconds
        self._most_bytes = most_bytes

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        plain = self._plain(request)
        answer = within(self._seconds + _GRACE, lambda: self._exchange(plain, **options))
        if answer is None:
            raise self._late()
        response, body = answer
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in _BODY_FORM and self._is_heeded(name.lower(), value)
        ]
        return type(response)(response.status_code, headers=headers, content=body, request=request)

    def _exchange(self, request: Any, **options: Any) -> tuple[Any, bytes]:
        response = super().send(request, stream=True, **options)
        try:
            return response, self._read(response)
        finally:
            response.close()

    def _is_heeded(self, name: str, value: str) -> bool:
        """A server may ask for a pause, but for no longer than an answer may take."""
        unit = _PAUSES.get(name)
        try:
            return unit is None or 0 <= float(value) * unit <= self._seconds
        except ValueError:
            return False

    def _late(self) -> AnswerRefused:
        return AnswerRefused(f"did not finish its answer in {self._seconds:g} s")

    def _plain(self, request: Any) -> Any:
        """A request of its own, as the openai client reads the headers of its own again after the answer."""
        headers = {name: value for name, value in request.headers.items() if name.lower() in _SENT}
        headers["User-Agent"] = "duckkb"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        content, extensions = request.read(), request.extensions
        return type(request)(request.method, request.url, headers=headers, content=content, extensions=extensions)

    def _read(self, response: Any) -> bytes:
        """The decoded body; of an error's the beginning."""
        body = bytearray()
        limit = self._most_bytes if response.is_success else _ERROR_BYTES
        deadline = time.monotonic() + self._seconds
        for piece in response.iter_bytes():
            body += piece
            if len(body) > limit and response.is_success:
                raise AnswerRefused(f"sent more than {limit:,} bytes")
            if len(body) > limit:
                break
            if time.monotonic() > deadline:
                raise self._late()
        return bytes(body[:limit])
