"""A check: one thing that must hold for a base to work here, what was found, and the command that mends it."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import observe
from duckkb.errors import DuckkbError
from duckkb.ports import Clock
from duckkb.review.check import findings
from duckkb.settings import Environment
from duckkb.truth.git import repository, run
from duckkb.values import dataclass

Status = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found. `remedy` is a command or an edit, empty where nothing is wrong."""

    status: Status
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`: a check's name and verdict."""

    check: str
    status: Status
    message: str
    remedy: str = ""


class Skipped(Exception):
    """Raised by a check that cannot look, with the reason."""


@dataclass
class Surroundings:
    """What the checks look at. Nothing of it is made before a check asks, and a look changes nothing.

    `wire` loads the configuration and chooses the parts (`errors.OntologyError` where it does not load); `demands` tells
    what the configuration demands of this machine and whether that is accepted; `self_tests` are those of the engines, by
    the name of their check: each raises `AssertionError` with what is wrong.
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
        """Truth and caches as they lie."""
        wiring = self.wiring
        try:
            return observe(wiring)
        except DuckkbError as problem:
            raise Skipped(f"the files were not read: {problem.message}") from problem

    @cached_property
    def report(self) -> findings.CheckReport:
        """All that `duckkb check` would say."""
        return findings.check(self.base)

    @cached_property
    def is_state_tracked(self) -> bool:
        return repository.tracks_state(self.root)

    @cached_property
    def git_version(self) -> tuple[int, ...] | None:
        return run.version()

    @cached_property
    def repository(self) -> repository.RepositoryState | None:
        return repository.shape(self.root)

    @property
    def has_readable_repository(self) -> bool:
        return self.git_version is not None and self.repository is not None and self.repository.readable

    @cached_property
    def git_settings(self) -> Mapping[str, str]:
        return repository.settings(self.root)

    def need_state(self) -> None:
        """Nothing in a `.duckkb/` that git tracks is read."""
        if self.is_state_tracked:
            raise Skipped("git tracks files in .duckkb/, so nothing in it is read")


Look = Callable[[Surroundings], Verdict]


def ok(message: str) -> Verdict:
    return Verdict("ok", message)


def warning(message: str, remedy: str) -> Verdict:
    return Verdict("warning", message, remedy)


def error(message: str, remedy: str) -> Verdict:
    return Verdict("error", message, remedy)


def worst(found: Iterable[Verdict], otherwise: str) -> Verdict:
    """Several problems as one verdict: the gravest status, all messages and remedies; `otherwise` where there is none."""
    problems = list(found)
    if not problems:
        return ok(otherwise)
    grave: Status = "error" if any(problem.status == "error" for problem in problems) else "warning"
    remedies = dict.fromkeys(problem.remedy for problem in problems)
    return Verdict(grave, "; ".join(problem.message for problem in problems), "; ".join(remedies))
