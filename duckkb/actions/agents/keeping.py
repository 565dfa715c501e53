"""The transcript of an agent as records: what it did, in git, reviewed like any knowledge."""

from typing import Any

from duckkb.actions import writing
from duckkb.actions.resolve import find_kind
from duckkb.engine.base import Base
from duckkb.errors import StateError, UsageError
from duckkb.llm.loop import CallRecord, Harness
from duckkb.queries import Receipt

_IDENTITY = ("run", "sequence")
"""The identity of the policy's records."""


def keep_harness(base: Base, type: str, harness: Harness, *, run: str | None = None, dry_run: bool = False) -> Receipt:
    """Store the records of a harness in a collection with the policy `harness`.

    The run is named `run`, by default by the harness's own id.

    Storing it again changes nothing. Raises as `writing.put`, `errors.UsageError` for another type, and
    `errors.StateError` (E_HARNESS) for a harness that waits for approval, was interrupted, or has no calls.
    """
    if find_kind(base, type).identity != _IDENTITY:
        command = "duckkb col init runs --policy harness"
        raise UsageError(f"{type} is not a collection with the policy `harness`", suggestion=command)
    if harness.pending or harness.interrupted:
        raise StateError("this harness is not finished: calls wait, or were interrupted", "E_HARNESS", "resume its run")
    if not harness.records:
        raise StateError("this harness has nothing to store: no tool was called", "E_HARNESS", "keep another")
    name = harness.id if run is None else run
    return writing.put(base, type, [_record(name, record) for record in harness.records], dry_run=dry_run)


def _record(run: str, record: CallRecord) -> dict[str, Any]:
    """Return a call as a record; `args` stay text, so that whatever a model wrote can be stored."""
    call = record.call
    outcome = {"result": record.result} if record.result is not None else {"error": record.error}
    return {
        "run": run,
        "sequence": record.sequence,
        "turn": call.turn,
        "call": call.call_id,
        "tool": call.tool,
        "args": call.arguments.encode("utf-8", "replace").decode(),
        "status": record.status,
        **outcome,
        "start": record.start,
        "duration_ms": record.duration_ms,
    }
