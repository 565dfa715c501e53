"""Resumes a stopped run: decisions on tickets, interrupted calls, and calls without an answer."""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from duckkb.errors import UsageError
from duckkb.llm.loop.calls import Call, Decision, PendingApproval, ToolError, canonical, parse_arguments, refuse_unfit
from duckkb.llm.loop.executing import Job, now
from duckkb.llm.loop.harness import Ending, Harness
from duckkb.llm.loop.tools import Tool
from duckkb.messages import Message, ToolCall

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
