"""The loop that all fuzzing shares: many inputs, a limit on each, and every input that does harm kept whole and reduced."""

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from tests.harness.campaign import Campaign

Input = TypeVar("Input")

_MOST_REDUCTIONS = 300
_WATCHED, _STUCK = 50, 900.0
"""So many inputs within so many seconds, or all stacks are shown: no signal reaches a process that hangs in native code."""


class Target(Protocol[Input]):
    """What is fuzzed. `modules` are the parts of duckkb whose branches count."""

    name: str
    modules: tuple[str, ...]

    def inputs(self, chance: Random) -> Iterator[Input]:
        """Inputs without end."""
        ...

    def check(self, value: Input) -> bool:
        """Whether the input got past the first parser. Raises where duckkb does not do as it promises."""
        ...


class Hang(BaseException):
    """One input took longer than any input may. No Exception, so that nothing on the way takes it for its own."""


@dataclass(frozen=True)
class Find:
    """An input that did harm, and the smallest one found that does the same harm."""

    value: object
    smallest: object
    error: BaseException

    def __str__(self) -> str:
        said = f"{type(self.error).__name__}: {str(self.error)[:500]}"
        return f"{said}\n  smallest: {self.smallest!r}\n  whole: {self.value!r}"


@dataclass
class Outcome:
    """What a run saw."""

    inputs: int = 0
    past: int = 0
    finds: list[Find] = field(default_factory=list)

    @property
    def percent_past(self) -> int:
        return 100 * self.past // max(1, self.inputs)


@dataclass(frozen=True)
class Run(Generic[Input]):
    """How long one input may take, in seconds of processor time (ten times that by the clock), and how many finds are
    enough to stop."""

    seconds: float = 20.0
    enough: int = 5

    def fuzz(self, target: Target[Input], chance: Random, number: int) -> Outcome:
        """Check so many inputs; stops early once there is enough to mend."""
        outcome = Outcome()
        try:
            for value in islice(target.inputs(chance), number):
                if outcome.inputs % _WATCHED == 0:
                    faulthandler.dump_traceback_later(_STUCK, repeat=True, file=sys.__stderr__)
                outcome.inputs += 1
                error = self._harm(target, value, outcome)
                if error is not None:
                    outcome.finds.append(Find(value, self._reduced(target, value, error), error))
                    if len(outcome.finds) >= self.enough:
                        break
        finally:
            faulthandler.cancel_dump_traceback_later()
        return outcome

    def _harm(self, target: Target[Input], value: Input, outcome: Outcome) -> BaseException | None:
        try:
            with limited(self.seconds):
                outcome.past += target.check(value)
        except (Exception, Hang) as error:
            return error
        return None

    def _reduced(self, target: Target[Input], value: Input, error: BaseException) -> object:
        """The value without what is not needed for the same kind of harm; only bytes, text and lists shrink."""
        if not isinstance(value, (bytes, str, list, tuple)) or isinstance(error, Hang):
            return value
        tries, size = 0, len(value) // 2
        while size and tries < _MOST_REDUCTIONS:
            at = 0
            while at < len(value) and tries < _MOST_REDUCTIONS:
                tries += 1
                shorter = value[:at] + value[at + size :]
                if type(self._harm(target, shorter, Outcome())) is type(error):
                    value = shorter
                else:
                    at += size
            size //= 2
        return value


def hold(campaign: "Campaign", target: Target[Input], number: int, least: int = 30) -> Outcome:
    """Fuzz, count, and fail with every find; at least so many percent of the inputs must get past the first parser."""
    outcome = Run[Input]().fuzz(target, campaign.random(f"fuzz {target.name}"), number)
    campaign.count(f"fuzz inputs: {target.name}", outcome.inputs)
    campaign.count(f"fuzz inputs past the first parser: {target.name} (percent)", outcome.percent_past)
    assert not outcome.finds, report(outcome)
    assert outcome.percent_past >= least, f"only {outcome.percent_past} % got past the first parser"
    return outcome


def report(outcome: Outcome) -> str:
    return "\n".join([f"{len(outcome.finds)} finds in {outcome.inputs} inputs", *map(str, outcome.finds)])


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `Hang` past these seconds of processor time, or ten times as many by the clock: a busy machine is no hang.

    Where there are no such timers, or off the main thread, only the watch over the whole process is left.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 10 * seconds))
    before = [signal.signal(number, _hang) for _, number, _ in timers]
    try:
        for timer, _, after in timers:
            signal.setitimer(timer, after)
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _hang(number: int, frame: FrameType | None) -> None:
    where = f" in {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
    raise Hang(f"no answer within the limit{where}")
