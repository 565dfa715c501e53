"""Going on where a run stopped: what was decided on tickets, what was interrupted, and which calls have no answer yet."""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from duckkb.errors import UsageError
from duckkb.llm.loop.calls import Call, Decision, PendingApproval, ToolError, canonical, parsed
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
