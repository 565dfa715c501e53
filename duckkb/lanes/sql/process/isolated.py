"""The engine in a separate process, which is killed if it exceeds its time and ends if it exceeds its memory.

The process starts when it is first needed and again after it ended. It receives tables through a pipe as Arrow
data, or as files that are open when it begins; it writes no file. It answers in JSON: nothing that it sends is
executed or unpickled here.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

from duckkb import deadline, installed, sandbox
from duckkb.errors import Unavailable
from duckkb.id_set import IdSet
from duckkb.lanes.sql.process.engine import (
    UNKNOWN_VERSION,
    Engine,
    Rejected,
    make_engine_error,
    make_limit_error,
    make_parser_limit_error,
    unknown_version,
)
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult

if TYPE_CHECKING:
    import socket
    import subprocess

    import pyarrow as pa

GRACE_SECONDS = 0.5  # the time for a statement to react to the interrupt, before the process is killed
LONGEST_SECONDS = 120.0  # for requests without a deadline: a new process on a busy machine may need it
MOST = 1024**3
"""The most bytes of a message without tables: JSON on a line of its own."""
MOST_FILES = 64
"""The most files that are handed over; others go through the pipe."""

_PROGRAM = "from duckkb.lanes.sql.process.child import main; main()"
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
            from duckkb.lanes.sql.arrow import arrow_file

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
            with sandbox.kill_after(patience, process), deadline.current().interrupt_when_cancelled(process.kill):
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
        if deadline.current().is_cancelled:  # the process may have been killed, which is visible a little later
            self.drop()
            raise deadline.late()
        self._ready = True
        return self._unpack_answer(answer)

    def _explain_end(self, process: "subprocess.Popen[bytes]", op: str, too_late: bool) -> Unavailable:
        """Return the error for a process that did not answer."""
        from subprocess import TimeoutExpired

        with suppress(TimeoutExpired):
            process.wait(GRACE_SECONDS)
        code = process.returncode
        self.drop()
        if deadline.current().is_cancelled:
            return deadline.late()
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
