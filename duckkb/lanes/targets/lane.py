"""The common part of all lanes over a publication."""

from collections.abc import Iterable


class PublishedLane:
    """A lane that never needs completion: a commit is published whole, and vectors come with a publication."""

    def complete(self) -> None:
        """Do nothing: a publication is complete."""

    def on_vectors_available(self, keys: Iterable[bytes]) -> None:
        """Do nothing: no record waits for vectors."""
