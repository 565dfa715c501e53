"""Search quality: nDCG@10 of the lexical lane, the vector lane, RRF, minmax and minmax as `init` writes it (weight .5, with a
gate), side by side, through the public API. Each mean has the 95 % interval of a bootstrap over its questions.

usage: python bench/quality.py [SET ...] [--modes match,similar,feedback,rrf,minmax,minmax.5,gate,gate.1,feedback+rrf] [--queries N] [--keep FOLDER] [--out FILE]
       [--fold none|simplified] [--forms written|all] [--questions given|joined|repeated|quoted|flags]

The sets are the folders of DUCKKB_EVAL_DATA/retrieval, each with corpus.jsonl ({"_id","title","text"}), queries.jsonl
({"_id","text"}) and qrels.tsv. A record has one text field: title, line feed, text. Everything else is default. --keep
keeps the knowledge bases, so that a second run embeds nothing; --queries takes the first N judged questions. --questions takes
those that say a word of four letters or more twice, or asks all as people also write them: with two words in the middle in
quotes, or with the last word as a command-line flag. `joined` makes long questions: each is a given question followed by one
to three others, drawn by a seed; the texts judged for any of them are its answers. --out writes means, intervals and counts.
"""

import argparse
import csv
import json
import math
import os
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckkb

MODES = ("match", "similar", "feedback", "rrf", "minmax", "minmax.5", "gate", "gate.1", "feedback+rrf")
FUSIONS = {
    "minmax": duckkb.Fusion("minmax", weight=0.7),
    "minmax.5": duckkb.Fusion("minmax", weight=0.5),
    "gate": duckkb.Fusion("minmax", weight=0.5, gate=0.2),
    "gate.1": duckkb.Fusion("minmax", weight=0.5, gate=0.1),
}
SAMPLES = 1000
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


@dataclass(frozen=True)
class Quality:
    """A mean nDCG@10 and its 95 % interval over `count` questions."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


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


def bootstrap(scores: Sequence[float], seed: int = 1) -> Quality:
    """Return the mean and its 95 % interval by the percentile bootstrap (Efron, 1979).

    >>> bootstrap([0.5, 0.5, 0.5])
    Quality(mean=0.5, low=0.5, high=0.5, count=3)
    >>> bootstrap([])
    Quality(mean=0.0, low=0.0, high=0.0, count=0)
    """
    if not scores:
        return Quality(0.0, 0.0, 0.0, 0)
    count, draw = len(scores), random.Random(seed)
    means = sorted(math.fsum(draw.choices(scores, k=count)) / count for _ in range(SAMPLES))
    low, high = means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES) - 1]
    return Quality(math.fsum(scores) / count, low, high, count)


def join_questions(collection: Collection, seed: int = 1) -> Collection:
    """Return the collection with long questions: each given one with one to three others of the same set.

    A text keeps its highest grade.

    >>> short = Collection("s", [], {"1": "red", "2": "blue"}, {"1": {"a": 1.0}, "2": {"a": 2.0, "b": 1.0}})
    >>> long = join_questions(short)
    >>> long.questions["1"], long.grades["1"]
    ('red blue', {'a': 2.0, 'b': 1.0})
    """
    draw, ids = random.Random(seed), list(collection.questions)
    questions: dict[str, str] = {}
    grades: dict[str, dict[str, float]] = {}
    for query in ids:
        others = [other for other in draw.sample(ids, min(4, len(ids))) if other != query]
        group = [query, *others[: draw.randint(1, 3)]]
        questions[query] = " ".join(collection.questions[member] for member in group)
        grades[query] = {}
        for text, grade in (pair for member in group for pair in collection.grades[member].items()):
            grades[query][text] = max(grade, grades[query].get(text, 0.0))
    return Collection(collection.name, collection.records, questions, grades)


def measure(collection: Collection, home: Path, chosen: argparse.Namespace) -> dict[str, Quality]:
    """nDCG@10 by mode; a question without an answer counts 0."""
    modes = chosen.modes.split(",")
    _prepare(collection, home, chosen, with_model=set(modes) != {"match"})
    if chosen.questions == "joined":
        collection = join_questions(collection)
    table: dict[str, Quality] = {}
    with duckkb.open(home, progress=_progress) as kb:
        asked = [one for one in collection.questions.items() if chosen.questions != "repeated" or repeats(one[1])]
        asked = asked[: chosen.queries]
        for mode in modes:
            start = time.monotonic()
            scores = [
                ndcg(_ranked(kb, mode, written(text, chosen.questions)), collection.grades[query])
                for query, text in asked
            ]
            table[mode] = bootstrap(scores)
            _say(f"  {mode:12} {table[mode]}  {len(asked)} questions, {time.monotonic() - start:.1f} s")
    return table


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
            hits = kb.find("Text", text, mode="hybrid", limit=10, fusion=FUSIONS[mode])
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
    if how in ("given", "joined", "repeated"):
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
    parser.add_argument("--questions", choices=("given", "joined", "repeated", "quoted", "flags"), default="given")
    chosen = parser.parse_args()
    data = os.environ.get("DUCKKB_EVAL_DATA")
    if not data:
        _say("skipped: DUCKKB_EVAL_DATA is unset; it names the folder with retrieval/")
        return 0
    folders = sorted(path for path in (Path(data) / "retrieval").iterdir() if path.is_dir())
    modes = chosen.modes.split(",")
    table: dict[str, dict[str, Quality]] = {}
    with tempfile.TemporaryDirectory(prefix="duckkb-quality-") as scratch:
        for folder in folders:
            if not chosen.sets or folder.name in chosen.sets:
                _say(folder.name)
                table[folder.name] = measure(read(folder), (chosen.keep or Path(scratch)) / folder.name, chosen)
                _write(table, modes, chosen.out)
    return 0


def _write(table: Mapping[str, Mapping[str, Quality]], modes: Sequence[str], out: Path | None) -> None:
    rows = [f"| set | {' | '.join(modes)} |", "|---" * (len(modes) + 1) + "|"]
    rows += [f"| {name} | {' | '.join(str(figures[mode]) for mode in modes)} |" for name, figures in table.items()]
    print("\n".join(rows), flush=True)
    if out:
        out.write_text(json.dumps(table, indent=1, default=asdict) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
