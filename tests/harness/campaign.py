"""A campaign: how large it is, its seed, and the figures that it reports."""

import random
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Campaign:
    """One campaign's size and account. Figures are counted while it runs and reported by name at the end."""

    full: bool
    seed: int
    figures: Counter[str] = field(default_factory=Counter)

    def pick(self, short: int, full: int) -> int:
        """How many, in the part that every test run takes and in the whole."""
        return full if self.full else short

    def random(self, name: str = "") -> random.Random:
        """A source of chance that the printed seed repeats."""
        return random.Random(f"{self.seed}/{name}")

    def count(self, figure: str, number: int = 1) -> None:
        self.figures[figure] += number
