"""The BM25 counts of a type's published records, looked up for all terms of a query at once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from duckkb.lanes.lexical.fields import SEQUENCE
from duckkb.lanes.targets.keys import prefix_range, term_key
from duckkb.lanes.targets.words import PublishedStatistics
from duckkb.ontology.model import RecordType

if TYPE_CHECKING:
    from duckkb.lanes.targets.postgres.target import PostgresTarget


class PostgresStatistics(PublishedStatistics):
    """The statistics of the publication at the time of creation; `numbers` are those of the index's fields."""

    def __init__(self, kind: RecordType, numbers: Mapping[str, int], target: "PostgresTarget") -> None:
        kind_row = target.now.kind(kind)
        self._kind, self._numbers, self._target = kind, numbers, target
        self.documents = kind_row.count if kind_row else 0
        self._lengths = kind_row.lengths if kind_row else []
        self._terms: dict[tuple[str, str], tuple[int, int]] = {}

    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        missing_terms = [term for term in dict.fromkeys(terms) if term not in self._terms]
        if not missing_terms:
            return
        keys = {(self._numbers[field], term_key(token)): (field, token) for field, token in missing_terms}
        statement = """
            SELECT t.field, t.token, t.id, t.records
            FROM unnest(%s::smallint[], %s::bytea[]) AS w (field, token)
            JOIN {term} t ON t.kind = {kind} AND t.field = w.field AND t.token = w.token
        """
        rows = self._target.now.query(self._kind, statement, [field for field, _ in keys], [token for _, token in keys])
        self._terms |= dict.fromkeys(missing_terms, (0, 0))
        self._terms |= {keys[field, bytes(token)]: (term_id, records) for field, token, term_id, records in rows}

    def frequency(self, field: str, token: str) -> int:
        return self._lookup_term(field, token)[1]

    def term(self, field: str, token: str) -> int:
        return self._lookup_term(field, token)[0]

    def average(self, field: str) -> float:
        return self._lengths[self._numbers[field]] / self.documents

    def list_tokens_by_prefix(self, prefix: str) -> Sequence[str]:
        terms = self._find_prefix_terms(prefix)
        self._terms |= {(SEQUENCE, token): entry for token, entry in terms.items()}
        return [*terms]

    def list_terms_by_prefix(self, prefix: str) -> list[int]:
        return [term_id for term_id, _ in self._find_prefix_terms(prefix).values()]

    def _find_prefix_terms(self, prefix: str) -> dict[str, tuple[int, int]]:
        first, behind = prefix_range(prefix)
        statement = """
            SELECT token, id, records FROM {term}
            WHERE kind = {kind} AND field = 0 AND token >= %s AND token < %s ORDER BY token
        """
        rows = self._target.now.query(self._kind, statement, first, behind)
        return {bytes(token).decode("utf-8", "replace"): (term_id, records) for token, term_id, records in rows}

    def _lookup_term(self, field: str, token: str) -> tuple[int, int]:
        if (field, token) not in self._terms:
            self.know([(field, token)])
        return self._terms[field, token]
