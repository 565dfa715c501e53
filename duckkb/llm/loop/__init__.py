"""Models that work with tools: the loop, its inputs and its events. docs/loop.md says how to use it."""

from duckkb.llm.loop.calls import Call, CallRecord, Decision, PendingApproval, ToolError
from duckkb.llm.loop.compaction import Compaction
from duckkb.llm.loop.events import (
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
from duckkb.llm.loop.harness import Harness
from duckkb.llm.loop.loop import ToolLoop
from duckkb.llm.loop.tools import Ticket, Tool, ToolContext, TwoSided

__all__ = [
    "ApprovalNeeded", "Call", "CallRecord", "Compaction", "Decision", "ExecutionEnd", "ExecutionStart", "Harness", "LoopEnd",
    "LoopEvent", "LoopResult", "PendingApproval", "Ticket", "Tool", "ToolContext", "ToolError", "ToolLoop", "ToolResult",
    "TurnEnd", "TurnStart", "TwoSided",
]  # fmt: skip
