"""A publisher to Lance tables killed before every step of a publication: what is published is one whole commit, and the next publisher
finishes or starts over."""

from pathlib import Path

import pytest

from tests.conftest import make_base
from tests.harness.campaign import Campaign
from tests.harness.publishing.contents import contents
from tests.harness.publishing.lance_deaths import Deaths
from tests.paths.test_publish import CONFIG, assert_as_built, note, publish, put

pytest.importorskip("lancedb", reason="LanceDB is not installed: `make test-lance`")


@pytest.mark.parametrize("how", ["delta", "whole"])
def test_a_publisher_killed_before_any_step_leaves_one_whole_commit(
    campaign: Campaign, tmp_path: Path, how: str
) -> None:
    base, url = make_base(tmp_path / "kb", CONFIG), f"lance:{tmp_path / 'lance'}?keep=2"
    put(base, note(1), note(2), edges=({"from": "n1", "to": "n2"},))
    publish(base, url)
    deaths, step, pace = Deaths(base, url), 1, campaign.pick(7, 1)
    before = contents(url)
    head = put(base, note(2, "changed"), note(3))
    while deaths.at(step, full=how == "whole"):
        campaign.count(f"publishers to Lance tables killed, {how}")
        now = contents(url)
        assert now == before or now["target"][0] == head
        if now != before:  # it died after it had published: the rest is left to the next
            publish(base, url)
            before = now
            head = put(base, note(2, f"changed before {step}"), note(3, f"river {step}"))
        step += pace
    assert step > 10
    assert_as_built(base, url.partition("?")[0])
    publish(base, url, full=True)
    publish(base, url, full=True)
    assert_as_built(base, url.partition("?")[0])
    left = {one.name.partition("-")[0] for one in (tmp_path / "lance").iterdir()}
    assert len(left) <= 4, "what says which, the publications that are kept, and the last one"
