"""The harness: what tools did and what was said, in the order in which it happened; it only grows."""

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
    """How a call ended: with a `result`, or an `error`."""

    status: Status
    result: str | None
    error: str | None
    start: str
    duration_ms: float = 0.0


class Harness:
    """In memory, or kept in a file (`Harness.open`). One run at a time goes on with it; threads of that run append to it."""

    def __init__(self) -> None:
        self.id = uuid4().hex
        self._entries: list[Entry] = []
        self._file: HarnessFile | None = None
        self._is_open = True
        self._turn_taking, self._in_use = threading.RLock(), threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, wait_s: float = 60.0) -> "Harness":
        """The harness of a file, which is made where there is none, to go on with; close it, or use it in a `with` block. Waits
        at most `wait_s` seconds for another who has it open. Raises `errors.StateError` (E_HARNESS) for a file that is damaged,
        `errors.Unavailable` (E_LOCKED, E_IO)."""
        file = HarnessFile(Path(path), wait_s)
        found = cls()
        try:
            if file.lines:
                found._take(file.lines, Path(path))
            else:
                file.append([{"line": "head", "format": FORMAT, "id": found.id}])
        except BaseException:
            file.close()
            raise
        found._file = file
        return found

    @classmethod
    def read(cls, path: str | Path) -> "Harness":
        """The harness of a file as it stands there, to look at; waits for nobody. Raises as `open`."""
        found = cls()
        found._take(read(Path(path)).lines, Path(path))
        found._is_open = False
        return found

    def __enter__(self) -> "Harness":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is appended. Lets go of the file."""
        with self._turn_taking:
            self._is_open = False
            if self._file is not None:
                self._file.close()

    @property
    def records(self) -> tuple[CallRecord, ...]:
        """What became of calls, each once."""
        return tuple(one for one in self._now if isinstance(one, CallRecord))

    @property
    def turn(self) -> int:
        """How many turns there were, in all runs."""
        return max((entries.turn_of(one) for one in self._now), default=0)

    @property
    def usage(self) -> tuple[TurnUsage, ...]:
        """What each turn took."""
        return tuple(one for one in self._now if isinstance(one, TurnUsage))

    @property
    def tickets(self) -> dict[str, PendingApproval]:
        """Every call that waited for approval, by its ticket."""
        return {one.ticket_id: one for one in self._now if isinstance(one, PendingApproval)}

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for approval, and were not begun."""
        return tuple(one for one in self.tickets.values() if not self._is_known(one.call.id, CallRecord, Begun))

    @property
    def interrupted(self) -> tuple[Begun, ...]:
        """The calls of which nobody knows whether they were executed: begun, each once, without a record."""
        begun = {one.call.id: one for one in self._now if isinstance(one, Begun)}
        return tuple(one for one in begun.values() if not self._is_known(one.call.id, CallRecord))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it stood last, with results in the place of what was approved since."""
        found: list[Message] = []
        for one in self._now:
            if isinstance(one, Conversed):
                found = [*one.messages]
            elif isinstance(one, Said):
                found.append(one.message)
        return self.settled(found)

    @property
    def last_answer(self) -> tuple[Message | None, str | None]:
        """What the model said last, and why that ended: None where it broke off, or the process died before it said so."""
        answers = (one for one in reversed(self._now) if isinstance(one, Said) and one.message.role == "assistant")
        last = next(answers, None)
        ended = {one.turn: one.finish for one in self.usage}
        return (None, None) if last is None else (last.message, ended.get(last.turn))

    def settled(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Messages with the results of calls in the place of what held it while they waited for approval."""
        done = {one.call.id: one for one in self.records}
        held = {one.message: done[one.call.id] for one in self.tickets.values() if one.call.id in done}
        return tuple(held[one].message if one in held else one for one in messages)

    def record_of(self, call: Call) -> CallRecord | None:
        """What became of a call."""
        return next((one for one in self.records if one.call.id == call.id), None)

    def append(self, *more: Entry) -> None:
        """Add what happened; of a harness with a file it is on the disk when this returns. Raises `errors.Unavailable` (E_IO),
        `errors.UsageError` for one that is closed or was opened to be read."""
        with self._turn_taking:
            if not self._is_open:
                raise UsageError("this harness is closed, or was read to be looked at", suggestion="Harness.open(PATH)")
            if self._file is not None:
                self._file.append(map(entries.line, more))
            self._entries += more

    def begin(self, begun: Begun, *, again: bool = False) -> None:
        """Write down that a call will be executed now. Raises ToolError where it must not: it has a record, was begun (unless it
        may be done `again`), or its ticket is another call's."""
        with self._turn_taking:
            spent = self.record_of(begun.call) is not None or (self._is_known(begun.call.id, Begun) and not again)
            if spent or (begun.ticket_id and self._is_taken(begun.ticket_id, begun.call)):
                raise ToolError("it was not executed: the call, or its ticket, was used before")
            self.append(begun)

    def hold(self, pending: PendingApproval) -> None:
        """Write down that a call waits for approval. Raises ToolError where its ticket is another call's, or the call has ended."""
        with self._turn_taking:
            if self._is_taken(pending.ticket_id, pending.call) or self.record_of(pending.call) is not None:
                raise ToolError("it was not executed: its ticket was used before")
            self.append(pending)

    def end(self, call: Call, outcome: Ending) -> CallRecord:
        """The record of a call: the one that there is, as each has but one, or a new one."""
        with self._turn_taking:
            found = self.record_of(call)
            if found is None:
                told = outcome.status, outcome.result, outcome.error, outcome.start, outcome.duration_ms
                found = CallRecord(call, len(self.records), *told)
                self.append(found)
            return found

    def is_begun(self, call: Call) -> bool:
        """Whether it may have been executed."""
        return self._is_known(call.id, Begun)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nobody else appends meanwhile."""
        with self._turn_taking:
            yield

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Held by one run at a time. Raises `errors.Unavailable` (E_LOCKED)."""
        if not self._in_use.acquire(blocking=False):
            raise Unavailable("another run goes on with this harness", "E_LOCKED", "wait until it has ended")
        try:
            yield
        finally:
            self._in_use.release()

    @property
    def _now(self) -> tuple[Entry, ...]:
        with self._turn_taking:
            return tuple(self._entries)

    def _is_known(self, call_id: str, *kinds: type[Begun] | type[CallRecord]) -> bool:
        return any(isinstance(one, kinds) and one.call.id == call_id for one in self._now)

    def _is_taken(self, ticket_id: str, call: Call) -> bool:
        """Whether a ticket stands for another call, or another for this call."""
        held = [one for one in self._now if isinstance(one, PendingApproval | Begun) and one.ticket_id]
        return any((one.ticket_id == ticket_id) != (one.call.id == call.id) for one in held)

    def _take(self, lines: Sequence[Mapping[str, Any]], path: Path) -> None:
        try:
            self.id = str(lines[0]["id"]) if lines else self.id
            self._entries = [entries.entry(one) for one in lines[1:]]
        except (KeyError, TypeError, ValueError) as error:
            said = f"{path} has a line that this version does not know"
            raise StateError(said, "E_HARNESS", "read it with the duckkb that wrote it") from error
