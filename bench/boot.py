"""From files to a store that answers: duckkb without a store beside LanceDB, in turns.

usage: python bench/boot.py [--size N] [--rounds N] [--keep FOLDER] [--out FILE]

Both begin with the same rows and vectors in files and end with a store on disk that has been asked once. Each round runs
duckkb's command line and a script of either library (once.py), which tells its steps apart. What LanceDB reads is what it reads
fastest: rows by Arrow's JSON reader, vectors as one array of numpy's. What duckkb reads is a knowledge base: records in JSONL
files, vectors in its cache. The result is JSON; bench/report.py shows it in docs/performance.md.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import cold
import measure
import ours
from corpus import make
from measure import Place, say, summary
from once import SYSTEMS
from peers import RESULTS, about, peers_python

Taken = dict[str, list[float]]


def once(place: Place, system: str, taken: dict[str, Taken]) -> None:
    """One process of one system, from its start to its end, and what it says of its steps."""
    home = place.base if system == "duckkb" else place.folder / "boot-lancedb"
    if system == "duckkb":
        ours.drop_store(home)
    else:
        shutil.rmtree(home, ignore_errors=True)
    python = sys.executable if system == "duckkb" else str(place.peers_python)
    command = [python, str(Path(__file__).with_name("once.py")), system, str(place.corpus.folder), str(home)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ours.machine_state(place.base))
    whole = time.perf_counter() - start
    steps = json.loads(done.stdout.splitlines()[-1])
    taken[system]["process"].append(whole)
    taken[system]["without imports"].append(sum(steps.values()))
    for step, seconds in steps.items():
        taken[system][step].append(seconds)


def run(place: Place, rounds: int) -> dict[str, dict[str, Any]]:
    """By system and step: median seconds, and what else `measure.summary` says."""
    taken: dict[str, Taken] = defaultdict(lambda: defaultdict(list))
    environment = ours.machine_state(place.base)
    command = next(one for one in cold.commands(place.base) if one.name == "find without a store")
    for now in cold.rounds(place.corpus, place.folder, rounds):
        taken["duckkb"]["command line"].append(cold.run(command, now, environment)[0])
        for system in SYSTEMS:
            once(place, system, taken)
    return {system: {step: summary(its) for step, its in steps.items()} for system, steps in taken.items()}


def positive(text: str) -> int:
    """A number from 1 on; raises ValueError."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=positive, default=100_000)
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "boot.json")
    chosen = parser.parse_args()
    python = peers_python()
    with tempfile.TemporaryDirectory(prefix="duckkb-bench-") as scratch:
        folder = (chosen.keep or Path(scratch)).resolve()
        place = Place(make(folder / f"corpus-{chosen.size}", chosen.size), folder / f"{chosen.size}", python)
        place.folder.mkdir(exist_ok=True)
        if not measure.build(place, ["duckkb"], measure.Found(), 1800):
            return 1
        say(f"{chosen.size:,} records: {chosen.rounds} rounds")
        said = {"about": about(python), "size": chosen.size, "seconds": run(place, chosen.rounds)}
        shutil.rmtree(place.folder / "boot-lancedb", ignore_errors=True)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
