"""Which publication a thread reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Generic, TypeVar

Read = TypeVar("Read")


class Readings(Generic[Read]):
    """The publications that are being read, each by one thread; a question may be asked within another."""

    def __init__(self) -> None:
        self._of_thread = local()

    @property
    def now(self) -> Read:
        """What this thread reads."""
        publication: Read = self._stack[-1]
        return publication

    @contextmanager
    def of(self, publication: Read) -> Iterator[Read]:
        """Have this thread read it."""
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
