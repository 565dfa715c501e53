"""Executes the calls of one turn in threads side by side.

No thread is waited for beyond its tool's time limit, or once the run is cancelled: what it does later is not
recorded.

The events of a loop, and its result. Deltas and calls come as the model gives them (`duckkb.types.chat_messages`).

Resumes a stopped run: decisions on tickets, interrupted calls, and calls without an answer."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, Literal, NoReturn

from msgspec import Struct

from duckkb.llm.loop.tool_calls import (
    Args,
    Begun,
    Call,
    CallRecord,
    Decision,
    EventLoop,
    PendingApproval,
    Records,
    Status,
    Ticket,
    Tool,
    ToolContext,
    ToolError,
    canonical,
    parse_arguments,
    refuse_unfit,
    sides,
)
from duckkb.llm.loop.transcript import Ending, Harness
from duckkb.types.chat_messages import ContentDelta, Message, ReasoningDelta, ToolCall, ToolCallDone, Usage
from duckkb.types.errors import DuckkbError, UsageError


class TurnStart(Struct, frozen=True):
    """The model is about to be asked, with these tools."""

    turn: int
    tools: tuple[str, ...]


class ExecutionStart(Struct, frozen=True):
    """A tool begins."""

    call: Call


class ExecutionEnd(Struct, frozen=True):
    """A tool ended, or nobody waits for it any longer: status, duration, and result or error."""

    record: CallRecord


class ToolResult(Struct, frozen=True):
    """The result of a call as the model gets it; `frontend_data` is for the program that shows the conversation."""

    record: CallRecord
    frontend_data: Any = None


class ApprovalNeeded(Struct, frozen=True):
    """A call waits for approval; the run stops after this turn."""

    pending: PendingApproval


class TurnEnd(Struct, frozen=True):
    """The turn is over; `usage` is None where the provider does not say."""

    turn: int
    usage: Usage | None


class LoopResult(Struct, frozen=True):
    """The result of a run.

    `ended`: the model `answered`; an `approval` is waited for; the turns reached their `limit`; it was
    `cancelled`; or it `failed`, with the `error`. `content` is the answer, None where there is none.
    `messages` are the whole conversation, even where less of it was sent; `turns` and usage are of this run.
    `finish_reason` is the last answer's.
    """

    ended: Literal["answered", "approval", "limit", "cancelled", "failed"]
    messages: tuple[Message, ...]
    harness: "Harness"
    content: str | None
    turns: int
    usage_history: tuple[Usage | None, ...]
    pending_approval: tuple[PendingApproval, ...] = ()
    finish_reason: str | None = None
    error: DuckkbError | None = None

    @property
    def total_usage(self) -> Usage:
        """The tokens of all turns, as far as providers told them."""
        return sum((usage for usage in self.usage_history if usage is not None), Usage())


class LoopEnd(Struct, frozen=True):
    """The last event."""

    result: LoopResult


LoopEvent = (
    TurnStart | ReasoningDelta | ContentDelta | ToolCallDone | ExecutionStart | ExecutionEnd | ToolResult
    | ApprovalNeeded | TurnEnd | LoopEnd
)  # fmt: skip
"""The events of a loop, in the order in which they happen."""


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


_INTERRUPTED = "the run was interrupted; it may have been executed, and is not executed again"


def jobs(
    harness: Harness, messages: Sequence[Message], tools: Sequence[Tool], decisions: Sequence[Decision]
) -> Iterator[Job]:
    """Yield the calls to execute before the model is asked again.

    These are approved calls, and interrupted calls of tools that may be executed twice. Rejected calls, and all
    other interrupted ones, have their record when the iterator is exhausted.
    Raises `errors.UsageError` (E_TICKET) for a decision that fits no ticket of this conversation, before
    anything is changed.
    """
    tools_by_name = {item.name: item for item in tools}
    decided_tickets = [(item, _find_ticket(harness, messages, item)) for item in decisions]
    _refuse_contradiction(decisions)
    open_ids = {item.call.id for item in harness.pending}
    for decision, ticket in decided_tickets:
        if decision.approved and ticket.call.id in open_ids and ticket.call.tool not in tools_by_name:
            _refuse(ticket.ticket_id, f"its tool {ticket.call.tool!r} is not among those of this run")
    for interrupted_call in harness.interrupted:
        tool = tools_by_name.get(interrupted_call.call.tool)
        if tool is not None and tool.idempotent:
            yield Job(
                interrupted_call.call,
                tool,
                parse_arguments(interrupted_call.call.arguments),
                interrupted_call.ticket_id,
                again=True,
            )
        else:
            harness.end(interrupted_call.call, Ending("error", None, _INTERRUPTED, interrupted_call.start))
    for decision, ticket in decided_tickets:
        if ticket.call.id not in open_ids:
            continue  # it was decided before, and that decision stands
        open_ids.discard(ticket.call.id)
        if decision.approved:
            yield Job(
                ticket.call, tools_by_name[ticket.call.tool], parse_arguments(ticket.call.arguments), ticket.ticket_id
            )
        else:
            why = f": {decision.reason}" if decision.reason else ""
            harness.end(ticket.call, Ending("error", None, f"it was not executed: rejected{why}", now()))


def find_jobs_elsewhere(
    harness: Harness, messages: Sequence[Message], tools: Sequence[Tool]
) -> dict[str, tuple[Call, Job | None]]:
    """Return the calls that wait in this conversation for tickets unknown to the harness, by `tool_call_id`.

    Each has the job that asks for its ticket again (None where an interrupted run did). Raises
    `errors.UsageError` (E_TICKET) where nothing can be asked.
    """
    tools_by_name, calls_by_id = (
        {item.name: item for item in tools},
        {call.id: call for item in messages for call in item.tool_calls},
    )
    ticket_keys = {(item.call.call_id, item.ticket_id) for item in harness.tickets.values()}
    jobs_by_call_id: dict[str, tuple[Call, Job | None]] = {}
    for message in messages:
        ticket_id, call_id = PendingApproval.ticket_of(message), message.tool_call_id or ""
        if ticket_id is None or (call_id, ticket_id) in ticket_keys or message in _collect_results(harness):
            continue
        call = calls_by_id.get(call_id)
        tool = tools_by_name.get(call.name) if call is not None else None
        if call is None or tool is None or tool.create_ticket is None:
            _refuse(ticket_id, "this harness does not know it, and no tool of this run can be asked for it again")
        try:
            args = parse_arguments(call.arguments)
            refuse_unfit(tool.parameters, args)
        except ToolError as problem:
            _refuse(ticket_id, str(problem))
        earlier = next((item for item in _iter_calls(harness) if item.call_id == call_id), None)
        again = call_of(harness.turn, call) if earlier is None else earlier
        if earlier is not None and call_of(earlier.turn, call) != earlier:
            _refuse(ticket_id, "its call has other arguments in this conversation")
        jobs_by_call_id[call_id] = again, Job(again, tool, args) if earlier is None else None
    return jobs_by_call_id


def _collect_results(harness: Harness) -> list[Message]:
    return [record.message for record in harness.records]


def _iter_calls(harness: Harness) -> Iterator[Call]:
    """Yield the calls that the harness knows."""
    yield from (entry.call for entry in harness.records)
    yield from (entry.call for entry in harness.interrupted)
    yield from (entry.call for entry in harness.pending)


def list_unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the model's last answer that no message answers."""
    at = next((at for at in reversed(range(len(messages))) if messages[at].role == "assistant"), len(messages))
    answered_ids = {message.tool_call_id for message in messages[at:] if message.role == "tool"}
    return [call for message in messages[at : at + 1] for call in message.tool_calls if call.id not in answered_ids]


