"""Going on where a run stopped: what was decided on tickets, what was interrupted, and which calls have no answer yet."""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from duckkb.errors import UsageError
from duckkb.llm.loop.calls import Call, Decision, PendingApproval, ToolError, canonical, parsed, refuse_unfit
from duckkb.llm.loop.executing import Job, now
from duckkb.llm.loop.harness import Ending, Harness
from duckkb.llm.loop.tools import Tool
from duckkb.messages import Message, ToolCall

_INTERRUPTED = "the run was interrupted; it may have been executed, and is not executed again"


def jobs(
    harness: Harness, messages: Sequence[Message], tools: Sequence[Tool], decisions: Sequence[Decision]
) -> Iterator[Job]:
    """The calls that are to be executed before the model is asked again: what was approved, and what was interrupted of tools that
    may be executed twice. What is rejected, and all else that was interrupted, has its record when this is through. Raises, before
    anything is changed, `errors.UsageError` (E_TICKET) for a decision that fits no ticket of this conversation."""
    known = {one.name: one for one in tools}
    wanted = [(one, _decided(harness, messages, one)) for one in decisions]
    _refuse_contradiction(decisions)
    open_ids = {one.call.id for one in harness.pending}
    for decision, held in wanted:
        if decision.approved and held.call.id in open_ids and held.call.tool not in known:
            _refuse(held.ticket_id, f"its tool {held.call.tool!r} is not among those of this run")
    for begun in harness.interrupted:
        tool = known.get(begun.call.tool)
        if tool is not None and tool.idempotent:
            yield Job(begun.call, tool, parsed(begun.call.arguments), begun.ticket_id, again=True)
        else:
            harness.end(begun.call, Ending("error", None, _INTERRUPTED, begun.start))
    for decision, held in wanted:
        if held.call.id not in open_ids:
            continue  # it was decided before, and stays so
        open_ids.discard(held.call.id)
        if decision.approved:
            yield Job(held.call, known[held.call.tool], parsed(held.call.arguments), held.ticket_id)
        else:
            why = f": {decision.reason}" if decision.reason else ""
            harness.end(held.call, Ending("error", None, f"it was not executed: rejected{why}", now()))


def held_elsewhere(
    harness: Harness, messages: Sequence[Message], tools: Sequence[Tool]
) -> dict[str, tuple[Call, Job | None]]:
    """Calls that wait in this conversation for tickets that the harness does not know, by `tool_call_id`, each with the job that asks
    for its ticket again (None where an interrupted run did). Raises `errors.UsageError` (E_TICKET) where nothing can be asked."""
    known, asked = {one.name: one for one in tools}, {call.id: call for one in messages for call in one.tool_calls}
    own = {(one.call.call_id, one.ticket_id) for one in harness.tickets.values()}
    found: dict[str, tuple[Call, Job | None]] = {}
    for message in messages:
        ticket_id, call_id = PendingApproval.ticket_of(message), message.tool_call_id or ""
        if ticket_id is None or (call_id, ticket_id) in own or message in _results(harness):
            continue
        call = asked.get(call_id)
        tool = known.get(call.name) if call is not None else None
        if call is None or tool is None or tool.create_ticket is None:
            _refuse(ticket_id, "this harness does not know it, and no tool of this run can be asked for it again")
        try:
            args = parsed(call.arguments)
            refuse_unfit(tool.parameters, args)
        except ToolError as problem:
            _refuse(ticket_id, str(problem))
        earlier = next((one for one in _calls(harness) if one.call_id == call_id), None)
        again = call_of(harness.turn, call) if earlier is None else earlier
        if earlier is not None and call_of(earlier.turn, call) != earlier:
            _refuse(ticket_id, "its call has other arguments in this conversation")
        found[call_id] = again, Job(again, tool, args) if earlier is None else None
    return found


def _results(harness: Harness) -> list[Message]:
    return [one.message for one in harness.records]


def _calls(harness: Harness) -> Iterator[Call]:
    """The calls that the harness knows."""
    yield from (one.call for one in harness.records)
    yield from (one.call for one in harness.interrupted)
    yield from (one.call for one in harness.pending)


def unanswered(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last answer of the model that no message answers."""
    at = next((at for at in reversed(range(len(messages))) if messages[at].role == "assistant"), len(messages))
    answered = {one.tool_call_id for one in messages[at:] if one.role == "tool"}
    return [call for one in messages[at : at + 1] for call in one.tool_calls if call.id not in answered]


def call_of(turn: int, asked: ToolCall) -> Call:
    """A call with its arguments in canonical form, where they have one."""
    try:
        return Call(turn, asked.id, asked.name, canonical(parsed(asked.arguments)))
    except ToolError:
        return Call(turn, asked.id, asked.name, asked.arguments)


def waiting(harness: Harness, messages: Sequence[Message]) -> tuple[PendingApproval, ...]:
    """What of this conversation waits for approval."""
    return tuple(one for one in harness.pending if one.message in messages)


def _decided(harness: Harness, messages: Sequence[Message], decision: Decision) -> PendingApproval:
    """What a decision is about."""
    held = harness.tickets.get(decision.ticket_id)
    if held is None:
        _refuse(decision.ticket_id, "this harness has no such ticket")
    if held.call.digest != decision.digest:
        _refuse(held.ticket_id, "what was decided on were other arguments")
    calls = [call for one in messages for call in one.tool_calls if call.id == held.call.call_id]
    if not calls:
        _refuse(held.ticket_id, "its call is not in this conversation")
    if call_of(held.call.turn, calls[-1]) != held.call:
        _refuse(held.ticket_id, "its call has other arguments in this conversation")
    return held


def _refuse_contradiction(decisions: Sequence[Decision]) -> None:
    for one in decisions:
        if any(other.ticket_id == one.ticket_id and other.approved != one.approved for other in decisions):
            _refuse(one.ticket_id, "it is both approved and rejected")


def _refuse(ticket_id: str, why: str) -> NoReturn:
    raise UsageError(
        f"ticket {ticket_id}: {why}; nothing was executed", "E_TICKET", "decide on what `pending_approval` lists"
    )
