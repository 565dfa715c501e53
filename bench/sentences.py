"""Sentences of the judged sets as vectors of the default model: real ones, whose cosines lie close, for `bench/ann.py --vectors`.

usage: python bench/sentences.py FOLDER [--most N] [--mode q4|int8]

Sets are taken from DUCKKB_EVAL_DATA/retrieval. FOLDER gets `sentences.npy`, float32, in an order drawn once; pieces of 2,000 are
written as they come, and a run goes on where the one before stopped: 90,000 sentences take an hour on two cores.
"""

import argparse
import json
import os
import random
import re
import sys
from pathlib import Path

import numpy as np

from duckkb import config
from duckkb.llm.providers.offline_model import LocalE5

_END = re.compile(r"(?<=[。！？；])|(?<=[.!?]) ")
_LEAST, _MOST, _PIECE = 12, 200, 2_000  # characters of a sentence; sentences of a piece


def sentences(data: Path) -> list[str]:
    """Each once, of all sets but those whose texts another one has."""
    found: dict[str, None] = {}
    for corpus in sorted(data.glob("retrieval/*/corpus.jsonl")):
        for line in () if "2" in corpus.parent.name.removesuffix("2018") else corpus.read_text("utf-8").splitlines():
            texts = (text.strip() for text in _END.split(json.loads(line)["text"]))
            found |= dict.fromkeys(text[:_MOST] for text in texts if len(text) >= _LEAST)
    shuffled = list(found)
    random.Random(1).shuffle(shuffled)
    return shuffled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--mode", choices=("q4", "int8"), default="int8")
    given = parser.parse_args()
    data = os.environ.get("DUCKKB_EVAL_DATA")
    if data is None:
        print("skipped: DUCKKB_EVAL_DATA is unset; it names the folder with retrieval/", file=sys.stderr)
        return 0
    texts, pieces = sentences(Path(data))[: given.most], []
    given.folder.mkdir(parents=True, exist_ok=True)
    model = LocalE5(config.environment().cache_home, given.mode)
    for start in range(0, len(texts), _PIECE):
        piece = given.folder / f"{given.mode}-{start:06d}.npy"
        if not piece.exists():
            np.save(piece, model.embed_passages(texts[start : start + _PIECE]))
            print(f"{start + _PIECE} of {len(texts)}", file=sys.stderr)
        pieces.append(np.load(piece))
    np.save(given.folder / "sentences.npy", np.concatenate(pieces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
