"""What a folder of many files costs: its first `update` beside reading and tokenising it, and one changed file beside a `put`.

usage: python bench/folder.py [--files 10000] [--bytes 2000] [--rounds N] [--out FILE]

The files are Markdown with headings, paragraphs and links, drawn by lot. Whole processes in turns, nothing is embedded, each
first update with a cache folder of its own. `floor` is one process that imports what tokenises, reads each file and tokenises
its text, and does nothing else. A `put` is one record into a type with as many records of the same texts. Figures are medians;
ratios are of one run.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckkb

CONFIG = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}, required: [id]}
    search: {full_text: [text]}
"""
FLOOR = """
import sys
from pathlib import Path
from duckkb.index.tokens import JiebaTokenizer
paths = sorted(Path(sys.argv[1]).rglob("*.md"))
texts = [path.read_bytes().decode() for path in paths]
found = JiebaTokenizer("english").tokenize(texts)
print(sum(len(one.words) for one in found))
"""
STEPS = (
    "floor",
    "first update",
    "update, nothing changed",
    "update, one file changed",
    "search, one file changed",
    "put",
)


def text_of(number: int, size: int, files: int) -> str:
    """A Markdown file of about so many bytes."""
    draw = random.Random(number)
    made = [f"# Page {number}\n"]
    while sum(map(len, made)) < size:
        words = " ".join(f"word{int(draw.paretovariate(0.6)) % 20_000}" for _ in range(60))
        made.append(f"\n## Section {len(made)}\n\n{words}, see [another](page{draw.randrange(files)}.md).\n")
    return "".join(made)


def make(home: Path, files: int, size: int) -> None:
    (home / "docs").mkdir(parents=True)
    (home / "config.yaml").write_text(CONFIG, "utf-8")
    for number in range(files):
        place = home / "docs" / f"part{number % 100}"
        place.mkdir(exist_ok=True)
        (place / f"page{number}.md").write_text(text_of(number, size, files), "utf-8")
    with duckkb.open(home) as kb:
        kb.documents.add(home / "docs")


def make_records(home: Path, files: int, size: int) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG, "utf-8")
    with duckkb.open(home) as kb:
        kb.put("Note", [{"id": f"n{number}", "text": text_of(number, size, files)} for number in range(files)])


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return time.perf_counter() - begun


def rounds(place: Path, files: int, size: int, count: int) -> Iterator[dict[str, float]]:
    """Each step of each round once, in seconds."""
    ours = [sys.executable, "-m", "duckkb"]
    for number in range(count + 1):
        cache = place / f"cache{number}"
        environment = {**os.environ, "DUCKKB_CACHE_HOME": str(cache), "DUCKKB_EMBEDDING_MODEL": "none"}
        changed = place / "docs" / "docs" / f"part{number % 100}" / f"page{number}.md"
        run = {
            "floor": [sys.executable, "-c", FLOOR, str(place / "docs" / "docs")],
            "first update": [*ours, "update"],
            "update, nothing changed": [*ours, "update"],
            "update, one file changed": [*ours, "update"],
            "search, one file changed": [*ours, "search", "word17", "-n", "1"],
            "put": [*ours, "put", "Note", json.dumps({"id": "n7", "text": text_of(files + number, size, files)})],
        }
        subprocess.run(
            [*ours, "find", "Note", "word17", "-l", "1"],
            cwd=place / "records",
            env=environment,
            check=True,
            capture_output=True,
        )
        taken = {}
        for step in STEPS:
            if "one file" in step:
                changed.write_text(changed.read_text("utf-8") + f"\nAdded in round {number} before {step}.\n", "utf-8")
            taken[step] = timed(run[step], place / ("records" if step == "put" else "docs"), environment)
        shutil.rmtree(cache)
        if number:  # the first warms up what the file system holds
            yield taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make(place / "docs", asked.files, asked.bytes)
        make_records(place / "records", asked.files, asked.bytes)
        found = list(rounds(place, asked.files, asked.bytes, asked.rounds))
    median = {step: statistics.median(one[step] for one in found) for step in STEPS}
    ratios = {
        "first update / floor": median["first update"] / median["floor"],
        "update, one file changed / put": median["update, one file changed"] / median["put"],
    }
    told: dict[str, Any] = {
        "files": asked.files,
        "bytes": asked.bytes,
        "rounds": len(found),
        "seconds": median,
        "ratios": ratios,
    }
    if asked.out:
        asked.out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
