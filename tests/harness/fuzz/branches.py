"""Run as a process: fuzz one target under coverage.py and print the share of branches taken, as JSON.

python -m tests.harness.fuzz.branches NAME SEED NUMBER FOLDER
"""

import json
import sys
from pathlib import Path
from random import Random

import coverage

ROOT = Path(__file__).resolve().parents[3]


def main(name: str, seed: str, number: int, folder: Path) -> None:
    measured = coverage.Coverage(data_file=None, branch=True, config_file=False, include=[f"{ROOT}/duckkb/*"])
    measured.start()  # before duckkb is imported: what runs at import time counts too
    from tests.harness.fuzz.loop import Run, report
    from tests.harness.fuzz.targets import TARGETS

    target = TARGETS[name](folder)
    outcome = Run[object]().fuzz(target, Random(f"{seed}/{name}"), number)
    measured.stop()
    told = folder / "coverage.json"
    measured.json_report(outfile=str(told), include=[f"{ROOT}/{module}" for module in target.modules])
    totals = json.loads(told.read_text("utf-8"))["totals"]
    percent = 100 * totals["covered_branches"] // max(1, totals["num_branches"])
    print(json.dumps({"percent": percent, "inputs": outcome.inputs, "finds": report(outcome) if outcome.finds else ""}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
