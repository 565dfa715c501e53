"""agentcairn, which keeps Markdown as truth and searches a DuckDB file with its FTS extension.

DuckDB fetches that extension from the network when it is first used; here it comes from a package, into a home folder of
this process' own. The tables are filled in bulk through the library's own schema, as it indexes note by note: its time to
build says nothing. Its one filter, by project, is applied behind the fusion.
"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from corpus import DIMENSION, Corpus, Question
from systems import LIMIT, Step

_MODEL = "given"


class Given:
    """An embedding model as the library wants one, whose answer is the vector at hand."""

    model_id, dim = _MODEL, DIMENSION

    def __init__(self) -> None:
        self.vector: list[float] = []

    def embed_query(self, text: str) -> list[float]:
        return self.vector


class Cairn:
    """Its index, filled and searched."""

    def build(self, corpus: Corpus, home: Path) -> float:
        """Notes of one section each, whose project is the topic."""
        _bring_extension(home)
        import pyarrow as pa
        from cairn.index.build import build_fts
        from cairn.index.schema import open_index
        from pyarrow import json as arrow_json

        rows = arrow_json.read_json(corpus.rows_file)
        flat = pa.array(np.array(corpus.vectors).reshape(-1))
        rows = rows.append_column("vector", pa.FixedSizeListArray.from_arrays(flat, DIMENSION))
        start = time.perf_counter()
        connection = open_index(str(home / "index.duckdb"), dim=DIMENSION, model_id=_MODEL)
        connection.register("given", rows)
        connection.execute(
            "INSERT INTO notes (permalink, path, title, type, project) SELECT id, id, id, '', topic FROM given"
        )
        connection.execute(
            "INSERT INTO chunks SELECT id, id, id, 0, 'Title: ' || id || ' | Section: ' || id || ' | ' || text FROM given"
        )
        connection.execute("INSERT INTO chunk_embeddings SELECT id, vector FROM given")
        build_fts(connection)
        connection.close()
        return time.perf_counter() - start

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        _bring_extension(home)
        from cairn.search.engine import open_search, search, vector_search

        connection = open_search(str(home / "index.duckdb"))
        model = Given()

        def searched(asked: Question, embedder: Given | None, **more: Any) -> Sequence[str]:
            model.vector = asked.vector.tolist()
            hits = search(connection, asked.text, embedder=embedder, k=LIMIT, graph_boost=False, **more)
            return [hit.permalink for hit in hits]

        def vector(asked: Question) -> Sequence[str]:
            return [found for found, _ in vector_search(connection, asked.vector.tolist(), dim=DIMENSION, pool=LIMIT)]

        return {
            "lexical": lambda asked: searched(asked, None),
            "vector": vector,
            "hybrid": lambda asked: searched(asked, model),
            "hybrid 1 %": lambda asked: searched(asked, model, project=asked.topic, scope="project"),
        }


def _bring_extension(home: Path) -> None:
    """Before DuckDB is imported, so that it looks here."""
    import duckdb_ext

    home.mkdir(parents=True, exist_ok=True)
    os.environ["HOME"] = str(home)
    shutil.copytree(
        Path(next(iter(duckdb_ext.__path__))) / "extensions", home / ".duckdb" / "extensions", dirs_exist_ok=True
    )
