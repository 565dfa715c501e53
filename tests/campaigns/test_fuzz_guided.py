"""How much of the fuzzed modules the inputs reach, and the same targets under a fuzzer that looks for new branches."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.harness.campaign import Campaign

# By target: the least share of branches, in percent, that any run reaches, and the inputs of the short part and the whole.
MEASURED = {
    "codec": (75, 400, 4_000),
    "query syntax": (80, 200, 4_000),
    "lexical lane": (70, 100, 2_000),
    "ontology": (50, 100, 2_000),
    "parts": (50, 15, 300),
    "types over stored records": (40, 10, 200),
    "command line": (40, 200, 1_500),
}
GUIDED = {"codec": (500, 12_000), "query syntax": (500, 12_000), "ontology": (150, 4_000)}


def _child(module: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"tests.harness.fuzz.{module}", *map(str, args)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False, timeout=1_800
    )


def test_the_inputs_reach_most_branches_of_what_they_fuzz(campaign: Campaign, tmp_path: Path) -> None:
    pytest.importorskip(
        "coverage",
        reason="coverage.py, of the extra dev, measures the branches; the other test_fuzz_*.py run such inputs without measuring",
    )
    # One of the targets in the short part, another for each seed; all of them in the whole.
    names = [list(MEASURED)[(campaign.seed + step) % len(MEASURED)] for step in range(campaign.pick(1, len(MEASURED)))]
    for number, name in enumerate(names):
        (least, *sizes), folder = MEASURED[name], tmp_path / str(number)
        folder.mkdir()
        done = _child("branches", name, campaign.seed, campaign.pick(*sizes), folder)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert not told["finds"], told["finds"]
        campaign.count(f"branches of the fuzzed modules taken: {name} (percent)", told["percent"])
        campaign.count(f"fuzz inputs: {name}", told["inputs"])
        assert told["percent"] >= least, f"{name}: {told['percent']} %"


@pytest.mark.parametrize("name", GUIDED)
def test_inputs_that_atheris_finds_by_coverage_do_no_harm(campaign: Campaign, tmp_path: Path, name: str) -> None:
    pytest.importorskip(
        "atheris",
        reason="atheris, of the extra dev, has wheels for Linux on x86-64 and Python below 3.14 alone; the other test_fuzz_*.py draw inputs without a guide",
    )
    number = campaign.pick(*GUIDED[name])
    done = _child("guided", name, campaign.seed, number, tmp_path)
    assert done.returncode == 0, done.stderr[-4_000:]
    told: dict[str, Any] = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    campaign.count(f"fuzz inputs guided by coverage: {name}", told["inputs"])
    percent = 100 * told["past"] // told["inputs"]
    campaign.count(f"fuzz inputs guided by coverage past the first parser: {name} (percent)", percent)
    assert percent >= 25
