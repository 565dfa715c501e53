"""The file of a harness: JSON lines that are only ever appended, each synced to the disk before it counts.

`sum` of a line is the first 16 hex digits of the SHA-256 of the sum before it and its own bytes without the
sum. So no line can be changed, dropped or moved unnoticed. An incomplete last line was never acknowledged: the
next writer removes it.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb import atomic_write, locks
from duckkb.errors import StateError, Unavailable
from duckkb.open_files import NO_FOLLOW

FORMAT = "duckkb harness 1"
_SUM = b',"sum":"'
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_FOLLOW


class Found(Struct, frozen=True):
    """The content of a file: its whole lines, their bytes, and the sum of the last; `is_torn`: bytes stood behind
    them.
    """

    lines: tuple[Mapping[str, Any], ...]
    size: int
    sum: str
    is_torn: bool


def read(path: Path) -> Found:
    """Read the whole lines of a file, even while somebody writes to it.

    Raises `errors.StateError` (E_HARNESS) for a damaged or foreign file, `errors.Unavailable` (E_IO).
    """
    try:
        return _parse_file(path, path.read_bytes())
    except OSError as error:
        raise _wrap_error(path, error) from error


class HarnessFile:
    """A file that is open for appending, by nobody else in this or another process. `lines` are those it had.

    Raises as `read` does, and `errors.Unavailable` (E_LOCKED) where another has it longer than `wait_s` seconds.
    """

    def __init__(self, path: Path, wait_s: float) -> None:
        self._path, self._is_sound = path, True
        try:
            self._descriptor = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise _wrap_error(path, error) from error
        try:
            if not locks.wait_for_lock(self._descriptor, exclusive=True, deadline=time.monotonic() + wait_s):
                message = f"{path} is in use: another run uses this harness"
                raise Unavailable(message, "E_LOCKED", "wait until it has ended")
            if not locks.is_at(self._descriptor, path):
                raise StateError(f"{path} was removed or replaced meanwhile", "E_HARNESS", "open it again")
            content = _parse_file(path, path.read_bytes())
            if content.is_torn:
                os.ftruncate(self._descriptor, content.size)
                os.fsync(self._descriptor)
            if not content.lines:  # it may be new, even where another process created it and died
                atomic_write.fsync_folder(path.parent)
        except BaseException as error:
            os.close(self._descriptor)
            if isinstance(error, OSError):
                raise _wrap_error(path, error) from error
            raise
        self.lines, self._size, self._sum = content.lines, content.size, content.sum

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines; they are on disk when this returns.

        After a failure none of them is there, and the file takes no more. Raises `errors.Unavailable` (E_IO).
        """
        if not self._is_sound:
            raise Unavailable(f"{self._path} accepts no more writes: one failed", "E_IO", "open it again")
        data, last = b"", self._sum
        for line in lines:
            text, last = _seal_line(line, last)
            data += text
        try:
            offset = 0
            while offset < len(data):
                offset += os.write(self._descriptor, data[offset:])
            os.fsync(self._descriptor)
        except OSError as error:
            self._is_sound = False
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise _wrap_error(self._path, error) from error
        self._size, self._sum = self._size + len(data), last

    def close(self) -> None:
        """Close the file; later use raises an error."""
        if self._descriptor >= 0:
            self._is_sound = False
            os.close(self._descriptor)
            self._descriptor = -1


def _seal_line(line: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    body = json.dumps(line, separators=(",", ":")).encode()[:-1]
    digest = _sum(before, body)
    return body + _SUM + digest.encode() + b'"}\n', digest


def _sum(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()[:16]


def _parse_file(path: Path, data: bytes) -> Found:
    *whole, torn_end = data.split(b"\n")
    lines: list[Mapping[str, Any]] = []
    size, last = 0, ""
    for number, text in enumerate(whole, 1):
        line = _parse_line(text, last)
        if line is None and number == len(whole) and not torn_end and number > 1 and b"\0" in text:
            return Found(tuple(lines), size, last, True)  # blocks of the file that never reached the disk
        if line is None or (number == 1 and line.get("format") != FORMAT):
            message = (
                f"{path}:{number} was changed after it was written" if number > 1 else f"{path} is not a harness file"
            )
            raise StateError(message, "E_HARNESS", "take the file from a backup, or begin a new harness")
        lines.append(line)
        size, last = size + len(text) + 1, str(line["sum"])
    if torn_end and not whole and not b'{"line":"head"'.startswith(torn_end[:14]):
        raise StateError(f"{path} is not a harness file", "E_HARNESS", "name another file")
    return Found(tuple(lines), size, last, bool(torn_end))


def _parse_line(text: bytes, before: str) -> Mapping[str, Any] | None:
    """Return the object of an unchanged line; None for any other."""
    body, _, tail = text.rpartition(_SUM)
    if tail != f'{_sum(before, body)}"}}'.encode():
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else None


def _wrap_error(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path}: {error.strerror or error}", "E_IO", "free space, or name a file that you may write")
