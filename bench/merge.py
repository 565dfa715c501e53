"""What it costs to list conflicts, beside the merge that found them, in one run.

usage: python bench/merge.py [--records N] [--conflicts M] [--repeats R]

Makes a base of N records and two branches that change the same field of M of them. Prints seconds of CPU with all children
(the median of R runs) of `duckkb merge`, of `duckkb resolve --list` and of `git merge`, and the ratio of the first two. The
goal: listing costs at most twice the merge.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from diff import git
from scale import CONFIG

OURS = [sys.executable, "-m", "duckkb"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=20_000)
    arguments.add_argument("--conflicts", type=int, default=500)
    arguments.add_argument("--repeats", type=int, default=5)
    asked = arguments.parse_args()
    steps = {"duckkb merge": [*OURS, "merge", "topic"], "duckkb resolve --list": [*OURS, "resolve", "--list"]}
    taken: dict[str, list[float]] = {name: [] for name in (*steps, "git merge")}
    with tempfile.TemporaryDirectory() as folder:
        root = make(Path(folder) / "kb", asked.records, asked.conflicts)
        for _ in range(asked.repeats):
            for name, command in steps.items():
                taken[name].append(cost(root, command))
            git(root, "reset", "-q", "--hard")
            taken["git merge"].append(cost(root, ["git", "merge", "-q", "topic"]))
            git(root, "reset", "-q", "--hard")
    found = {name: statistics.median(seconds) for name, seconds in taken.items()}
    for name, seconds in found.items():
        print(f"{name:24} {seconds:8.3f} cpu_s")
    print(f"listing over merging: {found['duckkb resolve --list'] / found['duckkb merge']:.2f} x")


def make(root: Path, records: int, conflicts: int) -> Path:
    """A base with the branches `main` and `topic`, `main` checked out."""
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(CONFIG, "utf-8")
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    git(root, "init", "-q", "-b", "main")
    for name in ("user.name", "user.email"):
        git(root, "config", name, "bench@example.org")
    edit(root, "main", range(records), 60)
    git(root, "branch", "topic")
    for branch in ("topic", "main"):
        git(root, "checkout", "-q", branch)
        edit(root, branch, range(0, records, records // conflicts), 61)
    return root


def edit(root: Path, word: str, numbers: range, times: int) -> None:
    lines = (json.dumps({"id": f"t{number:07d}", "text": f"{word} 记录 " * times}) for number in numbers)
    command = [*OURS, "put", "Text", "--merge"]
    subprocess.run(command, cwd=root, input="\n".join(lines).encode(), check=True, stdout=subprocess.DEVNULL)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", word)


def cost(root: Path, command: list[str]) -> float:
    """Seconds of CPU of a process that ends with 1, as conflicts are left."""
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    after = getrusage(RUSAGE_CHILDREN)
    assert done.returncode == 1, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
