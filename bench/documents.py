"""Documents: how well judged questions find files by words, by meaning and by both, and what an edit of a section embeds anew.

usage: python bench/documents.py [--trees fastapi_en,fastapi_zh] [--modes match,similar,hybrid] [--without prefix,overlap]
       [--others N] [--keep FOLDER] [--edits N] [--out FILE]

The questions are `questions_docs.jsonl` beside this file, each with the paths that answer it; the files are the Markdown trees
of DUCKKB_EVAL_DATA/docs, but for release notes, of which one file is as long as all others. Everything else is default.
--others takes so many files beside those that answer, drawn by lot. --without leaves out what stands before a chunk for the
model, or what chunks have in common. --keep keeps the bases, so that a second run embeds nothing. --edits inserts a paragraph in a section, so many times, and counts chunks.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chunks import BLANK, PARAGRAPHS, sections
from quality import ndcg

import duckkb
from duckkb.documents import document_chunks, markdown

MODES = ("match", "similar", "hybrid")
CONFIG = "global:\n  embedding_model: {model}\n"
COLLECTION = """\
collections:
  docs:
    source: {path: docs}
    policy:
      name: documents
      identity: {fields: path}
      fields: {vectors: [text], lexical: [{field: title, weight: 2.0}, headings, text], relational: auto}
      fusion: {method: minmax, weight: 0.5}
      intents: {default: hybrid}
"""


def leave_out(what: set[str]) -> None:
    """Cut and describe chunks without some of what they have."""
    if "prefix" in what:
        document_chunks._prefix = lambda *_: ""  # type: ignore[assignment]
    if "overlap" in what:
        whole = document_chunks.size_for
        document_chunks.size_for = lambda reads: document_chunks.Size(whole(reads).target, 0, whole(reads).window)


def questions(tree: str) -> list[dict[str, Any]]:
    lines = (Path(__file__).parent / "questions_docs.jsonl").read_text("utf-8").splitlines()
    return [one for one in map(json.loads, lines) if one["tree"] == tree]


def prepare(home: Path, source: Path, model: str, others: int | None = None) -> None:
    if not (home / "docs").exists():
        (home / "ontology" / "collections").mkdir(parents=True)
        asked = [path for one in questions(source.name) for path in one["paths"]]
        files = sorted(
            str(path.relative_to(source)) for path in source.rglob("*.md") if path.name != "release-notes.md"
        )
        rest = [path for path in files if path not in asked]
        random.Random(7).shuffle(rest)
        for path in dict.fromkeys([*asked, *rest[:others]]):
            (home / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / path, home / "docs" / path)
        (home / "ontology" / "collections" / "docs.yaml").write_text(COLLECTION, "utf-8")
    (home / "config.yaml").write_text(CONFIG.format(model=model), "utf-8")


def measure(home: Path, tree: str, modes: list[str]) -> dict[str, object]:
    """Mean nDCG@10 by mode, with the number of chunks."""
    asked = questions(tree)
    found: dict[str, object] = {"questions": len(asked)}
    with duckkb.open(home) as kb:
        found["chunks"] = kb.index_refresh().total
        for mode in modes:
            scores = []
            for one in asked:
                hits = kb.find("docs", one["question"], mode=mode, limit=10)
                assert not hits.degraded or mode == "match", hits.notices
                scores.append(ndcg([hit.identity for hit in hits], dict.fromkeys(one["paths"], 1.0)))
            found[mode] = round(sum(scores) / len(scores), 4)
    return found


def edits(source: Path, paragraph: str, count: int, reads: int | None) -> dict[str, object]:
    """Chunks that are new after a paragraph was put into a section: the mean, the most, and the share of at most three."""
    size, draw = document_chunks.size_for(reads), random.Random(1)

    def cut(text: str) -> list[str]:
        marks = document_chunks.markdown_marks(text, markdown.headings(text))
        return [text[one.start : one.end] for one in document_chunks.chunks(text, marks, size)]

    texts = [path.read_text("utf-8") for path in sorted(source.rglob("*.md"))]
    texts = [text for text in texts if len(cut(text)) > 2]
    found = []
    for _ in range(count):
        text = draw.choice(texts)
        first, last = draw.choice(sections(text))
        at = draw.choice([match.end() for match in BLANK.finditer(text, first, last)] or [last])
        before = set(cut(text))
        found.append(sum(one not in before for one in cut(text[:at] + paragraph + text[at:])))
    few = sum(one <= 3 for one in found) / count
    return {"files": len(texts), "mean": round(sum(found) / count, 2), "most": max(found), "three or fewer": few}


def lines(chosen: argparse.Namespace, home: Path, data: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for tree in chosen.trees.split(","):
        if chosen.edits:
            for reads in (None, 512):
                yield f"{tree}, reads {reads}", edits(data / tree, PARAGRAPHS[tree], chosen.edits, reads)
            continue
        modes = chosen.modes.split(",")
        own = home / re.sub(r"\W+", "-", f"{tree} {chosen.without}")
        prepare(own, data / tree, "none" if modes == ["match"] else "multilingual-e5-small", chosen.others)
        yield tree, measure(own, tree, modes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", default=",".join(PARAGRAPHS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--without", default="")
    parser.add_argument("--others", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--edits", type=int, default=0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    data = os.environ.get("DUCKKB_EVAL_DATA")
    if not data:
        print("skipped: DUCKKB_EVAL_DATA is unset; it names the folder with docs/", file=sys.stderr)
        return 0
    leave_out(set(filter(None, chosen.without.split(","))))
    table = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, line in lines(chosen, chosen.keep or Path(scratch), Path(data) / "docs"):
            table[name] = line
            print(f"{name}: " + ", ".join(f"{what} {value}" for what, value in line.items()), flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
