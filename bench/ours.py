"""duckkb as a system that is measured, and the floor of every vector search: one product of a matrix in memory.

Records get their vectors through the embedding cache, as if the default model had made them: what is stored, opened and
searched is what a user has after `duckkb index build`, but no text was embedded.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from corpus import Corpus, Question, identity
from systems import LIMIT, Step

TYPE = "Text"
CONFIG = """\
nodes:
  Text:
    table: text
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, topic: {type: string}, side: {type: string}, text: {type: string}}
      required: [id, text]
    search: {full_text: [{field: text, chunk_size: 4000}], vectors: [text]}
"""
_SLICE = 100_000
_CACHE_HOME = "cache"
_CACHED = 50_000


def machine_state(home: Path) -> dict[str, str]:
    """The environment in which a base at `home` is used: machine state and derived state of its own beside it, and no other
    base."""
    gone = ("DUCKKB_", "PYTHONDONTWRITEBYTECODE")  # a process that may not keep its bytecode pays for that every time
    kept = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    own = {"XDG_STATE_HOME": str(home.parent / "state"), "DUCKKB_CACHE_HOME": str(home.parent / _CACHE_HOME)}
    return kept | own | {"LANCEDB_LOG": "error"}


def drop_store(home: Path, cache_home: Path | None = None) -> None:
    """Forget what was derived of a base, but for tokens and vectors, which all bases of a user have in common."""
    from duckkb.store import cache_dirs

    cache_dirs.remove(cache_dirs.Place.locate(cache_home or home.parent / _CACHE_HOME, home).own)


class Numpy:
    """One matrix product and a partial sort; of the rows that satisfy the filter where there is one."""

    def build(self, corpus: Corpus, home: Path) -> float:
        home.mkdir(parents=True, exist_ok=True)
        return 0.0

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        matrix = np.array(corpus.vectors)
        return {"vector": lambda asked: [identity(int(place)) for place in nearest(matrix, asked.vector)]}


def nearest(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The places of the ten rows with the largest products, largest first."""
    scores = matrix @ vector
    count = min(LIMIT, len(scores))
    first = np.argpartition(-scores, count - 1)[:count]
    return first[np.argsort(-scores[first])]


class Duckkb:
    """The public Python API."""

    def build(self, corpus: Corpus, home: Path) -> float:
        """From JSONL files to committed truth, vectors cached; the process that builds must have `machine_state`."""
        import duckkb

        home.mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text(CONFIG, "utf-8")
        _cache_vectors(corpus, home)
        start = time.perf_counter()
        with duckkb.open(home) as kb, corpus.rows_file.open("rb") as lines:
            while batch := list(islice(lines, _SLICE)):
                part = home.parent / "import.jsonl"
                part.write_bytes(b"".join(batch))
                kb.import_files(TYPE, part, embed=False)
                part.unlink()
        taken = time.perf_counter() - start
        _commit(home)
        return taken

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        import duckkb

        kb = duckkb.open(home)

        def ids(found: "duckkb.FindResult") -> Sequence[str]:
            assert not found.degraded, found.notices
            return [hit.identity for hit in found]

        def hybrid(asked: Question, where: str | None = None) -> Sequence[str]:
            return ids(kb.find(TYPE, asked.text, vector=asked.vector, where=where))

        def lexical(asked: Question, where: str | None = None) -> Sequence[str]:
            return ids(kb.find(TYPE, asked.text, mode="match", where=where))

        def stored(asked: Question) -> Sequence[str]:
            receipt = kb.put(TYPE, {"id": identity(0), "topic": asked.topic, "side": asked.side, "text": asked.text})
            assert len(receipt.files) == 1, receipt
            return [identity(0)]

        return {
            "lexical": lexical,
            "vector": lambda asked: ids(kb.find(TYPE, vector=asked.vector)),
            "hybrid": hybrid,
            "hybrid 1 %": lambda asked: hybrid(asked, f"topic = '{asked.topic}'"),
            "hybrid 50 %": lambda asked: hybrid(asked, f"side = '{asked.side}'"),
            "lexical 1 %": lambda asked: lexical(asked, f"topic = '{asked.topic}'"),
            "vector 1 %": lambda asked: ids(kb.find(TYPE, vector=asked.vector, where=f"topic = '{asked.topic}'")),
            "vector 50 %": lambda asked: ids(kb.find(TYPE, vector=asked.vector, where=f"side = '{asked.side}'")),
            "after a change by hand": lexical,
            "put": stored,
        }


def _cache_vectors(corpus: Corpus, home: Path) -> None:
    """Write the vectors of all texts to the machine's cache, under the keys of the default model."""
    from duckkb.index.embedding_cache import SearchCache
    from duckkb.index.index_entries import text_key
    from duckkb.llm.providers.offline_model import LocalE5
    from duckkb.store.cache_dirs import Place

    model = LocalE5(home).fingerprint  # known without loading anything
    place = Place.locate(Path(os.environ["DUCKKB_CACHE_HOME"]), home)
    place.make()
    texts = (row["text"] for row in corpus.rows())
    for first in range(0, corpus.size, _CACHED):
        vectors = np.array(corpus.vectors[first : first + _CACHED])
        cache = SearchCache.open(home, place.shared)
        rows = zip(vectors, texts, strict=False)  # vectors first: where they end, no text is taken for nothing
        cache.add_vectors({text_key(model, text): (text, vector) for vector, text in rows}, model)
        assert cache.save()
    cache = SearchCache.open(home, place.shared)
    spare = [one["text"] for one in corpus.spare]
    cache.add_vectors(
        {text_key(model, text): (text, vector) for text, vector in zip(spare, corpus.spare_vectors, strict=True)},
        model,
    )
    assert cache.save()


def _commit(home: Path) -> None:
    """A base is usually a git repository, and what looks for one finds it."""
    (home / ".gitignore").write_text(".duckkb/\n", "utf-8")
    git = ["git", "-C", str(home), "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "generated records"]):
        subprocess.run([*git, *command], check=True, stdin=subprocess.DEVNULL)


def change_by_hand(home: Path, number: int, text: str) -> None:
    """Give one record another text as an editor would: one line of one file, nothing else."""
    needle = f'"id":{json.dumps(identity(number))}'.encode()
    for path in sorted((home / "data" / "nodes").rglob("part_*.jsonl")):
        data = path.read_bytes()
        if needle not in data:
            continue
        lines = data.split(b"\n")
        at = next(at for at, line in enumerate(lines) if needle in line)
        record = json.loads(lines[at])
        old = json.dumps(record["text"], ensure_ascii=False).encode()
        assert lines[at].count(old) == 1
        lines[at] = lines[at].replace(old, json.dumps(text, ensure_ascii=False).encode())
        path.write_bytes(b"\n".join(lines))
        return
    raise AssertionError(f"record {number} is in no part")
