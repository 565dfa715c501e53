"""Tables with vectors in a PostgreSQL: the library `duckkb.tables` with a base's models, or the offline model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb import config
from duckkb.app import wiring
from duckkb.operations.embedding_models import flaw
from duckkb.operations.lifecycle import OpenOptions
from duckkb.ports import Embedder, Reranker
from duckkb.tables.table_catalogue import find_table, invalid, list_tables, refuse, table_name
from duckkb.tables.table_query import (
    RERANKED,
    SCORE,
    Neighbour,
    NeighbourSearch,
    Postgres,
    SafeNames,
    check,
    threshold_flaw,
    unit,
)
from duckkb.tables.table_search import rerank_rows
from duckkb.types.errors import Finding, Refused, Unavailable, UsageError

MOST_DIMENSIONS = 1_024
_THRESHOLDS = {"text-embedding-v4": 0.8}
"""The least meaningful cosine by model. Most have none: with the offline model unrelated texts have .7 and more."""


def connect(
    url: str,
    *,
    kb: "str | Path | None" = None,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    connect_timeout_s: float = 10.0,
    timeout_s: float = 30.0,
) -> "VectorTables":
    """Return the tables of the database at a PostgreSQL URL, without connecting yet.

    Models are those given, else those of the base `kb` (else DUCKKB_KB, else the nearest base), which this
    machine must trust before anybody is asked. Without a base it is the offline model. Limits are in seconds:
    of connecting, and of one statement.

    Raises `errors.UsageError` (E_URL), `errors.Refused` where the extra `postgres` is missing or in a sandbox,
    `errors.StateError` (E_NO_KB), `errors.OntologyError`.
    """
    if config.environment().sandbox:
        message = "DUCKKB_SANDBOX is set: what runs in a sandbox reaches no database"
        raise Refused(message, suggestion="have the command run outside of the sandbox")
    if not all(math.isfinite(limit) and 0 < limit <= 86_400 for limit in (connect_timeout_s, timeout_s)):
        raise UsageError("a limit of time is more than 0 and at most 86,400 s", suggestion="give another limit")
    postgres = Postgres(url, connect_timeout_s, timeout_s)
    return VectorTables(postgres, wiring.models(kb, OpenOptions(embedder=embedder, reranker=reranker)))


def embed(
    text: str, dimensions: int | None = None, *, passage: bool = False, kb: "str | Path | None" = None
) -> list[float]:
    """Return the vector of a question, or of a text to be stored (`passage`), of unit length.

    `dimensions` (1 to 1,024) is asked of an endpoint; by default the configuration's, else the model's. Raises
    `errors.UsageError` (E_DIMENSION: the model has others), `errors.Unavailable` (E_MODEL, E_UNTRUSTED),
    `errors.StateError` (E_NO_KB).
    """
    return _embed_text(_find_embedder(wiring.models(kb, OpenOptions()), dimensions), text, passage)


class VectorTables:
    """The tables of a database, made by `connect`. Every answer is of one snapshot; nothing is written.

    Threads take turns at the single connection.
    """

    def __init__(self, postgres: Postgres, models: wiring.Models) -> None:
        self._postgres, self._models = postgres, models

    def __repr__(self) -> str:
        return f"VectorTables({self._postgres.place})"

    def __enter__(self) -> "VectorTables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later question opens another."""
        self._postgres.close()

    def embed(self, text: str, dimensions: int | None = None, *, passage: bool = False) -> list[float]:
        """Embed a text as the function of this name does, with the models of this connection."""
        return _embed_text(_find_embedder(self._models, dimensions), text, passage)

    def show(self, table: str | None = None) -> list[dict[str, Any]]:
        """List the tables that have vectors, or the columns of a table. Raises as `vector_search`.

        A column has `column`, `type`, `nullable`, `key` (its place in the primary key, from 1), `dimension` of
        vectors that declare it, `indexes` by cosine, and `labels` of an enum.
        """
        if table is None:
            with self._postgres.open_cursor() as cursor:
                return list_tables(cursor)
        names = table_name(table)
        refuse([] if names else [invalid("table", table)])
        with self._postgres.open_cursor() as cursor:
            table_info = find_table(cursor, *(names or ("", "")), table)
        return [
            {"column": column.name, "type": column.type, "nullable": column.nullable}
            | ({"key": table_info.key.index(column.name) + 1} if column.name in table_info.key else {})
            | ({"dimension": column.dimension or None, "indexes": list(table_info.indexes.get(column.name, ()))} if column.is_vector else {})
            | ({"labels": list(column.labels)} if column.labels else {})
            for column in table_info.columns.values()
        ]  # fmt: skip

    def vector_search(
        self,
        table: str,
        vector: Sequence[float],
        *,
        top_k: int = 10,
        threshold: float | None = None,
        vector_column: str = "embedding",
        select: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        parse_enum: bool = True,
        approximate: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the rows of a table nearest to a vector, the nearest first; no model is asked.

        Each row is a dict of the columns of `select` (None: all) as values of JSON, and `embedding_score`, the
        cosine from -1 to 1, of at least `threshold`.

        `table` is NAME or SCHEMA.NAME. A `filter` has by column a value (equal), None (null), a list (any of
        them) or a dict of $gt, $gte, $lt, $lte. All rows are compared unless `approximate` lets an index of
        pgvector answer. With `parse_enum` an enum is its label and an array of them a list; without, both are
        text. Raises `errors.UsageError` (E_TABLE, E_DIMENSION), `errors.FilterError`, `errors.Unavailable`
        (E_DATABASE, E_TIMEOUT), `errors.StateError` (E_DATABASE).
        """
        search = NeighbourSearch(table, top_k, threshold, vector_column, select, filter, parse_enum, approximate)
        names = check(search)
        return [{**row.values, SCORE: row.score} for row in self._find_neighbours(search, names, unit(vector))]

    def query(
        self,
        text: str,
        table: str,
        *,
        top_k: int = 10,
        final: int = 5,
        threshold: float | None = None,
        rerank: bool = True,
        rerank_threshold: float = 0.1,
        text_column: str = "query",
        vector_column: str = "embedding",
        select: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        parse_enum: bool = True,
        approximate: bool = False,
        dimensions: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows of a table that answer a question.

        The question is embedded, and the `top_k` nearest rows are found as by `vector_search`. A configured
        reranker judges them by `text_column` unless `rerank` is off. The first `final` rows remain.

        Reranked rows have a `rerank_score` from 0 to 1, of at least `rerank_threshold`, and are in its order.
        `threshold` defaults to the model's (.8 for text-embedding-v4, none for others); -1 is none for any
        model. `dimensions` is as of `embed`. Raises as both; a message begins with the stage that failed:
        [embedding], [rerank], [database].
        """
        from duckkb.tables.table_search import look

        judge = self._models.reranker() if rerank else None
        embedder = _find_embedder(self._models, dimensions)
        least = _THRESHOLDS.get(embedder.fingerprint.name) if threshold is None else threshold
        read = text_column if judge is not None else None
        search = NeighbourSearch(table, top_k, least, vector_column, select, filter, parse_enum, approximate, read)
        names = check(search, _find_flaws(text, final, rerank_threshold))
        with self._postgres.open_cursor() as cursor:
            look(cursor, search, names, embedder.fingerprint.dimension)
        rows = self._find_neighbours(search, names, unit(_embed_text(embedder, text, False)))
        if judge is None:
            return [{**row.values, SCORE: row.score} for row in rows[:final]]
        with _stage("rerank"):
            scored_rows = rerank_rows(judge, self._models.settings.rerank, text, rows, rerank_threshold or 0.0)
        return [{**row.values, SCORE: row.score, RERANKED: score} for row, score in scored_rows[:final]]

    def _find_neighbours(self, search: NeighbourSearch, names: SafeNames, vector: Sequence[float]) -> list[Neighbour]:
        from duckkb.tables.table_search import look, nearest_rows  # they import the driver

        with self._postgres.open_cursor() as cursor:
            return nearest_rows(cursor, search, names, look(cursor, search, names, len(vector)), vector)


def _find_embedder(models: wiring.Models, dimensions: int | None) -> Embedder:
    """Return the model, with other dimensions where an endpoint is asked for them; raises `errors.UsageError`."""
    settings = models.settings.embedding
    if dimensions is None:
        return models.get_embedder(settings)
    if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= MOST_DIMENSIONS:
        message = f"dimensions are from 1 to {MOST_DIMENSIONS:,}"
        raise UsageError(message, suggestion="or raise global.embedding.dimensions in config.yaml")
    model = models.get_embedder(replace(settings, dimensions=dimensions) if settings.address else settings)
    if model.fingerprint.dimension not in (0, dimensions):
        message = f"the model {model.fingerprint.name} has {model.fingerprint.dimension} dimensions, not {dimensions}"
        raise UsageError(message, "E_DIMENSION", "leave the dimensions out, or configure a model that has them")
    return model


def _embed_text(model: Embedder, text: str, passage: bool) -> list[float]:
    if problem := flaw(text)[0]:
        raise UsageError(f"the text {problem}", flaw(text)[1], "give a text")
    with _stage("embedding"):
        vectors = model.embed_passages([text]) if passage else model.embed_queries([text])
    return [float(value) for value in vectors[0]]


def _find_flaws(text: object, final: object, rerank_threshold: object) -> list[Finding]:
    findings = [Finding(code, f"the text {problem}") for problem, code in [flaw(text)] if problem]
    if isinstance(final, bool) or not isinstance(final, int) or final < 1:
        findings.append(Finding("E_USAGE", "final must be a number of rows, at least 1", remedy="leave it out for 5"))
    wrong = threshold_flaw("rerank_threshold", rerank_threshold, 0) if rerank_threshold is not None else None
    return [*findings, *([wrong] if wrong else [])]


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Begin the messages of errors inside the block with the name of the stage."""
    try:
        yield
    except Unavailable as problem:
        head, details = f"[{name}] ", {**problem.details, "stage": name}
        message = problem.message if problem.message.startswith(head) else head + problem.message
        raise Unavailable(message, problem.code, problem.suggestion, details) from problem
