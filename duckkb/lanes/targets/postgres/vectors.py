"""Vectors in pgvector: exact by a scan, or by its graph (HNSW)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from duckkb.id_set import IdSet
from duckkb.lanes.targets.vectors import PublishedVectors, Row
from duckkb.ontology.model import RecordType
from duckkb.settings import VectorSettings

if TYPE_CHECKING:
    from duckkb.lanes.targets.postgres.target import PostgresTarget

_MOST_EFFORT = 1_000  # candidates that pgvector looks at, at most


class PostgresVectors(PublishedVectors):
    """Implements `ports.VectorLane`."""

    def __init__(self, kind: RecordType, settings: VectorSettings, target: "PostgresTarget") -> None:
        super().__init__(kind, settings)
        self._target = target

    def _counts(self) -> tuple[int, int]:
        kind_row = self._target.now.kind(self._kind)
        return (kind_row.count, kind_row.vectors) if kind_row else (0, 0)

    def _dimension(self) -> int:
        rows = self._target.now.query(
            self._kind, "SELECT vector_dims(vector) FROM {vector} WHERE kind = {kind} LIMIT 1"
        )
        return int(rows[0][0]) if rows else 0

    def _graph_candidates(self, query: Any, fetch: int, allowed_ids: IdSet | None) -> list[Row]:
        now = self._target.now
        now.execute("SET LOCAL hnsw.iterative_scan = 'strict_order'")
        # otherwise a selective filter ends the walk too soon
        now.execute("SET LOCAL hnsw.max_scan_tuples = 2147483647")
        now.execute(f"SET LOCAL hnsw.ef_search = {min(max(2 * fetch, 40), _MOST_EFFORT)}")
        column = sql.SQL("vector::vector({})").format(sql.Literal(len(query)))
        return self._rows(query, fetch, allowed_ids, column)

    def _nearest(self, query: Any, fetch: int, allowed_ids: IdSet | None) -> list[Row]:
        return self._rows(query, fetch, allowed_ids, sql.SQL("vector"))

    def _rows(self, query: Any, fetch: int, allowed_ids: IdSet | None, column: sql.Composable) -> list[Row]:
        id_filter = sql.SQL("" if allowed_ids is None else "AND id = ANY(%s::bigint[])")
        statement = """
            SELECT id, field, seq, at, vector, -({column} <#> %s) FROM {vector}
            WHERE kind = {kind} {narrowed} ORDER BY {column} <#> %s LIMIT %s
        """
        query_vector = query.astype(np.float32)
        arguments = [] if allowed_ids is None else [allowed_ids.array.tolist()]
        return self._target.now.query(
            self._kind, statement, query_vector, *arguments, query_vector, fetch, column=column, narrowed=id_filter
        )

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)
