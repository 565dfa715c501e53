"""The lexical lane of a record type: BM25 over whole records, in a Tantivy index.

The index is built at the first query and follows changes at the next, so that other uses cost nothing.
Segments, threads and replaced documents do not affect results: scores come from the counts of the present
records, ties are ordered by identity. If more than 1/50 of the documents is replaced, the index is rebuilt.
"""

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tantivy import Index, IndexWriter, Query
from tantivy.tantivy import __version__ as tantivy_version

from duckkb.id_set import IdSet
from duckkb.index.word_fields import (
    ID,
    MARKS,
    IndexView,
    document,
    index_files,
    length_field,
    list_mark_fields,
    marks_for,
    new_index,
    open_index,
    texts_of,
    words_fields,
)
from duckkb.index.word_query import (
    CONSTANT,
    PREFIX_SCORE,
    Clause,
    Clauses,
    any_of,
    best_chunk,
    clause_query,
    clause_score,
    clauses,
    measure_coverage,
    narrow_query,
    ranking_query,
    terms_of,
    text_weights,
)
from duckkb.ontology.model import RecordType
from duckkb.ports import Row, Rows, Scored, Tokenizer, best_first, is_settled
from duckkb.store.mirrored_files import RowMirror, State
from duckkb.types.queries import LaneHit, LexicalQuery, Weight

_HEAP = 50_000_000  # bytes for each thread of a build
_SMALL_HEAP = 15_000_000  # the least that Tantivy takes
_SEVERAL_THREADS = 20_000  # records from which a second thread pays
_DEAD_SHARE = 1 / 50  # of the documents; below, of the tokens, which affect the average length
_DEAD_TOKENS_SHARE = 1 / 20
_REBUILT_SHARE = 1 / 5  # of the records changed at once: from here on rebuilding costs no more
_SLACK = 1e-6  # of a score: the error from the order of adding 32-bit floats
_NEAR = 1e-4  # of the last requested score: results that near may change places with it
_LISTED = 2_000  # allowed ids up to which listing them in the query is a fast filter,
_LISTED_SHARE = 1 / 20  # and the share of all records up to which it is
_UNMARKED = 500  # results up to which filtering costs no more than requiring marks
_PICKED = 20_000  # results up to which filtering is faster than listing ids
_MARGIN = 16  # records fetched beyond the depth, to see where a tie ends
_MORE = 8  # the factor for a second fetch if the first was too small


