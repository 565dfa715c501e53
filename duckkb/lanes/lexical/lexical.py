"""The lexical lane of one record type: BM25 over whole records, in a Tantivy index.

The index is built at the first question and follows changes at the next one, so a use that asks nothing pays nothing.
Neither segments and threads nor what was replaced show in a result: scores come from the counts of the records that are
there, ties go by identity. Past one replaced document in fifty the index is built anew.
"""

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tantivy import Index, IndexWriter, Query
from tantivy.tantivy import __version__ as tantivy_version

from duckkb.id_set import IdSet
from duckkb.lanes.files import State
from duckkb.lanes.lexical.fields import (
    ID,
    MARKS,
    document,
    index_files,
    length_field,
    marked_fields,
    marks_for,
    new_index,
    open_index,
    texts_of,
    words_fields,
)
from duckkb.lanes.lexical.query import (
    CONSTANT,
    PREFIX_SCORE,
    Clause,
    Clauses,
    any_of,
    best_chunk,
    clause_query,
    clause_score,
    clauses,
    covered,
    narrowed,
    ranking_query,
    terms_of,
    text_weights,
)
from duckkb.lanes.lexical.view import IndexView
from duckkb.lanes.mirror import RowMirror
from duckkb.lanes.order import Scored, best_first, is_settled
from duckkb.ontology.model import RecordType
from duckkb.ports import Row, Rows, Tokenizer
from duckkb.queries import LaneHit, LexicalQuery, Weight

