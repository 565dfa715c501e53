"""Reads side by side: each is asked of the generation that was the newest when it began, and has it until its end.

A generation is a base that was loaded and is never refreshed; what changes on disk makes another one, for whoever comes then.
Nothing that it answers from changes: its connection to the store sees one state, lanes put what follows in the place of what
was. To each other, and to who writes, generations are what processes are that read one base: they have no lock in common while
they search. They have the caches and the engines in common, whose turns are short.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from threading import Lock, RLock
from typing import Any, TypeVar

from duckkb.engine.base import Base
from duckkb.ports import Ahead

Answer = TypeVar("Answer")

_ATTEMPTS = 4  # of a question, whose last is alone


class Generation:
    """A base as it was loaded, with those who read it. `is_behind`: a question has found that what was loaded lies nowhere
    any more."""

    def __init__(self, base: Base) -> None:
        base.is_generation = True
        self.base = base
        self.readers = 0
        self.is_behind = False


class Generations:
    """The generations of one base, the `first` of which is loaded. `load` gives one as the files are now; `is_behind` says
    whether files, or the configuration, are not as they were read for one."""

    def __init__(self, first: Base, load: Callable[[], Base], is_behind: Callable[[Base], bool]) -> None:
        self._load, self._is_behind = load, is_behind
        self._newest = Generation(first)
        self._live = [self._newest]  # also those before it that are read
        self._is_closed = False
        self._counting, self._looking = Lock(), RLock()
        self._begun = self._seen = 0  # looks at the files: the last that has begun, and the last that has ended

    def ask(
        self,
        question: Callable[[Base], Answer],
        *,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        looks: bool = True,
    ) -> Answer:
        """What the newest generation answers; all of it asked again, of a newer one, where what was loaded lies nowhere any more
        (`Ahead`), some times. `around` is entered for what loads a generation. Without `looks` the newest is taken as it is.

        An iterator has its generation until it ends or is let go. Raises what loading raises, and what the question raises.
        """
        for left in reversed(range(_ATTEMPTS)):
            with nullcontext() if left else self._looking, ExitStack() as stack:
                with around():
                    read = stack.enter_context(self._read(looks=looks))
                try:
                    answer = question(read.base)
                except Ahead:
                    read.is_behind = looks = True
                    if not left:
                        raise
                    continue
                return hold_source(answer, stack.pop_all()) if isinstance(answer, Iterator) else answer
        raise AssertionError("the last attempt returns or raises")

    @property
    def newest(self) -> Base:
        """The one that was loaded last."""
        return self._newest.base

    def __len__(self) -> int:
        """How many are open."""
        return len(self._live)

    def close(self) -> None:
        """Let go of all of them; what is read now is read to its end."""
        with self._looking, self._counting:
            self._is_closed = True
            let_go = self._make_closer(self._newest)
        let_go()

    @contextmanager
    def _read(self, *, looks: bool) -> Iterator[Generation]:
        """A generation, for as long as it is read."""
        look_number = self._begun
        with self._looking if looks or self._newest.is_behind else nullcontext():
            if looks and self._seen <= look_number:  # else one has looked who began after this was asked
                self._begun += 1
                self._update_newest()
                self._seen = self._begun
            with self._counting:
                read = self._newest
                read.readers += 1
        try:
            yield read
        finally:
            with self._counting:
                read.readers -= 1
                let_go = self._make_closer(read)
            let_go()

    def _update_newest(self) -> None:
        """Have the newest generation be the base as the files are now."""
        before = self._newest
        if self._is_closed or before.is_behind or self._is_behind(before.base):
            generation = Generation(self._load())
            generation.base.dropped = before.base.dropped  # what lies on disk may not have been made anew yet
            with self._counting:
                self._newest, self._is_closed = generation, False
                self._live.append(generation)
                let_go = self._make_closer(before)
            let_go()

    def _make_closer(self, read: Generation) -> Callable[[], None]:
        """What closes one that nobody reads any more, nor will, and what no other has in common with it. For when no lock is held."""
        if read.readers or read not in self._live or (read is self._newest and not self._is_closed):
            return _do_nothing
        self._live.remove(read)
        wiring = read.base.wiring
        return partial(read.base.close, alone=all(generation.base.wiring is not wiring for generation in self._live))


def _do_nothing() -> None:
    return


def hold_source(answer: Iterator[Answer], stack: ExitStack) -> Any:
    """The same, with what it is read from."""

    def to_its_end() -> Generator[Answer | None, None, None]:
        with stack:
            yield None  # from now on it is let go with the iterator, also of one that nobody reads
            yield from answer

    iterator = to_its_end()
    next(iterator)
    return iterator