class Lexical(RowMirror):
    """Implements `ports.WordLane`."""

    name = "lexical"
    lane = "fts"

    def __init__(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str) -> None:
        super().__init__(rows)
        self._kind = kind
        self._tokenizer = tokenizer
        self._fields = words_fields(kind, language)
        self._marked = list_mark_fields(kind)
        self._index: Index | None = None
        self._added = 0
        self._lengths: dict[str, int] = {}
        self._dead: dict[str, int] = {}
        self._view: IndexView | None = None
        self._asked: tuple[LexicalQuery, Clauses] | None = None

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        """Return the first `depth` records that the query matches, out of `allowed` if given.

        A query of exclusions alone matches every other record, with score 0; a query without any token matches
        nothing.
        """
        query_clauses = self._parse_clauses(query)
        depth = min(depth, len(self._rows))
        if query_clauses.is_empty or depth <= 0 or (allowed is not None and not allowed):
            return []
        view = self._refresh_view()
        if query_clauses.only_excludes:
            ids = self._rows if allowed is None else (record_id for record_id in allowed if record_id in self._rows)
            scored_records = [(0.0, record_id) for record_id in set(ids) - self._find_ids(query_clauses.excluded, view)]
            best_records = best_first(scored_records, depth, self._identity, _SLACK)
        else:
            best_records = self._rank_records(query_clauses, depth, allowed, view)
        return [LaneHit(record_id, score) for score, record_id in best_records]

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        """Return the best chunk as `ports.WordLane.chunk` says; an entry without tokens is a record's only entry."""
        entries = [entry for entry in self._rows.words(record_id) if field in ("", entry.field)]
        return best_chunk(entries, self._parse_clauses(query), self._fields, self._refresh_view, preferred)

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> list[Weight]:
        """Return how much of the query each of these texts of a field contains."""
        return text_weights(
            texts, field, self._parse_clauses(query), self._fields, (self._tokenizer, self._refresh_view)
        )

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        """Return the share of the query's idf mass that a record contains, as `measure_coverage` defines it."""
        query_clauses = self._parse_clauses(query)
        if not query_clauses.counted:
            return None
        (text,) = self._tokenizer.tokenize([query.text])
        return measure_coverage(
            text, query_clauses, self._fields, self._rows.some([record_id], self.lane), self._refresh_view()
        )

    def find_excluded_ids(self, query: LexicalQuery) -> IdSet:
        """Return the ids of the records that the query's negations exclude."""
        query_clauses = self._parse_clauses(query)
        return IdSet.from_ids(
            self._find_ids(query_clauses.excluded, self._refresh_view())
            if query_clauses.excluded and self._rows
            else ()
        )

    def explain(self, query: LexicalQuery, record_id: int) -> dict[str, Any]:
        """Return the `score` of a record and its `terms`: token, part (word, character, phrase, prefix), record
        fields, number of records that have it, and its share of the score. The shares add up; the score is 0 if
        the query does not match.
        """
        query_clauses = self._parse_clauses(query)
        if not query_clauses.counted or record_id not in self._rows:
            return {"score": 0.0, "terms": []}
        view = self._refresh_view()
        whole = ranking_query(query_clauses, view)
        if not self._match_ids(whole, [record_id], view):
            return {"score": 0.0, "terms": []}
        if query_clauses.exact:
            parts = self._score_parts(query_clauses.counted, [record_id], view)[record_id]
            score = math.fsum(parts)
        else:
            parts = [self._score_of(clause_query(clause, view), record_id, view) for clause in query_clauses.counted]
            score = self._score_of(whole, record_id, view)
        terms = [
            {
                "token": clause.text,
                "part": clause.part,
                "fields": self._list_sources(clause),
                "doc_freq": self._count_records(clause, view),
                "score": part,
            }
            for clause, part in zip(query_clauses.counted, parts, strict=True)
            if part
        ]
        return {"score": score, "terms": terms}

    def _parse_clauses(self, query: LexicalQuery) -> Clauses:
        if not self._kind.full_text or query.is_empty:
            return Clauses()
        cached_query = self._asked  # another thread may replace it meanwhile
        # a search parses the query several times: for ranks, then for chunks
        if cached_query is None or cached_query[0] != query:
            cached_query = self._asked = query, clauses(query, self._tokenizer, self._fields)
        return cached_query[1]

    def _refresh_view(self) -> IndexView:
        """Refresh the index and return it for the present rows."""
        with self.turn:
            self._refresh()
            assert self._index is not None, "it was built or opened"
            if self._view is None:
                self._view = IndexView(self._index, dict(self._lengths), is_exact=self._added == len(self._rows))
            return self._view

    @property
    def _material(self) -> str:
        field_keys = [(words.name, words.weight, words.language, sorted(words.sources)) for words in self._fields]
        return f"6 tantivy {tantivy_version} {field_keys} {self._marked}"

    def complete(self) -> None:
        """Bring the index on disk up to date for the next query; do nothing if it is kept in memory."""
        if self._rows.state.folder is not None:
            self._refresh()

    def _build(self, folder: Path | None) -> State:
        self._index, self._added, self._lengths, self._dead = new_index(self._fields, folder), 0, {}, {}
        threads = 2 if len(self._rows) >= _SEVERAL_THREADS else 1
        writer = self._index.writer(_HEAP * threads, threads)
        for rows in self._rows.batches(self.lane):
            self._add(writer, rows)
        return self._commit_index(writer, folder)

    def _add(self, writer: IndexWriter, rows: Sequence[Row]) -> None:
        self._added += len(rows)
        for row in rows:
            texts = texts_of(row, self._fields)
            self._count(texts.lengths, 1)
            writer.add_document(document(row, texts, self._marked))

    def _count(self, lengths: Mapping[str, int], sign: int) -> None:
        for name, length in lengths.items():
            self._lengths[name] = self._lengths.get(name, 0) + sign * length

    def _commit_index(self, writer: IndexWriter, folder: Path | None) -> State:
        assert self._index is not None, "something was written to it"
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._view = None
        return {
            "files": index_files(folder) if folder else [],
            "added": self._added,
            "lengths": dict(self._lengths),
            "dead": dict(self._dead),
        }

    def _follow(self, folder: Path | None, changed_ids: frozenset[int]) -> State | None:
        """Replace the changed records; return None if too many of the documents or tokens are dead, or would be."""
        total = len(self._rows)
        if self._index is None or len(changed_ids) > total * _REBUILT_SHARE:
            return None
        rows = self._rows.some(sorted(changed_ids), "fts")
        if self._added + len(rows) - total > total * _DEAD_SHARE:
            return None
        removed_lengths = self._sum_lengths(changed_ids)
        dead = {name: self._dead.get(name, 0) + count for name, count in removed_lengths.items()}
        if any(
            count > (self._lengths[name] - removed_lengths[name]) * _DEAD_TOKENS_SHARE for name, count in dead.items()
        ):
            return None
        self._dead = dead
        self._count(removed_lengths, -1)
        writer = self._index.writer(_SMALL_HEAP, 1)
        for record_id in sorted(changed_ids):
            writer.delete_documents_by_term(ID, record_id)
        self._add(writer, rows)
        return self._commit_index(writer, folder)

    def _sum_lengths(self, ids: Set[int]) -> dict[str, int]:
        """Count the tokens of some records by field of the index."""
        assert self._index is not None, "it is followed"
        searcher = self._index.searcher()
        query = Query.const_score_query(Query.term_set_query(self._index.schema, ID, sorted(ids)), 0.0)
        hits = searcher.search(query, max(len(ids), 1), count=False).hits
        addresses = [address for _, address in hits]
        columns = {name: searcher.fast_field_values(length_field(name), addresses) for name in self._lengths}
        return {name: sum(int(length or 0) for length in column) for name, column in columns.items()}

    def _open(self, folder: Path, state: State) -> None:
        self._index = self._view = None
        self._added = state["added"]
        self._lengths = {str(name): int(length) for name, length in state["lengths"].items()}
        self._dead = {str(name): int(length) for name, length in state["dead"].items()}
        self._index = open_index(self._fields, folder)
        self._index.reload()

    def _rank_records(
        self, query_clauses: Clauses, depth: int, allowed_ids: Set[int] | None, view: IndexView
    ) -> list[Scored]:
        """Rank the allowed records. Fetches as many results as should contain enough of them and filters these; if
        that is many, the query requires the marks of the allowed records. Without marks, and with too few
        results, a few allowed records are listed in the query, and many are filtered out of more results.
        """
        query = ranking_query(query_clauses, view)
        total = view.documents
        target_ids = None if allowed_ids is None else IdSet.from_ids(allowed_ids)
        fetch = depth + _MARGIN if target_ids is None else _estimate_fetch(depth, len(target_ids), total)
        if target_ids is not None and fetch > _UNMARKED and (marks := marks_for(target_ids, self._marked)):
            query = narrow_query(query, *(Query.term_query(view.schema, MARKS, mark) for mark in marks))
            target_ids, fetch = None, depth + _MARGIN
        while True:
            if target_ids is not None and fetch > _PICKED and len(target_ids) <= max(_LISTED, total * _LISTED_SHARE):
                query = narrow_query(query, Query.term_set_query(view.schema, ID, target_ids.array.tolist()))
                target_ids, fetch = None, depth + _MARGIN
            scored_records, count = self._search(query, min(fetch, total), view, target_ids)
            is_all = fetch >= total or count < fetch
            final_records: list[Scored] | None = scored_records
            if query_clauses.exact:
                final_records = self._rescore_records(scored_records, depth, is_all, query_clauses, view)
            elif not is_all and not is_settled(scored_records, depth, _SLACK):
                final_records = None
            if final_records is not None:
                return best_first(final_records, depth, self._identity, _SLACK)
            fetch *= _MORE

    def _rescore_records(
        self, scored_records: list[Scored], depth: int, is_all: bool, query_clauses: Clauses, view: IndexView
    ) -> list[Scored] | None:
        """Rescore the results from the tokens of their records; None if other records may belong among the first
        `depth`.
        """
        drift = view.drift(
            (clause.field, clause.tokens[0]) for clause in query_clauses.counted if clause.part not in CONSTANT
        )
        floor = scored_records[depth - 1][0] * (1 - max(3 * drift, _NEAR)) if len(scored_records) >= depth else 0.0
        near = [record_id for score, record_id in scored_records if score >= floor]
        if not is_all and len(near) == len(scored_records):
            return None
        parts = self._score_parts(query_clauses.counted, near, view)
        return sorted(((math.fsum(parts[record_id]), record_id) for record_id in near), reverse=True)

    def _score_parts(
        self, query_clauses: Sequence[Clause], ids: Sequence[int], view: IndexView
    ) -> dict[int, list[float]]:
        """Return the contribution of each clause to the scores of records."""
        open_ends = {
            clause: self._match_ids(clause_query(clause, view), ids, view)
            for clause in query_clauses
            if clause.part == "prefix"
        }
        parts_by_id: dict[int, list[float]] = {}
        for row in self._rows.some(ids, self.lane):
            record_terms, record_id = terms_of(row, self._fields), row.record.id
            parts_by_id[record_id] = [
                PREFIX_SCORE * (record_id in open_ends[clause])
                if clause.part == "prefix"
                else clause_score(clause, record_terms, view)
                for clause in query_clauses
            ]
        return parts_by_id

    def _search(
        self, query: Query, limit: int, view: IndexView, target_ids: IdSet | None = None
    ) -> tuple[list[Scored], int]:
        """Return the first `limit` results, filtered by `target_ids` if given, and their number before filtering."""
        hits = view.searcher.search(query, limit, count=False).hits
        ids = view.searcher.fast_field_values(ID, [address for _, address in hits])
        if target_ids is None:
            return [(score, int(record_id or 0)) for (score, _), record_id in zip(hits, ids, strict=True)], len(hits)
        import numpy as np

        places = np.flatnonzero(target_ids.holds(np.array(ids, np.int64))).tolist()
        return [(hits[place][0], int(ids[place] or 0)) for place in places], len(hits)

    def _find_ids(self, query_clauses: Sequence[Clause], view: IndexView) -> frozenset[int]:
        if not view.documents:
            return frozenset()
        query = any_of(clause_query(clause, view) for clause in query_clauses)
        return frozenset(record_id for _, record_id in self._search(query, view.documents, view)[0])

    def _score_of(self, query: Query, record_id: int, view: IndexView) -> float:
        """Return the inexact score of a record, 0 if the query does not match it."""
        hits, _ = self._search(narrow_query(query, Query.term_query(view.schema, ID, record_id)), 1, view)
        return hits[0][0] if hits else 0.0

    def _match_ids(self, query: Query, ids: Sequence[int], view: IndexView) -> frozenset[int]:
        """Return the records of these ids that a query matches."""
        one_of = narrow_query(query, Query.term_set_query(view.schema, ID, list(ids)))
        return frozenset(record_id for _, record_id in self._search(one_of, max(len(ids), 1), view)[0])

    def _count_records(self, clause: Clause, view: IndexView) -> int:
        if clause.part == "prefix" or len(clause.tokens) > 1:
            return len(self._find_ids([clause], view))
        return view.frequency(clause.field, clause.tokens[0])

    def _list_sources(self, clause: Clause) -> list[str]:
        for words in self._fields:
            if words.name == clause.field:
                return sorted(words.sources)
        return [search_field.name for search_field in self._kind.full_text]


def _estimate_fetch(depth: int, allowed_count: int, total: int) -> int:
    """Estimate how many results contain `depth` of the allowed records with a margin, if these match as often as
    all records do.
    """
    return math.ceil((2 * depth + _MARGIN) * total / max(allowed_count, 1))
