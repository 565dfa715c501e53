"""Words by postings in PostgreSQL: the database scores and cuts plain terms; for other clauses the postings are
fetched.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from duckkb.id_set import IdSet
from duckkb.lanes.lexical.query import Clauses
from duckkb.lanes.lexical.view import K1, B
from duckkb.lanes.order import Scored, is_settled
from duckkb.lanes.targets.postgres.statistics import PostgresStatistics
from duckkb.lanes.targets.words import MARGIN, MORE, SLACK, Ids, PublishedStatistics, PublishedWords, Scores, Term
from duckkb.ontology.model import RecordType
from duckkb.ports import Publication, Rows, Tokenizer

if TYPE_CHECKING:
    from duckkb.lanes.targets.postgres.target import PostgresTarget


class PostgresWords(PublishedWords):
    """Implements `ports.WordLane`."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str, target: "PostgresTarget"
    ) -> None:
        super().__init__(kind, rows, tokenizer, language)
        self._target = target

    @property
    def _now(self) -> Publication:
        return self._target.now

    def _build_statistics(self) -> PublishedStatistics:
        return PostgresStatistics(self._kind, self._numbers, self._target)

    def _search_terms(
        self, query_clauses: Clauses, depth: int, allowed_ids: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """Return the first records with any of some terms, scored in the database."""
        known_clauses = [clause for clause in query_clauses.scored if view.frequency(clause.field, clause.tokens[0])]
        if not known_clauses:
            return []
        terms = [view.term(clause.field, clause.tokens[0]) for clause in known_clauses]
        weights = [clause.weight * view.idf(clause.field, clause.tokens[0]) * (K1 + 1) for clause in known_clauses]
        steps = [K1 * B / view.average(clause.field) for clause in known_clauses]
        statement = f"""
            SELECT p.id, sum(w.weight * p.times / (p.times + {K1 * (1 - B)!r} + w.step * p.length)) AS score
            FROM unnest(%s::integer[], %s::float8[], %s::float8[]) AS w (term, weight, step)
            JOIN {{posting}} p ON p.kind = {{kind}} AND p.term = w.term {{narrowed}}
            GROUP BY p.id ORDER BY score DESC LIMIT %s
        """
        arguments: list[Any] = [terms, weights, steps]
        if allowed_ids is not None:
            arguments.append(allowed_ids.array.tolist())
        id_filter = sql.SQL("AND p.id = ANY(%s::bigint[])" if allowed_ids is not None else "")
        fetch = depth + MARGIN
        while True:
            rows = self._target.now.query(self._kind, statement, *arguments, fetch, narrowed=id_filter)
            scored_ids = [(score, record_id) for record_id, score in rows]
            if len(rows) < fetch or is_settled(scored_ids, depth, SLACK):
                return self._best(scored_ids, depth)
            fetch *= MORE

    def _postings_of(self, term: Term, allowed_ids: IdSet | None) -> tuple[Ids, Scores, Ids]:
        rows = np.array(self._select_postings([term], allowed_ids, "p.id, p.times, p.length"), np.int64).reshape(-1, 3)
        return rows[:, 0], rows[:, 1].astype(float), rows[:, 2]

    def _ids_with(self, terms: Sequence[Term], allowed_ids: IdSet | None) -> Ids:
        return np.unique(np.array(self._select_postings(terms, allowed_ids, "p.id"), np.int64).reshape(-1))

    def _places_of(self, terms: Sequence[Term], allowed_ids: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        rows = self._select_postings(terms, allowed_ids, "p.id, p.term, p.length, p.positions")
        return ((record_id, term, length, bytes(positions)) for record_id, term, length, positions in rows)

    def _select_postings(self, terms: Sequence[Term], allowed_ids: IdSet | None, columns: str) -> list[tuple[Any, ...]]:
        id_filter = "" if allowed_ids is None else "AND p.id = ANY(%s::bigint[])"
        arguments = [] if allowed_ids is None else [allowed_ids.array.tolist()]
        statement = f"""
            SELECT {columns} FROM {{posting}} p WHERE p.kind = {{kind}} AND p.term = ANY(%s::integer[]) {id_filter}
            ORDER BY p.id
        """
        return self._target.now.query(self._kind, statement, [*terms], *arguments)

    def _others(self, excluded_ids: IdSet, depth: int, allowed_ids: IdSet | None) -> list[int]:
        id_filter = "" if allowed_ids is None else "AND id = ANY(%s::bigint[])"
        arguments = [] if allowed_ids is None else [allowed_ids.array.tolist()]
        statement = f"""
            SELECT id FROM {{record}} WHERE kind = {{kind}} AND id <> ALL(%s::bigint[]) {id_filter}
            ORDER BY substring(place, 1, 1000), place LIMIT %s
        """
        rows = self._target.now.query(self._kind, statement, excluded_ids.array.tolist(), *arguments, depth)
        return [record_id for (record_id,) in rows]

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)
