"""Search quality: nDCG@10 of the lexical lane, the vector lane, RRF, minmax and minmax as `init` writes it (weight .5, with a
gate), side by side, through the public API.

usage: python bench/quality.py [SET ...] [--modes match,similar,feedback,rrf,minmax,minmax.5,gate,feedback+rrf] [--queries N] [--keep FOLDER] [--out FILE]
       [--fold none|simplified] [--forms written|all] [--questions given|repeated|quoted|flags]

The sets are the folders of DUCKKB_EVAL_DATA/retrieval, each with corpus.jsonl ({"_id","title","text"}), queries.jsonl
({"_id","text"}) and qrels.tsv. A record has one text field: title, line feed, text. Everything else is default. --keep
keeps the knowledge bases, so that a second run embeds nothing; --queries takes the first N judged questions. --questions takes
those that say a word of four letters or more twice, or asks all as people also write them: with two words in the middle in
quotes, or with the last word as a command-line flag.
"""

import argparse
import csv
import json
import math
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckkb

MODES = ("match", "similar", "feedback", "rrf", "minmax", "minmax.5", "gate", "feedback+rrf")
CONFIG = """\
global:
  embedding_model: {model}
  fold_chinese: {fold}
  word_forms: {forms}
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


def measure(collection: Collection, home: Path, chosen: argparse.Namespace) -> dict[str, float]:
    """Mean nDCG@10 by mode; a question without an answer counts 0."""
    modes = chosen.modes.split(",")
    _prepare(collection, home, chosen, with_model=set(modes) != {"match"})
    found: dict[str, float] = {}
    with duckkb.open(home, progress=_progress) as kb:
        asked = [one for one in collection.questions.items() if chosen.questions != "repeated" or repeats(one[1])]
        asked = asked[: chosen.queries]
        for mode in modes:
            start = time.monotonic()
            scores = [
                ndcg(_ranked(kb, mode, written(text, chosen.questions)), collection.grades[query])
                for query, text in asked
            ]
            found[mode] = sum(scores) / max(len(scores), 1)
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
            fusion = duckkb.Fusion(
                "minmax", weight=0.7 if mode == "minmax" else 0.5, gate=0.2 if mode == "gate" else 0.0
            )
            hits = kb.find("Text", text, mode="hybrid", limit=10, fusion=fusion)
    assert not hits.degraded, hits.notices
    return [hit.identity for hit in hits]


def repeats(text: str) -> bool:
    """Whether a question says a word of four letters or more twice."""
    words = [word for word in re.findall(r"\w+", text.lower()) if len(word) > 3]
    return len(set(words)) < len(words)


def written(text: str, how: str) -> str:
    """A question as people also write it; one without spaces is taken in thirds.

    >>> [written("which old files are removed", how) for how in ("quoted", "flags")]
    ['which "old files" are removed', 'which old files are -removed']
    """
    if how in ("given", "repeated"):
        return text
    space, words = (" ", text.split()) if " " in text.strip() else ("", _thirds(text))
    middle = (len(words) - 1) // 2
    if how == "flags":
        return " ".join([space.join(words[:-1]), f"-{words[-1]}"])
    first, last = (middle - 1, middle + 1) if space and middle else (middle, middle + 1)
    return " ".join([space.join(words[:first]), f'"{space.join(words[first:last])}"', space.join(words[last:])]).strip()


def _thirds(text: str) -> list[str]:
    third = max(1, len(text) // 3)
    return [text[:third], text[third : 2 * third], text[2 * third :]]


def _prepare(collection: Collection, home: Path, chosen: argparse.Namespace, *, with_model: bool) -> None:
    home.mkdir(parents=True, exist_ok=True)
    model = "multilingual-e5-small" if with_model else "none"
    (home / "config.yaml").write_text(CONFIG.format(model=model, fold=chosen.fold, forms=chosen.forms), "utf-8")
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
    parser.add_argument("--fold", choices=("none", "simplified"), default="none")
    parser.add_argument("--forms", choices=("written", "all"), default="written")
    parser.add_argument("--questions", choices=("given", "repeated", "quoted", "flags"), default="given")
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
                table[folder.name] = measure(read(folder), (chosen.keep or Path(scratch)) / folder.name, chosen)
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
