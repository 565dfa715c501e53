"""Fixtures of the campaigns of faults: the process that forks, and the bases, once for each test process; `conftest` gives them to all."""

import os
from collections.abc import Iterator

import pytest

from tests.harness.faults.bases import Ground
from tests.harness.faults.run import Zygote


@pytest.fixture(scope="session")
def zygote(own_machine_state: None) -> Iterator[Zygote]:
    if not hasattr(os, "fork"):
        pytest.skip(
            "this system has no fork, by which a fault is put into one process of many; test_index_jobs.py and test_concurrent_lock.py kill whole processes here too"
        )
    started = Zygote()
    yield started
    started.close()


@pytest.fixture(scope="session")
def ground(zygote: Zygote) -> Ground:
    return Ground(zygote)
