"""The engine in a separate process, which is killed if it exceeds its time and ends if it exceeds its memory.

The process starts when it is first needed and again after it ended. It receives tables through a pipe as Arrow
data, or as files that are open when it begins; it writes no file. It answers in JSON: nothing that it sends is
executed or unpickled here.

Runs SQL for the runtime tables: `Confined` in this process, or `Isolated` in a process that may be killed.

Both give the same answers. They hold no state of their own: tables are registered Arrow data.

A pool of engines that answer concurrently, each for one thread at a time; the longest waiter is next."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import Signals
from threading import Condition, get_ident
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb import installed, sandbox
from duckkb.id_set import IdSet
from duckkb.ports import SqlLimits
from duckkb.types import request_context
from duckkb.types.errors import Unavailable
from duckkb.types.queries import SqlResult

if TYPE_CHECKING:
    import socket
    import subprocess

    import pyarrow as pa

UNKNOWN_VERSION = 78
"""The exit code of a process with an engine version that the tree walks do not know."""

Reason = Literal["column", "value", "json", "exact", "fit", "deep", "other"]


class Rejected(Exception):
    """The engine did not run a statement. Its own text is hidden, because it may quote stored values.

    `reason` is `column` (`name` does not exist), `value` (a value does not convert or is out of range), `json`
    (a text met JSON), `exact` (a whole number would be rounded), `fit` (names, types or arguments do not match;
    `name` is a call without a matching function, with the types of its arguments), `deep` (nesting too deep) or
    `other`.
    """

    def __init__(self, reason: Reason, name: str = "") -> None:
        super().__init__(reason)
        self.reason: Reason = reason
        self.name = name


class Engine(ABC):
    """An in-memory DuckDB without files, network, extensions or a way to change its settings. Threads, and the
    tables of several snapshots of a base, take turns (`engines`).

    Every method raises `errors.Unavailable` (`E_LIMIT` over time or memory, `E_TIMEOUT` if nobody waits any
    more, `E_INTERNAL` if the engine itself failed, with `retryable` among its details); methods that run a
    statement raise Rejected.
    """

    generation = 0
    _given: float | None = None
    _end = 0.0

    def __init__(self) -> None:
        self.shown: dict[str, object] = {}
        """By name what its users registered and defined in this `generation` of it."""

    def _forget(self) -> None:
        """Forget all registered tables."""
        self.generation += 1
        self.shown.clear()

    @contextmanager
    def limit_time(self, seconds: float) -> Iterator[None]:
        """Limit all calls in the block to `seconds` together."""
        self._given, self._end = seconds, monotonic() + seconds
        try:
            yield
        finally:
            self._given = None

    def _limit_seconds(self, seconds: float) -> float:
        """Return `seconds`, or the time that the deadlines leave; raises `errors.Unavailable` (E_LIMIT, E_TIMEOUT)
        if none is left.
        """
        request_context.refuse_late()
        if self._given is None:
            return request_context.limit_seconds(seconds)
        remaining_seconds = min(seconds, self._end - monotonic())
        if remaining_seconds <= 0:
            raise make_limit_error(self._given)
        return request_context.limit_seconds(remaining_seconds)

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return the syntax tree of SELECT statements as JSON, with `error` set if there is none; nothing runs."""

    @abstractmethod
    def unparse(self, tree: Any) -> str:
        """Return the SQL text of a syntax tree from `parse`."""

    @abstractmethod
    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Announce the files that `register` will name. `files` is called if the engine can use them without
        copying.
        """

    @abstractmethod
    def register(self, name: str, data: "pa.Table | Path") -> None:
        """Make Arrow data visible under a name, replacing earlier data. Statements do not see the last column of a
        file; raises OSError and ValueError for an invalid file.
        """

    @abstractmethod
    def define(self, statement: str) -> None:
        """Run a statement of our own that defines a view."""

    @abstractmethod
    def ids(self, statement: str, seconds: float) -> IdSet:
        """Return the integers of a statement's only column."""

    @abstractmethod
    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        """Return the rows of a statement as plain JSON values, up to the caps."""

    @abstractmethod
    def drop(self) -> None:
        """Close the instance; the next use opens another."""


def make_limit_error(seconds: float | None) -> Unavailable:
    """Return the error for a query over its time or memory limit."""
    return Unavailable(
        "The query took too much time or memory and was stopped.",
        code="E_LIMIT",
        suggestion="make it narrower, or give it more time (--timeout)",
        details={"seconds": seconds},
    )


def make_parser_limit_error() -> Unavailable:
    """Return the error for a text that the parser does not finish: a longer time limit does not help."""
    return Unavailable(
        "The parser of DuckDB took too much time or memory for this text and was stopped.",
        code="E_LIMIT",
        suggestion="write it shorter, with fewer expressions inside of each other",
    )


