"""The entries of a harness, and the line of its file for each."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from duckkb.llm.loop.calls import Begun, Call, CallRecord, PendingApproval, canonical
from duckkb.messages import Message, Usage, message_of


class Conversed(Struct, frozen=True):
    """The conversation that a run was given, where it differs from that of the harness."""

    messages: tuple[Message, ...]


class Said(Struct, frozen=True):
    """A message that a turn added."""

    turn: int
    message: Message


class TurnUsage(Struct, frozen=True):
    """The tokens of a turn, None where the provider does not tell; and why its answer ended, None where it broke
    off.
    """

    turn: int
    usage: Usage | None
    finish: str | None


Entry = Conversed | Said | PendingApproval | Begun | CallRecord | TurnUsage


def turn_of(entry: Entry) -> int:
    """Return the turn of an entry."""
    match entry:
        case Conversed():
            return 0
        case Said() | TurnUsage():
            return entry.turn
        case _:
            return entry.call.turn


def line(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data, which `entry` reads again."""
    match entry:
        case Conversed():
            return {"line": "conversed", "messages": [message.as_object() for message in entry.messages]}
        case Said():
            return {"line": "said", "turn": entry.turn, "message": entry.message.as_object()}
        case TurnUsage():
            usage = None if entry.usage is None else asdict(entry.usage)
            return {"line": "turn", "turn": entry.turn, "usage": usage, "finish": entry.finish}
        case PendingApproval():
            return {
                "line": "ticket",
                **_call_line(entry.call),
                "ticket_id": entry.ticket_id,
                "digest": entry.call.digest,
            }
        case Begun():
            return {"line": "begun", **_call_line(entry.call), "ticket_id": entry.ticket_id, "start": entry.start}
        case CallRecord():
            return {"line": "record", **record_object(entry)}


def record_object(record: CallRecord) -> dict[str, Any]:
    """Return a record as plain data."""
    fields: dict[str, Any] = {**_call_line(record.call), "sequence": record.sequence, "status": record.status}
    fields |= {"result": record.result} if record.result is not None else {"error": record.error}
    return fields | {"start": record.start, "duration_ms": record.duration_ms}


def entry(line: Mapping[str, Any]) -> Entry:
    """Read the entry of a line. Raises KeyError, TypeError or ValueError where it is none."""
    match line["line"]:
        case "conversed":
            return Conversed(tuple(map(message_of, line["messages"])))
        case "said":
            return Said(line["turn"], message_of(line["message"]))
        case "turn":
            return TurnUsage(line["turn"], line["usage"] and Usage(**line["usage"]), line.get("finish", "stop"))
        case "ticket":
            return PendingApproval(_call(line), line["ticket_id"])
        case "begun":
            return Begun(_call(line), line["start"], line["ticket_id"])
        case "record":
            result, error = line.get("result"), line.get("error")
            details = line["sequence"], line["status"], result, error, line["start"], line["duration_ms"]
            return CallRecord(_call(line), *details)
        case line_type:
            raise ValueError(f"no line of a harness: {line_type}")


def _call_line(call: Call) -> dict[str, Any]:
    return {"id": call.id, "turn": call.turn, "call_id": call.call_id, "tool": call.tool, "args": call.args}


def _call(line: Mapping[str, Any]) -> Call:
    arguments = line["args"]
    return Call(
        line["turn"], line["call_id"], line["tool"], arguments if isinstance(arguments, str) else canonical(arguments)
    )
