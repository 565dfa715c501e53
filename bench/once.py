"""One process that goes from files to an answer, for bench/boot.py: prints the seconds of its steps as JSON.

usage: python bench/once.py SYSTEM CORPUS_FOLDER HOME

Steps count from where the system's library is imported. Only what the system itself needs is imported.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from corpus import Corpus

Steps = dict[str, float]


def lance_once(corpus_folder: Path, home: Path) -> Steps:
    """Make LanceDB's store out of the files and ask it once; seconds by step, after its libraries were imported."""
    import lancedb  # noqa: F401 - no step of this
    import pyarrow.json  # noqa: F401
    from systems import Lance

    corpus = Corpus(corpus_folder)
    asked = corpus.questions("en")[0]
    start = time.perf_counter()
    built = Lance().build(corpus, home)
    read = time.perf_counter() - start - built
    assert len(Lance().open(corpus, home)["hybrid"](asked)) == 10
    whole = time.perf_counter() - start
    return {"reads the files": read, "builds rows and indices": built, "opens and answers": whole - read - built}


def duckkb_once(corpus_folder: Path, home: Path) -> Steps:
    """Open a base that has no store and ask it once; seconds by step, after the package was imported."""
    import ours
    import tantivy  # noqa: F401 - no step of this

    import duckkb  # noqa: F401

    corpus = Corpus(corpus_folder)
    asked = corpus.questions("en")[0]
    start = time.perf_counter()
    steps = ours.Duckkb().open(corpus, home)
    opened = time.perf_counter()
    assert len(steps["hybrid"](asked)) == 10
    answered = time.perf_counter()
    steps["hybrid"](asked)
    again = time.perf_counter() - answered
    built = answered - opened - again
    return {"reads and checks the files": opened - start, "makes indices": built, "answers": again}


SYSTEMS: dict[str, Callable[[Path, Path], Steps]] = {"duckkb": duckkb_once, "lancedb": lance_once}

if __name__ == "__main__":
    print(json.dumps(SYSTEMS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))))
