"""The harness: an append-only log of tool results and messages, in the order in which they happened."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from msgspec import Struct

from duckkb.errors import StateError, Unavailable, UsageError
from duckkb.llm.loop import entries
from duckkb.llm.loop.calls import Begun, Call, CallRecord, PendingApproval, Status, ToolError
from duckkb.llm.loop.entries import Conversed, Entry, Said, TurnUsage
from duckkb.llm.loop.harness_file import FORMAT, HarnessFile, read
from duckkb.messages import Message


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
        return max((entries.turn_of(entry) for entry in self._now), default=0)

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
                self._file.append(map(entries.line, more))
            self._entries += more

    def begin(self, begun: Begun, *, again: bool = False) -> None:
        """Record that a call will be executed now.

        Raises ToolError where it must not be: it has a record, was begun (unless it may be done `again`), or
        its ticket is another call's.
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
            self._entries = [entries.entry(line) for line in lines[1:]]
        except (KeyError, TypeError, ValueError) as error:
            message = f"{path} has a line that this version does not know"
            raise StateError(message, "E_HARNESS", "read it with the duckkb that wrote it") from error
