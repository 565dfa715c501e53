"""Vectors without and with the copy in 8 bits, and by graph, beside a product in numpy: time, recall, size.

usage: python bench/ann.py [--rows 100000] [--dimension 384] [--queries 50] [--vectors FILE] [--only "WAY;..."] [--out FILE]

Vectors lie around centres, 100 to each; questions are stored vectors moved by 27 degrees. `--vectors` takes those of a model
instead: an .npy file of float32 rows, as `bench/sentences.py` makes them. Ways take turns question by question, so that ratios
hold on a noisy machine; times are by the clock and of the processor. Recall is the share of the first ten that a way finds of
those by numpy in 64 bits: that of the first two ways has to be 1, or the run ends with 1. The table is Markdown; `--out` writes JSON.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duckkb.id_set import IdSet
from duckkb.index import vector_index
from duckkb.index.vector_index import CosineLane
from duckkb.ports import Row, TypeState
from duckkb.types.queries import LaneHit
from duckkb.types.records import IndexEntry, Record
from duckkb.types.settings import VectorSettings

WAYS = {"all compared": "exact", "bounds first": "exact", "graph": "hnsw"}
"""What `ann` is, by way."""
EXACT = ("all compared", "bounds first")
STANDARD = {name: getattr(vector_index, name) for name in ("_BOUNDED_FROM", "_PICKED_FROM")}
"""From how many records on the lane looks at bounds, which the first way never does."""
SCAN = "numpy, the product alone"
FILTERS = {"no filter": 1.0, "filter 50 %": 0.5, "filter 10 %": 0.1, "filter 1 %": 0.01}
DEPTH = 10
_REST = 0.05  # seconds in which the threads of the way before stop to wait for more


class Made:
    """Implements `ports.Rows`: a record for each row of a matrix, made when it is asked for."""

    def __init__(self, unit: np.ndarray, state: TypeState) -> None:
        self._unit = unit
        self.state = state

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

    def identity(self, record_id: int) -> tuple[str]:
        return (f"t{record_id:09d}",)

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
    rows = Made(unit, TypeState("bench", {"": "bench"}, lambda _: (), folder / way))
    start = time.perf_counter()
    CosineLane(rows, VectorSettings("exact")).complete()
    matrix = time.perf_counter() - start
    CosineLane(rows, VectorSettings(WAYS[way])).complete()
    whole = time.perf_counter() - start
    lane = CosineLane(rows, VectorSettings(WAYS[way]))
    size = sum(path.stat().st_size for path in (folder / way).rglob("*") if path.is_file())
    return lane, {"made_s": matrix, "graph_s": whole - matrix, "bytes": size}


def ask(way: str, lane: CosineLane, query: np.ndarray, chosen: IdSet | None) -> list[LaneHit]:
    for name, limit in STANDARD.items():
        setattr(vector_index, name, sys.maxsize if way == EXACT[0] else limit)
    return lane.ask(query, DEPTH, chosen)


def nearest(unit: np.ndarray, query: np.ndarray, allowed: "frozenset[int] | None") -> set[int]:
    """The ids of the first by cosines in 64 bits that are rounded to six decimals, equal ones in their order."""
    ids = np.arange(len(unit)) if allowed is None else np.sort(np.fromiter(allowed, np.int64)) - 1
    scores = np.empty(len(ids))
    for start in range(0, len(ids), 65_536):
        part = unit[ids[start : start + 65_536]].astype(np.float64)
        scores[start : start + len(part)] = np.einsum("ij,j->i", part, query / np.linalg.norm(query))
        scores[start : start + len(part)] /= np.linalg.norm(part, axis=1)
    return set((ids[np.lexsort((ids, -scores.round(6)))[:DEPTH]] + 1).tolist())


def measure(
    lanes: dict[str, CosineLane], unit: np.ndarray, asked: np.ndarray, allowed: "frozenset[int] | None"
) -> dict[str, dict[str, float]]:
    """Median seconds, by the clock and of the processor, and recall of each way over all questions."""
    chosen = None if allowed is None else IdSet.from_ids(allowed)
    steps: dict[str, Callable[[np.ndarray], list[LaneHit]]] = {
        way: lambda query, way=way, lane=lane: ask(way, lane, query, chosen) for way, lane in lanes.items()
    }
    steps[SCAN] = lambda query: [LaneHit(int((unit @ query).argmax()) + 1, 1.0)]
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in steps}
    found: dict[str, list[set[int]]] = {way: [] for way in steps}
    for step in steps.values():  # what questions look at is in memory from here on
        for query in asked:
            step(query)
    for query in asked:
        for way, step in steps.items():
            time.sleep(_REST)
            start, busy = time.perf_counter(), time.process_time()
            hits = step(query)
            times[way].append((time.perf_counter() - start, time.process_time() - busy))
            found[way].append({hit.id for hit in hits})
    right = [nearest(unit, query, allowed) for query in asked.astype(np.float64)]
    return {
        way: {
            "seconds": statistics.median(clock for clock, _ in times[way]),
            "busy": statistics.median(busy for _, busy in times[way]),
            "recall": sum(len(one & other) for one, other in zip(found[way], right, strict=True))
            / (DEPTH * len(right)),
        }
        for way in steps
    }


def table(result: dict[str, Any]) -> str:
    """Ratios to the product of all rows in numpy (with a filter, to comparing all), as Markdown."""
    first = result["ways"][EXACT[0]]
    heads = ["way", "bytes", "made", *(f"{name}: clock, processor, recall" for name in FILTERS)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for way, one in result["ways"].items():
        cells = [
            way,
            f"{one['bytes'] / first['bytes']:.2f}",
            f"{(one['made_s'] + one['graph_s']) / first['made_s']:.1f}",
        ]
        for name in FILTERS:
            base = result["scan"][name] if FILTERS[name] == 1 else first[name]
            clock, busy = one[name]["seconds"] / base["seconds"], one[name]["busy"] / base["busy"]
            cells.append(f"{clock:.2f} ({1000 * one[name]['seconds']:.1f} ms), {busy:.2f}, {one[name]['recall']:.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--only", help="the ways to measure, beside the first")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    unit = np.load(chosen.vectors)[: chosen.rows] if chosen.vectors else clustered(chosen.rows, chosen.dimension)
    asked = questions(unit, chosen.queries)
    result: dict[str, Any] = {"rows": len(unit), "dimension": unit.shape[1], "ways": {}, "scan": {}}
    with tempfile.TemporaryDirectory() as folder:
        lanes: dict[str, CosineLane] = {}
        for way in WAYS if chosen.only is None else (EXACT[0], *chosen.only.split(";")):
            lanes[way], result["ways"][way] = opened(Path(folder), unit, way)
        for name, share in FILTERS.items():
            draw = np.random.default_rng(3).permutation(len(unit))[: int(share * len(unit))]
            allowed = None if share == 1.0 else frozenset((draw + 1).tolist())
            for way, found in measure(lanes, unit, asked, allowed).items():
                (result["scan"] if way == SCAN else result["ways"][way])[name] = found
    print(table(result))
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    wrong = [way for way in EXACT if way in lanes for name in FILTERS if result["ways"][way][name]["recall"] < 1]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
