"""duckkb beside LanceDB, Chroma, sqlite-vec with FTS5 and agentcairn, on the same rows, vectors and questions, in one run.

usage: python bench/peers.py [--sizes 100,10000,100000] [--systems NAME,...] [--questions N] [--rounds N] [--builds N]
                             [--patience SECONDS] [--keep FOLDER] [--out FILE]

The peers are installed into bench/.peers on first use (bench/peers.txt). Systems take turns, so that all of them see the
same machine: each question goes to each of them before the next one comes, and each round of whole processes runs every
command once, at every size. Answers are held against numpy's: the exit code is 1 where duckkb answered wrongly.

`--keep` keeps what was built for another run. The result is JSON; bench/report.py makes docs/performance.md of it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import measure
from corpus import make
from measure import Found, Place, say, summary
from runner import SYSTEMS

HERE = Path(__file__).parent
ENVIRONMENT = HERE / ".peers"
RESULTS = HERE / "results"
OPTIONAL = ("agentcairn>=0.26", "duckdb-ext-fts>=1.4")
"""What not every machine can install, one peer with what it needs; without it the others are measured."""

FEW_BUILDS = ("lancedb", "sqlite-vec")
"""Peers that build in seconds: their builds are repeated."""
SLOW_BUILDS = ("chroma", "agentcairn")
"""Peers that are left out at a million records."""


def peers_python() -> Path:
    """The interpreter of the peers' environment, made where it is missing or its list has changed."""
    python = ENVIRONMENT / "bin" / "python"
    wanted = (HERE / "peers.txt").read_text("utf-8")
    stamp = ENVIRONMENT / "installed.txt"
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        say(f"installing the peers into {ENVIRONMENT}")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", str(HERE / "peers.txt")], check=True)
        if subprocess.run([*install, *OPTIONAL], check=False).returncode:
            say(f"{OPTIONAL[0]} cannot be installed here and is left out")
        stamp.write_text(wanted, "utf-8")
    return python


def about(python: Path) -> dict[str, Any]:
    """The machine, and the versions of everything."""
    code = "import json, importlib.metadata as m; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    theirs = json.loads(subprocess.run([str(python), "-c", code], capture_output=True, check=True, text=True).stdout)
    named = ("lancedb", "chromadb", "sqlite-vec", "apsw", "agentcairn")
    mine = ("duckkb", "duckdb", "tantivy", "pyarrow", "numpy", "onnxruntime")
    commit = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in mine} | {name: theirs[name] for name in named if name in theirs},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def run(places: Mapping[int, Place], chosen: argparse.Namespace) -> dict[int, Found]:
    """Everything, smallest size first."""
    all_found = {size: Found() for size in places}
    for size, place in places.items():
        found = all_found[size]
        wanted = [name for name in chosen.systems if size < 1_000_000 or name not in SLOW_BUILDS]
        say(f"{size:,} records: building")
        usable = measure.build(place, wanted, found, chosen.patience)
        again = [name for name in FEW_BUILDS if name in usable and chosen.builds > 1]
        measure.rebuild(place, again, found, chosen.builds - 1)
        say(f"{size:,} records: asking {', '.join(usable)}")
        measure.warm(place, usable, found, chosen.questions)
        if "duckkb" in usable:
            measure.memory(place, found)
            measure.read_json(place, found, min(5, chosen.rounds))
    if "duckkb" in chosen.systems and chosen.rounds:
        say("whole processes")
        measure.processes(places, all_found, chosen.rounds, chosen.builds)
        for size, place in places.items():
            measure.changes(place, all_found[size], min(chosen.rounds, 20))
            measure.cold.restore(place.base)
    return all_found


def result(all_found: Mapping[int, Found], python: Path) -> dict[str, Any]:
    """As it is written: the machine, then by size seconds, answers and bytes."""
    sizes = {
        str(size): {
            "seconds": {
                part: {step: summary(its) for step, its in steps.items()} for part, steps in found.samples.items()
            },
            "answers": found.answers,
            "memory": found.memory,
            "failed": found.failed,
        }
        for size, found in all_found.items()
    }
    return {"about": about(python), "sizes": sizes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default=[100, 10_000, 100_000])
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=1800, help="seconds that a build may take")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    chosen = parser.parse_args()
    python = peers_python()
    with tempfile.TemporaryDirectory(prefix="duckkb-bench-") as scratch:
        folder = (chosen.keep or Path(scratch)).resolve()
        places = {
            size: Place(make(folder / f"corpus-{size}", size), folder / f"{size}", python) for size in chosen.sizes
        }
        for place in places.values():
            place.folder.mkdir(exist_ok=True)
        all_found = run(places, chosen)
        said = result(all_found, python)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", "utf-8")
    problems = [f"{size:,}: {problem}" for size, found in all_found.items() for problem in measure.wrong(found)]
    for problem in problems:
        say(f"duckkb answered wrongly at {problem}")
    return 1 if problems else 0


def _numbers(text: str) -> list[int]:
    return sorted(int(number.replace("_", "")) for number in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
