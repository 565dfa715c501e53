"""Extraction for other modules: returns the remembered text of a file, or extracts it in a process that is killed
on overrun.

The process starts when it is first needed, and again after it ended. It answers in JSON, and nothing that it
sends is executed here. A file that kills it gets a warning.
"""

import atexit
import json
import os
import threading
from time import monotonic
from typing import TYPE_CHECKING

from duckkb import sandbox
from duckkb.documents.extract.child import receive, send
from duckkb.documents.extract.libraries import extractor, is_readable
from duckkb.documents.extract.remembered import key, recall, remember
from duckkb.documents.extract.result import FileText
from duckkb.ontology.model import Extraction

if TYPE_CHECKING:
    import subprocess

START_SECONDS = 120.0  # allows for a new process on a busy machine
_MOST_FILES = 500
"""The most files for a process: libraries in C do not always free their memory."""
_PROGRAM = "from duckkb.documents.extract.child import main; main()"


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
