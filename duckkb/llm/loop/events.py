"""The events of a loop, and its result. Deltas and calls come as the model gives them (`duckkb.messages`)."""

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb.errors import DuckkbError
from duckkb.llm.loop.calls import Call, CallRecord, PendingApproval
from duckkb.messages import ContentDelta, Message, ReasoningDelta, ToolCallDone, Usage

if TYPE_CHECKING:
    from duckkb.llm.loop.harness import Harness


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
