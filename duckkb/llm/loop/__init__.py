"""Models that work with tools: the loop, its inputs and its events. docs/loop.md says how to use it."""

from duckkb.llm.loop.tool_calls import (
    Call,
    CallRecord,
    Decision,
    PendingApproval,
    Ticket,
    Tool,
    ToolContext,
    ToolError,
    TwoSided,
)
from duckkb.llm.loop.tool_execution import (
    ApprovalNeeded,
    ExecutionEnd,
    ExecutionStart,
    LoopEnd,
    LoopEvent,
    LoopResult,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from duckkb.llm.loop.tool_loop import Compaction, ToolLoop
from duckkb.llm.loop.transcript import Harness

__all__ = [
    "ApprovalNeeded", "Call", "CallRecord", "Compaction", "Decision", "ExecutionEnd", "ExecutionStart", "Harness", "LoopEnd",
    "LoopEvent", "LoopResult", "PendingApproval", "Ticket", "Tool", "ToolContext", "ToolError", "ToolLoop", "ToolResult",
    "TurnEnd", "TurnStart", "TwoSided",
]  # fmt: skip
