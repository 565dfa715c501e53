"""A base that several processes serve, with the methods of `Served`."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import steps
from duckkb.actions.folder import OpenOptions, find
from duckkb.actions.registry.offered import ACTIONS
from duckkb.actions.registry.run import accept_call
from duckkb.caller import Caller
from duckkb.errors import Unavailable, UsageError
from duckkb.llm.call_pool import CallCounts
from duckkb.serving.pool import frames
from duckkb.serving.pool.process import LAST_ANSWERS_S
from duckkb.serving.pool.workers import Gone, Workers
from duckkb.serving.served import refuse_past


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
        self._start = frames.Start(path, replace(chosen, progress=None, single_core=True), longest)
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
                self._readers, frames.Request(name, given, caller, is_traced=steps.is_recording()), _READ
            )
        return _ask_workers(
            self._ensure_writer(), frames.Request(name, given, caller, is_traced=steps.is_recording()), _WRITE
        )

    def run_in_proposal(self, name: str, given: Mapping[str, Any], caller: Caller, message: str = "") -> dict[str, Any]:
        """Propose a write, as `Served.run_in_proposal`; raises as `run`."""
        request = frames.Request(name, given, caller, is_traced=steps.is_recording(), message=message)
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
        return _ask_workers(self.workers, frames.Request(name, given, caller, self.commit), _READ)


_READ = "nothing was changed"
_WRITE = "the write may have been carried out, completely or not at all; check before you repeat it"


def _ask_workers(workers: Workers, request: frames.Request, afterwards: str) -> dict[str, Any]:
    try:
        reply = workers.ask(request)
    except RecursionError:
        accept_call(request.name, request.given, request.caller)
        raise UsageError("the arguments are nested too deeply", "E_ARGUMENT") from None
    except Gone:
        message = f"the worker for {request.name} ended; {afterwards}"
        raise Unavailable(message, "E_WORKER", "ask again in a moment", {"retryable": True}) from None
    steps.add(reply.steps)
    return reply.value()


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
