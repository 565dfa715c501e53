"""What a question costs as a whole process: by itself, and answered by a warm process (`duckkb serve --warm`).

usage: python bench/warm.py [--repeats N] [--records N] [--out FILE]

Both ways are asked in turn, after two rounds that are not counted. Figures are medians by the clock, and their ratio. The
question is embedded by the offline model; the records have drawn vectors under its fingerprint. Ends with 1 where a ratio is
above its goal.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import about
from start import make_base

GOALS = {
    "find, embedded": (["find", "Text", "a river of stone"], 1 / 6),
    "find -m": (["find", "Text", "river stone", "-m"], 0.4),
    "get": (["get", "Text", "r1"], 0.4),
}


def seconds(command: list[str], how: str) -> tuple[float, bytes]:
    """By the clock, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env={**os.environ, "DUCKKB_DAEMON": how}, check=True)
    return time.perf_counter() - start, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--out", type=Path, help="such as bench/results/warm.json, which bench/report.py shows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="duckkb-warm-") as folder:
        home = Path(folder, "kb")
        os.environ.update(XDG_STATE_HOME=f"{folder}/state", XDG_RUNTIME_DIR=folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        make_base(home, given.records)
        own = [sys.executable, "-P", "-m", "duckkb", "--kb", str(home)]
        subprocess.run([*own, "serve", "--warm"], check=True, stdout=subprocess.DEVNULL)
        try:
            taken = measure(own, given.repeats)
        finally:
            subprocess.run([*own, "serve", "stop", "--warm"], check=True, stdout=subprocess.DEVNULL)
    found = {name: {how: statistics.median(one) for how, one in both.items()} for name, both in taken.items()}
    print("| command | by itself, ms | warm, ms | ratio | goal |\n|---|---|---|---|---|")
    missed = []
    for name, one in found.items():
        ratio, goal = one["require"] / one["off"], GOALS[name][1]
        missed += [name] if ratio > goal else []
        print(f"| {name} | {one['off'] * 1000:.0f} | {one['require'] * 1000:.0f} | {ratio:.2f} | {goal:.2f} |")
    if given.out:
        goals = {name: goal for name, (_, goal) in GOALS.items()}
        told = {"about": about(Path(sys.executable)), "records": given.records, "medians": found, "goals": goals}
        given.out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return 1 if missed else 0


def measure(own: list[str], repeats: int) -> dict[str, dict[str, list[float]]]:
    taken: dict[str, dict[str, list[float]]] = {name: {"off": [], "require": []} for name in GOALS}
    for number in range(-2, repeats):
        for name, (command, _) in GOALS.items():
            printed = set()
            for how, one in taken[name].items():
                spent, out = seconds([*own, *command], how)
                printed.add(out)
                if number >= 0:
                    one.append(spent)
            assert len(printed) == 1, f"{name}: the two answers differ"
    return taken


if __name__ == "__main__":
    sys.exit(main())
