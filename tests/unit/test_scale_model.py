"""The plan on paper: what the guide prints is what the simulation says, and it moves as its costs do."""

import dataclasses
import re

import scale_model

from tests.conftest import ROOT


def test_the_guide_prints_what_the_simulation_says() -> None:
    guide = (ROOT / "docs/scale.md").read_text("utf-8")
    (printed,) = re.findall(r"<!-- model: begin -->\n\n(.*?)\n\n<!-- model: end -->", guide, re.S)
    costs = scale_model.Costs()
    assert printed == scale_model.table([scale_model.plan(size, 24.0, costs) for size in scale_model.SIZES])


def test_costs_move_the_plan_as_they_should() -> None:
    costs = scale_model.Costs()
    before = scale_model.plan(10_000_000, 24.0, costs)
    assert before["bases"] == 10 and before["hours"] <= 24.5
    fast = scale_model.plan(10_000_000, 24.0, dataclasses.replace(costs, embed_per_core_s=10 * costs.embed_per_core_s))
    assert fast["machines"] == 1 and fast["core_hours"] < before["core_hours"] / 9
    hasty = scale_model.plan(10_000_000, 1.0, costs)
    assert hasty["machines"] > 20 * before["machines"] and hasty["read_share"] > before["read_share"]
    wide = scale_model.plan(10_000_000, 24.0, dataclasses.replace(costs, vector_bytes=8 * costs.vector_bytes))
    assert wide["shards_a_base"] > before["shards_a_base"], "a shard is a file that can be read"
