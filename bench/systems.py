"""The peers, each through its own Python API, with the settings that its documentation gives for such rows.

Every search reads the first ten rows, texts included, and returns their ids, best first. Scalars have indices where the
library has them. Each system runs in a process of its own (`runner.py`), in the environment that `peers.txt` describes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from corpus import DIMENSION, Corpus, Question

LIMIT = 10
DEPTH = 50
"""How many of each lane are fused where the library leaves that to its user; duckkb's default."""
RRF_K = 60

Step = Callable[[Question], Sequence[str]]


class System(Protocol):
    """What is measured: rows and indices made from a corpus, then opened and asked."""

    def build(self, corpus: Corpus, home: Path) -> float:
        """Make rows and indices in a folder; returns the seconds it took from rows in memory."""

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        """What can be asked, by the name of the step: lexical, vector, hybrid, `hybrid 1 %`, `hybrid 50 %`."""


def fused(rankings: Sequence[Sequence[Any]]) -> list[Any]:
    """Reciprocal rank fusion: the first ten.

    >>> fused([["a", "b"], ["b", "c"]])
    ['b', 'a', 'c']
    """
    scores: dict[Any, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (RRF_K + rank)
    return sorted(scores, key=lambda key: -scores[key])[:LIMIT]


class Lance:
    """LanceDB: exact vector search, its native full-text index, bitmap indices, the RRF reranker. With `index` its
    approximate vector index with default parameters."""

    def __init__(self, index: bool = False) -> None:
        self._index = index

    def build(self, corpus: Corpus, home: Path) -> float:
        import lancedb
        import pyarrow as pa
        from pyarrow import json as arrow_json

        rows = arrow_json.read_json(corpus.rows_file)
        flat = pa.array(np.array(corpus.vectors).reshape(-1))
        rows = rows.append_column("vector", pa.FixedSizeListArray.from_arrays(flat, DIMENSION))
        start = time.perf_counter()
        table = lancedb.connect(home).create_table("rows", rows)
        table.create_fts_index("text", replace=True)
        for name in ("topic", "side"):
            table.create_scalar_index(name, index_type="BITMAP")
        if self._index:
            table.create_index(metric="cosine", vector_column_name="vector")
        return time.perf_counter() - start

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        import lancedb
        from lancedb.rerankers import RRFReranker

        table = lancedb.connect(home).open_table("rows")
        columns = ["id", "topic", "side", "text"]

        def ids(query: Any) -> list[str]:
            return [row["id"] for row in query.limit(LIMIT).to_list()]

        def hybrid(asked: Question, where: str | None = None) -> list[str]:
            query = table.search(query_type="hybrid").vector(asked.vector).text(asked.text).distance_type("cosine")
            if where:
                query = query.where(where, prefilter=True)
            return ids(query.rerank(RRFReranker(RRF_K)).select(columns))

        return {
            "lexical": lambda asked: ids(table.search(asked.text, query_type="fts").select(columns)),
            "vector": lambda asked: ids(
                table.search(asked.vector, query_type="vector").distance_type("cosine").select(columns)
            ),
            "hybrid": hybrid,
            "hybrid 1 %": lambda asked: hybrid(asked, f"topic = '{asked.topic}'"),
            "hybrid 50 %": lambda asked: hybrid(asked, f"side = '{asked.side}'"),
        }


class SqliteVec:
    """SQLite with FTS5 and sqlite-vec: two queries, fused in Python."""

    def build(self, corpus: Corpus, home: Path) -> float:
        rows = [(number, *row.values()) for number, row in enumerate(corpus.rows())]
        vectors = np.array(corpus.vectors)
        start = time.perf_counter()
        connection = _sqlite(home)
        with connection:  # one transaction
            connection.execute(
                f"""
                CREATE TABLE docs(number INTEGER PRIMARY KEY, id TEXT, topic TEXT, side TEXT, text TEXT);
                CREATE VIRTUAL TABLE words
                    USING fts5(text, content='docs', content_rowid='number', tokenize='porter unicode61');
                CREATE VIRTUAL TABLE vectors USING vec0(
                    number INTEGER PRIMARY KEY, vector float[{DIMENSION}] distance_metric=cosine, topic TEXT, side TEXT);
                """
            )
            connection.executemany("INSERT INTO docs VALUES (?, ?, ?, ?, ?)", rows)
            connection.execute("CREATE INDEX by_topic ON docs(topic); CREATE INDEX by_side ON docs(side)")
            connection.execute("INSERT INTO words(words) VALUES ('rebuild')")
            connection.executemany(
                "INSERT INTO vectors VALUES (?, ?, ?, ?)",
                ((row[0], vectors[row[0]].tobytes(), row[2], row[3]) for row in rows),
            )
        connection.close()
        return time.perf_counter() - start

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        connection = _sqlite(home)

        def vector(asked: Question, limit: int = LIMIT, field: str = "", value: str = "") -> list[int]:
            where = f" AND {field} = ?" if field else ""
            statement = f"SELECT number FROM vectors WHERE vector MATCH ? AND k = ?{where} ORDER BY distance"
            bound = (asked.vector.tobytes(), limit, value) if field else (asked.vector.tobytes(), limit)
            return [row[0] for row in connection.execute(statement, bound)]

        def lexical(asked: Question, limit: int = LIMIT, field: str = "", value: str = "") -> list[int]:
            words = " OR ".join(f'"{word}"' for word in asked.text.split())
            joined = f"JOIN docs ON docs.number = words.rowid WHERE docs.{field} = ? AND" if field else "WHERE"
            statement = f"SELECT words.rowid FROM words {joined} words MATCH ? ORDER BY words.rank LIMIT ?"
            bound = (value, words, limit) if field else (words, limit)
            return [row[0] for row in connection.execute(statement, bound)]

        def fetched(numbers: Sequence[int]) -> list[str]:
            marks = ",".join("?" * len(numbers))
            rows = connection.execute(
                f"SELECT number, id, topic, side, text FROM docs WHERE number IN ({marks})", numbers
            )
            ids = {row[0]: row[1] for row in rows}
            return [ids[number] for number in numbers]

        def hybrid(asked: Question, field: str = "", value: str = "") -> list[str]:
            return fetched(fused([vector(asked, DEPTH, field, value), lexical(asked, DEPTH, field, value)]))

        return {
            "lexical": lambda asked: fetched(lexical(asked)),
            "vector": lambda asked: fetched(vector(asked)),
            "hybrid": hybrid,
            "hybrid 1 %": lambda asked: hybrid(asked, "topic", asked.topic),
            "hybrid 50 %": lambda asked: hybrid(asked, "side", asked.side),
        }


def _sqlite(home: Path) -> Any:
    """A connection of apsw, which can load extensions wherever Python comes from."""
    import apsw
    import sqlite_vec

    home.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(home / "rows.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    return connection


class Chroma:
    """Chroma's persistent client: vectors alone and with a filter. It does not rank by words, so it has no hybrid."""

    _BATCH = 5_000

    def build(self, corpus: Corpus, home: Path) -> float:
        rows, vectors = list(corpus.rows()), np.array(corpus.vectors)
        start = time.perf_counter()
        collection = self._client(home).create_collection("rows", configuration={"hnsw": {"space": "cosine"}})
        for first in range(0, len(rows), self._BATCH):
            batch = rows[first : first + self._BATCH]
            collection.add(
                ids=[row["id"] for row in batch],
                embeddings=vectors[first : first + self._BATCH],
                documents=[row["text"] for row in batch],
                metadatas=[{"topic": row["topic"], "side": row["side"]} for row in batch],
            )
        return time.perf_counter() - start

    def open(self, corpus: Corpus, home: Path) -> Mapping[str, Step]:
        collection = self._client(home).get_collection("rows", embedding_function=None)

        def vector(asked: Question, where: Any = None) -> list[str]:
            found = collection.query(
                query_embeddings=[asked.vector], n_results=LIMIT, where=where, include=["documents", "metadatas"]
            )
            return list(found["ids"][0])

        return {
            "vector": vector,
            "vector 1 %": lambda asked: vector(asked, {"topic": asked.topic}),
            "vector 50 %": lambda asked: vector(asked, {"side": asked.side}),
        }

    def _client(self, home: Path) -> Any:
        import chromadb

        return chromadb.PersistentClient(str(home), chromadb.Settings(anonymized_telemetry=False))
