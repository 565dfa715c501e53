"""The harness: an append-only log of tool results and messages, in the order in which they happened.

The file of a harness: JSON lines that are only ever appended, each synced to the disk before it counts.

`sum` of a line is the first 16 hex digits of the SHA-256 of the sum before it and its own bytes without the
sum. So no line can be changed, dropped or moved unnoticed. An incomplete last line was never acknowledged: the
next writer removes it.

The entries of a harness, and the line of its file for each."""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import asdict

from duckkb import atomic_write, locks
from duckkb.atomic_write import NO_FOLLOW
from duckkb.llm.loop.tool_calls import Begun, Call, CallRecord, PendingApproval, Status, ToolError, canonical
from duckkb.types.chat_messages import Message, Usage, message_of
from duckkb.types.errors import StateError, Unavailable, UsageError

FORMAT = "duckkb harness 1"
_SUM = b',"sum":"'
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_FOLLOW


class Found(Struct, frozen=True):
    """The content of a file: its whole lines, their bytes, and the sum of the last; `is_torn`: bytes stood behind
    them.
    """

    lines: tuple[Mapping[str, Any], ...]
    size: int
    sum: str
    is_torn: bool


def read(path: Path) -> Found:
    """Read the whole lines of a file, even while somebody writes to it.

    Raises `errors.StateError` (E_HARNESS) for a damaged or foreign file, `errors.Unavailable` (E_IO).
    """
    try:
        return _parse_file(path, path.read_bytes())
    except OSError as error:
        raise _wrap_error(path, error) from error


