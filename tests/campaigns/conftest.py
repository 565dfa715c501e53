"""Ground of the campaigns: how large they are, their seed, and the figures that they report."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.campaigns.fault_fixtures import ground, zygote
from tests.campaigns.snapshot_ground import place

__all__ = ["Campaign", "campaign", "ground", "place", "zygote"]


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


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Iterator[Campaign]:
    size, seed = request.config.getoption("--campaign"), request.config.getoption("--seed")
    found = Campaign(size == "full", seed)
    print(f"seed {seed} (repeat with --campaign={size} --seed={seed})")
    yield found
    for name, number in found.figures.items():
        request.node.user_properties.append(("figure", (name, number)))
