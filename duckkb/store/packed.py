"""Packs the files of a folder into a stream, and unpacks a stream into a folder. Each file is a head, bytes and a
time:

    4 bytes: the length of the head, 0 at the end
    the head, JSON: path and size
    the bytes, and 8 bytes: mtime in ns, 0 if the file changed while it was read
"""

import json
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath

from duckkb.store.sealed_file import BrokenSeal

_PIECE = 1 << 20
_LOG, _PASSING = "-wal", ("-shm", "-journal")
_DATABASE = ".sqlite"
_LOCK, _DRAFT = "lock", ".new"


def signature(folder: Path) -> str:
    """Return a signature of a folder's files that changes with every write; empty without files."""
    states = [
        (str(path.relative_to(folder)), status.st_size, status.st_mtime_ns) for path, status in _iter_files(folder)
    ]
    return sha256(repr(states).encode()).hexdigest() if states else ""


def pack(folder: Path, *, is_alone: bool) -> Iterator[bytes]:
    """Pack the files of a folder. Unless this process `is_alone`, copy databases through SQLite. Raises OSError."""
    for path, _ in _iter_files(folder):
        if not is_alone and path.name.endswith(_DATABASE + _LOG):
            continue  # its content is in the copy
        with suppress(FileNotFoundError):  # others went on
            name = path.relative_to(folder).as_posix()
            yield from (
                _pack_database(path, name) if not is_alone and path.name.endswith(_DATABASE) else _pack_file(path, name)
            )
    yield bytes(4)


def unpack(pieces: Iterable[bytes], folder: Path) -> None:
    """Unpack a stream into a new folder. Raises OSError, `BrokenSeal`."""
    stream = _Stream(iter(pieces))
    folder.mkdir(mode=0o700, parents=True)
    while head := stream.read(int.from_bytes(stream.read(4))):
        name, size = json.loads(head)
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise BrokenSeal
        path = folder / inside
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("xb") as file:
            for piece in stream.pieces(size):
                file.write(piece)
        mtime_ns = int.from_bytes(stream.read(8))
        os.utime(path, ns=(mtime_ns, mtime_ns))


def _iter_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the label first and the databases last: a lane must never be newer than the store that it follows."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    for path in sorted(paths, key=lambda path: (_DATABASE in path.name, len(path.parts), path)):
        with suppress(FileNotFoundError):
            status = path.lstat()
            is_log = path.name.endswith(_LOG) and not status.st_size
            if stat.S_ISREG(status.st_mode) and not is_log and not path.name.endswith((_LOCK, _DRAFT, *_PASSING)):
                yield path, status


def _pack_file(path: Path, name: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        yield _encode_head(name, before.st_size)
        remaining_bytes = before.st_size
        while remaining_bytes and (piece := file.read(min(remaining_bytes, _PIECE))):
            remaining_bytes -= len(piece)
            yield piece
        yield bytes(remaining_bytes)
        after = os.fstat(file.fileno())
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        yield (before.st_mtime_ns if is_same else 0).to_bytes(8)


def _pack_database(path: Path, name: str) -> Iterator[bytes]:
    """Pack a single state of a database while others may write; leave out a damaged database."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            content = database.serialize()
    except sqlite3.Error:
        return
    yield _encode_head(name, len(content))
    yield from (content[start : start + _PIECE] for start in range(0, len(content), _PIECE))
    yield bytes(8)


def _encode_head(name: str, size: int) -> bytes:
    head = json.dumps([name, size]).encode()
    return len(head).to_bytes(4) + head


class _Stream:
    """A reader of byte counts over pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def pieces(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._left:
                following = next(self._pieces, None)
                if following is None:
                    raise BrokenSeal
                self._left = memoryview(following)
            piece, self._left = self._left[:size], self._left[size:]
            size -= len(piece)
            yield piece

    def read(self, size: int) -> bytes:
        return b"".join(self.pieces(size))
