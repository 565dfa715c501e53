"""What a difference costs: a few changed records in a large base, and very many, beside git's own diff.

usage: python bench/diff.py [--records N] [--many M] [--repeats R] [--base FOLDER] [--out FILE]

Makes a base of N records in a git repository (or takes the one at --base, which then has to have the commits `before`,
`few` and `many`), with one commit that changes 5 records and one that changes M. The commands run interleaved; figures are
medians: seconds by the clock, of CPU with all children, and the peak of memory in MiB. The goal: what `duckkb diff` takes
over the start of a process (`duckkb get`) is at most 3 times what `git diff --stat` takes; and that of very many
`duckkb diff --stat` takes at most 5 times the CPU of `git diff --stat`, the start of a process included.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from scale import CONFIG

import duckkb

WORDS = (
    "river",
    "stone",
    "lantern",
    "market",
    "winter",
    "copper",
    "signal",
    "数据库",
    "搜索",
    "内存",
    "排名",
    "记录",
    "文件",
    "分词",
)
FEW = 5


@dataclass
class Taken:
    """Seconds by the clock and of CPU, and the peak of memory in MiB, of each run."""

    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def median(self) -> dict[str, float]:
        found = {"clock_s": statistics.median(self.clock), "cpu_s": statistics.median(self.cpu)}
        return {**found, "memory_mib": max(self.memory)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=100_000)
    arguments.add_argument("--many", type=int, default=20_000)
    arguments.add_argument("--repeats", type=int, default=9)
    arguments.add_argument("--base", type=Path)
    arguments.add_argument("--out", type=Path)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = asked.base or make(Path(folder) / "kb", asked.records, asked.many)
        measured = measure(root, asked.repeats)
    report(measured)
    if asked.out:
        asked.out.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")


def make(root: Path, records: int, many: int) -> Path:
    """A base with the commits `before`, `few` and `many`."""
    chance = random.Random(1)
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(CONFIG, "utf-8")
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "gc.auto", "0")
    with duckkb.open(root) as kb:
        kb.put("Text", [record(number, chance) for number in range(records)])
        commit(root, "before")
        kb.put("Text", [record(number, chance) for number in range(0, records, records // FEW)][:FEW])
        commit(root, "few")
        kb.put("Text", [record(number, chance) for number in chance.sample(range(records), many)])
        commit(root, "many")
    git(root, "gc", "-q")
    return root


def record(number: int, chance: random.Random) -> dict[str, object]:
    text = " ".join(chance.choices(WORDS, k=60))
    return {"id": f"t{number:07d}", "topic": chance.choice(WORDS), "size": chance.randrange(1000), "text": text}


def commit(root: Path, tag: str) -> None:
    git(root, "add", "config.yaml", "data")
    git(root, "-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "-q", "-m", tag)
    git(root, "tag", tag)


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, stdout=subprocess.DEVNULL)


def measure(root: Path, repeats: int) -> dict[str, dict[str, float]]:
    """The figures by the name of the command."""
    ours = [sys.executable, "-m", "duckkb"]
    few, many = (["before..few"], ["few..many"])
    commands = {
        "get": [*ours, "get", "Text", "t0000001"],
        "git diff --stat, few": ["git", "--no-pager", "diff", "--stat", *few],
        "duckkb diff --stat, few": [*ours, "diff", "--stat", *few],
        "duckkb diff, few": [*ours, "diff", *few],
        "duckkb diff --format json, few": [*ours, "diff", "--format", "json", *few],
        "git diff --stat, many": ["git", "--no-pager", "diff", "--stat", *many],
        "duckkb diff --stat, many": [*ours, "diff", "--stat", *many],
        "duckkb diff, many": [*ours, "diff", *many],
        "duckkb diff --format json, many": [*ours, "diff", "--format", "json", *many],
        "duckkb diff --format patch, many": [*ours, "diff", "--format", "patch", *many],
    }
    taken = {name: Taken() for name in commands}
    for number in range(repeats + 2):
        for name, command in commands.items():
            if name.endswith("many") and "--stat" not in name and number not in (2, 3, 4):
                continue
            found = run(root, command)
            if number >= 2:
                for figures, value in zip((taken[name].clock, taken[name].cpu, taken[name].memory), found, strict=True):
                    figures.append(value)
    return {name: one.median() for name, one in taken.items()}


def run(root: Path, command: list[str]) -> tuple[float, float, float]:
    """One process: seconds, seconds of CPU, MiB."""
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / _per_mib()


def _per_mib() -> int:
    return 1024 if sys.platform != "darwin" else 1024 * 1024


def report(measured: dict[str, dict[str, float]]) -> None:
    for name, figures in measured.items():
        shown = "  ".join(f"{value:8.3f} {unit}" for unit, value in figures.items())
        print(f"{name:36} {shown}")
    start, git_few = measured["get"], measured["git diff --stat, few"]
    for name in ("duckkb diff --stat, few", "duckkb diff, few"):
        for unit in ("clock_s", "cpu_s"):
            over = measured[name][unit] - start[unit]
            print(
                f"{name}: over a start {over * 1000:.1f} ms, git {git_few[unit] * 1000:.1f} ms by {unit}: {over / git_few[unit]:.2f} x"
            )
    for name in ("duckkb diff --stat, many", "duckkb diff, many", "duckkb diff --format json, many"):
        times = measured[name]["cpu_s"] / measured["git diff --stat, many"]["cpu_s"]
        print(f"{name}: {times:.1f} x git diff --stat by cpu_s")


if __name__ == "__main__":
    main()
