"""The loop: ask a model, execute the tools that it calls, tell it the results, until it answers.

`stream` yields everything as it happens; `run` drains it.

The view of a conversation that is sent: the whole, or older rounds in a shorter form.

The conversation stays unchanged."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.llm.call_pool import refuse_what_it_cannot
from duckkb.llm.loop import tool_execution
from duckkb.llm.loop.tool_calls import (
    Call,
    Decision,
    EventLoop,
    Records,
    Tool,
    ToolError,
    parse_arguments,
    refuse_form,
    refuse_unfit,
    refuse_unsound,
    visible,
)
from duckkb.llm.loop.tool_execution import (
    ApprovalNeeded,
    Execution,
    Job,
    LoopEnd,
    LoopEvent,
    LoopResult,
    ToolResult,
    TurnEnd,
    TurnStart,
    describe_problem,
    now,
)
from duckkb.llm.loop.transcript import Conversed, Ending, Harness, Said, TurnUsage
from duckkb.ports import ChatModel
from duckkb.types.chat_messages import (
    ChatRequest,
    ContentDelta,
    Finish,
    Message,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
    Usage,
    message_of,
)
from duckkb.types.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from threading import Event


class Compaction(Struct, frozen=True):
    """The rule by which older rounds are shortened.

    A round is an answer of the model with the results of its calls. Rounds before the last `keep_rounds` are
    sent as what `compress` makes of them, together with its earlier output.
    """

    keep_rounds: int
    compress: Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]


class Compacted:
    """A growing conversation in the form in which it is sent.

    The messages before the first round always stay, and so do the system's and the user's among the first
    `given` messages.
    """

    def __init__(self, chosen: Compaction | None, given: int, event_loop: EventLoop) -> None:
        self._chosen, self._given, self._event_loop = chosen, given, event_loop
        self._upto, self._shorter = 0, tuple[Message, ...]()

    def view(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages to send now.

        Where `compress` fails, or gives calls without their results, the previous form is sent.
        """
        if self._chosen is None:
            return tuple(messages)
        starts = [at for at, message in enumerate(messages) if message.role == "assistant"]
        round_count = max(1, self._chosen.keep_rounds)
        if len(starts) > round_count and (cut := starts[-round_count]) > self._upto:
            first = starts[0]
            older = [
                message
                for at, message in enumerate(messages[:cut])
                if at >= max(first, self._upto) and not self._should_keep(at, message)
            ]
            try:
                shorter = tuple(self._event_loop.settle(self._chosen.compress((*self._shorter, *older))))
                if _is_whole(shorter):
                    self._upto, self._shorter = cut, shorter
            except Exception:  # any error: the conversation is then sent unshortened
                pass
        first = starts[0] if starts else len(messages)
        kept_messages = [
            message for at, message in enumerate(messages[: self._upto]) if at < first or self._should_keep(at, message)
        ]
        return (*kept_messages, *self._shorter, *messages[self._upto :])

    def _should_keep(self, at: int, message: Message) -> bool:
        return at < self._given and message.role in ("system", "user")


def _is_whole(messages: Sequence[Message]) -> bool:
    """Return whether all are messages, each call stands before its result, and each result behind its call."""
    open_calls: set[str] = set()
    for message in messages:
        if not isinstance(message, Message) or (open_calls and message.role != "tool"):
            return False
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                return False
            open_calls.discard(message.tool_call_id)
        open_calls |= {call.id for call in message.tool_calls}
    return not open_calls


TurnPolicy = Callable[[int, Records, Mapping[str, Any]], Any]
"""Function that returns a system message before a turn, or None.

It gets the number of the turn, the records so far and the metadata. It returns a text, a `Message` of the
system, or that as an object, and may be `async def`.
"""
WARNING = "One turn is left behind this one. Call what you still need now; then you have to answer."
TERMINATE = "This is the last turn. Call no tool; answer with what you have."


