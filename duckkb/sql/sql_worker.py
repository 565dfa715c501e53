"""The process behind `Isolated`: runs one statement after the other until its parent closes the pipe or kills it.

Requests come on stdin, answers go to what stdout was. The process starts with an empty environment, is given the files
that it may map, and from then on has no file open but these two pipes, and cannot open another.
"""

import mmap
import os
import socket
import sys
import threading
from queue import SimpleQueue
from typing import IO, Any, NoReturn

import pyarrow as pa

from duckkb import sandbox
from duckkb.ports import SqlLimits
from duckkb.sql.arrow_tables import arrow_file
from duckkb.sql.confined import Confined
from duckkb.sql.sql_process import MOST_FILES, UNKNOWN_VERSION, Rejected, receive, send
from duckkb.types.errors import Unavailable

_MOST_MEMORY = 3 * 1024**3
"""Bytes beyond the process's memory when a statement begins; the engine's own limit is 2 GB."""
_THREADS = 2
_STACK = 64 * 1024**2
"""Bytes: the parser recurses as deep as a statement nests, and the machine's default may be small."""

PARSE_SECONDS = (
    1.0  # a text of 64 KiB takes less; the parser has texts, mostly none, whose time doubles with each level
)

_Request = tuple[str, list[Any], float, "pa.Table | None"]


def main() -> NoReturn:
    """Answer requests until stdin ends or anything fails; then nobody waits for an answer."""
    answers = sandbox.take_stdout()
    engine = Confined()
    try:
        _prepare_engine(engine)
    except Unavailable:
        os._exit(UNKNOWN_VERSION)
    files = _map_files()
    memory = _compute_memory_limit()  # computed while files of the system can still be read
    bounds, requests = sandbox.Bounds(no_files=True), SimpleQueue[_Request]()
    threading.stack_size(_STACK)
    threading.Thread(target=_serve, args=(engine, bounds, memory, requests, answers), daemon=True).start()
    threading.stack_size(0)
    try:
        while True:
            op, arguments, seconds = receive(sys.stdin.buffer)
            table = pa.ipc.open_stream(sys.stdin.buffer).read_all() if op == "register" else None
            if op == "map":
                op, table = "register", arrow_file(files[arguments.pop()])
            requests.put((op, arguments, seconds, table))
    finally:
        os._exit(0)


def _prepare_engine(engine: Confined) -> None:
    """Import and open whatever a statement may need, while files can still be opened."""
    engine.register("__warm", pa.table({"n": [1]}))
    engine.rows("SELECT n, now()::DATE, '{}'::JSON FROM __warm", SqlLimits())
    engine.ids("SELECT 1", 60)
    engine.drop()
    engine.parse("SELECT 1")


def _map_files() -> list[pa.Buffer]:
    """Map and close the files that the parent hands over. Afterwards no file can be opened."""
    if len(sys.argv) < 3:
        return []
    try:
        with socket.socket(fileno=int(sys.argv[2])) as channel:
            marker, files, _, _ = socket.recv_fds(channel, 1, MOST_FILES)
        buffers = [pa.py_buffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ)) for file in files]
    except OSError:
        marker = b""
    if not marker:
        os._exit(0)
    for file in files:
        os.close(file)
    return buffers


def _serve(
    engine: Confined, bounds: sandbox.Bounds, memory: int, requests: "SimpleQueue[_Request]", answers: IO[bytes]
) -> NoReturn:
    """Answer the requests, one after the other."""
    try:
        while True:
            op, arguments, seconds, table = requests.get()
            bounds.allow(_THREADS * (min(seconds, PARSE_SECONDS) if op == "parse" else seconds), memory)
            send(answers, _answer(engine, op, [*arguments, *([table] if op == "register" else ())], seconds))
    finally:
        os._exit(1)  # it returns only after a defect


def _answer(engine: Confined, op: str, arguments: list[Any], seconds: float) -> dict[str, Any]:
    try:
        return {"value": _run_request(engine, op, arguments, seconds)}
    except Rejected as error:
        return {"rejected": [error.reason, error.name]}
    except Unavailable as error:
        return {"unavailable": error.code}
    except MemoryError:
        return {"unavailable": "E_LIMIT"}
    except Exception:
        return {"unavailable": "E_INTERNAL"}


def _run_request(engine: Confined, op: str, arguments: list[Any], seconds: float) -> Any:
    match op:
        case "parse" | "unparse" | "register" | "define":
            return getattr(engine, op)(*arguments)
        case "ids":
            return engine.ids(arguments[0], seconds).array.tolist()
        case "rows":
            statement, rows, size = arguments
            result = engine.rows(statement, SqlLimits(rows, size, seconds))
            return [result.columns, result.rows, result.truncated]
        case _:
            raise ValueError(op)


def _compute_memory_limit() -> int:
    """Return the bytes that a statement may take: at most half of the machine's."""
    try:
        return min(_MOST_MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    except (AttributeError, ValueError, OSError):
        return _MOST_MEMORY


if __name__ == "__main__":
    main()
