"""A call of a tool, from what a model wrote to its result: as values, and as the JSON of both."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from msgspec import Struct

from duckkb.messages import Message
from duckkb.ontology.reasons import compile_rule
from duckkb.ontology.source import pointer
from duckkb.ontology.validate import foreign

Status = Literal["success", "error", "timeout", "cancelled"]
_MOST = 10
"""Problems of arguments that a model is told at once."""


class ToolError(Exception):
    """An error whose text a tool tells the model.

    Of other exceptions (but duckkb's own) the model gets only the type: their text may hold anything.
    """


class Call(Struct, frozen=True):
    """A call that a model asked for in a `turn`, under the id `call_id`.

    `arguments` is canonical JSON, or the model's own text where that is no JSON object.
    """

    turn: int
    call_id: str
    tool: str
    arguments: str

    @property
    def id(self) -> str:
        """The id of the call, unique in its harness."""
        return f"{self.turn}.{self.call_id}"

    @property
    def args(self) -> Any:
        """The arguments as an object, or the text where it is none."""
        try:
            arguments = parse_arguments(self.arguments)
        except ToolError:
            return self.arguments
        return arguments if canonical(arguments) == self.arguments else self.arguments

    @property
    def digest(self) -> str:
        """The SHA-256 of the arguments."""
        return hashlib.sha256(self.arguments.encode("utf-8", "surrogatepass")).hexdigest()


class CallRecord(Struct, frozen=True):
    """The outcome of a call: the `result` as the model got it, or the `error`.

    `sequence` counts the records of a harness from 0; `start` is UTC as in records, `duration_ms` in milliseconds.
    """

    call: Call
    sequence: int
    status: Status
    result: str | None
    error: str | None
    start: str
    duration_ms: float

    @property
    def text(self) -> str:
        """The text for the model."""
        if self.result is not None:
            return self.result
        return json.dumps({"status": self.status, "error": self.error}, ensure_ascii=False)

    @property
    def message(self) -> Message:
        """The message that answers the call."""
        return Message("tool", self.text, tool_call_id=self.call.call_id)


class Begun(Struct, frozen=True):
    """An entry that is written just before a call is executed; without a record behind it, the call may have been
    executed.

    `ticket_id` is empty for a call that needs no approval.
    """

    call: Call
    start: str
    ticket_id: str = ""


class Decision(Struct, frozen=True):
    """A decision on a ticket, by somebody who saw the arguments of this `digest`."""

    ticket_id: str
    digest: str
    approved: bool
    reason: str = ""


class PendingApproval(Struct, frozen=True):
    """A call that waits for approval, and was not executed."""

    call: Call
    ticket_id: str

    @property
    def message(self) -> Message:
        """The placeholder in the conversation until then."""
        notice = {
            "status": "pending_approval",
            "ticket_id": self.ticket_id,
            "note": "not executed: it waits for approval",
        }
        return Message("tool", json.dumps(notice, ensure_ascii=False), tool_call_id=self.call.call_id)

    @staticmethod
    def ticket_of(message: Message) -> str | None:
        """Return the ticket whose placeholder a message is; None for any other message."""
        try:
            content = json.loads(message.content) if message.role == "tool" else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("status") != "pending_approval":
            return None
        return content["ticket_id"] if isinstance(content.get("ticket_id"), str) else None

    def approve(self) -> Decision:
        """Return the decision to execute the call with these arguments."""
        return Decision(self.ticket_id, self.call.digest, True)

    def reject(self, reason: str = "") -> Decision:
        """Return the decision not to execute the call; the model is told the reason."""
        return Decision(self.ticket_id, self.call.digest, False, reason)


def canonical(value: Any) -> str:
    r"""Return the canonical JSON text of a value: names sorted, ASCII.

    >>> canonical({"b": [1, "ü"], "a": None})
    '{"a":null,"b":[1,"\\u00fc"]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments that a model wrote; an empty text means none.

    Raises ToolError unless they are a JSON object.
    """
    try:
        arguments = json.loads(text or "{}", parse_constant=_refuse_constant)
        problem = next(foreign(arguments, ""), None)
    except (ValueError, RecursionError):
        raise ToolError("the arguments are not JSON") from None
    if not isinstance(arguments, dict):
        raise ToolError("the arguments are not one JSON object")
    if problem is not None:
        raise ToolError(f"the arguments are not JSON: {problem[1].partition(' (rule:')[0]}")
    return arguments


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def refuse_unfit(schema: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise ToolError with the arguments that do not satisfy the schema; values are not repeated."""
    try:
        errors = list(compile_rule(schema).iter_errors(dict(given)))
    except ValueError:  # a number that the validator does not take
        raise ToolError("the arguments do not fit: a value is out of range") from None
    if errors:
        messages = [
            f"{pointer(*error.instance_path) or '/'}: {error.message.partition(chr(10))[0]}" for error in errors[:_MOST]
        ]
        raise ToolError(f"the arguments do not fit the parameters: {'; '.join(messages)}")
