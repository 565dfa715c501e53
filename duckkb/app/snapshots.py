"""Generations: concurrent reads, each of the newest generation at its beginning, which it keeps to its end.

A generation is a loaded base that is never refreshed; a change on disk makes the next generation, for later
questions. Nothing that it answers from changes: its connection to the store sees one state, and lanes replace
files rather than change them. Generations are to each other, and to writers, as processes that read one base:
they share no lock while they search. They share caches and engines, whose turns are short.

A lock for one call on a base at a time, which repairs the process after an interrupted call."""

import _imp
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from threading import Lock, RLock
from types import TracebackType
from typing import Any, TypeVar

from duckkb.engine.base import Base
from duckkb.ports import Ahead

Answer = TypeVar("Answer")

_ATTEMPTS = 4  # attempts of a question; the last runs alone


class Generation:
    """A loaded base with its readers. `is_behind`: a question found the loaded state gone from the disk."""

    def __init__(self, base: Base) -> None:
        base.is_generation = True
        self.base = base
        self.readers = 0
        self.is_behind = False


class Generations:
    """The generations of one base, starting with a loaded one, `first`.

    `load` returns a base as the files are now. `is_behind` tells whether files or configuration have changed
    since a base was loaded.
    """

    def __init__(self, first: Base, load: Callable[[], Base], is_behind: Callable[[Base], bool]) -> None:
        self._load, self._is_behind = load, is_behind
        self._newest = Generation(first)
        self._live = [self._newest]  # the newest, and older ones with readers
        self._is_closed = False
        self._counting, self._looking = Lock(), RLock()
        self._begun = self._seen = 0  # numbers of the last look at the files begun, and ended

    def ask(
        self,
        question: Callable[[Base], Answer],
        *,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        looks: bool = True,
    ) -> Answer:
        """Answer a question from the newest generation; ask again, of a newer one, where `Ahead` is raised.

        Repeats this a limited number of times. `around` is entered while a generation loads. Without `looks`,
        the newest generation is used without a look at the files. An iterator keeps its generation until it
        ends or is dropped. Raises what loading and the question raise.
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
        """The base that was loaded last."""
        return self._newest.base

    def __len__(self) -> int:
        """Return the number of open generations."""
        return len(self._live)

    def close(self) -> None:
        """Release all generations; current reads run to their end."""
        with self._looking, self._counting:
            self._is_closed = True
            let_go = self._make_closer(self._newest)
        let_go()

    @contextmanager
    def _read(self, *, looks: bool) -> Iterator[Generation]:
        """Hold a generation for the time of a read."""
        look_number = self._begun
        with self._looking if looks or self._newest.is_behind else nullcontext():
            if looks and self._seen <= look_number:  # else a look that began after this question has ended
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
        """Load a new generation where the files have changed since the newest one was loaded."""
        before = self._newest
        if self._is_closed or before.is_behind or self._is_behind(before.base):
            generation = Generation(self._load())
            generation.base.dropped = before.base.dropped  # dropped files may not have been rebuilt yet
            with self._counting:
                self._newest, self._is_closed = generation, False
                self._live.append(generation)
                let_go = self._make_closer(before)
            let_go()

    def _make_closer(self, read: Generation) -> Callable[[], None]:
        """Return a function that closes a generation, or does nothing while it is the newest or has readers.

        It spares what other open generations share. Call it while no lock is held.
        """
        if read.readers or read not in self._live or (read is self._newest and not self._is_closed):
            return _do_nothing
        self._live.remove(read)
        wiring = read.base.wiring
        return partial(read.base.close, alone=all(generation.base.wiring is not wiring for generation in self._live))


def _do_nothing() -> None:
    return


def hold_source(answer: Iterator[Answer], stack: ExitStack) -> Any:
    """Return an equal iterator that keeps its source open until it ends."""

    def to_its_end() -> Generator[Answer | None, None, None]:
        with stack:
            yield None  # from here on closing the iterator closes its source, even unread
            yield from answer

    iterator = to_its_end()
    next(iterator)
    return iterator


class CallLock:
    """A re-entrant lock that gives back Python's import lock when Ctrl-C ended a call inside an import.

    CPython loses that lock if the signal comes between taking it and the block that returns it. Any thread that
    imports would then wait for ever, threads of Arrow and DuckDB too. Outside importlib's own code, which holds
    it for moments, nobody needs it (https://docs.python.org/3/library/imp.html#imp.lock_held).
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if kind is KeyboardInterrupt:
            give_back_import_lock()


def give_back_import_lock() -> None:
    """Release the import lock as often as this thread holds it; do nothing where it does not."""
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # held by another thread
            return
