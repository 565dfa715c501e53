"""An index at a state of the records, with the counts that BM25 needs.

Tantivy counts a replaced document until its segment is merged away, and its lengths roughly after that. Scores
must not depend on this history: terms are weighted by their rarity among the present records. For exact scores
the first results are rescored from the tokens of their records, with the average length of the present records.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from tantivy import Index, Query

from duckkb.lanes.lexical.fields import ID, SEQUENCE

K1, B = 1.2, 0.75
_TERMS_KEPT = 10_000
_AVERAGE = "avgdl, average length of field"
_DOCUMENTS = "N, total number of docs"


class Statistics(ABC):
    """The counts for BM25 over the records of a type: their number (`documents`), and counts of its fields."""

    documents: int

    @abstractmethod
    def frequency(self, field: str, token: str) -> int:
        """Return how many records have a token in a field."""

    @abstractmethod
    def average(self, field: str) -> float:
        """Return the average number of tokens of a record in a field."""

    @abstractmethod
    def list_tokens_by_prefix(self, prefix: str) -> Sequence[str]:
        """Return the tokens with a prefix, in the order of texts."""

    def idf(self, field: str, token: str) -> float:
        """Return the rarity of a token in a field: the idf of BM25 as in Tantivy, which is never negative
        (Robertson and Zaragoza, 2009).
        """
        return _compute_idf(self.documents, self.frequency(field, token))

    def score(self, field: str, tokens: Sequence[str], held: Sequence[Sequence[str]]) -> float:
        """Return the BM25 score of a term or a phrase in a record with these values of a field; 0 without a match.
        Uses lengths as an index stores them: exact up to 40, then in eight steps for each doubling.
        """
        return self.score_of(
            field, tokens, sum(_count_occurrences(value, tokens) for value in held), round_length(sum(map(len, held)))
        )

    def score_of(self, field: str, tokens: Sequence[str], times: int, length: int) -> float:
        """Return the score of a term or phrase that occurs `times` in a field of this stored length."""
        if not times:
            return 0.0
        norm = K1 * (1 - B + B * length / self.average(field))
        return math.fsum(self.idf(field, token) for token in tokens) * (K1 + 1) * times / (times + norm)


class IndexView(Statistics):
    """A view of an index. `lengths` are the tokens of all records by field of the index; `is_exact` says that no
    document was ever replaced, so that Tantivy's counts are right.
    """

    def __init__(self, index: Index, lengths: Mapping[str, int], is_exact: bool) -> None:
        self.schema, self.searcher = index.schema, index.searcher()
        self.documents = self.searcher.num_docs
        self.is_exact = is_exact
        self._lengths = lengths
        self._counted = lru_cache(_TERMS_KEPT)(self._count)

    def frequency(self, field: str, token: str) -> int:
        return self._counted(field, token)

    def _count(self, field: str, token: str) -> int:
        if self.is_exact:
            return self.searcher.doc_freq(field, token)
        # const_score avoids scoring each record of the term
        query = Query.const_score_query(Query.term_query(self.schema, field, token), 0.0)
        result: Any = self.searcher.search(query, 1)  # the library's type stub lacks `count`
        return int(result.count)

    def correction(self, field: str, tokens: Sequence[str]) -> float:
        """Return the factor for the score of a term or a phrase that removes the influence of replaced documents
        on its rarity.
        """
        if self.is_exact:
            return 1.0
        indexed_idf = math.fsum(_compute_idf(self._indexed, self.searcher.doc_freq(field, token)) for token in tokens)
        return math.fsum(self.idf(field, token) for token in tokens) / indexed_idf

    def drift(self, terms: Iterable[tuple[str, str]]) -> float:
        """Return the largest relative error of scores of such terms. Lengths may include replaced documents, and
        an average length that is wrong by a share makes no score wrong by more.
        """
        if self.is_exact:
            return 0.0
        drift_by_field: dict[str, float] = {}
        for field, token in terms:
            if field not in drift_by_field and (average := self._explain_term(field, token).get(_AVERAGE)):
                drift_by_field[field] = abs(average / self.average(field) - 1)
        return max(drift_by_field.values(), default=0.0)

    def average(self, field: str) -> float:
        return self._lengths[field] / self.documents

    def list_tokens_by_prefix(self, prefix: str) -> Sequence[str]:
        return [term for term, _ in self.searcher.terms_with_prefix(SEQUENCE, prefix)]

    @cached_property
    def _indexed(self) -> int:
        """Return how many documents Tantivy counts."""
        hits = self.searcher.search(Query.all_query(), 1, count=False).hits
        (record_id,) = self.searcher.fast_field_values(ID, [hits[0][1]])
        return int(self._explain_term(ID, int(record_id or 0))[_DOCUMENTS])

    def _explain_term(self, field: str, token: str | int) -> dict[str, float]:
        """Return Tantivy's counts for a term, from its explanation of a matching record; empty if there is none."""
        query = Query.term_query(self.schema, field, token)
        hits = self.searcher.search(query, 1, count=False).hits
        return dict(_iter_values(json.loads(query.explain(self.searcher, hits[0][1]).to_json()))) if hits else {}


def _iter_values(account: Mapping[str, object]) -> Iterable[tuple[str, float]]:
    yield str(account["description"]), float(str(account["value"]))
    details = account.get("details")
    for detail in details if isinstance(details, list) else ():
        yield from _iter_values(detail)


def _compute_idf(documents: int, frequency: int) -> float:
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def _count_occurrences(field_terms: Sequence[str], tokens: Sequence[str]) -> int:
    """Count how often the tokens occur in a row."""
    if len(tokens) == 1:
        return field_terms.count(tokens[0])
    target, size = list(tokens), len(tokens)
    return sum(field_terms[start : start + size] == target for start in range(len(field_terms) - size + 1))


def round_length(length: int) -> int:
    """Round a length as an index stores it, in one byte: Lucene's SmallFloat.byte4ToInt of intToByte4."""
    if length < 24:
        return length
    above = length - 24
    shift = max(above.bit_length() - 4, 0)
    return 24 + (above >> shift << shift)
