"""What a process costs before it has done anything: verbs on a small base beside Python and `import duckdb` alone.

usage: python bench/start.py [--repeats N] [--records N] [--only NAME,...] [--out FILE]

The commands run interleaved, each `--repeats` times after two runs that are not counted (they fill the caches). Figures
are medians: seconds by the clock, seconds of CPU (user and system, with the processes that a command starts), and both as
ratios to `python -c "import duckdb"`. No model is loaded: the records have drawn vectors under the model's fingerprint.
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
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import duckkb
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.types.records import Cut

FLOOR = "import duckdb"
CONFIG = """\
nodes:
  Text:
    table: text
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, topic: {type: string}, text: {type: string}}
      required: [id, text]
    search: {full_text: [text], vectors: [text]}
"""
WORDS = [
    "river",
    "stone",
    "lantern",
    "market",
    "winter",
    "copper",
    "signal",
    "garden",
    "harbor",
    "violin",
    "meadow",
    "engine",
    "paper",
    "silver",
    "forest",
]
CHINESE = ["数据库", "搜索", "内存", "排名", "向量", "记录", "文件", "仓库", "分词", "索引"]


@dataclass
class Taken:
    """Seconds of each run of one command, by the clock and of CPU."""

    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Drawn(LocalE5):
    """The offline model's fingerprint without the model: its vectors are drawn at random."""

    def __init__(self) -> None:
        super().__init__(Path("unused"))
        self._rng = np.random.default_rng(1)

    def embed_passages(self, texts: Sequence[str]) -> np.ndarray:
        made = self._rng.standard_normal((len(texts), self.fingerprint.dimension)).astype(np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        return [Cut(text, 1, 1) for text in texts]


def make_base(home: Path, records: int) -> None:
    """A base in which every record has its tokens and its vector in the local cache."""
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG, "utf-8")
    rng = random.Random(records)
    lines = [{"id": f"r{number}", "topic": f"t{number % 10}", "text": _text(rng)} for number in range(records)]
    source = home.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with duckkb.open(home, embedder=Drawn()) as kb:
        kb.import_files("Text", source)
        kb.put("Text", {"id": "same", "topic": "t1", "text": "a record that is put again and again"})
        assert kb.index_status()["missing"] == 0


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices([*WORDS, *CHINESE], k=60))


def commands(home: Path, vector: Path) -> dict[str, list[str]]:
    """What is measured, by name."""
    python, cli = [sys.executable, "-c"], [sys.executable, "-P", "-m", "duckkb"]
    own = [*cli, "--kb", str(home)]
    return {
        "pass": [*python, "pass"],
        FLOOR: [*python, "import duckdb"],
        "import click": [*python, "import click"],
        "--help": [*cli, "--help"],
        "wrong argument": [*cli, "find", "Text", "x", "--limit", "abc"],
        "get": [*own, "get", "Text", "r1"],
        "find -m": [*own, "find", "Text", "river stone", "-m"],
        "find -m, Chinese": [*own, "find", "Text", "数据库", "-m"],
        "find --vector": [*own, "find", "Text", "--vector", str(vector)],
        "find -H --vector": [*own, "find", "Text", "river stone", "-H", "--vector", str(vector)],
        "find -m -w": [*own, "find", "Text", "river stone", "-m", "-w", "topic = 't1'"],
        "find -w": [*own, "find", "Text", "-w", "topic = 't1'"],
        "put": [
            *own,
            "put",
            "Text",
            '{"id": "same", "topic": "TOPIC", "text": "a record that is put again and again"}',
        ],
        "status": [*own, "status"],
    }


def run_once(command: list[str], number: int) -> tuple[float, float]:
    """Seconds by the clock and of CPU; the word TOPIC in an argument differs from run to run."""
    given = [word.replace("TOPIC", f"t{number}") for word in command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(given, capture_output=True, stdin=subprocess.DEVNULL, env=env, check=False)
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == (2 if "abc" in command else 0), done.stderr.decode()
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(chosen: dict[str, list[str]], repeats: int) -> dict[str, Taken]:
    taken = {name: Taken() for name in chosen}
    for number in range(-2, repeats):
        for name, command in chosen.items():
            clock, cpu = run_once(command, number)
            if number >= 0:
                taken[name].clock.append(clock)
                taken[name].cpu.append(cpu)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--only", help="names of commands, with commas between them")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="duckkb-start-") as folder:
        scratch = Path(folder)
        os.environ["XDG_STATE_HOME"] = str(scratch / "state")
        make_base(scratch / "kb", given.records)
        vector = scratch / "vector.json"
        vector.write_text(json.dumps(Drawn().embed_passages(["question"])[0].tolist()))
        every = commands(scratch / "kb", vector)
        wanted = {FLOOR, *(given.only.split(",") if given.only else every)}
        taken = measure({name: command for name, command in every.items() if name in wanted}, given.repeats)
    found = {
        name: {"clock": statistics.median(one.clock), "cpu": statistics.median(one.cpu)} for name, one in taken.items()
    }
    print("| command | clock, ms | x floor | CPU, ms | x floor |\n|---|---|---|---|---|")
    for name, one in found.items():
        cells = [f"{one[key] * 1000:.0f} | {one[key] / found[FLOOR][key]:.2f}" for key in ("clock", "cpu")]
        print(f"| {name} | {' | '.join(cells)} |")
    if given.out:
        given.out.write_text(json.dumps({"records": given.records, "medians": found}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