_HEAP = 50_000_000  # bytes for each thread of a build
_SMALL_HEAP = 15_000_000  # the least that Tantivy takes
_SEVERAL_THREADS = 20_000  # records from which a second thread pays
_DEAD_SHARE = 1 / 50  # of the documents; of the tokens, which the average length counts
_DEAD_TOKENS_SHARE = 1 / 20
_REBUILT_SHARE = 1 / 5  # of the records changed at once: building anew costs no more
_SLACK = 1e-6  # of a score: what the order of adding 32-bit floats may change
_NEAR = 1e-4  # of the last score wanted: what is as near may change places with it
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
        self._added = 0
        self._lengths: dict[str, int] = {}
        self._dead: dict[str, int] = {}
        self._view: IndexView | None = None
        self._asked: tuple[LexicalQuery, Clauses] | None = None

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        """The first `depth` of the records that the query matches, out of `allowed` where given.

        A query of exclusions alone matches every other record, with score 0; one without any token matches nothing.
        """
        found = self._clauses(query)
        depth = min(depth, len(self._rows))
        if found.is_empty or depth <= 0 or (allowed is not None and not allowed):
            return []
        view = self._current()
        if found.only_excludes:
            ids = self._rows if allowed is None else (record_id for record_id in allowed if record_id in self._rows)
            scored = [(0.0, record_id) for record_id in set(ids) - self._ids(found.excluded, view)]
            ranked = best_first(scored, depth, self._identity, _SLACK)
        else:
            ranked = self._ranked(found, depth, allowed, view)
        return [LaneHit(record_id, score) for score, record_id in ranked]

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        """As `ports.WordLane.chunk`; an entry that comes without tokens is a record's only one."""
        entries = [entry for entry in self._rows.words(record_id) if field in ("", entry.field)]
        return best_chunk(entries, self._clauses(query), self._fields, self._current, preferred)

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> list[Weight]:
        """How much each of some texts of a field holds of what the query asks for."""
        return text_weights(texts, field, self._clauses(query), self._fields, (self._tokenizer, self._current))

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        """The share of the query's idf mass that one record holds, as `covered` says."""
        found = self._clauses(query)
        if not found.counted:
            return None
        (text,) = self._tokenizer.tokenize([query.text])
        return covered(text, found, self._fields, self._rows.some([record_id], self.lane), self._current())

    def excluded(self, query: LexicalQuery) -> IdSet:
        """Ids of the records that the query's negations rule out."""
        found = self._clauses(query)
        return IdSet.of(self._ids(found.excluded, self._current()) if found.excluded and self._rows else ())

    def explain(self, query: LexicalQuery, record_id: int) -> dict[str, Any]:
        """`score` of one record and its `terms`: token, part (word, character, phrase, prefix), record fields, number of
        records that have it, and its share of the score. The shares add up; the score is 0 where the query does not match.
        """
        found = self._clauses(query)
        if not found.counted or record_id not in self._rows:
            return {"score": 0.0, "terms": []}
        view = self._current()
        whole = ranking_query(found, view)
        if not self._matched(whole, [record_id], view):
            return {"score": 0.0, "terms": []}
        if found.exact:
            parts = self._parts(found.counted, [record_id], view)[record_id]
            score = math.fsum(parts)
        else:
            parts = [self._score_of(clause_query(clause, view), record_id, view) for clause in found.counted]
            score = self._score_of(whole, record_id, view)
        terms = [
            {
                "token": clause.text,
                "part": clause.part,
                "fields": self._sources(clause),
                "doc_freq": self._frequency(clause, view),
                "score": part,
            }
            for clause, part in zip(found.counted, parts, strict=True)
            if part
        ]
        return {"score": score, "terms": terms}

    def _clauses(self, query: LexicalQuery) -> Clauses:
        if not self._kind.full_text or query.is_empty:
            return Clauses()
        asked = self._asked  # another thread may ask something else meanwhile
        if asked is None or asked[0] != query:  # an answer asks several times: for ranks, then for chunks
            asked = self._asked = query, clauses(query, self._tokenizer, self._fields)
        return asked[1]

    def _current(self) -> IndexView:
        """The index as the rows are now."""
        with self.turn:
            self._refresh()
            assert self._index is not None, "it was built or opened"
            if self._view is None:
                self._view = IndexView(self._index, dict(self._lengths), is_exact=self._added == len(self._rows))
            return self._view

    @property
    def _material(self) -> str:
        named = [(words.name, words.weight, words.language, sorted(words.sources)) for words in self._fields]
        return f"6 tantivy {tantivy_version} {named} {self._marked}"

    def complete(self) -> None:
        """Have the index on disk, for whatever is asked next; nothing where it is kept in memory."""
        if self._rows.version.folder is not None:
            self._refresh()

    def _build(self, folder: Path | None) -> State:
        self._index, self._added, self._lengths, self._dead = new_index(self._fields, folder), 0, {}, {}
        threads = 2 if len(self._rows) >= _SEVERAL_THREADS else 1
        writer = self._index.writer(_HEAP * threads, threads)
        for rows in self._rows.batches(self.lane):
            self._add(writer, rows)
        return self._committed(writer, folder)

    def _add(self, writer: IndexWriter, rows: Sequence[Row]) -> None:
        self._added += len(rows)
        for row in rows:
            texts = texts_of(row, self._fields)
            self._count(texts.lengths, 1)
            writer.add_document(document(row, texts, self._marked))

    def _count(self, lengths: Mapping[str, int], sign: int) -> None:
        for name, length in lengths.items():
            self._lengths[name] = self._lengths.get(name, 0) + sign * length

    def _committed(self, writer: IndexWriter, folder: Path | None) -> State:
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

    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        """The stale records are replaced; None where too many of the documents or tokens are dead, or would be."""
        total = len(self._rows)
        if self._index is None or len(changed) > total * _REBUILT_SHARE:
            return None
        rows = self._rows.some(sorted(changed), "fts")
        if self._added + len(rows) - total > total * _DEAD_SHARE:
            return None
        gone = self._lengths_of(changed)
        dead = {name: self._dead.get(name, 0) + count for name, count in gone.items()}
        if any(count > (self._lengths[name] - gone[name]) * _DEAD_TOKENS_SHARE for name, count in dead.items()):
            return None
        self._dead = dead
        self._count(gone, -1)
        writer = self._index.writer(_SMALL_HEAP, 1)
        for record_id in sorted(changed):
            writer.delete_documents_by_term(ID, record_id)
        self._add(writer, rows)
        return self._committed(writer, folder)

    def _lengths_of(self, ids: Set[int]) -> dict[str, int]:
        """How many tokens the index has of some records, by its fields."""
        assert self._index is not None, "it is followed"
        searcher = self._index.searcher()
        query = Query.const_score_query(Query.term_set_query(self._index.schema, ID, sorted(ids)), 0.0)
        found = searcher.search(query, max(len(ids), 1), count=False).hits
        addresses = [address for _, address in found]
        columns = {name: searcher.fast_field_values(length_field(name), addresses) for name in self._lengths}
        return {name: sum(int(length or 0) for length in column) for name, column in columns.items()}

    def _open(self, folder: Path, state: State) -> None:
        self._index = self._view = None
        self._added = state["added"]
        self._lengths = {str(name): int(length) for name, length in state["lengths"].items()}
        self._dead = {str(name): int(length) for name, length in state["dead"].items()}
        self._index = open_index(self._fields, folder)
        self._index.reload()

    def _ranked(self, found: Clauses, depth: int, allowed: Set[int] | None, view: IndexView) -> list[Scored]:
        """Allowed records are picked out of so many results as should hold enough of them. Where these are many, the query
        asks for the marks that the allowed records have. Where they have none, and what is picked is not enough, few allowed
        records are listed in the query, and many are picked out of more results."""
        query = ranking_query(found, view)
        total = view.documents
        wanted = None if allowed is None else IdSet.of(allowed)
        fetch = depth + _MARGIN if wanted is None else _enough(depth, len(wanted), total)
        if wanted is not None and fetch > _UNMARKED and (marks := marks_for(wanted, self._marked)):
            query = narrowed(query, *(Query.term_query(view.schema, MARKS, mark) for mark in marks))
            wanted, fetch = None, depth + _MARGIN
        while True:
            if wanted is not None and fetch > _PICKED and len(wanted) <= max(_LISTED, total * _LISTED_SHARE):
                query = narrowed(query, Query.term_set_query(view.schema, ID, wanted.array.tolist()))
                wanted, fetch = None, depth + _MARGIN
            scored, count = self._search(query, min(fetch, total), view, wanted)
            is_all = fetch >= total or count < fetch
            settled: list[Scored] | None = scored
            if found.exact:
                settled = self._scored_anew(scored, depth, is_all, found, view)
            elif not is_all and not is_settled(scored, depth, _SLACK):
                settled = None
            if settled is not None:
                return best_first(settled, depth, self._identity, _SLACK)
            fetch *= _MORE

    def _scored_anew(
        self, scored: list[Scored], depth: int, is_all: bool, found: Clauses, view: IndexView
    ) -> list[Scored] | None:
        """What was found, scored from the tokens of its records; None where others may belong among the first `depth`."""
        drift = view.drift((clause.field, clause.tokens[0]) for clause in found.counted if clause.part not in CONSTANT)
        floor = scored[depth - 1][0] * (1 - max(3 * drift, _NEAR)) if len(scored) >= depth else 0.0
        near = [record_id for score, record_id in scored if score >= floor]
        if not is_all and len(near) == len(scored):
            return None
        parts = self._parts(found.counted, near, view)
        return sorted(((math.fsum(parts[record_id]), record_id) for record_id in near), reverse=True)

    def _parts(self, wanted: Sequence[Clause], ids: Sequence[int], view: IndexView) -> dict[int, list[float]]:
        """What each clause adds to the scores of records."""
        open_ends = {
            clause: self._matched(clause_query(clause, view), ids, view) for clause in wanted if clause.part == "prefix"
        }
        found: dict[int, list[float]] = {}
        for row in self._rows.some(ids, self.lane):
            held, record_id = terms_of(row, self._fields), row.record.id
            found[record_id] = [
                PREFIX_SCORE * (record_id in open_ends[clause])
                if clause.part == "prefix"
                else clause_score(clause, held, view)
                for clause in wanted
            ]
        return found

    def _search(
        self, query: Query, limit: int, view: IndexView, wanted: IdSet | None = None
    ) -> tuple[list[Scored], int]:
        """The first `limit` results, of which those in `wanted` are given where that is; and how many there were."""
        hits = view.searcher.search(query, limit, count=False).hits
        ids = view.searcher.fast_field_values(ID, [address for _, address in hits])
        if wanted is None:
            return [(score, int(record_id or 0)) for (score, _), record_id in zip(hits, ids, strict=True)], len(hits)
        import numpy as np

        places = np.flatnonzero(wanted.holds(np.array(ids, np.int64))).tolist()
        return [(hits[place][0], int(ids[place] or 0)) for place in places], len(hits)

    def _ids(self, wanted: Sequence[Clause], view: IndexView) -> frozenset[int]:
        if not view.documents:
            return frozenset()
        query = any_of(clause_query(clause, view) for clause in wanted)
        return frozenset(record_id for _, record_id in self._search(query, view.documents, view)[0])

    def _score_of(self, query: Query, record_id: int, view: IndexView) -> float:
        """The score of one record as a question that is not exact gives it, 0 where the query does not match it."""
        found, _ = self._search(narrowed(query, Query.term_query(view.schema, ID, record_id)), 1, view)
        return found[0][0] if found else 0.0

    def _matched(self, query: Query, ids: Sequence[int], view: IndexView) -> frozenset[int]:
        """Which of some records a query finds."""
        one_of = narrowed(query, Query.term_set_query(view.schema, ID, list(ids)))
        return frozenset(record_id for _, record_id in self._search(one_of, max(len(ids), 1), view)[0])

    def _frequency(self, clause: Clause, view: IndexView) -> int:
        if clause.part == "prefix" or len(clause.tokens) > 1:
            return len(self._ids([clause], view))
        return view.frequency(clause.field, clause.tokens[0])

    def _sources(self, clause: Clause) -> list[str]:
        for words in self._fields:
            if words.name == clause.field:
                return sorted(words.sources)
        return [searched.name for searched in self._kind.full_text]


def _enough(depth: int, allowed: int, total: int) -> int:
    """How many results hold `depth` of the allowed records, and some more, if these are as likely to match as all are."""
    return math.ceil((2 * depth + _MARGIN) * total / max(allowed, 1))
