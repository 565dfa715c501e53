"""A base that several processes serve, with the methods of `Served`.

Several workers for requests of one kind: chooses the next one, queues requests, and replaces workers that end."""

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import Signals
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.llm.call_pool import CallCounts
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import accept_call
from duckkb.operations.lifecycle import OpenOptions, find
from duckkb.server import worker_channel
from duckkb.server.dispatcher import refuse_past
from duckkb.server.server_log import say
from duckkb.server.worker_channel import LAST_ANSWERS_S, Channel, Worker
from duckkb.types import request_context
from duckkb.types.errors import Unavailable, UsageError
from duckkb.types.request_context import Caller

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

    def __init__(self, start: worker_channel.Start, count: int) -> None:
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

    def ask(self, request: worker_channel.Request) -> worker_channel.Reply:
        """Ask a worker, and return its reply.

        Raises `Gone`, `errors.Unavailable` (E_BUSY, E_TIMEOUT, E_UNAVAILABLE).
        """
        frame = worker_channel.pack_frame(request)
        while True:
            channel = self._take()
            channel.asked += 1
            try:
                worker_channel.send(channel.socket, frame)
            except OSError:  # the worker had ended: nobody has read the request
                self._drop(channel)
                continue
            try:
                with request_context.current().interrupt_when_cancelled(partial(channel.stop, channel.asked)):
                    reply: worker_channel.Reply = worker_channel.receive(channel.socket)
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
            with request_context.current().interrupt_when_cancelled(mine.cancel):
                return mine.result()
        except CancelledError:
            raise request_context.late() from None
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


class Pool:
    """A pool of processes that answer for a base, for use from any thread.

    `readers` processes have the base open (by default as many as there are cores). One more does all writes; it
    is started for the first write, or at once where that is for long: so no write stops a reader.
    Each request checks the files, so a request after the receipt of a write sees what was written. `longest` is
    as for `Served`.
    """

    def __init__(
        self,
        path: str | Path | None,
        chosen: OpenOptions,
        readers: int | None = None,
        longest: float | None = 0,
    ) -> None:
        self._path = path
        self._start = worker_channel.Start(path, replace(chosen, progress=None, single_core=True), longest)
        self._readers = Workers(self._start, readers or _count_cores())
        self._lock, self._closed = threading.Lock(), False
        self._writer: Workers | None = Workers(self._start, 1) if chosen.is_served else None
        self._was_up = False

    def run(self, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Run an action, as `Served.run`.

        Raises also `errors.Unavailable` where the process that was asked ended (E_WORKER), where too many wait
        (E_BUSY), where no process starts, and while the server ends (E_UNAVAILABLE).
        """
        action = ACTIONS.get(name)
        if action is None or not action.writes:
            return _ask_workers(
                self._readers,
                worker_channel.Request(name, given, caller, is_traced=request_context.is_recording()),
                _READ,
            )
        return _ask_workers(
            self._ensure_writer(),
            worker_channel.Request(name, given, caller, is_traced=request_context.is_recording()),
            _WRITE,
        )

    def run_in_proposal(self, name: str, given: Mapping[str, Any], caller: Caller, message: str = "") -> dict[str, Any]:
        """Propose a write, as `Served.run_in_proposal`; raises as `run`."""
        request = worker_channel.Request(name, given, caller, is_traced=request_context.is_recording(), message=message)
        return _ask_workers(self._ensure_writer(), request, _WRITE)

    @contextmanager
    def open_revision(self, commit: str, caller: Caller) -> "Iterator[Past]":
        """Return the base at a commit, as `Served.open_revision`; an unreadable commit is reported by the first action."""
        refuse_past(caller)
        yield Past(self._readers, commit)

    @property
    def name(self) -> str:
        """The name of the base's folder. Raises `errors.StateError` (E_NO_KB)."""
        return find(self._path, self._start.chosen.backend).resolve().name

    @property
    def is_up(self) -> bool:
        """Return whether all processes have started once."""
        self._was_up = self._was_up or all(each["alive"] == each["workers"] for each in self.measures().values())
        return self._was_up

    def close(self) -> None:
        """Refuse further requests; those under way have some seconds to end, and so have the processes."""
        with self._lock:
            self._closed, writer = True, self._writer
        several = [self._readers, *([writer] if writer else [])]
        threads = [threading.Thread(target=group.close, args=(LAST_ANSWERS_S + 1,), daemon=True) for group in several]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def measures(self) -> dict[str, dict[str, int]]:
        """Return the measures of `Workers`, for the `readers` and, once there was a write, for the `writer`."""
        writer = self._writer
        return {"readers": self._readers.measures()} | ({"writer": writer.measures()} if writer else {})

    def calls(self) -> list[CallCounts]:
        """Return the counts of all processes' calls to models."""
        writer = self._writer
        return [*self._readers.calls(), *(writer.calls() if writer else ())]

    def pids(self) -> dict[str, list[int]]:
        """Return the process IDs that can be asked now, by the same groups."""
        writer = self._writer
        return {"readers": self._readers.pids()} | ({"writer": writer.pids()} if writer else {})

    def _ensure_writer(self) -> Workers:
        with self._lock:
            if self._closed:
                return self._readers  # the readers report that the server ends
            if self._writer is None:
                self._writer = Workers(self._start, 1)
            return self._writer


class Past(Struct, frozen=True):
    """A base at a commit."""

    workers: Workers
    commit: str

    def run(self, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Run an action, as `KnowledgeBase.run`."""
        return _ask_workers(self.workers, worker_channel.Request(name, given, caller, self.commit), _READ)


_READ = "nothing was changed"
_WRITE = "the write may have been carried out, completely or not at all; check before you repeat it"


def _ask_workers(workers: Workers, request: worker_channel.Request, afterwards: str) -> dict[str, Any]:
    try:
        reply = workers.ask(request)
    except RecursionError:
        accept_call(request.name, request.given, request.caller)
        raise UsageError("the arguments are nested too deeply", "E_ARGUMENT") from None
    except Gone:
        message = f"the worker for {request.name} ended; {afterwards}"
        raise Unavailable(message, "E_WORKER", "ask again in a moment", {"retryable": True}) from None
    request_context.add(reply.steps)
    return reply.value()


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
