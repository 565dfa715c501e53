"""Several workers for requests of one kind: chooses the next one, queues requests, and replaces workers that end."""

import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from functools import partial
from signal import Signals
from time import monotonic

from msgspec.structs import replace

from duckkb import deadline
from duckkb.errors import Unavailable
from duckkb.llm.call_pool import CallCounts
from duckkb.serving.lines import say
from duckkb.serving.pool import frames
from duckkb.serving.pool.process import Channel, Worker

_MOST_WAITING = 1024
_MOST_STARTS = 3
"""Failed starts in one place after which it counts as failing."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0


class Gone(Exception):
    """Raised where the worker that was asked has ended without an answer."""


class Workers:
    """A group of `count` processes, each watched by a thread, which starts another where one ends.

    Requests wait in the order in which they came, for the worker that has the least to do.
    """

    def __init__(self, start: frames.Start, count: int) -> None:
        self._start, self._count = start, count
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._started: set[Worker] = set()
        self._free: list[Channel] = []
        self._waiting: deque[Future[Channel]] = deque()
        self._failing: dict[int, str] = {}  # by place, how the last worker ended where none starts
        self._restarts = 0
        self._past: list[CallCounts] = []
        self._keepers = [threading.Thread(target=self._keep, args=(place,), daemon=True) for place in range(count)]
        for keeper in self._keepers:
            keeper.start()

    def ask(self, request: frames.Request) -> frames.Reply:
        """Ask a worker, and return its reply.

        Raises `Gone`, `errors.Unavailable` (E_BUSY, E_TIMEOUT, E_UNAVAILABLE).
        """
        frame = frames.pack_frame(request)
        while True:
            channel = self._take()
            channel.asked += 1
            try:
                frames.send(channel.socket, frame)
            except OSError:  # the worker had ended: nobody has read the request
                self._drop(channel)
                continue
            try:
                with deadline.current().interrupt_when_cancelled(partial(channel.stop, channel.asked)):
                    reply: frames.Reply = frames.receive(channel.socket)
            except (EOFError, OSError):
                self._drop(channel)
                raise Gone from None
            except BaseException:  # an interrupt: nobody takes the answer under way
                self._drop(channel)
                raise
            self._give_back(channel)
            return reply

    def measures(self) -> dict[str, int]:
        """Return the numbers of workers wanted and running, of requests under way and waiting, and of workers
        replaced.
        """
        with self._lock:
            usable = [worker for worker in self._started if worker.is_usable]
            return {
                "workers": self._count,
                "alive": len(usable),
                "busy": sum(worker.busy for worker in usable),
                "waiting": len(self._waiting),
                "restarts": self._restarts,
            }

    def calls(self) -> list[CallCounts]:
        """Return the counts of model calls, at most a second old; those of ended workers are included."""
        with self._lock:
            return [*self._past, *(counts for worker in self._started for counts in worker.calls)]

    def pids(self) -> list[int]:
        """Return the process IDs that can be asked now."""
        with self._lock:
            return sorted(worker.pid for worker in self._started if worker.is_usable)

    def close(self, seconds: float) -> None:
        """Refuse further requests, let those under way end, and wait for that at most so many seconds."""
        end = monotonic() + seconds
        with self._lock:
            self._closing.set()
            self._refuse(_build_closing_error())
            for worker in self._started:
                self._retire(worker)
                worker.end()
        for keeper in self._keepers:
            keeper.join(max(0.0, end - monotonic()))
        with self._lock:
            for worker in self._started:
                worker.kill()

    def _take(self) -> Channel:
        mine: Future[Channel] = Future()
        with self._lock:
            if self._closing.is_set():
                raise _build_closing_error()
            if len(self._failing) == self._count:
                raise self._build_start_error()
            if len(self._waiting) >= _MOST_WAITING:
                raise Unavailable(f"{_MOST_WAITING} calls wait already", "E_BUSY", "ask again in a moment")
            self._waiting.append(mine)
            self._assign_channels()
        try:
            with deadline.current().interrupt_when_cancelled(mine.cancel):
                return mine.result()
        except CancelledError:
            raise deadline.late() from None
        except KeyboardInterrupt:
            if not mine.cancel():
                self._give_back(mine.result())
            raise

    def _give_back(self, channel: Channel) -> None:
        with self._lock:
            channel.is_busy = False
            if channel.worker.is_usable:
                self._free.append(channel)
                self._assign_channels()
            else:
                channel.socket.close()

    def _drop(self, channel: Channel) -> None:
        """Drop a channel of a worker that is gone, or that is unusable."""
        with self._lock:
            channel.is_busy = False
            self._retire(channel.worker)
            channel.worker.end()

    def _assign_channels(self) -> None:
        while self._waiting and self._free:
            first = self._waiting.popleft()
            if first.set_running_or_notify_cancel():
                channel = min(self._free, key=lambda free_channel: free_channel.worker.busy)
                self._free.remove(channel)
                channel.is_busy = True
                first.set_result(channel)

    def _refuse(self, problem: Unavailable) -> None:
        """Refuse all waiting requests."""
        while self._waiting:
            first = self._waiting.popleft()
            if first.set_running_or_notify_cancel():
                first.set_exception(problem)

    def _retire(self, worker: Worker) -> None:
        """Ask a worker nothing more. Callers that wait for its answers close their channels themselves."""
        worker.is_usable = False
        self._free = [free_channel for free_channel in self._free if free_channel.worker is not worker]
        for channel in worker.channels:
            if not channel.is_busy:
                channel.socket.close()

    def _keep(self, place: int) -> None:
        """Keep a worker in this place until the end. After repeated failures to start, the pauses grow."""
        failures = 0
        while not self._closing.wait(_pause(failures)):
            try:
                worker = Worker(self._start)
            except OSError as problem:
                failures, how = failures + 1, str(problem.strerror or problem)
            else:
                how = self._run_worker(place, worker)
                failures = 0 if worker.was_ready or worker.is_old else failures + 1
            if self._closing.is_set():
                return
            say(f"a worker ended ({how}); another is started")
            with self._lock:
                self._restarts += 1
                if failures >= _MOST_STARTS:
                    self._failing[place] = how
                if len(self._failing) == self._count:
                    self._refuse(self._build_start_error())

    def _run_worker(self, place: int, worker: Worker) -> str:
        """Route requests to a worker until it ends; return how it ended."""
        with self._lock:
            self._started.add(worker)
            if self._closing.is_set():
                self._retire(worker)
                worker.end()
        if worker.is_ready():
            worker.was_ready = True
            with self._lock:
                if not self._closing.is_set():
                    worker.is_usable = True
                    self._failing.pop(place, None)
                    self._free += worker.channels
                    self._assign_channels()
        code = worker.wait()
        with self._lock:
            self._retire(worker)
            self._started.discard(worker)
            self._past += [replace(counts, size=0, active=0, waiting=0) for counts in worker.calls]
        return f"signal {Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _build_start_error(self) -> Unavailable:
        how = next(iter(self._failing.values()))
        message = f"no worker process starts: the last one ended before it answered ({how})"
        return Unavailable(message, suggestion="see the log of the server", details={"retryable": True})


def _pause(failures: int) -> float:
    """Return the seconds before the next worker: none after the first failure."""
    return min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** (failures - 2)) if failures > 1 else 0.0


def _build_closing_error() -> Unavailable:
    return Unavailable("the server is ending", suggestion="ask again in a moment", details={"retryable": True})
