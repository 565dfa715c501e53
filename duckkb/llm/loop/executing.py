"""Executes the calls of one turn in threads side by side.

No thread is waited for beyond its tool's time limit, or once the run is cancelled: what it does later is not
recorded.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from msgspec import Struct

from duckkb.errors import DuckkbError
from duckkb.llm.loop.calls import Begun, Call, CallRecord, PendingApproval, Status, ToolError
from duckkb.llm.loop.event_loop import EventLoop
from duckkb.llm.loop.events import ExecutionEnd, ExecutionStart
from duckkb.llm.loop.harness import Ending, Harness
from duckkb.llm.loop.tools import Args, Records, Ticket, Tool, ToolContext, sides

_WIDTH = 16
"""Calls that run at once; waiting calls do not use up their time."""
_GLANCE_S = 0.05
"""Seconds between two checks whether the run was cancelled."""
_UNKNOWN = "it may have been executed, and may still be"


class Job(Struct, frozen=True):
    """A call to execute.

    `ticket_id` names an approval that was given; `again`: it may have been executed before.
    """

    call: Call
    tool: Tool
    args: Args
    ticket_id: str = ""
    again: bool = False


class _Done(Struct, frozen=True):
    """The report of a finished thread: a ticket that holds the call, or how the call ended."""

    held: PendingApproval | None
    outcome: Ending | None = None
    shown: Any = None


class _Running:
    """A call that a thread is executing."""

    def __init__(self, job: Job) -> None:
        self.job, self.cancelled, self.start, self.began = job, Event(), now(), time.monotonic()
        self.is_told = False
        self._awaited: Future[Any] | None = None

    def awaits(self, future: "Future[Any]") -> None:
        """Note the future on the event loop that the call waits for."""
        self._awaited = future
        if self.cancelled.is_set():
            future.cancel()

    def cancel(self) -> None:
        self.cancelled.set()
        if self._awaited is not None:
            self._awaited.cancel()

    @property
    def took_ms(self) -> float:
        return round((time.monotonic() - self.began) * 1000, 3)

    @property
    def left_s(self) -> float:
        return self.job.tool.timeout_s - (time.monotonic() - self.began)


class Execution:
    """An execution of some calls.

    Once `events` is exhausted, each call has its record in the harness, or is held by a ticket. `shown` has the
    data for the front end by the ids of calls.
    """

    def __init__(
        self, harness: Harness, metadata: Mapping[str, Any], cancel: Event | None, event_loop: EventLoop
    ) -> None:
        self._harness, self._metadata, self._cancel, self._event_loop = harness, metadata, cancel, event_loop
        self._said: SimpleQueue[tuple[_Running, _Done | None]] = SimpleQueue()
        self._running: dict[str, _Running] = {}
        self.shown: dict[str, Any] = {}

    def events(self, jobs: Sequence[Job]) -> Iterator[ExecutionStart | ExecutionEnd]:
        """Execute the calls. Raises what the harness raises where its file cannot be written."""
        waiting = deque(jobs)
        try:
            while waiting or self._running:
                if self._cancel is not None and self._cancel.is_set():
                    for job in waiting:
                        self._harness.end(job.call, Ending("cancelled", None, "it was not executed", now()))
                    waiting.clear()
                    yield from self._stop_calls(list(self._running.values()), "cancelled")
                    return
                while waiting and len(self._running) < _WIDTH:
                    self._begin(waiting.popleft())
                yield from self._receive_report()
                late = [
                    running_call
                    for running_call in self._running.values()
                    if running_call.left_s <= 0 and self._said.empty()
                ]
                yield from self._stop_calls(late, "timeout")
        finally:  # the reader left, or the disk failed: no thread may begin a call now
            for running_call in self._running.values():
                running_call.cancel()
            for running_call in [*self._running.values()]:
                self._settle_call(running_call, "cancelled")

    def _begin(self, job: Job) -> None:
        running = self._running[job.call.id] = _Running(job)
        before = tuple(record for record in self._harness.records if record.call.turn < job.call.turn)
        Thread(target=self._run_job, args=(running, before), daemon=True, name=f"tool {job.call.tool}").start()

    def _receive_report(self) -> Iterator[ExecutionStart | ExecutionEnd]:
        """Wait until a thread reports, or a limit may have passed."""
        nearest = max(0.0, min(running_call.left_s for running_call in self._running.values()))
        try:
            running, report = self._said.get(timeout=nearest if self._cancel is None else min(nearest, _GLANCE_S))
        except Empty:
            return
        call = running.job.call
        if call.id not in self._running:
            return
        if report is None:
            running.is_told = True
            yield ExecutionStart(call)
            return
        del self._running[call.id]
        if report.outcome is not None:
            record = self._harness.end(call, report.outcome)
            if report.shown is not None:
                self.shown[call.id] = report.shown
            if self._harness.is_begun(call):
                yield ExecutionEnd(record)

    def _stop_calls(self, late: Sequence[_Running], status: Status) -> Iterator[ExecutionStart | ExecutionEnd]:
        for running_call in late:
            running_call.cancel()
            record = self._settle_call(running_call, status)
            if self._harness.is_begun(running_call.job.call):
                if not running_call.is_told:
                    yield ExecutionStart(running_call.job.call)
                yield ExecutionEnd(record)

    def _settle_call(self, running_call: _Running, status: Status) -> CallRecord:
        del self._running[running_call.job.call.id]
        why = (
            f"no result within {running_call.job.tool.timeout_s:g} s"
            if status == "timeout"
            else "the run was cancelled"
        )
        with self._harness.still():  # so that the call cannot begin between this check and the record
            note = _UNKNOWN if self._harness.is_begun(running_call.job.call) else "it was not executed"
            return self._harness.end(
                running_call.job.call, Ending(status, None, f"{why}; {note}", running_call.start, running_call.took_ms)
            )

    def _run_job(self, running_call: _Running, before: Records) -> None:
        """Run one call in its thread: ask for a ticket where the tool wants one, else record the start and
        execute.
        """
        job = running_call.job
        key = f"{self._harness.id}/{job.call.id}"
        context = ToolContext(self._metadata, before, job.call.turn, job.call.call_id, key, running_call.cancelled)
        try:
            ticket = None
            if job.tool.create_ticket is not None and not job.ticket_id:
                ticket = self._event_loop.settle(job.tool.create_ticket(job.args, context), running_call.awaits)
                if not isinstance(ticket, Ticket) or not ticket.ticket_id:
                    raise ToolError("it was not executed: its ticket has no id")
                if ticket.approved is not True:
                    pending = PendingApproval(job.call, ticket.ticket_id)
                    self._harness.hold(pending)
                    self._said.put((running_call, _Done(pending)))
                    return
            ticket_id = ticket.ticket_id if ticket is not None else job.ticket_id
            self._harness.begin(Begun(job.call, now(), ticket_id), again=job.again)
            self._said.put((running_call, None))
            text, frontend_data = sides(
                self._event_loop.settle(job.tool.execute(job.args, context), running_call.awaits)
            )
            outcome = Ending("success", text, None, running_call.start, running_call.took_ms)
            self._said.put((running_call, _Done(None, outcome, frontend_data)))
        except BaseException as problem:  # any exception of a tool is the outcome of its call
            outcome = Ending("error", None, describe_problem(problem), running_call.start, running_call.took_ms)
            self._said.put((running_call, _Done(None, outcome)))


def describe_problem(problem: BaseException) -> str:
    """Return the text that a model gets for an exception."""
    if isinstance(problem, ToolError):
        return str(problem).encode("utf-8", "replace").decode() or "the tool failed"
    if isinstance(problem, DuckkbError):
        return f"{problem.code}: {problem.message}" + (f" ({problem.suggestion})" if problem.suggestion else "")
    return f"the tool failed ({type(problem).__name__})"


def now() -> str:
    """Return the UTC time, in the form that records have."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
