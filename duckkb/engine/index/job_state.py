"""The index job that runs on a base, or ran last, as other processes see it, in the store."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from duckkb.engine.base import Base
from duckkb.errors import DuckkbError
from duckkb.store.base_store import BaseStore
from duckkb.truth.commit import lock
from duckkb.values import dataclass, field

NAME = "job"
_PAUSE = 1.0
"""Seconds between two notes of a job that runs."""


@dataclass(frozen=True, slots=True)
class JobState:
    """Times are UTC, `YYYY-MM-DDTHH:MM:SS.ffffffZ`; `done`, `total` and `tokens` are of texts that are embedded. `ended` is
    empty while it runs, then `fresh`, `partial` or `failed`; `code` and `reason` say why it is one of the latter."""

    verb: str
    pid: int
    started: str
    updated: str
    done: int = 0
    total: int = 0
    tokens: int = 0
    ended: str = ""
    code: str = ""
    reason: str = ""


@dataclass
class Notebook:
    """Writes down how far a job is, not more often than somebody would look."""

    base: Base
    state: JobState
    _noted: float = field(default=0.0)

    def note(self, *, now_at_all: bool = False, **changes: Any) -> None:
        """Take changes; write them if it is time to, or `now_at_all`."""
        self.state = replace(self.state, **changes)
        if now_at_all or time.monotonic() - self._noted >= _PAUSE:
            self.state = replace(self.state, updated=self.base.wiring.clock.now())
            self.base.notes.keep(NAME, asdict(self.state))
            self._noted = time.monotonic()


@contextmanager
def noted(base: Base, verb: str) -> Iterator[Notebook]:
    """The notebook of a job that begins. An error that ends it is written down; of one that is killed nothing is."""
    now = base.wiring.clock.now()
    book = Notebook(base, JobState(verb, os.getpid(), now, now))
    book.note(now_at_all=True)
    try:
        yield book
    except DuckkbError as problem:
        book.note(now_at_all=True, ended="failed", code=problem.code, reason=problem.message)
        raise


def report(root: Path, notes: BaseStore) -> dict[str, Any] | None:
    """The job that runs or ran last, with `running`; one that ended without saying so was `interrupted`. None: none ran."""
    try:
        told = JobState(**notes.note(NAME))
    except TypeError:
        return None
    running = not told.ended and lock.is_job_running(root)
    shown = {name: value for name, value in asdict(told).items() if value != "" or name == "ended"}
    return shown | {"running": running, "ended": told.ended or (None if running else "interrupted")}
