"""Reads cache files of others in a separate process, which they may crash.

A few bytes can claim to be terabytes, repeat a dictionary's value a billion times, or abort the process that
reads a torn footer. So a process reads the file and is killed if it takes more memory or time than the file's
size explains. It returns rows in a form that can hide nothing.
"""

import json
import os
import struct
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import IO, Any

from duckkb import sandbox
from duckkb.index.cache_database import Batch, CacheRow, Damaged

_PROGRAM = "from duckkb.index.parquet_worker import main; main()"
_MEMORY = 512 * 1024**2
"""Bytes that reading may take beyond the file's size: several times a row group of the largest vectors."""
_RATIO = 8
_SECONDS = 20
"""Seconds of processor time; another second is added for each `_BYTES_A_SECOND` bytes."""
_BYTES_A_SECOND = 8 * 1024**2
_PATIENCE = 10
"""The factor of time that a busy machine may take."""
_LOOK_SECONDS = 0.02


def read(file: IO[bytes], file_hash: str) -> Iterator[Batch]:
    """Yield the rows of a file that is open for reading, batch by batch. Discard all of them if `Damaged` is
    raised at the end: the file could not be read within its bounds, or has changed. Raises OSError if no
    process starts.
    """
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    process = sandbox.start(_PROGRAM, [str(size)], stdin=file)
    try:
        assert process.stdout is not None, "it is a pipe"
        with sandbox.kill_after(_PATIENCE * _compute_seconds(size), process):
            yield from _read_batches(process.stdout, file_hash)
    finally:
        sandbox.end(process)


def _read_batches(pipe: IO[bytes], file_hash: str) -> Iterator[Batch]:
    while True:
        try:
            answer = json.loads(pipe.readline() or b"null")
        except ValueError:
            answer = None
        match answer:
            case {"kind": kind, "names": names, "count": count, "size": size, "left_out": left_out}:
                yield Batch(kind, _unpack_rows(pipe.read(count * _ROW.size + size), count, names), Counter(left_out))
            case {"end": end_hash} if end_hash == file_hash:
                return
            case {"damaged": message}:
                raise Damaged(message)
            case {"end": _}:
                raise Damaged("it changed while it was read")
            case _:
                raise Damaged("it is torn, or would take more memory or time than its size explains")


_ROW = struct.Struct("<16s16sII")
"""Key, content hash, number of the fingerprint, bytes of the payload."""


def _pack_rows(rows: list[CacheRow], names: list[str]) -> bytes:
    numbers = {name: number for number, name in enumerate(names)}
    heads = [_ROW.pack(key, content, numbers[name], len(payload)) for key, content, name, payload in rows]
    return b"".join([*heads, *(row[3] for row in rows)])


def _unpack_rows(data: bytes, count: int, names: list[str]) -> list[CacheRow]:
    """Unpack the rows of a batch; raises `Damaged` if it ends early."""
    at, rows = count * _ROW.size, []
    for key, content, number, size in _ROW.iter_unpack(data[:at]):
        rows.append((key, content, names[number], data[at : at + size]))
        at += size
    if at != len(data) or len(rows) != count:
        raise Damaged("it would take more memory or time than its size explains")
    return rows


def _compute_seconds(size: int) -> int:
    return _SECONDS + size // _BYTES_A_SECOND


# --- the process


def main() -> None:
    """Read the file on stdin and write its rows to the original stdout."""
    answers = sandbox.take_stdout()
    from duckkb.index.cache_parquet import decode

    size = int(sys.argv[2])
    memory = _MEMORY + _RATIO * size
    threading.Thread(target=_watch, args=(memory,), daemon=True).start()
    sandbox.Bounds().allow(_compute_seconds(size), memory)
    data = sys.stdin.buffer.read()
    try:
        for batch in decode(data):
            _send(answers, batch)
        answer: dict[str, Any] = {"end": sha256(data).hexdigest()}
    except Damaged as problem:
        answer = {"damaged": str(problem)}
    _tell(answers, answer)
    answers.flush()
    os._exit(0)  # skips cleanup, which a torn file could crash


def _send(answers: IO[bytes], batch: Batch) -> None:
    names = sorted({row[2] for row in batch.rows})
    size = sum(len(row[3]) for row in batch.rows)
    head = {"kind": batch.kind, "names": names, "count": len(batch.rows), "size": size, "left_out": batch.left_out}
    _tell(answers, head)
    answers.write(_pack_rows(batch.rows, names))


def _tell(answers: IO[bytes], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")


def _watch(memory: int) -> None:
    """End this process if Arrow allocates more memory; this works also on systems that do not limit the address
    space.
    """
    import pyarrow as pa

    while pa.total_allocated_bytes() <= memory:
        threading.Event().wait(_LOOK_SECONDS)
    os._exit(1)
