"""Extraction for other modules: returns the remembered text of a file, or extracts it in a process that is killed
on overrun.

The process starts when it is first needed, and again after it ended. It answers in JSON, and nothing that it
sends is executed here. A file that kills it gets a warning.

Remembers extracted texts by the digest of the file's content: one small file each, in the user's cache folder.

Each file names its extractor and carries its own digest. Files of another version and damaged files are
replaced. Nothing here is truth; a failure to write is ignored."""

import atexit
import json
import os
import re
import stat
import threading
import time
from contextlib import suppress
from hashlib import blake2b, sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from duckkb import atomic_write, sandbox
from duckkb.atomic_write import open_without_blocking
from duckkb.documents.extraction_result import FileText, extractor, is_readable
from duckkb.documents.extraction_worker import receive, send
from duckkb.ontology.model import Extraction

if TYPE_CHECKING:
    import subprocess

_OURS = re.compile(r"\.?[0-9a-f]{64}-[a-z]+(?:\.[0-9a-f]{12}\.tmp)?")
_DIGEST = 16
_DAY = 86_400


class _Kept(Struct):
    folder: Path | None = None


_kept = _Kept()


def remember_in(folder: Path | None) -> None:
    """Set the folder where this process keeps extracted texts; None keeps none. The folder is created at its first
    use; its parent must exist.
    """
    _kept.folder = folder


def key(form: str, raw: bytes) -> str:
    return f"{sha256(raw).hexdigest()}-{form}"


def recall(name: str, by: str) -> FileText | None:
    """Return what `remember` stored under a key with the same extractor; None if there is nothing or it is
    damaged.
    """
    if _kept.folder is None:
        return None
    path = _kept.folder / name
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = _read(path)
        entry = json.loads(body)
        if entry["by"] == by:
            if path.stat().st_mtime < time.time() - _DAY:  # mark it as used, so that a cleanup removes others first
                os.utime(path)
            return FileText.from_plain(entry)
    return None


def remember(name: str, by: str, found: FileText) -> None:
    """Store a text atomically; do nothing if that fails."""
    folder = _kept.folder
    if folder is None:
        return
    body = json.dumps({"by": by, **found.plain()}, ensure_ascii=False).encode()
    with suppress(OSError, ValueError):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        _check_owner(folder)
        atomic_write.replace_file(folder / name, _digest(body) + body, mode=0o600, durable=False)


def surplus(folder: Path, most: int) -> list[tuple[Path, int]]:
    """List the least recently used files of such a folder with their bytes; without them the rest takes at most
    `most` bytes.
    """
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError), os.scandir(_check_owner(folder)) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and _OURS.fullmatch(entry.name):
                    files.append((status.st_mtime, status.st_size, Path(entry.path)))
    over = sum(size for _, size, _ in files) - most
    oldest: list[tuple[Path, int]] = []
    for _, size, path in sorted(files):
        if over <= 0:
            break
        oldest.append((path, size))
        over -= size
    return oldest


def _check_owner(folder: Path) -> Path:
    """Return the folder. Raises OSError if it is a link, is not a folder, or does not belong to the user."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        raise NotADirectoryError(folder)
    return folder


def _read(path: Path) -> bytes:
    with open_without_blocking(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(path)
        head, body = file.read(2 * _DIGEST), file.read()
    if head != _digest(body):
        raise ValueError(path)
    return body


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST).hexdigest().encode()


START_SECONDS = 120.0  # allows for a new process on a busy machine
_MOST_FILES = 500
"""The most files for a process: libraries in C do not always free their memory."""
_PROGRAM = "from duckkb.documents.extraction_worker import main; main()"


def extract_file_text(form: str, raw: bytes, how: Extraction) -> FileText:
    """Extract the text of a pdf, docx or html file. Never raises: problems are warnings. `disabled`: extraction is
    switched off or its libraries are not installed; `timeout` and `failed`: the file exceeded its limits.
    """
    if form in how.off or not is_readable(form):
        return FileText(warnings=("disabled",))
    name, by = key(form, raw), extractor(form)
    file_text = recall(name, by)
    if file_text is None:
        file_text = _extractor.overran.get((name, how))
    if file_text is None:
        with _lock.held:
            file_text, is_its_own = _extractor.read(form, raw, how)
        if is_its_own:
            remember(name, by, file_text)
        elif len(_extractor.overran) < _MOST_FILES:
            _extractor.overran[name, how] = file_text
    return file_text


def close() -> None:
    """End the process; the next file starts another."""
    with _lock.held:
        _extractor.drop()


class _Died(Exception):
    """The process did not answer: it ran out of time, or something in the file ended it."""

    def __init__(self, too_late: bool) -> None:
        super().__init__()
        self.too_late = too_late


class _Extractor:
    """The extraction process, how many files it was given, and which files overran; it does not wait for those
    again.
    """

    def __init__(self) -> None:
        self.overran: dict[tuple[str, Extraction], FileText] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._files = 0

    def read(self, form: str, raw: bytes, how: Extraction) -> tuple[FileText, bool]:
        """Return the text, and whether a later reading would give the same. It may not after a failure that a busy
        machine can cause. A failure does not count against a file if the process had read other files before.
        """
        if self._files >= _MOST_FILES:
            self.drop()
        while True:
            is_fresh = self._files == 0
            try:
                self._start()
                self._files += 1
                return self._ask(form, raw, how), True
            except _Died as death:
                self.drop()
                if death.too_late:
                    return FileText(warnings=("timeout",)), False
                if is_fresh:
                    return FileText(warnings=("failed",)), False
            except (OSError, RuntimeError):  # no process or thread can be started: out of memory or of processes
                self.drop()
                return FileText(warnings=("failed",)), False
            except BaseException:
                self.drop()  # the pipe may hold half of a message
                raise

    def drop(self) -> None:
        process, self._process, self._files = self._process, None, 0
        if process is not None:
            sandbox.end(process)

    def forget(self) -> None:
        """Forget a process that is a child of another process: of the parent that this one was forked from."""
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._process, self._files = None, 0

    def _start(self) -> None:
        if self._process is None:
            self._process = sandbox.start(_PROGRAM, flags=["-B"])
            self._request_answer(START_SECONDS)

    def _ask(self, form: str, raw: bytes, how: Extraction) -> FileText:
        request = {"format": form, "seconds": how.seconds, "memory": how.memory}
        try:
            return FileText.from_plain(json.loads(self._request_answer(how.seconds, json.dumps(request).encode(), raw)))
        except ValueError as error:  # the process no longer answers as an extractor
            raise _Died(too_late=False) from error

    def _request_answer(self, seconds: float, *messages: bytes) -> bytes:
        """Send messages and return the answer. Raises `_Died` when the time is over or the process ends."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        end = monotonic() + seconds
        try:
            with sandbox.kill_after(seconds, process):
                for message in messages:
                    send(process.stdin, message)
                return receive(process.stdout)
        except (EOFError, OSError) as error:
            raise _Died(too_late=monotonic() >= end) from error


class _Lock:
    """A lock that admits one file at a time; a fork makes a new one, because another thread may have held it at
    the fork.
    """

    def __init__(self) -> None:
        self.held = threading.Lock()

    def reset_after_fork(self) -> None:
        self.held = threading.Lock()
        _extractor.forget()


_extractor, _lock = _Extractor(), _Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock.reset_after_fork)
atexit.register(close)
