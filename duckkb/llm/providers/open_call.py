"""A request under way: its limit of time, its cancellation, and how its connection is cut."""

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

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
