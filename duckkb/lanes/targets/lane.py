"""What any lane over a publication has in common."""

from collections.abc import Iterable


class PublishedLane:
    """A lane of which nothing is left to be made: a commit is published whole, and vectors come with a publication."""

    def complete(self) -> None:
        """What is published is complete."""

    def arrived(self, keys: Iterable[bytes]) -> None:
        """Nothing waits for vectors."""
