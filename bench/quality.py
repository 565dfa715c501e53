"""Search quality: nDCG@10 of the lexical lane, the vector lane, RRF and minmax, side by side, through the public API.

usage: python bench/quality.py [SET ...] [--modes match,similar,feedback,rrf,minmax,feedback+rrf] [--queries N] [--keep FOLDER] [--out FILE]

The sets are the folders of DUCKKB_EVAL_DATA/retrieval, each with corpus.jsonl ({"_id","title","text"}), queries.jsonl
({"_id","text"}) and qrels.tsv. A record has one text field: title, line feed, text. Everything else is default. --keep
keeps the knowledge bases, so that a second run embeds nothing; --queries takes the first N judged questions.
"""

import argparse
import csv
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckkb

MODES = ("match", "similar", "feedback", "rrf", "minmax", "feedback+rrf")
CONFIG = """\
global:
  embedding_model: {model}
nodes:
  Text:
    table: text
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}, required: [id, text]}}
    search: {{full_text: [text], vectors: [text]}}
"""
Grades = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Collection:
    """Judged questions over texts; grades by question and text."""

    name: str
    records: Sequence[Mapping[str, str]]
    questions: Mapping[str, str]
    grades: Grades


def read(folder: Path) -> Collection:
    grades: dict[str, dict[str, float]] = defaultdict(dict)
    with (folder / "qrels.tsv").open(encoding="utf-8", newline="") as file:
        for query, text, grade in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
            if float(grade) > 0:
                grades[query][text] = float(grade)
    questions = {line["_id"]: line["text"] for line in _lines(folder / "queries.jsonl") if line["_id"] in grades}
    records = [{"id": line["_id"], "text": _whole(line)} for line in _lines(folder / "corpus.jsonl")]
    return Collection(folder.name, records, questions, grades)


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _whole(line: Mapping[str, str]) -> str:
    return f"{line['title']}\n{line['text']}" if line.get("title") else line["text"]


def ndcg(ranked: Sequence[str], gains: Mapping[str, float], depth: int = 10) -> float:
    """Normalised discounted cumulative gain with linear gains (Jarvelin and Kekalainen, 2002)."""
    got = sum(gains.get(text, 0.0) / math.log2(place + 2) for place, text in enumerate(ranked[:depth]))
    best = sum(gain / math.log2(place + 2) for place, gain in enumerate(sorted(gains.values(), reverse=True)[:depth]))
    return got / best


def measure(collection: Collection, home: Path, modes: Sequence[str], most: int | None) -> dict[str, float]:
    """Mean nDCG@10 by mode; a question without an answer counts 0."""
    _prepare(collection, home, with_model=set(modes) != {"match"})
    found: dict[str, float] = {}
    with duckkb.open(home, progress=_progress) as kb:
        asked = list(collection.questions.items())[:most]
        for mode in modes:
            start = time.monotonic()
            scores = [ndcg(_ranked(kb, mode, text), collection.grades[query]) for query, text in asked]
            found[mode] = sum(scores) / len(scores)
            _say(f"  {mode:12} {found[mode]:.4f}  {len(asked)} questions, {time.monotonic() - start:.1f} s")
    return found


def _ranked(kb: duckkb.KnowledgeBase, mode: str, text: str) -> list[str]:
    match mode:
        case "match" | "similar":
            hits = kb.find("Text", text, mode=mode, limit=10)
        case "feedback":
            hits = kb.find("Text", text, mode="similar", limit=10, expansion=duckkb.Expansion("feedback"))
        case "rrf":
            hits = kb.find("Text", text, mode="hybrid", limit=10, fusion=duckkb.Fusion("rrf"))
        case "feedback+rrf":
            hits = kb.find("Text", text, mode="hybrid", limit=10, expansion=duckkb.Expansion("feedback"))
        case _:
            hits = kb.find("Text", text, mode="hybrid", limit=10, fusion=duckkb.Fusion("minmax", weight=0.7))
    assert not hits.degraded, hits.notices
    return [hit.identity for hit in hits]


def _prepare(collection: Collection, home: Path, *, with_model: bool) -> None:
    home.mkdir(parents=True, exist_ok=True)
    model = "multilingual-e5-small" if with_model else "none"
    (home / "config.yaml").write_text(CONFIG.format(model=model), "utf-8")
    with duckkb.open(home, progress=_progress) as kb:
        kb.put("Text", collection.records)


def _progress(label: str, done: int, total: int) -> None:
    if done == total or done % 512 < 16:
        _say(f"  {label} {done}/{total}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--queries", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    data = os.environ.get("DUCKKB_EVAL_DATA")
    if not data:
        _say("skipped: DUCKKB_EVAL_DATA is unset; it names the folder with retrieval/")
        return 0
    folders = sorted(path for path in (Path(data) / "retrieval").iterdir() if path.is_dir())
    modes = chosen.modes.split(",")
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="duckkb-quality-") as scratch:
        for folder in folders:
            if not chosen.sets or folder.name in chosen.sets:
                _say(folder.name)
                table[folder.name] = measure(
                    read(folder), (chosen.keep or Path(scratch)) / folder.name, modes, chosen.queries
                )
                _write(table, modes, chosen.out)
    return 0


def _write(table: Mapping[str, Mapping[str, float]], modes: Sequence[str], out: Path | None) -> None:
    rows = [f"| set | {' | '.join(modes)} |", "|---" * (len(modes) + 1) + "|"]
    rows += [f"| {name} | {' | '.join(f'{found[mode]:.4f}' for mode in modes)} |" for name, found in table.items()]
    print("\n".join(rows), flush=True)
    if out:
        out.write_text(json.dumps(table, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
