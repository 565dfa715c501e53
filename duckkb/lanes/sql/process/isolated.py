"""The engine in a process of its own, which is killed where it overruns its time and ends where it overruns its memory.

The process is started when it is first needed and again after it ended. It gets tables through a pipe as Arrow data, or as
files that are open when it begins; none is written. It answers in JSON: nothing that it sends is executed or unpickled here.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import IO, TYPE_CHECKING, Any

from duckkb.errors import Unavailable
from duckkb.id_set import IdSet
from duckkb.lanes.sql.process.bounds import OVER_MEMORY, UNKNOWN_VERSION
from duckkb.lanes.sql.process.engine import Rejected, Timed, broken, over_limit, unknown_version
from duckkb.lanes.sql.process.frames import MOST_FILES, can_hand_over, hand_over, receive, send
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult

if TYPE_CHECKING:
    import socket
    import subprocess

    import pyarrow as pa

GRACE_SECONDS = 0.5  # for a statement that heeds the interrupt, before the process is killed
LONGEST_SECONDS = 120.0  # for what is asked without a deadline: a new process on a busy machine may need them
MOST = 1024**3  # bytes of an answer

# -I: neither the current folder nor variables of the environment can put code into the process
_START = (
    "import json, sys; sys.path += json.loads(sys.argv[1]); from duckkb.lanes.sql.process.child import main; main()"
)
_MEMORY_SIGNALS = ("SIGKILL", "SIGABRT", "SIGXCPU")  # the kernel's, the C++ library's, and the end of processor time


class Isolated(Timed):
    """Implements `engine.Engine` by asking another process. Not for several threads at once."""

    def __init__(self) -> None:
        self.generation = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._ready = False  # whether the process has answered before
        self._channel: socket.socket | None = None  # until the first request, when files can be handed over
        self._files: list[Path] = []

    def start(self) -> None:
        """Have the process running, so that it is ready when the first statement comes."""
        if self._process is not None and (self._process.poll() is not None or self._owner != os.getpid()):
            self.drop()
        if self._process is None:
            self._process, self._channel = _started()
            self._owner, self._ready, self._files = os.getpid(), False, []

    def parse(self, text: str) -> Any:
        """The syntax tree of SELECT statements as JSON gives it, with `error` set where there is none; nothing runs."""
        self.start()
        return self._ask({"op": "parse", "text": text})

    def unparse(self, tree: Any) -> str:
        """The SQL text of a syntax tree that `parse` gave."""
        return str(self._ask({"op": "unparse", "tree": tree}))

    def register(self, name: str, table: "pa.Table") -> None:
        """Make Arrow data visible under a name, in place of what had it."""
        self._ask({"op": "register", "name": name}, table=table)

    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Say which files to hand over for `attach` to name; a process that is at work already takes no more."""
        self.start()
        if self._channel is not None:
            self._files = list(files()[:MOST_FILES])

    def attach(self, name: str, file: Path) -> None:
        """As `register`, for an Arrow file: mapped by the process where it was offered, else sent."""
        with suppress(OSError):  # a process that has ended is found out by what it is asked
            self._begin()
        if file in self._files:
            self._ask({"op": "attach", "name": name, "file": self._files.index(file)})
            return
        from duckkb.lanes.sql.arrow import arrow_file

        self.register(name, arrow_file(file))

    def define(self, statement: str) -> None:
        """Run a statement of our own that defines a view."""
        self._ask({"op": "define", "statement": statement})

    def ids(self, statement: str, seconds: float) -> IdSet:
        """The integers of a statement's one column."""
        return IdSet.of(map(int, self._ask({"op": "ids", "statement": statement}, seconds)))

    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        """The rows of a statement as plain JSON values, up to the caps."""
        request = {"op": "rows", "statement": statement, "caps": [limits.rows, limits.bytes]}
        columns, rows, truncated = self._ask(request, limits.seconds)
        return SqlResult(tuple(columns), tuple(map(tuple, rows)), bool(truncated))

    def drop(self) -> None:
        """End the process; the next use starts another."""
        if self._process is None:
            return
        process, self._process = self._process, None
        self.generation += 1
        if self._owner == os.getpid():  # a fork has a copy of the pipes, but no child
            process.kill()
            process.wait()
        for pipe in (self._channel, process.stdin, process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        self._channel = None
        self._files = []

    def _begin(self) -> None:
        """Hand over the files that were offered, if any: the process waits for that."""
        if self._channel is None:
            return
        channel, self._channel = self._channel, None
        opened: dict[Path, int] = {}
        try:
            for file in self._files:
                with suppress(OSError):  # another process has replaced it since
                    opened[file] = os.open(file, os.O_RDONLY)
            self._files = list(opened)
            hand_over(channel, list(opened.values()))
        finally:
            for descriptor in opened.values():
                os.close(descriptor)
            channel.close()

    def _ask(self, request: dict[str, Any], seconds: float = LONGEST_SECONDS, table: "pa.Table | None" = None) -> Any:
        """One request and its answer; kills the process once the time and the grace are over."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise broken()
        seconds = self._left(seconds)
        waits_for_start = not self._ready and self._given is None
        clock = _Clock(process, seconds + GRACE_SECONDS + (LONGEST_SECONDS if waits_for_start else 0))
        try:
            self._begin()
            answer = _exchanged(process.stdin, process.stdout, {**request, "seconds": seconds}, table)
        except (EOFError, OSError, ValueError) as error:
            raise self._ended(process, clock) from error
        except BaseException:
            self.drop()  # half of a message may be on its way
            raise
        finally:
            clock.cancel()
        self._ready = True
        return self._value(answer)

    def _ended(self, process: "subprocess.Popen[bytes]", clock: "_Clock") -> Unavailable:
        """The error for a process that did not answer."""
        clock.cancel()
        from subprocess import TimeoutExpired

        with suppress(TimeoutExpired):
            process.wait(GRACE_SECONDS)
        code = process.returncode
        self.drop()
        if code == UNKNOWN_VERSION:
            return unknown_version()
        return over_limit(self._given) if clock.rang or _is_over_memory(code) else broken()

    def _value(self, answer: dict[str, Any]) -> Any:
        match answer:
            case {"value": value}:
                return value
            case {"rejected": [reason, name]}:
                raise Rejected(reason, name)
            case _:
                self.drop()
                raise over_limit(self._given) if answer.get("unavailable") == "E_LIMIT" else broken()


class _Clock(threading.Timer):
    """Kills a process when its time is over."""

    def __init__(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        super().__init__(seconds, self._ring)
        self.daemon = True
        self.rang = False
        self._process = process
        self.start()

    def _ring(self) -> None:
        self.rang = True
        self._process.kill()


def _exchanged(requests: IO[bytes], answers: IO[bytes], request: Any, table: "pa.Table | None") -> Any:
    send(requests, request)
    if table is not None:
        import pyarrow as pa

        with pa.ipc.new_stream(requests, table.schema) as writer:
            writer.write_table(table)
        requests.flush()
    return receive(answers, MOST)


def _started() -> "tuple[subprocess.Popen[bytes], socket.socket | None]":
    """The process, and the channel over which it can be handed files where this system has such."""
    import socket
    import subprocess

    ours, theirs = socket.socketpair() if can_hand_over() else (None, None)
    handed = (theirs.fileno(),) if theirs else ()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", _START, json.dumps(_import_path()), *map(str, handed)],
            stdin=subprocess.PIPE,
            pass_fds=handed,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            env=None if os.name == "nt" else {},
            start_new_session=True,  # an interrupt from the keyboard is for the parent to act on
        )
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


def _import_path() -> list[str]:
    """Where this process finds its packages. The current folder is none of those places, unless duckkb itself lies there."""
    home = Path(__file__).resolve().parents[4]
    here = Path.cwd()
    found = [entry for entry in sys.path if Path(entry).is_absolute() and Path(entry).resolve() != here]
    return [*found, str(home)]


def _is_over_memory(code: int | None) -> bool:
    return code == OVER_MEMORY or (code is not None and code < 0 and Signals(-code).name in _MEMORY_SIGNALS)
