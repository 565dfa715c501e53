"""Throughput of an index job against the same model called bare, in the batch size that suits it best.

usage: python bench/embedding.py [--texts N] [--repeats N] [--mode q4|int8] [--out FILE]

The bare model is given texts sorted by length, in batches of 1 to 64; the job is `index_refresh` on a base that holds
the same texts, without a cache. All of them run in turn, round by round, so that the ratio holds on a noisy machine; the
figure is the job's median over the best bare median. Texts are English and Chinese, Zipf-distributed, most of them as long
as chunks are.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckkb
from duckkb import config
from duckkb.llm.providers.local import LocalE5

CONFIG = """\
global:
  embedding: {{mode: {mode}}}
nodes:
  Text:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""
BATCHES = (1, 2, 4, 8, 16, 64)


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


def bare(texts: list[str], mode: str, batch: int) -> Callable[[], object]:
    """The model, loaded, given the texts in batches of this size."""
    model = LocalE5(config.environment().cache_home, "int8" if mode == "int8" else "q4", batch=batch)
    model.embed_passages(["warm"])
    ordered = sorted(texts, key=len)
    return lambda: [model.embed_passages(ordered[at : at + batch]) for at in range(0, len(ordered), batch)]


def job(texts: list[str], mode: str, folder: Path) -> Callable[[], object]:
    """`index refresh` in this process on a base that holds the texts; the model is loaded, the cache is gone."""
    root = folder / "kb"
    duckkb.init(root)
    (root / "config.yaml").write_text(CONFIG.format(mode=mode), "utf-8")
    with duckkb.open(root) as kb:
        kb.put("Text", [{"id": f"t{at}", "text": text} for at, text in enumerate(texts)], embed=False)

    def run() -> object:
        shutil.rmtree(root / ".duckkb/cache", ignore_errors=True)
        with duckkb.open(root) as kb:
            kb.embed("warm")
            start = time.perf_counter()
            built = kb.index_refresh()
            assert built.embedded == len(set(texts)) and not built.pending, built
            return time.perf_counter() - start

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mode", choices=("q4", "int8"), default="q4")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    texts = corpus(args.texts)
    with tempfile.TemporaryDirectory() as folder:
        runs = {f"bare, {batch}": bare(texts, args.mode, batch) for batch in BATCHES}
        runs["index refresh"] = job(texts, args.mode, Path(folder))
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(args.repeats):
            for name, run in runs.items():
                start = time.perf_counter()
                told = run()
                taken[name].append(told if isinstance(told, float) else time.perf_counter() - start)
    rates = {name: len(texts) / statistics.median(seconds) for name, seconds in taken.items()}
    best = max((name for name in rates if name.startswith("bare")), key=lambda name: rates[name])
    ratio = rates["index refresh"] / rates[best]
    for name, rate in rates.items():
        print(f"{name:<16} {rate:7.1f} texts/s  {rate / rates[best]:5.2f}")
    print(f"index refresh / {best}: {ratio:.3f}")
    if args.out:
        args.out.write_text(json.dumps({"mode": args.mode, "texts": len(texts), "rates": rates, "ratio": ratio}))


if __name__ == "__main__":
    main()
