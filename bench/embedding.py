"""Throughput of an index job against the same model called bare, in the batch size that suits it best.

usage: python bench/embedding.py [--texts N] [--repeats N] [--batches 1,2,4,8,16,64] [--mode q4|int8] [--out FILE]

The bare model is given texts sorted by length, in batches of each size; the job is `index_refresh` on a base that holds
the same texts, without a cache. All of them run in turn, round by round, so that the ratio holds on a noisy machine; the
figure is the job's median over the best bare median, by the clock and by the processors' time, which others on the
machine disturb less. Texts are English and Chinese, Zipf-distributed, most of them as long as chunks are.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckkb
from duckkb import app, config
from duckkb.llm.providers.offline_model import LocalE5

CONFIG = """\
global:
  embedding: {{mode: {mode}}}
nodes:
  Text:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""


JOB = "index refresh"
MEASURES = ("on the clock", "of a processor")
Cost = tuple[float, float]


def corpus(count: int) -> list[str]:
    """Texts of 20 to 800 characters, every fourth one Chinese; the same for the same number."""
    rng = random.Random(count)
    latin = ["".join(rng.choices("etaoinshrdlucmfwypvbgkqjxz", k=rng.randint(2, 9))) for _ in range(5_000)]
    han = ["".join(chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(rng.randint(1, 3))) for _ in range(3_000)]
    texts = []
    for number in range(count):
        words, gap = (han, "") if number % 4 == 3 else (latin, " ")
        size = min(800, max(20, int(rng.gauss(550, 250))))
        weights = [1 / rank for rank in range(1, len(words) + 1)]
        texts.append(gap.join(rng.choices(words, weights, k=size // 3))[:size])
    return texts


def timed(run: Callable[[], object]) -> Cost:
    """Seconds that a call takes, on the clock and of all processors."""
    clock, busy = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - busy


def bare(texts: list[str], mode: str, batch: int) -> Callable[[], Cost]:
    """The model, loaded, given the texts in batches of this size."""
    model = LocalE5(config.environment().cache_home, "int8" if mode == "int8" else "q4", batch=batch)
    model.embed_passages(["warm"])
    ordered = sorted(texts, key=len)
    slices = [ordered[at : at + batch] for at in range(0, len(ordered), batch)]
    return lambda: timed(lambda: [model.embed_passages(one) for one in slices])


def job(texts: list[str], mode: str, folder: Path) -> Callable[[], Cost]:
    """`index refresh` in this process on a base that holds the texts; the model is loaded, the cache is gone."""
    root = folder / "kb"
    duckkb.init(root)
    (root / "config.yaml").write_text(CONFIG.format(mode=mode), "utf-8")
    with duckkb.open(root) as kb:
        kb.put("Text", [{"id": f"t{at}", "text": text} for at, text in enumerate(texts)], embed=False)

    def run() -> Cost:
        app.repair(root, everything=True)
        with duckkb.open(root) as kb:
            kb.embed("warm")
            taken = timed(kb.index_refresh)
            status = kb.index_status()
            assert (status["missing"], status["job"]["done"]) == (0, len(set(texts))), status
            return taken

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", default="1,2,4,8,16,64")
    parser.add_argument("--mode", choices=("q4", "int8"), default="q4")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    texts = corpus(args.texts)
    with tempfile.TemporaryDirectory() as folder:
        runs = {f"bare, {batch}": bare(texts, args.mode, batch) for batch in map(int, args.batches.split(","))}
        runs[JOB] = job(texts, args.mode, Path(folder))
        taken: dict[str, list[Cost]] = {name: [] for name in runs}
        for _ in range(args.repeats):
            for name, run in runs.items():
                taken[name].append(run())
    told = {measure: report(measure, at, taken, len(texts)) for at, measure in enumerate(MEASURES)}
    if args.out:
        args.out.write_text(json.dumps({"mode": args.mode, "texts": len(texts)} | told))


def report(measure: str, at: int, taken: dict[str, list[Cost]], texts: int) -> dict[str, object]:
    """Texts a second by one measure, and the job's ratio to the best bare batch size; printed, and returned."""
    rates = {name: texts / statistics.median(cost[at] for cost in costs) for name, costs in taken.items()}
    best = max((name for name in rates if name != JOB), key=lambda name: rates[name])
    for name, rate in rates.items():
        print(f"{name:<16} {rate:7.1f} texts per second {measure}  {rate / rates[best]:5.2f}")
    ratio = rates[JOB] / rates[best]
    print(f"{JOB} / {best}: {ratio:.3f}\n")
    return {"rates": rates, "best": best, "ratio": ratio}


if __name__ == "__main__":
    main()
