"""What `ask` refuses before it asks a model, and what it does not: judged questions over the repository's own base, and over halves of
the sets of DUCKKB_EVAL_DATA.

usage: python bench/ask.py [SET ...] [--questions N] [--keep FOLDER] [--all]
       python bench/ask.py --answers BASE_URL [--model NAME] [--budget TOKENS] [--questions N]

Of a set every second text is in the base. Its questions are `answerable` where all of their answers are in it, `near` where none is (the
other half has them), and `far` are questions of another set in the same language. No model is asked. Printed is how many of each
kind go on to the model; --all prints each question with its support.

With --answers a chat model at that address answers the questions over the repository's own base (its key from BENCH_KEY, if it needs
one): printed is how many got an answer, how many of its sentences the checks marked, and how many citations are of a record that holds
the answer.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

import yaml
from quality import CONFIG, Collection, read

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.llm import chat_model, read_registry
from duckkb.operations.ask import Declined, convert_answer_to_object, gather_evidence
from duckkb.operations.lifecycle import OpenOptions
from duckkb.review.history import parse

ROOT = Path(__file__).resolve().parent.parent
FAR = {
    "xquad_en": "scifact",
    "scifact": "xquad_en",
    "xquad_zh": "dureader_demo",
    "dureader_demo": "cmrc2018",
    "cmrc2018": "dureader_demo",
    "xquad_en2zh": "scifact",
    "xquad_zh2en": "dureader_demo",
}
KINDS = ("answerable", "near", "far")
Judged = tuple[str, str]
"""A kind and a question."""


def own() -> Iterator[Judged]:
    said = yaml.safe_load((ROOT / "tests/quality/ask_questions.yaml").read_text("utf-8"))
    yield from (("answerable", one["question"]) for one in said["answerable"])
    yield from ((one["kind"], one["question"]) for one in said["unanswerable"])


def is_in(text: str) -> bool:
    """Whether the base has a text of a set."""
    return crc32(text.encode()) % 2 == 0


def halved(collection: Collection, other: Collection, most: int) -> Iterator[Judged]:
    chance, found = random.Random(1), {kind: list[str]() for kind in KINDS}
    for query, grades in collection.grades.items():
        there = {is_in(text) for text in grades}
        if len(there) == 1:
            found["answerable" if there == {True} else "near"].append(collection.questions[query])
    found["far"] = list(other.questions.values())
    for kind, questions in found.items():
        yield from ((kind, one) for one in chance.sample(sorted(questions), min(most, len(questions))))


def measure(name: str, home: Path, asked: Iterable[Judged], *, shows_all: bool) -> str:
    count, passed = Counter[str](), Counter[str]()
    with duckkb.open(home) as kb, kb._now() as base:
        for kind, question in asked:
            found = gather_evidence(base, question)
            count[kind] += 1
            passed[kind] += not isinstance(found, Declined)
            if shows_all:
                print(kind, not isinstance(found, Declined), found.support, question, sep="\t")
    return f"| {name} | " + " | ".join(f"{passed[kind]} of {count[kind]}" for kind in KINDS) + " |"


def prepared(collection: Collection, home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(CONFIG.format(model="multilingual-e5-small", fold="none"), "utf-8")
    with duckkb.open(home) as kb:
        kb.put("Text", [one for one in collection.records if is_in(one["id"])])
    return home


def answered(url: str, name: str, budget: int, most: int, *, shows_all: bool) -> Iterator[str]:
    """A row a kind of questions."""
    provider = {"base_url": url, "model": name, "timeout_s": 3_600}
    if "BENCH_KEY" in os.environ:
        provider["api_key_env"] = "BENCH_KEY"
    model = chat_model(read_registry({"bench": {"providers": [provider]}})["bench"], os.environ.get)
    sets = yaml.safe_load((ROOT / "tests/quality/ask_questions.yaml").read_text("utf-8"))
    yield "| questions | refused before | no answer | answered | cut | sentences | marked | citations | of a right record |\n|---|---|---|---|---|---|---|---|---|"
    with KnowledgeBase(ROOT, OpenOptions(chat=model)) as kb:
        for kind in ("answerable", "unanswerable"):
            found, questions = Counter[str](), sets[kind][:most]
            for one in questions:
                outcome = kb.ask(one["question"], budget=budget)
                if shows_all:
                    print(convert_answer_to_object(outcome), flush=True)
                if isinstance(outcome, Declined):
                    found["no answer" if outcome.model else "refused before"] += 1
                    continue
                cited = [parse(entry.uri).identity for entry in outcome.cited]
                found += Counter(
                    {"answered": 1, "cut": bool(outcome.cut), "sentences": len(outcome.sentences), "marked": len(outcome.unsupported),
                     "citations": len(cited), "right": sum(identity in one.get("records", ()) for identity in cited)}
                )  # fmt: skip
            columns = ("refused before", "no answer", "answered", "cut", "sentences", "marked", "citations", "right")
            yield f"| {len(questions)} {kind} | " + " | ".join(str(found[name]) for name in columns) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--questions", type=int, default=80)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--answers", metavar="BASE_URL")
    parser.add_argument("--model", default="default")
    parser.add_argument("--budget", type=int, default=4_000)
    chosen = parser.parse_args()
    if chosen.answers:
        for row in answered(chosen.answers, chosen.model, chosen.budget, chosen.questions, shows_all=chosen.all):
            print(row, flush=True)
        return 0
    print("| base | answerable: asked | near: asked | far: asked |\n|---|---|---|---|")
    print(measure("own", ROOT, own(), shows_all=chosen.all), flush=True)
    data = os.environ.get("DUCKKB_EVAL_DATA")
    if not data:
        print("sets skipped: DUCKKB_EVAL_DATA is unset; it names the folder with retrieval/", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="duckkb-ask-") as scratch:
        for name in chosen.sets or FAR:
            collection, other = (read(Path(data) / "retrieval" / one) for one in (name, FAR[name]))
            home = prepared(collection, (chosen.keep or Path(scratch)) / name)
            asked = halved(collection, other, chosen.questions)
            print(measure(name, home, asked, shows_all=chosen.all), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
