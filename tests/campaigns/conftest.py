"""Fixtures of the campaigns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.snapshot_ground import place
from tests.harness.campaign import Campaign
from tests.harness.crowd.workers import Forge
from tests.harness.faults.fixtures import ground, zygote
from tests.harness.hostile.run import Runner

__all__ = ["campaign", "ground", "place", "zygote"]


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Iterator[Campaign]:
    size, seed = request.config.getoption("--campaign"), request.config.getoption("--seed")
    found = Campaign(size == "full", seed)
    print(f"seed {seed} (repeat with --campaign={size} --seed={seed})")
    yield found
    for name, number in found.figures.items():
        request.node.user_properties.append(("figure", (name, number)))


@pytest.fixture(scope="session")
def runner() -> Runner:
    return Runner()


@pytest.fixture
def workers(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "workers")
