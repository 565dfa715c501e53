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

from duckkb.errors import Unavailable
from duckkb.lanes.sql.arrow import arrow_file
from duckkb.lanes.sql.process.bounds import UNKNOWN_VERSION, Bounds
from duckkb.lanes.sql.process.confined import Confined
from duckkb.lanes.sql.process.engine import Rejected
from duckkb.lanes.sql.process.isolated import MOST_FILES, receive, send
from duckkb.ports import SqlLimits

_STACK = 64 * 1024**2
"""Bytes: the parser goes as deep as a statement does, and this machine may allow its processes little."""

PARSE_SECONDS = (
    1.0  # a text of 64 KiB takes less; the parser has texts, mostly none, whose time doubles with each level
)

_Request = tuple[str, list[Any], float, "pa.Table | None"]


def main() -> NoReturn:
    """Answer requests; ends when stdin does, or where anything goes wrong with it: then nobody waits for an answer."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    engine = Confined()
    try:
        _warm(engine)
    except Unavailable:
        os._exit(UNKNOWN_VERSION)
    files = _files()
    bounds, requests = Bounds(), SimpleQueue[_Request]()
    threading.stack_size(_STACK)
    threading.Thread(target=_serve, args=(engine, bounds, requests, answers), daemon=True).start()
    threading.stack_size(0)
    try:
        while True:
            op, given, seconds = receive(sys.stdin.buffer)
            table = pa.ipc.open_stream(sys.stdin.buffer).read_all() if op == "register" else None
            if op == "map":
                op, table = "register", arrow_file(files[given.pop()])
            requests.put((op, given, seconds, table))
    finally:
        os._exit(0)


def _warm(engine: Confined) -> None:
    """Import and open whatever a statement will need, while files can still be opened."""
    engine.register("__warm", pa.table({"n": [1]}))
    engine.rows("SELECT n, now()::DATE, '{}'::JSON FROM __warm", SqlLimits())
    engine.ids("SELECT 1", 60)
    engine.drop()
    engine.parse("SELECT 1")


def _files() -> list[pa.Buffer]:
    """What the parent lets us see of its files. From now on none can be opened; these are mapped, and closed."""
    if len(sys.argv) < 3:
        return []
    try:
        with socket.socket(fileno=int(sys.argv[2])) as channel:
            begun, files, _, _ = socket.recv_fds(channel, 1, MOST_FILES)
        mapped = [pa.py_buffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ)) for file in files]
    except OSError:
        begun = b""
    if not begun:
        os._exit(0)
    for file in files:
        os.close(file)
    return mapped


def _serve(engine: Confined, bounds: Bounds, requests: "SimpleQueue[_Request]", answers: IO[bytes]) -> NoReturn:
    """Answer one request after the other."""
    try:
        while True:
            op, given, seconds, table = requests.get()
            bounds.allow(min(seconds, PARSE_SECONDS) if op == "parse" else seconds)
            send(answers, _answer(engine, op, [*given, *([table] if op == "register" else ())], seconds))
    finally:
        os._exit(1)  # it never ends but by a defect


def _answer(engine: Confined, op: str, given: list[Any], seconds: float) -> dict[str, Any]:
    try:
        return {"value": _done(engine, op, given, seconds)}
    except Rejected as error:
        return {"rejected": [error.reason, error.name]}
    except Unavailable as error:
        return {"unavailable": error.code}
    except MemoryError:
        return {"unavailable": "E_LIMIT"}
    except Exception:
        return {"unavailable": "E_INTERNAL"}


def _done(engine: Confined, op: str, given: list[Any], seconds: float) -> Any:
    match op:
        case "parse" | "unparse" | "register" | "define":
            return getattr(engine, op)(*given)
        case "ids":
            return engine.ids(given[0], seconds).array.tolist()
        case "rows":
            statement, rows, size = given
            found = engine.rows(statement, SqlLimits(rows, size, seconds))
            return [found.columns, found.rows, found.truncated]
        case _:
            raise ValueError(op)


if __name__ == "__main__":
    main()
