"""The lexical lane of one record type: BM25 over whole records, in a Tantivy index.

The index is built at the first question and follows changes at the next one, so a use that asks nothing pays nothing.
It is built again, once, with the order of tokens, when a question first asks for phrases, prefixes or characters; an
index job builds it so at once.
Segments and threads do not show in a result: scores come from the counts of the whole index, ties go by identity.
BM25 counts a replaced document until its segment is merged; past one in fifty of those the index is built anew, so
scores agree with a fresh one's, or nearly so in a base that was changed a little.
"""

import math
from collections.abc import Sequence, Set
from functools import cache, partial
from pathlib import Path
from typing import Any

from tantivy import Index, IndexWriter, Query, Schema, Searcher
from tantivy.tantivy import __version__ as tantivy_version

from duckkb.id_set import IdSet
from duckkb.lanes.files import State
from duckkb.lanes.lexical.fields import (
    ID,
    MARKS,
    document,
    index_files,
    marked_fields,
    marks_for,
    new_index,
    open_index,
    words_fields,
)
from duckkb.lanes.lexical.query import (
    Clause,
    Clauses,
    any_of,
    chunk_weight,
    clause_query,
    clauses,
    narrowed,
    ranking_query,
    terms_asked,
    terms_of,
)
from duckkb.lanes.mirror import RowMirror
from duckkb.lanes.order import Scored, best_first, is_settled
from duckkb.ontology.model import RecordType
from duckkb.ports import Row, Rows, Tokenizer
from duckkb.queries import LaneHit, LexicalQuery

_HEAP = 50_000_000  # bytes for each thread of a build
_SMALL_HEAP = 15_000_000  # the least that Tantivy takes
_SEVERAL_THREADS = 20_000  # records from which a second thread pays
_DEAD_SHARE = 1 / 50
_REBUILT_SHARE = 1 / 5  # of the records changed at once: building anew costs no more
_SLACK = 1e-6  # of a score: what the order of adding 32-bit floats may change
_LISTED = 2_000  # allowed ids up to which listing them in the query is a fast filter,
_LISTED_SHARE = 1 / 20  # and the share of all records up to which it is
_UNMARKED = 500  # results up to which picking costs no more than asking for marks
_PICKED = 20_000  # results out of which picking is faster than that
_MARGIN = 16  # records asked for beyond the depth, to see where a tie ends
_MORE = 8  # how many times more are asked for when that was too few


