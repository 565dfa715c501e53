"""What BM25 counts of the published records of a type; looked up for all terms of a question at once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from duckkb.lanes.lexical.fields import SEQUENCE
from duckkb.lanes.targets.keys import prefix_range, term_key
from duckkb.lanes.targets.words import PublishedStatistics
from duckkb.ontology.model import RecordType

if TYPE_CHECKING:
    from duckkb.lanes.targets.postgres.target import PostgresTarget


class PostgresStatistics(PublishedStatistics):
    """Of the publication that is asked when it is made; `numbers` are those of the index's fields."""

    def __init__(self, kind: RecordType, numbers: Mapping[str, int], target: "PostgresTarget") -> None:
        known = target.now.kind(kind)
        self._kind, self._numbers, self._target = kind, numbers, target
        self.documents = known.count if known else 0
        self._lengths = known.lengths if known else []
        self._terms: dict[tuple[str, str], tuple[int, int]] = {}

    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        wanted = [term for term in dict.fromkeys(terms) if term not in self._terms]
        if not wanted:
            return
        keys = {(self._numbers[field], term_key(token)): (field, token) for field, token in wanted}
        statement = """
            SELECT t.field, t.token, t.id, t.records
            FROM unnest(%s::smallint[], %s::bytea[]) AS w (field, token)
            JOIN {term} t ON t.kind = {kind} AND t.field = w.field AND t.token = w.token
        """
        rows = self._target.now.of(self._kind, statement, [field for field, _ in keys], [token for _, token in keys])
        self._terms |= dict.fromkeys(wanted, (0, 0))
        self._terms |= {keys[field, bytes(token)]: (one, records) for field, token, one, records in rows}

    def frequency(self, field: str, token: str) -> int:
        return self._found(field, token)[1]

    def term(self, field: str, token: str) -> int:
        return self._found(field, token)[0]

    def average(self, field: str) -> float:
        return self._lengths[self._numbers[field]] / self.documents

    def beginning(self, prefix: str) -> Sequence[str]:
        found = self._begun(prefix)
        self._terms |= {(SEQUENCE, token): known for token, known in found.items()}
        return [*found]

    def terms_beginning(self, prefix: str) -> list[int]:
        return [one for one, _ in self._begun(prefix).values()]

    def _begun(self, prefix: str) -> dict[str, tuple[int, int]]:
        first, behind = prefix_range(prefix)
        statement = """
            SELECT token, id, records FROM {term}
            WHERE kind = {kind} AND field = 0 AND token >= %s AND token < %s ORDER BY token
        """
        rows = self._target.now.of(self._kind, statement, first, behind)
        return {bytes(token).decode("utf-8", "replace"): (one, records) for token, one, records in rows}

    def _found(self, field: str, token: str) -> tuple[int, int]:
        if (field, token) not in self._terms:
            self.know([(field, token)])
        return self._terms[field, token]
