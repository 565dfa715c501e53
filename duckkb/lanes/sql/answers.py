"""The answers to the conditions that were asked last, for as long as the rows stay as they are."""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from duckkb.id_set import IdSet

MOST_IDS = 2_000_000  # of all answers together, eight bytes each


class Answers:
    """Sets of ids by what names the condition without a doubt: the same name always asks for the same."""

    def __init__(self, most: int = MOST_IDS) -> None:
        self._most = most
        self._held = 0
        self._found: OrderedDict[Hashable, IdSet] = OrderedDict()

    def get(self, condition: Hashable, find: Callable[[], IdSet]) -> IdSet:
        """The answer to a condition, found where it is not held."""
        if condition in self._found:
            self._found.move_to_end(condition)
            return self._found[condition]
        found = self._found[condition] = find()
        self._held += len(found)
        while self._held > self._most or len(self._found) > 256:
            self._held -= len(self._found.popitem(last=False)[1])
        return found

    def clear(self) -> None:
        """Forget all: the rows are others now."""
        self._found.clear()
        self._held = 0
