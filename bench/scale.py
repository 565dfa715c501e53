"""How cost grows from 10,000 to 100,000 records: import, boot, warm find, put of one record, beside read_json of the files.

usage: python bench/scale.py [--sizes 10000,100000] [--repeats N] [--out FILE]

Records have 100 words of a Zipf vocabulary and are searched lexically. Every figure is a median of its repeats; steps of
both sizes are measured in one run, so that ratios hold on a noisy machine.
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
from collections.abc import Callable
from pathlib import Path

import duckdb

import duckkb
from duckkb.store import cache_dirs

CONFIG = """\
global:
  embedding_model: none
nodes:
  Text:
    table: text
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, topic: {type: string}, size: {type: integer}, text: {type: string}}
      required: [id, text]
    search: {full_text: [text]}
"""
VOCABULARY = 20_000
CACHE_HOME = "cache"


def make_lines(path: Path, records: int) -> None:
    """JSONL of records of 100 words each, Zipf-distributed, the same for the same number."""
    rng = random.Random(records)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10))) for _ in range(VOCABULARY)]
    weights = [1 / rank for rank in range(1, VOCABULARY + 1)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(records):
            text = " ".join(rng.choices(words, weights, k=100))
            line = {"id": f"r{number:07}", "topic": f"t{number % 50}", "size": number % 1000, "text": text}
            file.write(json.dumps(line) + "\n")


def timed(run: Callable[[], object], repeats: int) -> float:
    """Median seconds of `repeats` runs."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure(records: int, scratch: Path, repeats: int) -> dict[str, float]:
    source, home = scratch / f"{records}.jsonl", scratch / str(records)
    make_lines(source, records)
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG, "utf-8")
    found: dict[str, float] = {}

    def load() -> None:
        with duckkb.open(home) as kb:
            receipt = kb.import_files("Text", source)
            assert receipt.inserted == records

    found["import"] = timed(load, 1)
    found["read_json"] = timed(lambda: _read_json(home), repeats)
    found["boot and first find, warm cache"] = timed(lambda: _boot(home), repeats)
    cache_dirs.remove(scratch / CACHE_HOME)
    found["boot and first find, no cache"] = timed(lambda: _boot(home), 1)
    with duckkb.open(home) as kb:
        kb.find("Text", "warm up", mode="match")
        queries = [line.split('"text": "')[1].split(" ")[40:43] for line in source.read_text("utf-8").splitlines()[:20]]
        found["warm find"] = (
            timed(lambda: [kb.find("Text", " ".join(query), mode="match") for query in queries], repeats) / 20
        )
        found["warm find with a filter"] = (
            timed(lambda: [kb.find("Text", " ".join(q), mode="match", where="topic = 't7'") for q in queries], repeats)
            / 20
        )
        fresh = iter(range(10**6))
        files = set()

        def put() -> None:
            receipt = kb.put("Text", {"id": "r0000001", "text": f"one changed record {next(fresh)}"})
            files.update(receipt.files)
            assert receipt.updated == 1

        found["put of one record, warm"] = timed(put, repeats)
        assert len(files) == 1, "a put renders only its part"
    change = json.dumps({"id": "r0000001", "text": "changed by a process"})
    found["put of one record, whole process"] = timed(lambda: _process(home, "put", "Text", change), 1)
    found["find, whole process"] = timed(lambda: _process(home, "find", "Text", "one changed", "-m"), repeats)
    return found


def _read_json(home: Path) -> None:
    with duckdb.connect() as connection:
        columns = "{'__id': 'BIGINT', 'id': 'VARCHAR', 'topic': 'VARCHAR', 'size': 'BIGINT', 'text': 'VARCHAR'}"
        connection.execute(
            f"CREATE TABLE t AS SELECT * FROM read_json('{home}/data/nodes/text/*/*.jsonl', format='newline_delimited', columns={columns})"
        )


def _boot(home: Path) -> None:
    with duckkb.open(home) as kb:
        assert kb.find("Text", "nothing", mode="match") is not None


def _process(home: Path, *args: str) -> None:
    subprocess.run([sys.executable, "-m", "duckkb", "--kb", str(home), *args], capture_output=True, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="duckkb-scale-") as scratch:
        os.environ["DUCKKB_CACHE_HOME"] = f"{scratch}/{CACHE_HOME}"  # what other bases have left there spares work
        found = {size: measure(size, Path(scratch), chosen.repeats) for size in sizes}
    first, last = found[sizes[0]], found[sizes[-1]]
    print(
        f"| step | {' | '.join(f'{size:,}' for size in sizes)} | growth | x read_json |\n|---|{'---|' * len(sizes)}---|---|"
    )
    for step in first:
        cells = " | ".join(f"{found[size][step]:.4f} s" for size in sizes)
        print(f"| {step} | {cells} | {last[step] / first[step]:.1f} | {last[step] / last['read_json']:.1f} |")
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
