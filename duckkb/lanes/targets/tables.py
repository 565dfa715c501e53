"""Filters and statements over a publication.

A filter runs in the target if its result there is certainly the same as in DuckDB. Any other filter, and every
statement, runs in DuckDB as in a clone, over the records of the types that it names, which are fetched once for
each commit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import Self

from duckkb.id_set import IdSet
from duckkb.lanes.sql.columns import Columns, Observation
from duckkb.lanes.sql.tables import Tables
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult

_MOST_ANSWERS = 64


class PublishedTables(ABC):
    """Implements `ports.Sql` for a commit; `inner` answers what the target does not."""

    def __init__(self, inner: Tables) -> None:
        self._inner = inner
        self._answers: dict[tuple[str, str], IdSet] = {}

    def where(self, kind: RecordType, condition: str) -> IdSet:
        key = kind.name, condition
        cached_ids = self._answers.get(key)
        if cached_ids is not None:
            return cached_ids
        ids = self._query_target(kind, condition)
        if ids is None:
            return self._inner.where(kind, condition)
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[key] = ids
        return ids

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        return self._inner.sql(statement, limits)

    def narrow(self, ontology: Ontology) -> Self:
        tables = copy(self)
        tables._inner = self._inner.narrow(ontology)
        return tables

    def close(self) -> None:
        self._inner.close()

    @abstractmethod
    def _query_target(self, kind: RecordType, condition: str) -> IdSet | None:
        """Return the target's answer; None if the target cannot answer."""


def columns_of(kind: RecordType, said: Mapping[str, int]) -> Columns:
    """Return the columns of a type for its published records."""
    return Observation(kind, said).columns()