def call_of(turn: int, asked: ToolCall) -> Call:
    """Return a call with its arguments in canonical form, where they have one."""
    try:
        return Call(turn, asked.id, asked.name, canonical(parse_arguments(asked.arguments)))
    except ToolError:
        return Call(turn, asked.id, asked.name, asked.arguments)


def list_waiting_approvals(harness: Harness, messages: Sequence[Message]) -> tuple[PendingApproval, ...]:
    """Return the calls of this conversation that wait for approval."""
    return tuple(ticket for ticket in harness.pending if ticket.message in messages)


def _find_ticket(harness: Harness, messages: Sequence[Message], decision: Decision) -> PendingApproval:
    """Return the waiting call of a decision."""
    ticket = harness.tickets.get(decision.ticket_id)
    if ticket is None:
        _refuse(decision.ticket_id, "this harness does not have the ticket")
    if ticket.call.digest != decision.digest:
        _refuse(ticket.ticket_id, "the decision was on other arguments")
    calls = [call for message in messages for call in message.tool_calls if call.id == ticket.call.call_id]
    if not calls:
        _refuse(ticket.ticket_id, "its call is not in this conversation")
    if call_of(ticket.call.turn, calls[-1]) != ticket.call:
        _refuse(ticket.ticket_id, "its call has other arguments in this conversation")
    return ticket


def _refuse_contradiction(decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        if any(
            sibling.ticket_id == decision.ticket_id and sibling.approved != decision.approved for sibling in decisions
        ):
            _refuse(decision.ticket_id, "it is both approved and rejected")


def _refuse(ticket_id: str, why: str) -> NoReturn:
    raise UsageError(
        f"ticket {ticket_id}: {why}; nothing was executed", "E_TICKET", "decide on what `pending_approval` lists"
    )
