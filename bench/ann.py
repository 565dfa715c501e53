"""Vectors by graph and as narrow numbers, beside comparing all of them in float32: time, recall, size, as ratios in one run.

usage: python bench/ann.py [--rows 100000] [--dimension 384] [--queries 50] [--out FILE]

Vectors lie around centres, 100 to each; questions are stored vectors moved by 27 degrees. Ways take turns question by
question, so that ratios hold on a noisy machine. Recall is the share of the first ten by float32 that a way finds. The table is
Markdown; `--out` writes JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duckkb.entries import IndexEntry
from duckkb.lanes.vectors.vectors import CosineLane
from duckkb.ports import Row, RowVersion
from duckkb.records import Record
from duckkb.settings import VectorSettings, VectorStorage

WAYS: dict[str, tuple[str, VectorStorage]] = {
    "float32, all compared": ("exact", "float32"),
    "float16, all compared": ("exact", "float16"),
    "int8, all compared": ("exact", "int8"),
    "float32, graph": ("hnsw", "float32"),
    "int8, graph": ("hnsw", "int8"),
}
FILTERS = {"no filter": 1.0, "filter 50 %": 0.5, "filter 10 %": 0.1, "filter 1 %": 0.01}
DEPTH = 10
_REST = 0.05  # seconds in which the threads of the way before stop to wait for more


class Made:
    """Implements `ports.Rows`: a record for each row of a matrix, made when it is asked for."""

    def __init__(self, unit: np.ndarray, version: RowVersion) -> None:
        self._unit = unit
        self.version = version

    def __len__(self) -> int:
        return len(self._unit)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, len(self) + 1))

    def __contains__(self, record_id: object) -> bool:
        return isinstance(record_id, int) and 0 < record_id <= len(self)

    def __getitem__(self, record_id: int) -> Row:
        entry = IndexEntry("body", 0, "", None, b"k", self._unit[record_id - 1])
        return Row(self.record(record_id), (entry,))

    def record(self, record_id: int) -> Record:
        return Record("Text", record_id, (f"t{record_id:09d}",), {}, "", "")

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        return ()

    def records(self) -> Iterator[Record]:
        return map(self.record, self)

    def batches(self, lane: str | None = None) -> Iterator[Sequence[Row]]:
        for start in range(1, len(self) + 1, 4096):
            yield [self[number] for number in range(start, min(start + 4096, len(self) + 1))]

    def some(self, ids: Iterable[int], lane: str | None = None) -> list[Row]:
        return [self[record_id] for record_id in ids if record_id in self]


def clustered(rows: int, dimension: int) -> np.ndarray:
    """Unit vectors around one centre for each hundred, the same for the same sizes."""
    draw = np.random.default_rng(rows)
    centres = draw.standard_normal((max(rows // 100, 1), dimension), dtype=np.float32)
    found = draw.standard_normal((rows, dimension), dtype=np.float32)
    for start in range(0, rows, 65_536):
        part = found[start : start + 65_536]
        part += centres[draw.integers(0, len(centres), len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return found


def questions(unit: np.ndarray, count: int) -> np.ndarray:
    draw = np.random.default_rng(7)
    steps = draw.standard_normal((count, unit.shape[1]))
    steps *= 0.5 / np.linalg.norm(steps, axis=1, keepdims=True)
    return (unit[draw.permutation(len(unit))[:count]] + steps).astype(np.float32)


def opened(folder: Path, unit: np.ndarray, way: str) -> tuple[CosineLane, dict[str, Any]]:
    """The lane of one way, made and opened again, and what that took."""
    ann, storage = WAYS[way]
    rows = Made(unit, RowVersion("bench", 0, lambda _: frozenset(), folder / way))
    settings = VectorSettings(ann, storage)
    start = time.perf_counter()
    CosineLane(rows, VectorSettings("exact", storage)).complete()
    matrix = time.perf_counter() - start
    CosineLane(rows, settings).complete()
    whole = time.perf_counter() - start
    lane = CosineLane(rows, settings)
    size = sum(path.stat().st_size for path in (folder / way).rglob("*") if path.is_file())
    told = lane.account() or {"recall": None}
    return lane, {"made_s": matrix, "graph_s": whole - matrix, "bytes": size, "told": told["recall"]}


def measure(
    lanes: dict[str, CosineLane], asked: np.ndarray, allowed: "frozenset[int] | None"
) -> dict[str, dict[str, float]]:
    """Median seconds and recall of each way over all questions."""
    times: dict[str, list[float]] = {way: [] for way in lanes}
    found: dict[str, list[set[int]]] = {way: [] for way in lanes}
    for lane in lanes.values():  # what questions look at is in memory from here on
        for query in asked:
            lane.ask(query, DEPTH, allowed)
    for query in asked:
        for way, lane in lanes.items():
            time.sleep(_REST)
            start = time.perf_counter()
            hits = lane.ask(query, DEPTH, allowed)
            times[way].append(time.perf_counter() - start)
            assert len(hits) == DEPTH
            found[way].append({hit.id for hit in hits})
    right = found[next(iter(WAYS))]
    return {
        way: {
            "seconds": statistics.median(times[way]),
            "recall": sum(len(one & other) for one, other in zip(found[way], right, strict=True))
            / (DEPTH * len(right)),
        }
        for way in lanes
    }


def table(result: dict[str, Any]) -> str:
    """Ratios to the first way, as Markdown."""
    first = result["ways"][next(iter(WAYS))]
    heads = ["way", "bytes", "made", *(f"{name}: time, recall" for name in FILTERS)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for way, one in result["ways"].items():
        made = (one["made_s"] + one["graph_s"]) / first["made_s"]
        cells = [way, f"{one['bytes'] / first['bytes']:.2f}", f"{made:.1f}"]
        for name in FILTERS:
            ratio = one[name]["seconds"] / first[name]["seconds"]
            cells.append(f"{ratio:.2f} ({1000 * one[name]['seconds']:.1f} ms), {one[name]['recall']:.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    unit = clustered(chosen.rows, chosen.dimension)
    asked = questions(unit, chosen.queries)
    result: dict[str, Any] = {"rows": chosen.rows, "dimension": chosen.dimension, "ways": {}}
    with tempfile.TemporaryDirectory() as folder:
        lanes: dict[str, CosineLane] = {}
        for way in WAYS:
            lanes[way], result["ways"][way] = opened(Path(folder), unit, way)
        for name, share in FILTERS.items():
            draw = np.random.default_rng(3).permutation(chosen.rows)[: int(share * chosen.rows)]
            allowed = None if share == 1.0 else frozenset((draw + 1).tolist())
            for way, found in measure(lanes, asked, allowed).items():
                result["ways"][way][name] = found
    print(table(result))
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
