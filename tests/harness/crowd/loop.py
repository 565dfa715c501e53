"""A writer that never stops: it says what it will do, does it, and says that it is done, until somebody kills it."""

import json
import os
import random
from itertools import count
from pathlib import Path
from typing import Any

from tests.harness.crowd.model import Model, Op

_WORDS = ("fox", "内存", "journal\u2028", "tree", "\U0001f986", "line\n")


def write(root: Path | str, seed: int, prefix: str, alone: bool = True) -> None:
    """Writes of every kind to records of one prefix, in an order that the seed decides. Beside other writers it does not
    play the editor, whom no lock keeps from the others' files."""
    import duckkb

    root, rng, model = Path(root), random.Random(seed), Model()
    with duckkb.open(root, lock_timeout=600) as kb:
        for number in count():
            op = next_op(rng, model, prefix, number)
            if op["op"] == "shuffle" and not alone:
                op = {"op": "fmt"}
            _say({"will": op})
            _do(kb, op, root / f".{prefix}.jsonl")
            model.apply(op)
            _say({"done": number})


def _say(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def next_op(rng: random.Random, model: Model, prefix: str, number: int) -> Op:
    """A write that can succeed on a base that looks like the model."""
    notes, people = list(model.fields["note"]), list(model.fields["person"])
    kinds = ["put", "put", "put", "import", "import"]
    if len(notes) > 3:
        kinds += ["delete", "rename", "edges", "edges", "index", "shuffle", "fmt"]
    kind = rng.choice(kinds)
    some = [json.loads(key) for key in rng.sample(notes, min(3, len(notes)))]
    match kind:
        case "delete":
            return {"op": "delete", "type": "Note", "ids": some[: rng.randint(1, 2)]}
        case "rename":
            return {"op": "rename", "type": "Note", "old": some[0], "new": f"{prefix}-renamed-{number}"}
        case "edges":
            if people and rng.random() < 0.5:
                ends = [{"from": json.loads(rng.choice(people)), "to": note} for note in some]
                return {"op": "put", "type": "wrote", "records": ends}
            ends = [{"from": some[0], "to": note, "why": _text(rng)} for note in some]
            return {"op": "put", "type": "cites", "records": ends}
        case "index" | "shuffle" | "fmt":
            return {"op": kind}
    if rng.random() < 0.2:
        person = {"country": prefix, "number": number, "name": _text(rng)}
        return {"op": kind, "type": "Person", "records": [person]}
    new = [{"id": f"{prefix}-{number:03}-{at}"} for at in range(rng.randint(1, 5))]
    old = [{"id": name} for name in some[:1]]
    filled = [one | {"text": _text(rng), "size": rng.randint(-5, 5), "title": f"{number}"} for one in new + old]
    return {"op": kind, "type": "Note", "records": filled}


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(1, 40)))


def _do(kb: Any, op: Op, scratch: Path) -> None:
    match op["op"]:
        case "put":
            kb.put(op["type"], op["records"])
        case "import":
            scratch.write_text("".join(json.dumps(record) + "\n" for record in op["records"]), "utf-8")
            kb.import_files(op["type"], scratch)
        case "delete":
            kb.delete(op["type"], *op["ids"], cascade=True)
        case "rename":
            kb.rename(op["type"], op["old"], op["new"])
        case "index":
            kb.index_build()
        case "shuffle":
            shuffle(kb.root, scratch)
        case "fmt":
            kb.fmt()


def shuffle(root: Path, scratch: Path) -> None:
    """What a careless editor does: the lines of a part in another order, saved whole by renaming."""
    part = max((root / "data" / "nodes" / "note").rglob("part_*.jsonl"), key=lambda path: path.stat().st_size)
    lines = part.read_bytes().splitlines(keepends=True)
    scratch.write_bytes(b"".join(lines[1:] + lines[:1]))
    scratch.replace(part)
