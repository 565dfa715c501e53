"""Filters that PostgreSQL answers."""

import json
from typing import TYPE_CHECKING

from psycopg.sql import Composable

from duckkb.id_set import IdSet
from duckkb.lanes.sql import simple
from duckkb.lanes.sql.columns import Columns
from duckkb.lanes.sql.reader.reading import reads_clock
from duckkb.lanes.sql.tables import Tables
from duckkb.lanes.targets.postgres.conditions import translate_tests, translate_tree
from duckkb.lanes.targets.tables import PublishedTables, columns_of
from duckkb.ontology.model import RecordType

if TYPE_CHECKING:
    from duckkb.lanes.targets.postgres.target import PostgresTarget


class PostgresTables(PublishedTables):
    """Implements `ports.Sql`."""

    def __init__(self, inner: Tables, target: "PostgresTarget") -> None:
        super().__init__(inner)
        self._target = target

    def _query_target(self, kind: RecordType, condition: str) -> IdSet | None:
        now = self._target.now
        kind_row = now.kind(kind)
        if kind_row is None:
            return None
        predicate = self._translate_condition(kind, columns_of(kind, json.loads(kind_row.said)), condition)
        if predicate is None or now.query(kind, "SELECT 1 FROM {record} WHERE kind = {kind} AND facts IS NULL LIMIT 1"):
            return None
        statement = "SELECT id FROM {record} WHERE kind = {kind} AND ({asked})"
        rows = now.query(kind, statement, asked=predicate)
        return IdSet.from_ids(record_id for (record_id,) in rows)

    def _translate_condition(self, kind: RecordType, columns: Columns, condition: str) -> Composable | None:
        if reads_clock(condition):
            return None
        if tests := simple.tests(condition, columns):
            return translate_tests(kind, tests)
        return translate_tree(kind, columns, self._inner.tree(kind, columns, condition))