class ToolLoop(Struct, frozen=True):
    """The setup of a model that works with tools.

    In the last of `max_turns` turns the model is told `terminate_message` and may call nothing, in the one
    before `warning_message`. `request` has the settings of each request (temperature and so on).
    """

    model: ChatModel
    tools: tuple[Tool, ...] = ()
    max_turns: int = 20
    warning_message: str = WARNING
    terminate_message: str = TERMINATE
    turn_policy: TurnPolicy | None = None
    compaction: Compaction | None = None
    metadata: Mapping[str, Any] = {}
    request: ChatRequest = ChatRequest(())

    def stream(
        self,
        messages: Sequence[Message | Mapping[str, Any]] | None = None,
        harness: Harness | None = None,
        decisions: Sequence[Decision] = (),
        cancel: "Event | None" = None,
    ) -> Iterator[LoopEvent]:
        """Yield everything as it happens; `LoopEnd` comes last.

        Without `messages`, which may be plain objects, continue the conversation of the harness. `decisions`
        are on tickets that an earlier run listed. A caller who stops reading cancels what runs.
        Raises `errors.UsageError` (E_TICKET for a decision that fits no ticket; E_MODEL_CANNOT) before anything
        is done, `errors.Unavailable` (E_LOCKED; E_IO) where another run has the harness or its file cannot be
        written.
        """
        if self.max_turns < 1:
            raise UsageError("max_turns is less than 1", suggestion="give at least one turn")
        refuse_unsound(self.tools)
        if self.turn_policy is not None:
            refuse_form("`turn_policy`", self.turn_policy, 3)
        if self.compaction is not None:
            refuse_form("`compress`", self.compaction.compress, 1)
        refuse_what_it_cannot(self.model.settings, replace(self.request, tools=tuple(tool.spec for tool in self.tools)))
        run_harness = Harness() if harness is None else harness
        conversation = None if messages is None else tuple(map(_parse_message, messages))
        with run_harness.lock(), closing(EventLoop()) as event_loop:
            yield from _Run(self, run_harness, conversation, cancel, event_loop).events(decisions)

    def run(
        self,
        messages: Sequence[Message | Mapping[str, Any]] | None = None,
        harness: Harness | None = None,
        decisions: Sequence[Decision] = (),
        cancel: "Event | None" = None,
        on_event: Callable[[LoopEvent], object] = lambda _: None,
    ) -> LoopResult:
        """Run the loop and return its result. Raises as `stream` does, and what `on_event` raises."""
        for event in self.stream(messages, harness, decisions, cancel):
            on_event(event)
            if isinstance(event, LoopEnd):
                return event.result
        raise AssertionError("a stream ends with LoopEnd")


def _parse_message(value: "Message | Mapping[str, Any]") -> Message:
    """Return a message, also from a plain object; raises `errors.UsageError`."""
    if isinstance(value, Message):
        return value
    try:
        return message_of(value)
    except (ValueError, AttributeError) as error:
        reason = error if isinstance(error, ValueError) else f"a {type(value).__name__} is not a message"
        raise UsageError(
            f"this is not a conversation: {reason}", suggestion='{"role": "user", "content": "..."}'
        ) from error


