"""The process behind `Isolated`: runs one statement after the other until its parent closes the pipe or kills it.

Requests come on stdin, answers go to what stdout was. The process starts with an empty environment, is given the files
that it may map, and from then on has no file open but these two pipes, and cannot open another.
"""

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
from duckkb.lanes.sql.process.frames import can_hand_over, receive, send, taken_over
from duckkb.ports import SqlLimits

MOST = 1024**3  # bytes of one request or answer, tables apart
STACK = (
    64 * 1024**2
)  # bytes; the parser goes as deep as a statement does, and this machine may allow its processes little


def main() -> NoReturn:
    """Answer requests; ends when stdin does."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    engine = Confined()
    try:
        _warm(engine)
    except Unavailable:
        os._exit(UNKNOWN_VERSION)
    files = _files()
    bounds = Bounds()
    requests: SimpleQueue[tuple[Any, pa.Table | None]] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    threading.stack_size(STACK)
    worker = threading.Thread(target=_serve, args=(engine, files, bounds, requests, answers))
    worker.start()
    threading.stack_size(0)
    worker.join()
    os._exit(1)  # it never ends but by a defect


def _serve(
    engine: Confined,
    files: list[pa.Buffer],
    bounds: Bounds,
    requests: "SimpleQueue[tuple[Any, pa.Table | None]]",
    answers: IO[bytes],
) -> NoReturn:
    """Answer one request after the other."""
    while True:
        request, table = requests.get()
        bounds.allow(request.get("seconds", 60.0))
        if request["op"] == "attach":
            table = arrow_file(files[request["file"]])
        send(answers, _answer(engine, request, table))


def _files() -> list[pa.Buffer]:
    """What the parent lets us see of its files. From now on none can be opened; these are mapped, and closed."""
    if not can_hand_over():
        return []
    try:
        with socket.socket(fileno=int(sys.argv[2])) as channel:
            return [pa.py_buffer(content) for content in taken_over(channel)]
    except (EOFError, OSError):
        os._exit(0)


def _warm(engine: Confined) -> None:
    """Import and open whatever a statement will need, while files can still be opened."""
    engine.register("__warm", pa.table({"n": [1]}))
    engine.rows("SELECT n, now()::DATE, '{}'::JSON FROM __warm", SqlLimits())
    engine.drop()
    engine.parse("SELECT 1")


def _listen(stream: IO[bytes], requests: "SimpleQueue[tuple[Any, pa.Table | None]]") -> None:
    """Take requests in. Whatever goes wrong here, and the end of the pipe too, ends the process: nobody waits for it."""
    try:
        while True:
            request = receive(stream, MOST)
            table = pa.ipc.open_stream(stream).read_all() if request["op"] == "register" else None
            requests.put((request, table))
    finally:
        os._exit(0)


def _answer(engine: Confined, request: Any, table: "pa.Table | None") -> dict[str, Any]:
    try:
        return {"value": _done(engine, request, table)}
    except Rejected as error:
        return {"rejected": [error.reason, error.name]}
    except Unavailable as error:
        return {"unavailable": error.code}
    except MemoryError:
        return {"unavailable": "E_LIMIT"}
    except Exception:
        return {"unavailable": "E_INTERNAL"}


def _done(engine: Confined, request: Any, table: "pa.Table | None") -> Any:
    match request:
        case {"op": "parse", "text": text}:
            return engine.parse(text)
        case {"op": "unparse", "tree": tree}:
            return engine.unparse(tree)
        case {"op": "register" | "attach", "name": name}:
            return engine.register(name, table)
        case {"op": "define", "statement": statement}:
            return engine.define(statement)
        case {"op": "ids", "statement": statement, "seconds": seconds}:
            return [number for column in engine.columns(statement, seconds) for number in column.to_pylist()]
        case {"op": "rows", "statement": statement, "caps": caps, "seconds": seconds}:
            found = engine.rows(statement, SqlLimits(caps[0], caps[1], seconds))
            return [found.columns, found.rows, found.truncated]
        case _:
            raise ValueError(request)


if __name__ == "__main__":
    main()