class Lexical(RowMirror):
    """Implements `ports.WordLane`."""

    name = "lexical"
    lane = "fts"

    def __init__(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str) -> None:
        super().__init__(rows)
        self._kind = kind
        self._tokenizer = tokenizer
        self._fields = words_fields(kind, language)
        self._marked = marked_fields(kind)
        self._index: Index | None = None
        self._has_sequence = self._needs_sequence = False
        self._added = 0
        self._asked: tuple[LexicalQuery, Clauses] | None = None

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        """The first `depth` of the records that the query matches, out of `allowed` where given.

        A query of exclusions alone matches every other record, with score 0; one without any token matches nothing.
        """
        found = self._clauses(query)
        depth = min(depth, len(self._rows))
        if found.is_empty or depth <= 0 or (allowed is not None and not allowed):
            return []
        searcher = self._searcher(found)
        if found.only_excludes:
            ids = self._rows if allowed is None else (record_id for record_id in allowed if record_id in self._rows)
            scored = [(0.0, record_id) for record_id in set(ids) - self._ids(found.excluded, searcher)]
            ranked = best_first(scored, depth, self._identity, _SLACK)
        else:
            ranked = self._ranked(found, depth, allowed, searcher)
        return [LaneHit(record_id, score) for score, record_id in ranked]

    def chunk(self, query: LexicalQuery, record_id: int) -> tuple[str, int]:
        """The field and number of the record's chunk that holds the most of what the query asks for; ("", 0) where it has none."""
        entries = self._rows.words(record_id)
        wanted = self._clauses(query).counted if len(entries) > 1 else ()
        if not wanted:
            return (entries[0].field, entries[0].seq) if entries else ("", 0)
        searcher = self._searcher(self._clauses(query))

        rarity = cache(partial(_idf, searcher))
        best = max(entries, key=lambda entry: chunk_weight(entry, wanted, self._fields, rarity))
        return best.field, best.seq

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        """The share of the query's idf mass that one record holds. A word is held in any field, in the form that the field
        has it in, and as rare as in the field where it is least so; a word that no record has counts as one in none. So
        does a Chinese character, each token of a phrase, and an open end for the most frequent word that it stands for."""
        found = self._clauses(query)
        if not found.counted:
            return None
        searcher = self._searcher(found)
        entries = (entry for row in self._rows.some([record_id], self.lane) for entry in row.entries)
        held = terms_of(entries, self._fields)
        (text,) = self._tokenizer.tokenize([query.text])
        rarity = cache(partial(_idf, searcher))
        asked = [
            (min(rarity(*term) for term in forms), forms) for forms in terms_asked(text, found, self._fields, searcher)
        ]
        mass = math.fsum(idf for idf, _ in asked)
        return math.fsum(idf for idf, forms in asked if not held.isdisjoint(forms)) / mass if mass else None

    def excluded(self, query: LexicalQuery) -> IdSet:
        """Ids of the records that the query's negations rule out."""
        found = self._clauses(query)
        return IdSet.of(self._ids(found.excluded, self._searcher(found)) if found.excluded and self._rows else ())

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
        if self._asked is None or self._asked[0] != query:  # an answer asks several times: for ranks, then for chunks
            self._asked = query, clauses(query, self._tokenizer, self._fields)
        return self._asked[1]

    def _searcher(self, found: Clauses) -> Searcher:
        """A view of the index as the rows are now, with what these clauses look at."""
        self._needs_sequence = found.need_sequence
        self._refresh()
        assert self._index is not None, "it was built or opened"
        return self._index.searcher()

    @property
    def _material(self) -> str:
        named = [(words.name, words.weight, words.language, sorted(words.sources)) for words in self._fields]
        return f"3 tantivy {tantivy_version} {named} {self._marked}"

    def _suits(self) -> bool:
        return self._has_sequence or not self._needs_sequence

    def complete(self) -> None:
        """Have the index on disk with the order of tokens, for whatever is asked next; nothing where it is kept in memory."""
        if self._rows.version.folder is not None:
            self._needs_sequence = True
            self._refresh()

    def _build(self, folder: Path | None) -> State:
        self._has_sequence = self._has_sequence or self._needs_sequence
        self._index, self._added = new_index(self._fields, folder), 0
        threads = 2 if len(self._rows) >= _SEVERAL_THREADS else 1
        writer = self._index.writer(_HEAP * threads, threads)
        for rows in self._rows.batches(self.lane):
            self._add(writer, rows)
        return self._committed(writer, folder)

    def _add(self, writer: IndexWriter, rows: Sequence[Row]) -> None:
        self._added += len(rows)
        for row in rows:
            writer.add_document(document(row, self._fields, self._marked, self._has_sequence))

    def _committed(self, writer: IndexWriter, folder: Path | None) -> State:
        assert self._index is not None, "something was written to it"
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        return {
            "files": index_files(folder) if folder else [],
            "added": self._added,
            "sequence": self._has_sequence,
        }

    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        """The stale records are replaced; None where too many of the documents are dead, or would be."""
        total = len(self._rows)
        if self._index is None or len(changed) > total * _REBUILT_SHARE:
            return None
        rows = self._rows.some(sorted(changed), "fts")
        if self._added + len(rows) - total > total * _DEAD_SHARE:
            return None
        writer = self._index.writer(_SMALL_HEAP, 1)
        for record_id in sorted(changed):
            writer.delete_documents_by_term(ID, record_id)
        self._add(writer, rows)
        return self._committed(writer, folder)

    def _open(self, folder: Path, state: State) -> None:
        self._index = None
        self._has_sequence, self._added = state["sequence"], state["added"]
        self._index = open_index(self._fields, folder)
        self._index.reload()

    def _ranked(self, found: Clauses, depth: int, allowed: Set[int] | None, searcher: Searcher) -> list[Scored]:
        """Allowed records are picked out of so many results as should hold enough of them. Where these are many, the query
        asks for the marks that the allowed records have. Where they have none, and what is picked is not enough, few allowed
        records are listed in the query, and many are picked out of more results."""
        query = ranking_query(found, self._schema, searcher)
        total = searcher.num_docs
        wanted = None if allowed is None else IdSet.of(allowed)
        fetch = depth + _MARGIN if wanted is None else _enough(depth, len(wanted), total)
        if wanted is not None and fetch > _UNMARKED and (marks := marks_for(wanted, self._marked)):
            query = narrowed(query, *(Query.term_query(self._schema, MARKS, mark) for mark in marks))
            wanted, fetch = None, depth + _MARGIN
        while True:
            if wanted is not None and fetch > _PICKED and len(wanted) <= max(_LISTED, total * _LISTED_SHARE):
                query = narrowed(query, Query.term_set_query(self._schema, ID, wanted.array.tolist()))
                wanted, fetch = None, depth + _MARGIN
            scored, count = self._search(query, min(fetch, total), searcher, wanted)
            if fetch >= total or count < fetch or is_settled(scored, depth, _SLACK):
                return best_first(scored, depth, self._identity, _SLACK)
            fetch *= _MORE

    def _search(
        self, query: Query, limit: int, searcher: Searcher, wanted: IdSet | None = None
    ) -> tuple[list[Scored], int]:
        """The first `limit` results, of which those in `wanted` are given where that is; and how many there were."""
        hits = searcher.search(query, limit, count=False).hits
        ids = searcher.fast_field_values(ID, [address for _, address in hits])
        if wanted is None:
            return [(score, int(record_id or 0)) for (score, _), record_id in zip(hits, ids, strict=True)], len(hits)
        import numpy as np

        places = np.flatnonzero(wanted.holds(np.array(ids, np.int64))).tolist()
        return [(hits[place][0], int(ids[place] or 0)) for place in places], len(hits)

    def _ids(self, wanted: Sequence[Clause], searcher: Searcher) -> frozenset[int]:
        if not searcher.num_docs:
            return frozenset()
        query = any_of(clause_query(clause, self._schema, searcher) for clause in wanted)
        return frozenset(record_id for _, record_id in self._search(query, searcher.num_docs, searcher)[0])

    def _score_of(self, query: Query, record_id: int, searcher: Searcher) -> float | None:
        """The score of one record, None where the query does not match it."""
        found, _ = self._search(narrowed(query, Query.term_query(self._schema, ID, record_id)), 1, searcher)
        return found[0][0] if found else None

    def _frequency(self, clause: Clause, searcher: Searcher) -> int:
        if clause.part == "prefix" or len(clause.tokens) > 1:
            return len(self._ids([clause], searcher))
        return searcher.doc_freq(clause.field, clause.tokens[0])

    def _sources(self, clause: Clause) -> list[str]:
        for words in self._fields:
            if words.name == clause.field:
                return sorted(words.sources)
        return [searched.name for searched in self._kind.full_text]


def _enough(depth: int, allowed: int, total: int) -> int:
    """How many results hold `depth` of the allowed records, and some more, if these are as likely to match as all are."""
    return math.ceil((2 * depth + _MARGIN) * total / max(allowed, 1))


def _idf(searcher: Searcher, field: str, token: str) -> float:
    """How rare a token is in a field of the index: the idf of BM25 as Tantivy has it, which is never negative (Robertson and
    Zaragoza, 2009)."""
    frequency = searcher.doc_freq(field, token)
    return math.log1p((searcher.num_docs - frequency + 0.5) / (frequency + 0.5))