class _Run:
    """A run, with its growing conversation."""

    def __init__(
        self,
        loop: ToolLoop,
        harness: Harness,
        messages: Sequence[Message] | None,
        cancel: "Event | None",
        event_loop: EventLoop,
    ) -> None:
        self._loop, self._harness, self._cancel, self._event_loop = loop, harness, cancel, event_loop
        self._messages = list(harness.messages if messages is None else harness.fill_results(messages))
        answer, self._reason = harness.last_answer
        if self._reason is None and self._messages[-1:] == [answer] and not self._messages[-1].tool_calls:
            self._messages.pop()  # it broke off; the model is asked again
        if not self._messages:
            raise UsageError("no messages to answer", suggestion="give at least the user's")
        self._metadata = MappingProxyType(dict(loop.metadata))
        self._sent = Compacted(loop.compaction, len(self._messages), event_loop)
        self._used: list[Usage | None] = []
        self._ended: Literal["answered", "approval", "limit", "cancelled", "failed"] | None = None
        self._error: Unavailable | None = None
        self._content: str | None = None

    def events(self, decisions: Sequence[Decision]) -> Iterator[LoopEvent]:
        yield from self._resume(decisions)
        while self._ended is None:
            yield from self._turn()
        yield LoopEnd(self._build_result())

    def _resume(self, decisions: Sequence[Decision]) -> Iterator[LoopEvent]:
        """Settle what earlier runs left, until each call in the conversation has its result or waits for approval."""
        jobs = list(tool_execution.jobs(self._harness, self._messages, self._loop.tools, decisions))
        elsewhere = tool_execution.find_jobs_elsewhere(self._harness, self._messages, self._loop.tools)
        jobs += [job for _, job in elsewhere.values() if job is not None]
        if tuple(self._messages) != self._harness.messages:
            self._harness.append(Conversed(tuple(self._messages)))
        before = tuple(self._messages)
        open_calls = tool_execution.list_unanswered_calls(self._messages)
        execution = Execution(self._harness, self._metadata, self._cancel, self._event_loop)
        yield from execution.events(jobs)
        self._messages = [self._settle_message(item, elsewhere) for item in self._harness.fill_results(self._messages)]
        if elsewhere and tuple(self._messages) != self._harness.messages:
            self._harness.append(Conversed(tuple(self._messages)))
        for was, item in zip(before, self._messages, strict=True):
            if was != item:
                yield from self._report_result(item, execution)
        yield from self._answer([self._recover_call(item) for item in open_calls], execution)
        last = self._messages[-1]
        if tool_execution.list_waiting_approvals(self._harness, self._messages):
            self._ended = "approval"
        elif self._is_cancelled:
            self._ended = "cancelled"
        elif last.role == "assistant":
            self._ended, self._content = "answered", last.content

    def _settle_message(self, message: Message, elsewhere: Mapping[str, tuple[Call, Job | None]]) -> Message:
        """Replace the placeholder of a call that waited for a ticket of another harness by its outcome."""
        call_id = message.tool_call_id or ""
        if message.role != "tool" or call_id not in elsewhere:
            return message
        call, _ = elsewhere[call_id]
        record = self._harness.record_of(call)
        placeholder = next((ticket.message for ticket in self._harness.pending if ticket.call.id == call.id), message)
        return placeholder if record is None else record.message

    def _recover_call(self, tool_call: ToolCall) -> Call:
        """Return the call of a tool call that an interrupted run left without an answer.

        Unless the call waits for approval, record it as cancelled.
        """
        call = tool_execution.call_of(self._harness.turn, tool_call)
        if not any(ticket.call.id == call.id for ticket in self._harness.pending):
            self._harness.end(call, Ending("cancelled", None, "the run ended before; it was not executed", now()))
        return call

    def _report_result(self, message: Message, execution: Execution) -> Iterator[ToolResult]:
        for record in self._harness.records:
            if record.message == message:
                yield ToolResult(record, execution.shown.get(record.call.id))
                return

    def _turn(self) -> Iterator[LoopEvent]:
        if self._is_cancelled:
            self._ended = "cancelled"
            return
        turn, number = self._harness.turn + 1, self._number
        is_last = number >= self._loop.max_turns
        for text in self._iter_instructions(number, is_last=is_last):
            self._add_message(turn, Message("system", text))
        tools = visible(self._loop.tools, self._harness.records, self._metadata, self._event_loop)
        yield TurnStart(turn, tuple(tools))
        answer, usage = yield from self._ask(turn, tools, is_last=is_last)
        if self._ended is None or answer.content or answer.reasoning:
            self._add_message(turn, answer)
        self._used.append(usage)
        self._harness.append(TurnUsage(turn, usage, self._reason))
        if self._ended is None:
            yield from self._execute_calls(turn, answer, tools, is_last=is_last)
        yield TurnEnd(turn, usage)

    def _iter_instructions(self, number: int, *, is_last: bool) -> Iterator[str]:
        """Yield the system messages before a turn."""
        if self._loop.turn_policy is not None:
            try:
                advice = self._event_loop.settle(self._loop.turn_policy(number, self._harness.records, self._metadata))
                text = _extract_system_text(advice)
            except Exception:  # any error is ignored: instructions are only advice
                text = ""
            if text:
                yield text
        if is_last:
            yield self._loop.terminate_message
        elif number == self._loop.max_turns - 1:
            yield self._loop.warning_message

    def _ask(
        self, turn: int, tools: Mapping[str, Tool], *, is_last: bool
    ) -> Generator[LoopEvent, None, tuple[Message, Usage | None]]:
        """Yield the model's answer as it comes; return it whole with its tokens, without its calls where it broke
        off.
        """
        request = replace(
            self._loop.request,
            messages=self._sent.view(self._messages),
            tools=tuple(tool.spec for tool in tools.values()),
            tool_choice="none" if is_last else self._loop.request.tool_choice,
        )
        content, reasoning, calls = "", "", list[ToolCall]()
        usage, self._reason = None, None
        try:
            for event in self._loop.model.stream(request, self._cancel):
                match event:
                    case ContentDelta(text=text):
                        content += text
                    case ReasoningDelta(text=text):
                        reasoning += text
                    case ToolCallDone(call=call):
                        calls.append(self._with_own_id(call, turn, calls))
                        event = ToolCallDone(calls[-1])
                    case Finish():
                        usage, self._reason = event.usage, event.reason
                        continue
                yield event
            if self._reason is None:
                raise Unavailable("the model's answer broke off", "E_MODEL", "ask again")
        except Unavailable as problem:
            # A call that was not allowed gets its record too, and is not executed.
            if not (calls and self._reason is not None and problem.details.get("reason") == "ignored"):
                self._ended, self._error, calls = "cancelled" if self._is_cancelled else "failed", problem, []
        return Message("assistant", content, tuple(calls), None, reasoning or None), usage

    def _with_own_id(self, call: ToolCall, turn: int, earlier_calls: Sequence[ToolCall]) -> ToolCall:
        """Return the call with an id of its own; some providers give no ids, or the same ids each turn."""
        used_ids = {item.id for message in self._messages for item in message.tool_calls} | {
            item.id for item in earlier_calls
        }
        free = (f"call_{turn}_{number}" for number in count(len(earlier_calls) + 1))
        return (
            call
            if call.id and call.id not in used_ids
            else replace(call, id=next(item for item in free if item not in used_ids))
        )

    def _execute_calls(
        self, turn: int, answer: Message, tools: Mapping[str, Tool], *, is_last: bool
    ) -> Iterator[LoopEvent]:
        """Execute the calls of the answer, and decide whether there is another turn."""
        calls = [tool_execution.call_of(turn, tool_call) for tool_call in answer.tool_calls]
        execution, jobs = Execution(self._harness, self._metadata, self._cancel, self._event_loop), list[Job]()
        for call in calls:
            try:
                if is_last:
                    raise ToolError("it was not executed: the turns are at their limit")
                if call.tool not in tools:
                    raise ToolError(f"unknown tool {call.tool!r}; tools: {', '.join(tools) or 'none'}")
                args = parse_arguments(call.arguments)
                refuse_unfit(tools[call.tool].parameters, args)
                jobs.append(Job(call, tools[call.tool], args))
            except ToolError as problem:
                self._harness.end(call, Ending("error", None, describe_problem(problem), now()))
        yield from execution.events(jobs)
        yield from self._answer(calls, execution)
        if not calls or is_last:
            self._ended, self._content = "limit" if calls else "answered", answer.content or None
        elif self._is_cancelled:
            self._ended = "cancelled"
        elif tool_execution.list_waiting_approvals(self._harness, self._messages):
            self._ended = "approval"

    def _answer(self, calls: Sequence[Call], execution: Execution) -> Iterator[LoopEvent]:
        """Append a message for each call, in order: its result, or its placeholder."""
        pending_by_id = {ticket.call.id: ticket for ticket in self._harness.pending}
        for call in calls:
            record = self._harness.record_of(call)
            if record is not None:
                self._add_message(call.turn, record.message)
                yield ToolResult(record, execution.shown.get(call.id))
            else:
                self._add_message(call.turn, pending_by_id[call.id].message)
                yield ApprovalNeeded(pending_by_id[call.id])

    def _add_message(self, turn: int, message: Message) -> None:
        self._harness.append(Said(turn, message))
        self._messages.append(message)

    @property
    def _is_cancelled(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()

    @property
    def _number(self) -> int:
        """Return the number of the next turn since the last message of the user, counting earlier runs too."""
        last_question = max((at for at, message in enumerate(self._messages) if message.role == "user"), default=-1)
        return 1 + sum(message.role == "assistant" for message in self._messages[last_question + 1 :])

    def _build_result(self) -> LoopResult:
        assert self._ended is not None, "a run goes on until it has ended"
        return LoopResult(
            self._ended,
            tuple(self._messages),
            self._harness,
            self._content or None,
            len(self._used),
            tuple(self._used),
            tool_execution.list_waiting_approvals(self._harness, self._messages),
            self._reason,
            self._error,
        )


def _extract_system_text(value: Any) -> str:
    """Return the text that a turn policy gives; empty for anything but a system message."""
    if value is None or isinstance(value, str):
        return value or ""
    message = value if isinstance(value, Message) else message_of({"role": "system", **value})
    return message.content if message.role == "system" else ""
