"""Words by postings in PostgreSQL: terms alone are scored and cut there; the postings of anything else are fetched."""

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

    def _counted(self) -> PublishedStatistics:
        return PostgresStatistics(self._kind, self._numbers, self._target)

    def _by_terms(
        self, found: Clauses, depth: int, allowed: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """The first of those that have one of some terms, scored where they lie."""
        known = [clause for clause in found.scored if view.frequency(clause.field, clause.tokens[0])]
        if not known:
            return []
        terms = [view.term(clause.field, clause.tokens[0]) for clause in known]
        weights = [clause.weight * view.idf(clause.field, clause.tokens[0]) * (K1 + 1) for clause in known]
        steps = [K1 * B / view.average(clause.field) for clause in known]
        statement = f"""
            SELECT p.id, sum(w.weight * p.times / (p.times + {K1 * (1 - B)!r} + w.step * p.length)) AS score
            FROM unnest(%s::integer[], %s::float8[], %s::float8[]) AS w (term, weight, step)
            JOIN {{posting}} p ON p.kind = {{kind}} AND p.term = w.term {{narrowed}}
            GROUP BY p.id ORDER BY score DESC LIMIT %s
        """
        given: list[Any] = [terms, weights, steps]
        if allowed is not None:
            given.append(allowed.array.tolist())
        narrowed = sql.SQL("AND p.id = ANY(%s::bigint[])" if allowed is not None else "")
        fetch = depth + MARGIN
        while True:
            rows = self._target.now.of(self._kind, statement, *given, fetch, narrowed=narrowed)
            scored = [(score, one) for one, score in rows]
            if len(rows) < fetch or is_settled(scored, depth, SLACK):
                return self._best(scored, depth)
            fetch *= MORE

    def _postings_of(self, term: Term, allowed: IdSet | None) -> tuple[Ids, Scores, Ids]:
        made = np.array(self._postings([term], allowed, "p.id, p.times, p.length"), np.int64).reshape(-1, 3)
        return made[:, 0], made[:, 1].astype(float), made[:, 2]

    def _ids_with(self, terms: Sequence[Term], allowed: IdSet | None) -> Ids:
        return np.unique(np.array(self._postings(terms, allowed, "p.id"), np.int64).reshape(-1))

    def _places_of(self, terms: Sequence[Term], allowed: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        rows = self._postings(terms, allowed, "p.id, p.term, p.length, p.positions")
        return ((one, term, length, bytes(positions)) for one, term, length, positions in rows)

    def _postings(self, terms: Sequence[Term], allowed: IdSet | None, columns: str) -> list[tuple[Any, ...]]:
        narrowed = "" if allowed is None else "AND p.id = ANY(%s::bigint[])"
        given = [] if allowed is None else [allowed.array.tolist()]
        statement = f"""
            SELECT {columns} FROM {{posting}} p WHERE p.kind = {{kind}} AND p.term = ANY(%s::integer[]) {narrowed}
            ORDER BY p.id
        """
        return self._target.now.of(self._kind, statement, [*terms], *given)

    def _others(self, gone: IdSet, depth: int, allowed: IdSet | None) -> list[int]:
        narrowed = "" if allowed is None else "AND id = ANY(%s::bigint[])"
        given = [] if allowed is None else [allowed.array.tolist()]
        statement = f"""
            SELECT id FROM {{record}} WHERE kind = {{kind}} AND id <> ALL(%s::bigint[]) {narrowed}
            ORDER BY substring(place, 1, 1000), place LIMIT %s
        """
        rows = self._target.now.of(self._kind, statement, gone.array.tolist(), *given, depth)
        return [one for (one,) in rows]

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)
