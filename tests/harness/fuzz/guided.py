"""Run as a process: atheris fuzzes one target, guided by the branches it sees, from our inputs and with our changes.

    python -m tests.harness.fuzz.guided NAME SEED NUMBER FOLDER

Writes `figures.json` into the folder as it goes. An input that does harm is printed whole and ends the process with an
exit code that is not 0.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import atheris

_STATED_EVERY = 100
_LONGEST = 4_096


def main(name: str, seed: str, number: int, folder: Path) -> None:
    with atheris.instrument_imports(include=["duckkb.storage", "duckkb.ontology", "duckkb.engine", "duckkb.index"]):
        from tests.harness.fuzz import codec as fuzz_codec
        from tests.harness.fuzz import ontology as fuzz_ontology
        from tests.harness.fuzz import query as fuzz_query
        from tests.harness.fuzz.mutate import Mutator
        from tests.harness.fuzz.targets import TARGETS
    tokens = {"codec": fuzz_codec.TOKENS, "ontology": fuzz_ontology.TOKENS, "query syntax": fuzz_query.TOKENS}[name]
    target = TARGETS[name](folder)
    pool = [_as_bytes(value) for value in islice(target.inputs(Random(f"{seed}/{name}")), 200)]
    _write_corpus(folder / "corpus", pool)
    guided = _Guided(target, isinstance(next(target.inputs(Random(0))), str), folder / "figures.json")

    def change(data: bytes, longest: int, drawn: int) -> bytes:
        chance = Random(drawn)  # damage adds up from one to the next: half of them begin again
        return Mutator(chance, tokens).mutate(chance.choice([data, chance.choice(pool)]))[:longest]

    options = [
        f"-runs={number}",
        f"-seed={int(seed) % 2**31}",
        f"-max_len={_LONGEST}",
        "-timeout=120",
        "-rss_limit_mb=4096",
    ]
    crashes = f"-artifact_prefix={folder}/"
    atheris.Setup([sys.argv[0], *options, crashes, str(folder / "corpus")], guided.one, custom_mutator=change)
    atheris.Fuzz()


class _Guided:
    """Calls a target's check with bytes and keeps count."""

    def __init__(self, target: Any, is_text: bool, figures: Path) -> None:
        self._target, self._is_text, self._figures = target, is_text, figures
        self._inputs = self._past = 0

    def one(self, data: bytes) -> None:
        value = data.decode("utf-8", "replace") if self._is_text else data
        try:
            self._past += self._target.check(value)
        except BaseException:
            print(f"find: {value!r}", file=sys.stderr, flush=True)
            raise
        self._inputs += 1
        if self._inputs % _STATED_EVERY == 0:
            self._figures.write_text(json.dumps({"inputs": self._inputs, "past": self._past}), "utf-8")


def _as_bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "replace")


def _write_corpus(folder: Path, inputs: list[bytes]) -> None:
    folder.mkdir(parents=True)
    for number, data in enumerate(inputs):
        (folder / f"{number:04}").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
