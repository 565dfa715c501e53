"""A check: one thing that must hold for a base to work here.

It yields problems, each with the command that repairs it, and returns the message for a sound state.
"""

from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct

from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import observe
from duckkb.errors import DuckkbError
from duckkb.ports import Clock
from duckkb.review.check import findings
from duckkb.settings import Environment
from duckkb.truth.git import repository

Status = Literal["ok", "warning", "error", "skipped"]


class Problem(Struct, frozen=True):
    """A fault, and the command or edit that repairs it."""

    status: Literal["warning", "error"]
    message: str
    remedy: str


class Check(Struct, frozen=True):
    """A line of `doctor`: a check's name and verdict. `remedy` is empty where nothing is wrong."""

    check: str
    status: Status
    message: str
    remedy: str = ""


class Skipped(Exception):
    """Raised by a check that cannot run, with the reason."""


class Surroundings(Struct, dict=True):
    """The state that the checks inspect.

    Each part is made when a check asks for it, and inspecting changes nothing.
    `wire` loads the configuration and chooses the parts (`errors.OntologyError` where it does not load).
    `demands` returns what the configuration demands of this machine and whether that is accepted.
    `self_tests` are those of the engines, by the name of their check: each raises `AssertionError` with the fault.
    """

    root: Path
    env: Environment
    clock: Clock
    wire: Callable[[], Wiring]
    demands: Callable[[], tuple[Mapping[str, str], bool]]
    self_tests: Mapping[str, Callable[[], None]]

    @cached_property
    def wiring(self) -> Wiring:
        try:
            return self.wire()
        except DuckkbError as problem:
            raise Skipped("the configuration does not load") from problem

    @cached_property
    def base(self) -> Base:
        """The base with truth and caches as they are on disk."""
        wiring = self.wiring
        try:
            return observe(wiring)
        except DuckkbError as problem:
            raise Skipped(f"the files were not read: {problem.message}") from problem

    @cached_property
    def report(self) -> findings.CheckReport:
        """The report of `duckkb check`."""
        return findings.check(self.base)

    @cached_property
    def repository(self) -> repository.RepositoryState | None:
        return repository.shape(self.root)

    @property
    def has_readable_repository(self) -> bool:
        return self.repository is not None and self.repository.readable

    def need_repository(self) -> None:
        if not self.has_readable_repository:
            raise Skipped("git can read no repository here")

    def need_state(self) -> None:
        """Raise where git tracks `.duckkb/`: nothing in it is read then."""
        if repository.tracks_state(self.root):
            raise Skipped("git tracks files in .duckkb/, so nothing in it is read")


Verdict = Generator[Problem, None, str]
Look = Callable[[Surroundings], Verdict]


def make_warning(message: str, remedy: str) -> Problem:
    return Problem("warning", message, remedy)


def error(message: str, remedy: str) -> Problem:
    return Problem("error", message, remedy)


def join_problems(name: str, look: Look, ground: Surroundings) -> Check:
    """Join several problems into one verdict: the gravest status, all messages and remedies.

    A check that raises is an error.
    """
    problems: list[Problem] = []
    try:
        verdict = look(ground)
        while True:
            problems.append(next(verdict))
    except StopIteration as end:
        if not problems:
            return Check(name, "ok", end.value)
    except Skipped as reason:
        return Check(name, "skipped", str(reason))
    except DuckkbError as problem:
        problems = [
            error(problem.message, problem.suggestion or "correct the problem in the message, then run it again")
        ]
    except OSError as problem:
        problems = [
            error(f"the system refused: {problem.strerror or problem}", "repair the disk or correct its permissions")
        ]
    except Exception as problem:  # a defect of one check must not hide the results of others
        problems = [error(f"the check itself failed: {type(problem).__name__}: {problem}", "report it")]
    grave: Status = "error" if any(problem.status == "error" for problem in problems) else "warning"
    remedies = dict.fromkeys(problem.remedy for problem in problems)
    return Check(name, grave, "; ".join(problem.message for problem in problems), "; ".join(remedies))
