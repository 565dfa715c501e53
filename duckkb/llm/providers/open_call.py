"""One answer on its way: how long it may take, whether it is still wanted, and how its connection is cut."""

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

_WATCH_S = 0.05  # between two looks at whether an answer is still wanted
_AT_ONCE_S = 1.0  # for what may follow the end of an answer


class AnswerRefused(Exception):
    """An answer that is not worth reading to its end; the text says why. `reason` is one word for counters."""

    reason = "bad_answer"


class AnswerLate(AnswerRefused):
    """One that was not there in time."""

    reason = "timeout"


class AnswerLost(AnswerRefused):
    """One whose connection was lost on the way."""

    reason = "unreachable"


class AnswerUnwanted(AnswerRefused):
    """One that nobody waits for any more."""

    reason = "cancelled"


class OpenCall:
    """One request whose answer is read as it comes, for so many seconds in all, or until `cancel` is set: then its connection is
    cut, wherever it is."""

    def __init__(self, seconds: float, cancel: threading.Event | None = None) -> None:
        self._seconds, self._cancel = seconds, cancel
        self._until = time.monotonic() + seconds
        self._sockets: list[Any] = []
        self._is_over = False
        self._lock = threading.Lock()
        self._arrived: SimpleQueue[tuple[float, Any]] = SimpleQueue()

    def arrive(self, found: Any) -> None:
        """Told by the thread that reads what it has found: the response, pieces of its body, None at the end, or an error."""
        self._arrived.put((time.monotonic(), found))

    def note(self, event: str, info: dict[str, Any]) -> None:
        """Told by the client of each step: the connection that was opened is one to cut."""
        stream = info.get("return_value") if event.endswith(("connect_tcp.complete", "start_tls.complete")) else None
        if stream is not None:
            with self._lock:
                self._sockets.append(stream.get_extra_info("socket"))
                is_over = self._is_over
            if is_over:
                self.cut()

    def cut(self) -> None:
        """End it, so that whoever reads goes on, and the server knows."""
        with self._lock:
            self._is_over, sockets = True, list(self._sockets)
        for open_socket in sockets:
            with suppress(OSError, TypeError):
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def hurry(self) -> None:
        """What is wanted is there: wait for the rest no longer than a moment."""
        self._until = min(self._until, time.monotonic() + _AT_ONCE_S)

    def take(self) -> Any:
        """The next thing that arrived in time, however late it is asked for; raises what was found in its place, `AnswerLate` or
        `AnswerUnwanted`."""
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
        """The pieces of the body."""
        while (piece := self.take()) is not None:
            yield piece