class HarnessFile:
    """A file that is open for appending, by nobody else in this or another process. `lines` are those it had.

    Raises as `read` does, and `errors.Unavailable` (E_LOCKED) where another has it longer than `wait_s` seconds.
    """

    def __init__(self, path: Path, wait_s: float) -> None:
        self._path, self._is_sound = path, True
        try:
            self._descriptor = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise _wrap_error(path, error) from error
        try:
            if not locks.wait_for_lock(self._descriptor, exclusive=True, deadline=time.monotonic() + wait_s):
                message = f"{path} is in use: another run uses this harness"
                raise Unavailable(message, "E_LOCKED", "wait until it has ended")
            if not locks.is_at(self._descriptor, path):
                raise StateError(f"{path} was removed or replaced meanwhile", "E_HARNESS", "open it again")
            content = _parse_file(path, path.read_bytes())
            if content.is_torn:
                os.ftruncate(self._descriptor, content.size)
                os.fsync(self._descriptor)
            if not content.lines:  # it may be new, even where another process created it and died
                atomic_write.fsync_folder(path.parent)
        except BaseException as error:
            os.close(self._descriptor)
            if isinstance(error, OSError):
                raise _wrap_error(path, error) from error
            raise
        self.lines, self._size, self._sum = content.lines, content.size, content.sum

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines; they are on disk when this returns.

        After a failure none of them is there, and the file takes no more. Raises `errors.Unavailable` (E_IO).
        """
        if not self._is_sound:
            raise Unavailable(f"{self._path} accepts no more writes: one failed", "E_IO", "open it again")
        data, last = b"", self._sum
        for line in lines:
            text, last = _seal_line(line, last)
            data += text
        try:
            offset = 0
            while offset < len(data):
                offset += os.write(self._descriptor, data[offset:])
            os.fsync(self._descriptor)
        except OSError as error:
            self._is_sound = False
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise _wrap_error(self._path, error) from error
        self._size, self._sum = self._size + len(data), last

    def close(self) -> None:
        """Close the file; later use raises an error."""
        if self._descriptor >= 0:
            self._is_sound = False
            os.close(self._descriptor)
            self._descriptor = -1


def _seal_line(line: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    body = json.dumps(line, separators=(",", ":")).encode()[:-1]
    digest = _sum(before, body)
    return body + _SUM + digest.encode() + b'"}\n', digest


def _sum(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()[:16]


def _parse_file(path: Path, data: bytes) -> Found:
    *whole, torn_end = data.split(b"\n")
    lines: list[Mapping[str, Any]] = []
    size, last = 0, ""
    for number, text in enumerate(whole, 1):
        line = _parse_line(text, last)
        if line is None and number == len(whole) and not torn_end and number > 1 and b"\0" in text:
            return Found(tuple(lines), size, last, True)  # blocks of the file that never reached the disk
        if line is None or (number == 1 and line.get("format") != FORMAT):
            message = (
                f"{path}:{number} was changed after it was written" if number > 1 else f"{path} is not a harness file"
            )
            raise StateError(message, "E_HARNESS", "take the file from a backup, or begin a new harness")
        lines.append(line)
        size, last = size + len(text) + 1, str(line["sum"])
    if torn_end and not whole and not b'{"line":"head"'.startswith(torn_end[:14]):
        raise StateError(f"{path} is not a harness file", "E_HARNESS", "name another file")
    return Found(tuple(lines), size, last, bool(torn_end))


def _parse_line(text: bytes, before: str) -> Mapping[str, Any] | None:
    """Return the object of an unchanged line; None for any other."""
    body, _, tail = text.rpartition(_SUM)
    if tail != f'{_sum(before, body)}"}}'.encode():
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else None


def _wrap_error(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path}: {error.strerror or error}", "E_IO", "free space, or name a file that you may write")


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


def render_entry(entry: Entry) -> dict[str, Any]:
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


def read_entry(line: Mapping[str, Any]) -> Entry:
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


class Ending(Struct, frozen=True):
    """The end of a call: a `result`, or an `error`."""

    status: Status
    result: str | None
    error: str | None
    start: str
    duration_ms: float = 0.0


class Harness:
    """A harness in memory, or stored in a file (`Harness.open`).

    One run at a time uses it; its threads append to it.
    """

    def __init__(self) -> None:
        self.id = uuid4().hex
        self._entries: list[Entry] = []
        self._file: HarnessFile | None = None
        self._is_open = True
        self._turn_taking, self._in_use = threading.RLock(), threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, wait_s: float = 60.0) -> "Harness":
        """Open the harness of a file, which is created where it is absent; close it, or use it in a `with` block.

        Waits at most `wait_s` seconds for another process or thread that has it open. Raises
        `errors.StateError` (E_HARNESS) for a damaged file, `errors.Unavailable` (E_LOCKED, E_IO).
        """
        file = HarnessFile(Path(path), wait_s)
        harness = cls()
        try:
            if file.lines:
                harness._take(file.lines, Path(path))
            else:
                file.append([{"line": "head", "format": FORMAT, "id": harness.id}])
        except BaseException:
            file.close()
            raise
        harness._file = file
        return harness

    @classmethod
    def read(cls, path: str | Path) -> "Harness":
        """Read the harness of a file as it is, without the right to append; waits for nobody.

        Raises as `open` does.
        """
        harness = cls()
        harness._take(read(Path(path)).lines, Path(path))
        harness._is_open = False
        return harness

    def __enter__(self) -> "Harness":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further entries and close the file."""
        with self._turn_taking:
            self._is_open = False
            if self._file is not None:
                self._file.close()

    @property
    def records(self) -> tuple[CallRecord, ...]:
        """The records of calls, each once."""
        return tuple(entry for entry in self._now if isinstance(entry, CallRecord))

    @property
    def turn(self) -> int:
        """The number of turns in all runs."""
        return max((turn_of(entry) for entry in self._now), default=0)

    @property
    def usage(self) -> tuple[TurnUsage, ...]:
        """The tokens of each turn."""
        return tuple(entry for entry in self._now if isinstance(entry, TurnUsage))

    @property
    def tickets(self) -> dict[str, PendingApproval]:
        """Every call that waited for approval, by its ticket."""
        return {entry.ticket_id: entry for entry in self._now if isinstance(entry, PendingApproval)}

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for approval, and were not begun."""
        return tuple(
            ticket for ticket in self.tickets.values() if not self._has_entry(ticket.call.id, CallRecord, Begun)
        )

    @property
    def interrupted(self) -> tuple[Begun, ...]:
        """The calls that may or may not have been executed: begun, each once, without a record."""
        begun_by_id = {entry.call.id: entry for entry in self._now if isinstance(entry, Begun)}
        return tuple(entry for entry in begun_by_id.values() if not self._has_entry(entry.call.id, CallRecord))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The latest conversation, with results in the place of calls approved since."""
        conversation: list[Message] = []
        for entry in self._now:
            if isinstance(entry, Conversed):
                conversation = [*entry.messages]
            elif isinstance(entry, Said):
                conversation.append(entry.message)
        return self.fill_results(conversation)

    @property
    def last_answer(self) -> tuple[Message | None, str | None]:
        """The last message of the model, and why it ended: None where it broke off, or the process died before."""
        answers = (
            entry for entry in reversed(self._now) if isinstance(entry, Said) and entry.message.role == "assistant"
        )
        last = next(answers, None)
        finish_by_turn = {entry.turn: entry.finish for entry in self.usage}
        return (None, None) if last is None else (last.message, finish_by_turn.get(last.turn))

    def fill_results(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return messages in which results replace the placeholders of calls that waited for approval."""
        records_by_id = {item.call.id: item for item in self.records}
        records_by_message = {
            item.message: records_by_id[item.call.id] for item in self.tickets.values() if item.call.id in records_by_id
        }
        return tuple(records_by_message[item].message if item in records_by_message else item for item in messages)

    def record_of(self, call: Call) -> CallRecord | None:
        """Return the record of a call; None where there is none."""
        return next((record for record in self.records if record.call.id == call.id), None)

    def append(self, *more: Entry) -> None:
        """Append entries; in a harness with a file they are on disk when this returns.

        Raises `errors.Unavailable` (E_IO), and `errors.UsageError` for a harness that is closed or was opened
        to be read.
        """
        with self._turn_taking:
            if not self._is_open:
                raise UsageError("this harness is closed, or was read to be looked at", suggestion="Harness.open(PATH)")
            if self._file is not None:
                self._file.append(map(render_entry, more))
            self._entries += more

    def begin(self, begun: Begun, *, again: bool = False) -> None:
        """Record that a call will be executed now.

        Raises ToolError if the call already has a result, if it was already begun (unless `again`), or if its ticket
        belongs to another call or the call has another ticket.
        """
        with self._turn_taking:
            spent = self.record_of(begun.call) is not None or (self._has_entry(begun.call.id, Begun) and not again)
            if spent or (begun.ticket_id and self._has_ticket_conflict(begun.ticket_id, begun.call)):
                raise ToolError("it was not executed: the call, or its ticket, was used before")
            self.append(begun)

    def hold(self, pending: PendingApproval) -> None:
        """Record that a call waits for approval.

        Raises ToolError where its ticket is another call's, or the call has ended.
        """
        with self._turn_taking:
            if self._has_ticket_conflict(pending.ticket_id, pending.call) or self.record_of(pending.call) is not None:
                raise ToolError("it was not executed: its ticket was used before")
            self.append(pending)

    def end(self, call: Call, outcome: Ending) -> CallRecord:
        """Return the record of a call: the present one, as each call has one only, or a new one."""
        with self._turn_taking:
            record = self.record_of(call)
            if record is None:
                details = outcome.status, outcome.result, outcome.error, outcome.start, outcome.duration_ms
                record = CallRecord(call, len(self.records), *details)
                self.append(record)
            return record

    def is_begun(self, call: Call) -> bool:
        """Return whether the call may have been executed."""
        return self._has_entry(call.id, Begun)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Keep other threads from appending while the block runs."""
        with self._turn_taking:
            yield

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Reserve the harness for one run while the block runs. Raises `errors.Unavailable` (E_LOCKED)."""
        if not self._in_use.acquire(blocking=False):
            raise Unavailable("another run uses this harness", "E_LOCKED", "wait until it has ended")
        try:
            yield
        finally:
            self._in_use.release()

    @property
    def _now(self) -> tuple[Entry, ...]:
        with self._turn_taking:
            return tuple(self._entries)

    def _has_entry(self, call_id: str, *kinds: type[Begun] | type[CallRecord]) -> bool:
        return any(isinstance(entry, kinds) and entry.call.id == call_id for entry in self._now)

    def _has_ticket_conflict(self, ticket_id: str, call: Call) -> bool:
        """Return whether the ticket belongs to another call, or another ticket to this call."""
        ticket_entries = [
            entry for entry in self._now if isinstance(entry, PendingApproval | Begun) and entry.ticket_id
        ]
        return any((entry.ticket_id == ticket_id) != (entry.call.id == call.id) for entry in ticket_entries)

    def _take(self, lines: Sequence[Mapping[str, Any]], path: Path) -> None:
        try:
            self.id = str(lines[0]["id"]) if lines else self.id
            self._entries = [read_entry(line) for line in lines[1:]]
        except (KeyError, TypeError, ValueError) as error:
            message = f"{path} has a line that this version does not know"
            raise StateError(message, "E_HARNESS", "read it with the duckkb that wrote it") from error
