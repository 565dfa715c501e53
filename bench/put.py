"""What a write costs as a collection grows: the processor time of `put` at 1,000 and at 100,000 records, by policy.

usage: python bench/put.py [--sizes 1000,100000] [--rounds N] [--policies NAME,...] [--out FILE]

Both sizes are asked in turn, in whole processes and in one that stays open; figures are medians of user and system time,
children included, and ratios of the larger size to the smaller one. Nothing is embedded: what a model costs depends on the
text alone.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckkb

POLICIES = ("simple-kv", "structured-logs", "feature-store", "knowledge-base", "vector-store")
DIMENSION = 16
BATCH = 100


def records(policy: str, start: int, count: int) -> Iterator[dict[str, Any]]:
    """Records that a collection of this policy takes, the same for the same numbers."""
    for at in range(start, start + count):
        rng = random.Random(at)
        words = " ".join(f"w{rng.randint(1, 5000)}" for _ in range(20))
        common = {"level": rng.choice("abc"), "ms": rng.randint(1, 5000), "at": {"host": f"h{at % 9}"}}
        match policy:
            case "simple-kv":
                yield {"key": f"k{at:07}", "text": words, **common}
            case "feature-store":
                yield {"id": f"k{at:07}", "tensor": [rng.random() for _ in range(DIMENSION)], **common}
            case "vector-store":
                yield {"embedding_text": f"{at} {words}", "value": {"n": at}}
            case "knowledge-base":
                yield {"id": f"k{at:07}", "content": words, **common}
            case _:
                yield {"id": f"k{at:07}", "message": words, **common}


def lines(policy: str, start: int, count: int) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records(policy, start, count))


def cpu(run: Callable[[], object]) -> float:
    """Seconds of processor that `run` takes, its children included."""
    before = _spent()
    run()
    return _spent() - before


def _spent() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def _process(home: Path, *args: str, given: bytes = b"") -> None:
    command = [sys.executable, "-m", "duckkb", "--kb", str(home), *args]
    subprocess.run(command, input=given, capture_output=True, check=True, env={**os.environ, "DUCKKB_WRITER": "bench"})


class Bench:
    """One collection of `size` records, and the writes that are timed on it."""

    def __init__(self, home: Path, policy: str, size: int) -> None:
        self.home, self.policy, self.next = home, policy, size
        duckkb.init(home)
        (home / "all.jsonl").write_bytes(lines(policy, 0, size))
        with duckkb.open(home) as kb:
            kb.collections.init("things", policy=policy)
            kb.import_files("things", home / "all.jsonl", embed=False)
        _process(home, "list", "things", "-l", "1")
        self._warm(self._line())
        self.kb = duckkb.open(home)

    def _fresh(self, count: int) -> int:
        self.next += count
        return self.next - count

    def _line(self, fresh: bool = True) -> str:
        start = self._fresh(1) if fresh else 5
        return json.dumps({**next(records(self.policy, start, 1)), "note": f"changed at {self.next}"})

    def _warm(self, line: str) -> None:
        _process(self.home, "put", "things", line, "--no-embed")

    def steps(self) -> dict[str, Callable[[], object]]:
        """By name what is timed, each a thing to do again and again."""
        return {
            "new record, a process": lambda: self._warm(self._line()),
            "changed record, a process": lambda: self._warm(self._line(fresh=False)),
            f"batch of {BATCH}, a process": lambda: _process(
                self.home, "put", "things", "--batch", "--no-embed", given=lines(self.policy, self._fresh(BATCH), BATCH)
            ),
            "new record, open base, after another process wrote": lambda: self.kb.put(
                "things", next(records(self.policy, self._fresh(1), 1)), embed=False
            ),
            "new record, open base": lambda: self.kb.put(
                "things", next(records(self.policy, self._fresh(1), 1)), embed=False
            ),
        }


def measure(policy: str, sizes: tuple[int, ...], rounds: int, scratch: Path) -> dict[str, dict[int, float]]:
    """Median seconds of processor by step and size."""
    benches = {size: Bench(scratch / f"{policy}-{size}", policy, size) for size in sizes}
    taken: dict[str, dict[int, list[float]]] = {}
    for _ in range(rounds):
        for size, bench in benches.items():
            for name, run in bench.steps().items():
                taken.setdefault(name, {}).setdefault(size, []).append(cpu(run))
    for bench in benches.values():
        bench.kb.close()
    return {name: {size: statistics.median(some) for size, some in by.items()} for name, by in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,100000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.sizes.split(","))
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for policy in options.policies.split(","):
            found[policy] = measure(policy, sizes, options.rounds, Path(scratch))
            for name, by in found[policy].items():
                shown = "  ".join(f"{by[size] * 1000:8.0f} ms" for size in sizes)
                print(f"{policy:16} {name:52} {shown}   {by[sizes[-1]] / by[sizes[0]]:6.2f}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
