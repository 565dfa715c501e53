"""What collections cost: a batch of 100,000 log lines, single puts, filters and SQL over them, and 20,000 given vectors.

usage: python bench/policies.py [--lines N] [--vectors N] [--repeats N] [--out FILE]

Floors in the same run: DuckDB's read_json over the same lines, and one numpy product over the same vectors. Every figure is
a median of its repeats, as a multiple of its floor.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

import duckdb
import numpy as np
from scale import timed

import duckkb

DIMENSION = 64
LEVELS = ("debug", "info", "warn", "error")


def log_lines(count: int) -> bytes:
    """JSONL of log lines with seven fields, one of them nested, the same for the same number."""
    rng = random.Random(count)
    lines = (
        {
            "ts": f"2026-11-{1 + at % 28:02}T{at % 24:02}:{at % 60:02}:00Z",
            "level": rng.choice(LEVELS),
            "service": rng.choice("abcdef") * 3,
            "ms": rng.randint(1, 5000),
            "message": f"request {at} handled in {rng.randint(1, 99)} ms",
            "http": {"status": rng.choice([200, 404, 500]), "path": f"/v1/{rng.randint(1, 50)}"},
        }
        for at in range(count)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def logs(root: Path, count: int, repeats: int) -> dict[str, float]:
    """Seconds of each step over log lines."""
    data = log_lines(count)
    (root / "logs.jsonl").write_bytes(data)
    source = str(root / "logs.jsonl")
    found = {"read_json": timed(lambda: duckdb.sql(f"SELECT count(ms) FROM read_json('{source}')").fetchall(), repeats)}
    duckkb.init(root / "kb")
    with duckkb.open(root / "kb") as kb:
        kb.collections.init("logs", policy="structured-logs")
        kb.list("logs")
        found["put --batch"] = timed(lambda: kb.put_batch("logs", data), 1)
        assert kb.list("logs").total == count
        found["first filter"] = timed(lambda: kb.find("logs", where="level = 'error' AND ms > 4900"), 1)
        found["filter"] = timed(lambda: kb.find("logs", where="level = 'error' AND ms > 4900"), repeats)
        counted = kb.sql("SELECT count(*) FROM logs WHERE level = 'error'").rows
        assert counted == ((sum(json.loads(line)["level"] == "error" for line in data.splitlines()),),)
        found["sql"] = timed(lambda: kb.sql("SELECT level, avg(ms) FROM logs GROUP BY level"), repeats)
        found["one put"] = timed(lambda: kb.put("logs", {"level": "info"}), repeats)
        found["ten puts"] = timed(lambda: [kb.put("logs", {"level": "info"}) for _ in range(10)], repeats)
    return found


def vectors(root: Path, count: int, repeats: int) -> dict[str, float]:
    """Seconds of each step over given vectors, whose answer is compared with numpy's."""
    rng = np.random.default_rng(count)
    matrix = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    question = rng.normal(size=DIMENSION).astype(np.float32)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    found = {"numpy": timed(lambda: np.argsort(-(unit @ question))[:10], repeats)}
    duckkb.init(root / "kb")
    with duckkb.open(root / "kb") as kb:
        kb.collections.init("features", policy="feature-store")
        lines = [{"id": f"f{at}", "tensor": row.tolist(), "group": "abc"[at % 3]} for at, row in enumerate(matrix)]
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        found["put --batch"] = timed(lambda: kb.put_batch("features", data), 1)
        best = [hit.identity for hit in kb.find("features", vector=question)]
        assert best == [f"f{at}" for at in np.argsort(-(unit @ question))[:10]]
        found["find --vector"] = timed(lambda: kb.find("features", vector=question), repeats)
        found["with a filter"] = timed(lambda: kb.find("features", vector=question, where="\"group\" = 'a'"), repeats)
    return found


def report(title: str, found: dict[str, float], floor: str) -> None:
    print(f"\n{title}, in seconds and as a multiple of {floor}\n\n| step | seconds | x {floor} |\n|---|---|---|")
    for name, taken in found.items():
        print(f"| {name} | {taken:.4f} | {taken / found[floor]:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--vectors", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        of_logs = logs(Path(folder), given.lines, given.repeats)
        report(f"{given.lines:,} log lines", of_logs, "read_json")
        print(f"\nten puts cost {of_logs['ten puts'] / of_logs['one put']:.1f} times one")
    with tempfile.TemporaryDirectory() as folder:
        of_vectors = vectors(Path(folder), given.vectors, given.repeats)
        report(f"{given.vectors:,} vectors of {DIMENSION} numbers", of_vectors, "numpy")
    if given.out:
        given.out.write_text(json.dumps({"logs": of_logs, "vectors": of_vectors}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
