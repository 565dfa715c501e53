"""Tracks which publication a thread reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Generic, TypeVar

Read = TypeVar("Read")


class Readings(Generic[Read]):
    """The publications being read, each by a single thread; queries may be nested."""

    def __init__(self) -> None:
        self._of_thread = local()

    @property
    def now(self) -> Read:
        """Return the publication that this thread reads."""
        publication: Read = self._stack[-1]
        return publication

    @contextmanager
    def use(self, publication: Read) -> Iterator[Read]:
        """Let this thread read a publication during the block."""
        stack = self._stack
        stack.append(publication)
        try:
            yield publication
        finally:
            stack.remove(publication)

    @property
    def _stack(self) -> list[Read]:
        if not hasattr(self._of_thread, "stack"):
            self._of_thread.stack = []
        stack: list[Read] = self._of_thread.stack
        return stack
