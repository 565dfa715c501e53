"""The lexical lane of one record type: BM25 over whole records, in a Tantivy index in memory.

The index is built at the first question and follows changes at the next one, so a use that asks nothing pays nothing.
It is built again, once, with the order of tokens, when a question first asks for phrases, prefixes or characters.
Segments and threads do not show in a result: scores come from the counts of the whole index, ties go by identity.
BM25 counts a replaced document until its segment is merged; past one in fifty of those the index is built anew, so
scores agree with a fresh one's, or nearly so in a base that was changed a little.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from tantivy import Index, Query, Schema, Searcher

from duckkb.backends.duckdb.best_chunk import Wanted
from duckkb.backends.duckdb.fields import ID, document, new_index, words_fields
from duckkb.backends.duckdb.order import Scored, best_first, is_settled
from duckkb.backends.duckdb.query import Clause, Clauses, any_of, clause_query, clauses, narrowed, ranking_query
from duckkb.ontology.model import RecordType
from duckkb.ports import Row, Tokenizer
from duckkb.queries import LaneHit, LexicalQuery
from duckkb.records import identity_key

_HEAP = 50_000_000  # bytes for each thread of a build
_SMALL_HEAP = 15_000_000  # the least that Tantivy takes
_SEVERAL_THREADS = 20_000  # records from which a second thread pays
_DEAD_SHARE = 1 / 50
_REBUILT_SHARE = 1 / 5  # of the records changed at once: building anew costs no more
_SLACK = 1e-6  # of a score: what the order of adding 32-bit floats may change
_LISTED = 2_000  # allowed ids up to which listing them in the query is the faster filter,
_LISTED_SHARE = 1 / 20  # and the share of all records up to which it is
_MARGIN = 16  # records asked for beyond the depth, to see where a tie ends
_FILTERED = 200  # records asked for at first when a filter picks among them
_MORE = 8  # how many times more are asked for when that was too few


class Lexical:
    """Finds records by words. `rows` is read, never changed; `touch` says which of them have changed."""

    def __init__(self, kind: RecordType, rows: Mapping[int, Row], tokenizer: Tokenizer, language: str) -> None:
        self._kind = kind
        self._rows = rows
        self._tokenizer = tokenizer
        self._fields = words_fields(kind, language)
        self._index: Index | None = None
        self._has_sequence = False
        self._added = 0
        self._stale: set[int] = set()

    def touch(self, ids: Iterable[int]) -> None:
        """Say that these records were added, replaced or dropped."""
        if self._index is not None:
            self._stale.update(ids)

    def match(self, query: LexicalQuery, depth: int, allowed: frozenset[int] | None = None) -> list[LaneHit]:
        """The first `depth` of the records that the query matches, out of `allowed` where given.

        A query of exclusions alone matches every other record, with score 0; one without any token matches nothing.
        """
        found = self._clauses(query)
        depth = min(depth, len(self._rows))
        if found.is_empty or depth <= 0 or (allowed is not None and not allowed):
            return []
        searcher = self._searcher(found)
        if found.only_excludes:
            ids = self._rows.keys() if allowed is None else allowed & self._rows.keys()
            scored = [(0.0, record_id) for record_id in ids - self._ids(found.excluded, searcher)]
            ranked = best_first(scored, depth, self._identity, _SLACK)
        else:
            ranked = self._ranked(found, depth, allowed, searcher)
        return self._hits(ranked, found, searcher)

    def excluded(self, query: LexicalQuery) -> frozenset[int]:
        """Ids of the records that the query's negations rule out."""
        found = self._clauses(query)
        return self._ids(found.excluded, self._searcher(found)) if found.excluded and self._rows else frozenset()

    def explain(self, query: LexicalQuery, record_id: int) -> dict[str, Any]:
        """`score` of one record and its `terms`: token, part (word, character, phrase, prefix), record fields, number of
        records that have it, and its share of the score. The shares add up; the score is 0 where the query does not match.
        """
        found = self._clauses(query)
        if not found.counted or record_id not in self._rows:
            return {"score": 0.0, "terms": []}
        searcher = self._searcher(found)
        score = self._score_of(ranking_query(found, self._schema, searcher), record_id, searcher)
        terms = []
        for clause in found.counted if score is not None else ():
            wanted = clause_query(clause, self._schema, searcher)
            part = self._score_of(wanted, record_id, searcher)
            if part is not None:
                terms.append(
                    {
                        "token": clause.text,
                        "part": clause.part,
                        "fields": self._sources(clause),
                        "doc_freq": self._frequency(clause, searcher),
                        "score": part,
                    }
                )
        return {"score": score or 0.0, "terms": terms}

    @property
    def _schema(self) -> Schema:
        assert self._index is not None, "a searcher was taken before"
        return self._index.schema

    def _clauses(self, query: LexicalQuery) -> Clauses:
        if not self._kind.full_text or query.is_empty:
            return Clauses()
        return clauses(query, self._tokenizer, self._fields)

    def _searcher(self, found: Clauses) -> Searcher:
        """A view of the index as the rows are now, with what these clauses look at."""
        try:
            if found.need_sequence and not self._has_sequence:
                self._index, self._has_sequence = None, True
            if self._index is None or len(self._stale) > len(self._rows) * _REBUILT_SHARE:
                self._index = self._built()
            elif self._stale:
                self._index = self._followed(self._index)
        except BaseException:
            self._index = None
            raise
        finally:
            self._stale.clear()
        return self._index.searcher()

    def _built(self) -> Index:
        index = new_index(self._fields)
        threads = 2 if len(self._rows) >= _SEVERAL_THREADS else 1
        writer = index.writer(_HEAP * threads, threads)
        for row in self._rows.values():
            writer.add_document(document(row, self._fields, self._has_sequence))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._added = len(self._rows)
        return index

    def _followed(self, index: Index) -> Index:
        """The index with the stale records replaced; a new one where too many of its documents are dead."""
        writer = index.writer(_SMALL_HEAP, 1)
        for record_id in sorted(self._stale):
            writer.delete_documents_by_term(ID, record_id)
            if record_id in self._rows:
                writer.add_document(document(self._rows[record_id], self._fields, self._has_sequence))
                self._added += 1
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        dead = self._added - len(self._rows)
        return self._built() if dead > len(self._rows) * _DEAD_SHARE else index

    def _ranked(self, found: Clauses, depth: int, allowed: frozenset[int] | None, searcher: Searcher) -> list[Scored]:
        """Few allowed records are listed in the query; many are picked out of as many more results as it takes."""
        query = ranking_query(found, self._schema, searcher)
        total = searcher.num_docs
        if allowed is not None and len(allowed) <= max(_LISTED, total * _LISTED_SHARE):
            query = narrowed(query, Query.term_set_query(self._schema, ID, sorted(allowed)))
            allowed = None
        fetch = depth + _MARGIN if allowed is None else max(depth, _FILTERED)
        while True:
            scored = self._search(query, min(fetch, total), searcher)
            complete = fetch >= total or len(scored) < fetch
            if allowed is not None:
                scored = [pair for pair in scored if pair[1] in allowed]
            if complete or is_settled(scored, depth, _SLACK):
                return best_first(scored, depth, self._identity, _SLACK)
            fetch *= _MORE

    def _search(self, query: Query, limit: int, searcher: Searcher) -> list[Scored]:
        hits = searcher.search(query, limit, count=False).hits
        ids = searcher.fast_field_values(ID, [address for _, address in hits])
        return [(score, int(record_id or 0)) for (score, _), record_id in zip(hits, ids, strict=True)]

    def _ids(self, wanted: Sequence[Clause], searcher: Searcher) -> frozenset[int]:
        if not searcher.num_docs:
            return frozenset()
        query = any_of(clause_query(clause, self._schema, searcher) for clause in wanted)
        return frozenset(record_id for _, record_id in self._search(query, searcher.num_docs, searcher))

    def _score_of(self, query: Query, record_id: int, searcher: Searcher) -> float | None:
        """The score of one record, None where the query does not match it."""
        found = self._search(narrowed(query, Query.term_query(self._schema, ID, record_id)), 1, searcher)
        return found[0][0] if found else None

    def _frequency(self, clause: Clause, searcher: Searcher) -> int:
        if clause.part == "prefix" or len(clause.tokens) > 1:
            return len(self._ids([clause], searcher))
        return searcher.doc_freq(clause.field, clause.tokens[0])

    def _hits(self, ranked: Sequence[Scored], found: Clauses, searcher: Searcher) -> list[LaneHit]:
        total = searcher.num_docs

        def rarity(field: str, token: str) -> float:
            frequency = searcher.doc_freq(field, token)
            return math.log1p((total - frequency + 0.5) / (frequency + 0.5))

        wanted = Wanted(found.counted, self._fields, cache(rarity))
        best = [(record_id, score, wanted.best(self._rows[record_id].entries)) for score, record_id in ranked]
        return [LaneHit(record_id, score, entry.field, entry.seq) for record_id, score, entry in best]

    def _sources(self, clause: Clause) -> list[str]:
        for words in self._fields:
            if words.name == clause.field:
                return sorted(words.sources)
        return [searched.name for searched in self._kind.full_text]

    def _identity(self, record_id: int) -> Any:
        return identity_key(self._rows[record_id].record.identity)
