"""How often the checks of `ask` mark what is so, and miss what is not: sentences of the repository's own records as answers, as they stand
and made wrong in one way each.

usage: python bench/checks.py [--sentences N] [--show FAULT]

Each sentence cites its own record, quoted as a pack quotes it. A false one has another number, another unit, a denial more or less, a
name of nobody, is a quotation with a word left out, or cites another record. No model is asked.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import duckkb
from duckkb.operations.context_pack import whole_text
from duckkb.operations.grounding import check_sentences, sentences

ROOT = Path(__file__).resolve().parent.parent
Change = Callable[[str], str]


def _number(said: str) -> str:
    changed = re.sub(r"\d+", lambda found: str(int(found[0]) * 7 + 13), said, count=1)
    return changed if changed != said else re.sub("[三四五六七八九](?=[十百个次条种])", "八十", said, count=1)


def _unit(said: str) -> str:
    return re.sub(r"(?<=\d) ?(ms|s|MB|GB|minutes?|hours?|days?|秒|分钟|天)\b", " weeks", said, count=1)


def _denial(said: str) -> str:
    for found, instead in (
        (r"\b(is|are|was|were|can|may|must) not\b", r"\1"),
        (r"\b(is|are|was|were|can|may|must)\b", r"\1 not"),
    ):
        if re.search(found, said):
            return re.sub(found, instead, said, count=1)
    return (
        re.sub("不(?=[会能是再受])", "", said, count=1)
        if re.search("不[会能是再受]", said)
        else re.sub("(?=[会能])", "不", said, count=1)
    )


def _quotation(said: str) -> str:
    words = said.rstrip(".").split(" ")
    return f"It says “{' '.join(words[:2] + words[3:])}”." if len(words) > 5 else said


CHANGES: dict[str, Change] = {
    "as it stands": lambda said: said,
    "another number": _number,
    "another unit": _unit,
    "a denial": _denial,
    "a name": lambda said: re.sub(r"(?<=[a-z] )[a-z]{4,}\b", "Zarathustra", said, count=1),
    "a near quotation": _quotation,
}
ELSEWHERE = "another record"


def texts(kb: duckkb.KnowledgeBase) -> Iterator[tuple[str, str]]:
    """A sentence, and the record that has it, as a pack quotes it."""
    with kb._now() as base:
        for kind in base.ontology.nodes.values():
            for row in base.tree.rows(kind) if kind.full_text else ():
                source = whole_text(kind, row.record.fields)
                values = (value for value in row.record.fields.values() if isinstance(value, str) and len(value) > 40)
                for one in (one for value in values for one in sentences(value)):
                    if one.form == "claim" and 20 < len(one.text) < 300 and not one.cites:
                        yield one.text, source


def cited(said: str) -> str:
    end = said[-1] if said[-1] in ".!。！" else "."
    return f"{said.rstrip('.!。！')} [1]{end}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1_000)
    parser.add_argument("--show")
    chosen, chance = parser.parse_args(), random.Random(1)
    with duckkb.open(ROOT) as kb:
        found = list(texts(kb))
    some = chance.sample(found, min(chosen.sentences, len(found)))
    tried, marked, by = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    for said, source in some:
        other = chance.choice(found)[1]
        for name, change in (*CHANGES.items(), (ELSEWHERE, lambda said: said)):
            answer = change(said)
            if name not in ("as it stands", ELSEWHERE) and answer == said:
                continue
            held = check_sentences(cited(answer), {1: other if name == ELSEWHERE else source})
            faults = [mark.fault for one in held for mark in one.marks]
            tried[name] += 1
            marked[name] += bool(faults)
            by.setdefault(name, Counter()).update(set(faults))
            if name == chosen.show and bool(faults) == (name == "as it stands"):
                print([str(mark) for one in held for mark in one.marks], answer, sep="\t")
    print("| made | marked | by |\n|---|---|---|")
    for name, count in tried.items():
        print(
            f"| {name} | {marked[name]} of {count} | {', '.join(f'{one} {n}' for one, n in by[name].most_common())} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