def unknown_version() -> Unavailable:
    """Return the error for a DuckDB with unknown syntax trees: unverified statements do not run."""
    return Unavailable(
        "This version of DuckDB is not known to duckkb, so filters and SQL do not run.",
        suggestion="pip install 'duckdb>=2.0.1,<3'",
        details={"retryable": False},
    )


def make_engine_error() -> Unavailable:
    """Return the error after the engine itself failed; its state is derived, so the next call starts a fresh
    engine.
    """
    return Unavailable(
        "The query engine failed and was restarted; nothing stored is touched.",
        code="E_INTERNAL",
        suggestion="try again; report it if it happens again",
        details={"retryable": True},
    )


GRACE_SECONDS = 0.5  # the time for a statement to react to the interrupt, before the process is killed
LONGEST_SECONDS = 120.0  # for requests without a deadline: a new process on a busy machine may need it
MOST = 1024**3
"""The most bytes of a message without tables: JSON on a line of its own."""
MOST_FILES = 64
"""The most files that are handed over; others go through the pipe."""

_PROGRAM = "from duckkb.sql.sql_worker import main; main()"
_LIMIT_SIGNALS = ("SIGKILL", "SIGABRT", "SIGXCPU")  # the kernel's, the C++ library's, and the end of processor time


class Isolated(Engine):
    """An engine that calls a separate process."""

    def __init__(self) -> None:
        super().__init__()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._ready = False  # whether the process has answered before
        self._channel: socket.socket | None = None  # until the first request, when files can be handed over
        self._files: list[Path] = []

    def start(self) -> None:
        """Start the process, so that it is ready for the first statement."""
        if self._process is not None and (self._process.poll() is not None or self._owner != os.getpid()):
            self.drop()
        if self._process is None:
            self._process, self._channel = _start_process()
            self._owner, self._ready, self._files = os.getpid(), False, []

    def parse(self, text: str) -> Any:
        self.start()
        return self._ask("parse", text)

    def unparse(self, tree: Any) -> str:
        return str(self._ask("unparse", tree))

    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Announce files as `Engine.offer` does; a running process takes no more."""
        self.start()
        if self._channel is not None:
            self._files = list(files()[:MOST_FILES])

    def register(self, name: str, data: "pa.Table | Path") -> None:
        """Register data as `Engine.register` does; the process maps an announced file, any other data is sent."""
        with suppress(OSError):  # the next request detects that the process has ended
            self._begin()
        if not isinstance(data, Path):
            self._ask("register", name, table=data)
        elif data in self._files:
            self._ask("map", name, self._files.index(data))
        else:
            from duckkb.sql.arrow_tables import arrow_file

            self._ask("register", name, table=arrow_file(data))

    def define(self, statement: str) -> None:
        self._ask("define", statement)

    def ids(self, statement: str, seconds: float) -> IdSet:
        return IdSet.from_ids(map(int, self._ask("ids", statement, seconds=seconds)))

    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        columns, rows, truncated = self._ask("rows", statement, limits.rows, limits.bytes, seconds=limits.seconds)
        return SqlResult(tuple(columns), tuple(map(tuple, rows)), bool(truncated))

    def drop(self) -> None:
        """End the process; the next use starts another."""
        if self._process is None:
            return
        process, self._process = self._process, None
        self._forget()
        if self._owner == os.getpid():
            sandbox.end(process)
        else:  # a forked process has a copy of the pipes, but no child
            sandbox.close_pipes(process)
        if self._channel is not None:
            self._channel.close()
        self._channel, self._files = None, []

    def _begin(self) -> None:
        """Hand over the announced files, if any, because the process waits for them."""
        if self._channel is None:
            return
        import socket

        channel, self._channel = self._channel, None
        descriptors: dict[Path, int] = {}
        try:
            for file in self._files:
                with suppress(OSError):  # another process has replaced it since
                    descriptors[file] = os.open(file, os.O_RDONLY)
            self._files = list(descriptors)
            socket.send_fds(channel, [b"\0"], list(descriptors.values()))
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)
            channel.close()

    def _ask(self, op: str, *arguments: Any, seconds: float = LONGEST_SECONDS, table: "pa.Table | None" = None) -> Any:
        """Send a request and return its answer; kill the process after its time and grace, or if nobody waits any
        more.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise make_engine_error()
        seconds = self._limit_seconds(seconds)
        waits_for_start = not self._ready and self._given is None
        patience = seconds + GRACE_SECONDS + (LONGEST_SECONDS if waits_for_start else 0)
        end = monotonic() + patience
        try:
            with (
                sandbox.kill_after(patience, process),
                request_context.current().interrupt_when_cancelled(process.kill),
            ):
                self._begin()
                send(process.stdin, [op, arguments, seconds])
                if table is not None:
                    import pyarrow as pa

                    with pa.ipc.new_stream(process.stdin, table.schema) as writer:
                        writer.write_table(table)
                    process.stdin.flush()
                answer = receive(process.stdout)
        except (EOFError, OSError, ValueError) as error:
            raise self._explain_end(process, op, monotonic() >= end) from error
        except BaseException:
            self.drop()  # the pipe may hold half of a message
            raise
        if request_context.current().is_cancelled:  # the process may have been killed, which is visible a little later
            self.drop()
            raise request_context.late()
        self._ready = True
        return self._unpack_answer(answer)

    def _explain_end(self, process: "subprocess.Popen[bytes]", op: str, too_late: bool) -> Unavailable:
        """Return the error for a process that did not answer."""
        from subprocess import TimeoutExpired

        with suppress(TimeoutExpired):
            process.wait(GRACE_SECONDS)
        code = process.returncode
        self.drop()
        if request_context.current().is_cancelled:
            return request_context.late()
        if code == UNKNOWN_VERSION:
            return unknown_version()
        if op == "parse" and not too_late and _is_over_limit(code):
            return make_parser_limit_error()
        return make_limit_error(self._given) if too_late or _is_over_limit(code) else make_engine_error()

    def _unpack_answer(self, answer: dict[str, Any]) -> Any:
        match answer:
            case {"value": value}:
                return value
            case {"rejected": [reason, name]}:
                raise Rejected(reason, name)
            case _:
                self.drop()
                raise make_limit_error(self._given) if answer.get("unavailable") == "E_LIMIT" else make_engine_error()


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    stream.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; raises EOFError if it is incomplete."""
    line = stream.readline(MOST)
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _start_process() -> "tuple[subprocess.Popen[bytes], socket.socket | None]":
    """Start the process; return it and the channel for handing over files, if this system has one."""
    import socket

    if why := installed.describe_replacement():
        raise Unavailable(f"The process for queries cannot be started: {why}.", suggestion="restart this server")
    ours, theirs = socket.socketpair() if hasattr(socket, "send_fds") else (None, None)
    channel_descriptors = (theirs.fileno(),) if theirs else ()
    try:
        process = sandbox.start(_PROGRAM, [*map(str, channel_descriptors)], descriptors=channel_descriptors)
    except (OSError, ValueError) as error:
        if ours:
            ours.close()
        raise Unavailable(
            "The process for queries cannot be started.", suggestion="try again; free memory, or raise limits"
        ) from error
    finally:
        if theirs:
            theirs.close()
    return process, ours


def _is_over_limit(code: int | None) -> bool:
    return code == sandbox.OVER_MEMORY or (code is not None and code < 0 and Signals(-code).name in _LIMIT_SIGNALS)


class _Waiting(Struct, frozen=True):
    owner: str
    thread: int


class Engines:
    """A pool that runs as many statements at once as it has engines; an engine starts its process when first
    needed.
    """

    def __init__(self, *engines: Engine) -> None:
        self._idle = [*reversed(engines)]  # the last engine is the next: a used engine knows tables already
        self._changed = Condition()
        self._waiting: list[_Waiting] = []
        self._last_turns: dict[str, float] = {}
        self._dropped = 0

    @contextmanager
    def turn(self) -> Iterator[Engine]:
        """Borrow an engine for the block. Raises `errors.Unavailable` (E_TIMEOUT) if none is free before the
        call's deadline.
        """
        with request_context.current().interrupt_when_cancelled(self._notify):
            engine, drop_count = self._take(_Waiting(request_context.current().owner, get_ident()))
        try:
            yield engine
        finally:
            with self._changed:
                if self._dropped != drop_count:
                    engine.drop()
                self._idle.append(engine)
                self._changed.notify_all()

    def drop(self) -> None:
        """Close all engines, busy ones when they finish; the next use opens others."""
        with self._changed:
            self._dropped += 1
            for engine in self._idle:
                engine.drop()

    def _take(self, mine: _Waiting) -> tuple[Engine, int]:
        with self._changed:
            self._waiting.append(mine)
            try:
                while not self._idle or self._find_next() is not mine:
                    request_context.refuse_late()
                    self._changed.wait(request_context.limit_seconds(60))
                self._last_turns[mine.owner] = monotonic()
                return self._idle.pop(), self._dropped
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()

    def _find_next(self) -> _Waiting:
        return min(self._waiting, key=lambda each: self._last_turns.get(each.owner, 0.0))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
