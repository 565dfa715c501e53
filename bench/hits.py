"""How many bytes a hit is on stdout: every field there is, the default form, and two fields; beside its record.

usage: python bench/hits.py [--out FILE]

A record is its line as it stands in data/. Three bases are asked: techniques of ATT&CK (from `$DUCKKB_EVAL_DATA`, where it
is set) by words, a feature store of 384 dimensions by vector, and short notes by meaning and by words.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckkb

EVERY = "+__id,__created_at,__updated_at,_scores,_chunk"
FORMS = {"every field": ("--fields", EVERY), "default": (), "id, _score": ("--fields", "id,_score")}
SUBJECTS = ("journal", "backup", "index", "merge", "review", "cache", "record", "branch")
VERBS = ("survives", "follows", "replaces", "precedes", "explains", "repeats")


def notes() -> Iterable[dict[str, Any]]:
    """Notes of one sentence, about 130 bytes of fields."""
    rng = random.Random(7)
    for number in range(200):
        one, other = rng.sample(SUBJECTS, 2)
        text = f"The {one} {rng.choice(VERBS)} the {other} where note {number} says so."
        yield {"id": f"n{number}", "content": text, "author": rng.choice(("ann", "bo")), "year": 2000 + number % 25}


def features() -> Iterable[dict[str, Any]]:
    rng = random.Random(7)
    for number in range(200):
        yield {"id": f"f{number}", "label": f"l{number % 9}", "tensor": [round(rng.gauss(0, 1), 6) for _ in range(384)]}


def techniques(data: Path) -> Iterable[dict[str, Any]]:
    lines = (data / "graph" / "attack" / "nodes_technique.jsonl").read_text("utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if not name.startswith("_")} for line in lines]


def asked(root: Path, collection: str, questions: Sequence[Sequence[str]]) -> dict[str, float]:
    """Bytes a hit by form, and those of the records behind the hits."""
    sizes: dict[str, list[int]] = {name: [] for name in (*FORMS, "record")}
    stored = {line["id"]: len(text) for text, line in _stored(root, collection)}
    for question in questions:
        for name, options in FORMS.items():
            more = [f"{options[1]},tensor"] if name == "every field" and collection == "features" else options[1:]
            command = [sys.executable, "-m", "duckkb", "find", collection, *question, *options[:1], *more]
            lines = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.splitlines()
            sizes[name] += map(len, lines)
            sizes["record"] += [stored[json.loads(line)["id"]] for line in lines] if name == "default" else []
    return {name: round(sum(found) / len(found), 1) for name, found in sizes.items()}


def _stored(root: Path, collection: str) -> Iterable[tuple[bytes, dict[str, Any]]]:
    for part in sorted((root / "data" / "nodes" / collection).rglob("*.jsonl")):
        yield from ((line, json.loads(line)) for line in part.read_bytes().splitlines())


def measure(root: Path) -> dict[str, dict[str, float]]:
    duckkb.init(root)
    vector = root / "question.json"
    vector.write_text(json.dumps([1.0] + [0.0] * 383))
    bases: dict[str, tuple[str, Iterable[dict[str, Any]], list[list[str]]]] = {
        "notes": ("knowledge-base", notes(), [[f"which {one} survives"] for one in SUBJECTS]),
        "features": ("feature-store", features(), [["--vector", str(vector)]]),
    }
    if data := os.environ.get("DUCKKB_EVAL_DATA"):
        words = ("phishing", "credential dumping", "scheduled task", "dns tunneling")
        bases["techniques"] = ("knowledge-base", techniques(Path(data)), [[one, "-m"] for one in words])
    with duckkb.open(root) as kb:
        for name, (policy, records, _) in bases.items():
            kb.collections.init(name, policy=policy)
            kb.put(name, list(records), embed=False)
    return {name: asked(root, name, questions) for name, (_, _, questions) in bases.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder) / "kb")
    print(
        f"{'bytes a hit':12}{'record':>10}{'every field':>14}{'default':>10}{'id, _score':>12}{'default / record':>19}"
    )
    for name, sizes in found.items():
        row = (sizes["record"], sizes["every field"], sizes["default"], sizes["id, _score"])
        print(f"{name:12}{row[0]:>10}{row[1]:>14}{row[2]:>10}{row[3]:>12}{row[2] / row[0]:>19.2f}")
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
