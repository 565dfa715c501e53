"""Words over a publication: the same clauses as over an index, found and scored by the target's postings.

The postings of a record for a target: the terms of each field of the index, how often and where they occur.

The common part of all lanes over a publication."""

import math
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from sys import byteorder
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from duckkb.id_set import IdSet
from duckkb.index.word_fields import K1, MARKS, SEQUENCE, B, Statistics, WordsField, round_length, words_fields
from duckkb.index.word_query import (
    CONSTANT,
    FORM_SCORE,
    MOST_EXPANSIONS,
    PREFIX_SCORE,
    Clause,
    Clauses,
    best_chunk,
    clauses,
    measure_coverage,
    terms_of,
    text_weights,
)
from duckkb.ontology.model import RecordType
from duckkb.ports import Publication, Row, Rows, Scored, Tokenizer, best_first, is_settled
from duckkb.types.queries import LaneHit, LexicalQuery, Weight

Positions = NDArray[np.int32]


PostedTerm = tuple[int, str]
"""The number of an index field and a token. Field 0 has the order of tokens, and the marks of written forms, which
equal no token; from 1 on are the words fields.
"""

Posting = tuple[PostedTerm, int, int, bytes | None]
"""A term in a record: how often it occurs, the stored length of the field, and the positions in field 0, with a
free position between two values. A mark has no positions and occurs zero times. A plain tuple, because there
may be hundreds of millions.
"""


def numbers_of(fields: Sequence[WordsField]) -> dict[str, int]:
    """Return the number of each field of the index."""
    return {SEQUENCE: 0, MARKS: 0} | {words.name: number for number, words in enumerate(fields, 1)}


class RecordTerms:
    """The terms of a record. `lengths` counts them by the number of the field."""

    def __init__(self, row: Row, fields: Sequence[WordsField]) -> None:
        terms = terms_of(row, fields)
        self._numbers = numbers_of(fields)
        self._held: Mapping[str, list[list[str]]] = terms
        self.lengths = [sum(map(len, terms[name])) for name in self._numbers if name != MARKS]

    def postings(self) -> Iterator[Posting]:
        for name, number in self._numbers.items():
            length, values = round_length(self.lengths[number]), self._held[name]
            if name == SEQUENCE:
                for token, places in _index_places(values).items():
                    yield (number, token), len(places), length, _pack_positions(places)
            elif name == MARKS:
                for mark in values[0]:
                    yield (number, mark), 0, length, b""
            else:
                for token, times in Counter(token for value in values for token in value).items():
                    yield (number, token), times, length, None


def positions_of(stored: bytes) -> Positions:
    """Decode the positions of a token from a `Posting`."""
    return np.frombuffer(stored, "<i4")


def _pack_positions(places: Sequence[int]) -> bytes:
    positions = array("i", places)
    if byteorder == "big":
        positions.byteswap()
    return positions.tobytes()


def times_in_a_row(places: Sequence[Positions]) -> int:
    """Count how often tokens occur in a row, given the positions of each."""
    starts = places[0]
    for step, next_places in enumerate(places[1:], 1):
        starts = starts[np.isin(starts + step, next_places)]
    return len(starts)


def _index_places(values: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    places_by_token: dict[str, list[int]] = {}
    at = 0
    for value in values:
        for token in value:
            places_by_token.setdefault(token, []).append(at)
            at += 1
        at += 1
    return places_by_token


class PublishedLane:
    """A lane that never needs completion: a commit is published whole, and vectors come with a publication."""

    def complete(self) -> None:
        """Do nothing: a publication is complete."""

    def on_vectors_available(self, keys: Iterable[bytes]) -> None:
        """Do nothing: no record waits for vectors."""


SLACK = 1e-6  # of a score, as in the lane over an index
MARGIN, MORE = 16, 8
Ids = NDArray[np.int64]
Scores = NDArray[np.float64]
Found = tuple[Ids, Scores]
"""Ids, ascending, and what a clause adds to the score of each."""

Term = Hashable
"""The target's key of a token in a field."""


class PublishedStatistics(Statistics):
    """The counts of a type in the publication at the time of creation; terms are looked up in batches."""

    @abstractmethod
    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        """Look up terms, by field and token."""

    @abstractmethod
    def term(self, field: str, token: str) -> Term:
        """Return the target's key of a term that some record has."""

    @abstractmethod
    def list_terms_by_prefix(self, prefix: str) -> Sequence[Term]:
        """Return the terms whose tokens have a prefix, in the order of texts."""


class PublishedWords(PublishedLane, ABC):
    """Implements `ports.WordLane` except for the target's own steps."""

    def __init__(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str) -> None:
        self._kind = kind
        self._rows = rows
        self._tokenizer = tokenizer
        self._fields = words_fields(kind, language)
        self._numbers = numbers_of(self._fields)
        self._asked: tuple[LexicalQuery, Clauses, PublishedStatistics, Publication] | None = None

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        query_clauses, view = self._parse_query(query)
        depth = min(depth, view.documents)
        if query_clauses.is_empty or depth <= 0 or (allowed is not None and not allowed):
            return []
        allowed_ids = None if allowed is None else IdSet.from_ids(allowed)
        if query_clauses.only_excludes:
            ids = self._others(IdSet.from_ids(self._collect_ids(query_clauses.excluded, view)), depth, allowed_ids)
            return [LaneHit(record_id, 0.0) for record_id in ids]
        query_clauses = replace(
            query_clauses, scored=tuple(clause for clause in query_clauses.scored if _can_rank(clause, view))
        )
        is_plain = not (query_clauses.required or query_clauses.excluded) and all(
            _is_term(clause) for clause in query_clauses.scored
        )
        scored_ids = (
            self._search_terms(query_clauses, depth, allowed_ids, view)
            if is_plain
            else self._score_clauses(query_clauses, depth, allowed_ids, view)
        )
        return [LaneHit(record_id, score) for score, record_id in scored_ids]

    def find_excluded_ids(self, query: LexicalQuery) -> IdSet:
        query_clauses, view = self._parse_query(query)
        return IdSet.from_ids(self._collect_ids(query_clauses.excluded, view) if query_clauses.excluded else ())

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        query_clauses, view = self._parse_query(query)
        entries = [entry for entry in self._rows.words(record_id) if field in ("", entry.field)]
        return best_chunk(entries, query_clauses, self._fields, lambda: view, preferred)

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> Sequence[Weight]:
        query_clauses, view = self._parse_query(query)
        return text_weights(texts, field, query_clauses, self._fields, (self._tokenizer, lambda: view))

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        query_clauses, view = self._parse_query(query)
        if not query_clauses.counted:
            return None
        (text,) = self._tokenizer.tokenize([query.text])
        view.know([(words.name, stem) for words in self._fields for stem in words.stems(text.words.split(" "))])
        return measure_coverage(text, query_clauses, self._fields, self._rows.some([record_id], "fts"), view)

    def explain(self, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        query_clauses, view = self._parse_query(query)
        nothing: dict[str, Any] = {"score": 0.0, "terms": []}
        if not query_clauses.counted or record_id not in self._rows:
            return nothing
        record_set = IdSet.from_ids([record_id])
        if not self._score_clauses(query_clauses, 1, record_set, view):
            return nothing
        parts = [float(self._find_matches(clause, view, record_set)[1].sum()) for clause in query_clauses.counted]
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
        return {"score": math.fsum(parts), "terms": terms}

    def _parse_query(self, query: LexicalQuery) -> tuple[Clauses, PublishedStatistics]:
        """Return the clauses of a query, and the statistics of the present publication."""
        cache_entry, now = self._asked, self._now  # another thread may replace it meanwhile
        if (
            cache_entry is None or cache_entry[0] != query or cache_entry[3] is not now
        ):  # term numbers are valid for a single publication
            has_terms = bool(self._kind.full_text) and not query.is_empty
            query_clauses = clauses(query, self._tokenizer, self._fields) if has_terms else Clauses()
            view = self._build_statistics()
            view.know([term for clause in (*query_clauses.counted, *query_clauses.excluded) for term in clause.terms])
            cache_entry = self._asked = query, query_clauses, view, now
        return cache_entry[1], cache_entry[2]

    def _search_terms(
        self, query_clauses: Clauses, depth: int, allowed_ids: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """Return the first records with any of some terms."""
        return self._score_clauses(query_clauses, depth, allowed_ids, view)

    def _score_clauses(
        self, query_clauses: Clauses, depth: int, allowed_ids: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """Return the first records for any clauses, as `_by_terms` does for terms."""
        required_matches = [self._find_matches(clause, view, allowed_ids) for clause in query_clauses.required]
        within = allowed_ids
        for ids, _ in required_matches:
            within = IdSet(ids) if within is None else within.intersection(IdSet(ids))
        if within is not None and not len(within):
            return []
        scored_matches = [self._find_matches(clause, view, within) for clause in query_clauses.scored]
        ids, scores = _sum_scores([*required_matches, *scored_matches])
        if within is not None:
            mask = within.holds(ids)
            ids, scores = ids[mask], scores[mask]
        if query_clauses.excluded and len(ids):
            mask = ~IdSet.from_ids(self._collect_ids(query_clauses.excluded, view)).holds(ids)
            ids, scores = ids[mask], scores[mask]
        order = np.argsort(-scores, kind="stable")
        falling = list(zip(scores[order].tolist(), ids[order].tolist(), strict=True))
        for fetch in (depth + MARGIN, (depth + MARGIN) * MORE, len(falling)):
            if fetch >= len(falling) or is_settled(falling[:fetch], depth, SLACK):
                return self._best(falling[:fetch], depth)
        return []

    def _find_matches(self, clause: Clause, view: PublishedStatistics, allowed_ids: IdSet | None) -> Found:
        """Return the records that match a clause, with its contribution to the score of each."""
        if clause.part == "prefix":
            ids = self._find_prefix_ids(clause, view, allowed_ids)
            return ids, np.full(len(ids), PREFIX_SCORE * clause.weight)
        if clause.part == "form":
            ids = self._find_form_ids(clause, view, allowed_ids) if _can_rank(clause, view) else np.empty(0, np.int64)
            return ids, np.full(len(ids), FORM_SCORE)
        if len(clause.tokens) == 1:
            return self._score_postings(clause, view, allowed_ids)
        score_by_id = {
            record_id: clause.weight * view.score_of(clause.field, clause.tokens, times, length)
            for record_id, (times, length) in self._find_phrases(clause.tokens, view, allowed_ids).items()
        }
        ids = np.array(sorted(score_by_id), np.int64)
        return ids, np.array([score_by_id[record_id] for record_id in ids.tolist()], np.float64)

    def _find_form_ids(self, clause: Clause, view: PublishedStatistics, allowed_ids: IdSet | None) -> Ids:
        """Return the records that have a token in the query's form."""
        token, mark = (
            self._ids_with([view.term(*term)] if view.frequency(*term) else [], allowed_ids) for term in clause.terms
        )
        return mark if clause.has_accents else np.setdiff1d(token, mark, assume_unique=True)

    def _score_postings(self, clause: Clause, view: PublishedStatistics, allowed_ids: IdSet | None) -> Found:
        field, (token,) = clause.field, clause.tokens
        if not view.frequency(field, token):
            return np.empty(0, np.int64), np.empty(0)
        ids, times, lengths = self._postings_of(view.term(field, token), allowed_ids)
        norms = K1 * (1 - B + B * lengths / view.average(field))
        return ids, clause.weight * view.idf(field, token) * (K1 + 1) * times / (times + norms)

    def _find_phrases(
        self, tokens: Sequence[str], view: PublishedStatistics, allowed_ids: IdSet | None
    ) -> dict[int, tuple[int, int]]:
        """Return the records with the tokens in a row: how often, and the stored length of their field."""
        distinct = dict.fromkeys(tokens)
        if not all(view.frequency(SEQUENCE, token) for token in distinct):
            return {}
        return self._find_sequences([[view.term(SEQUENCE, token)] for token in tokens], allowed_ids)

    def _find_sequences(
        self, choices: Sequence[Sequence[Term]], allowed_ids: IdSet | None
    ) -> dict[int, tuple[int, int]]:
        """Return the records in which terms of each choice follow in a row."""
        for choice in sorted(choices, key=len)[
            :-1
        ]:  # only records with all rare choices need the positions of the frequent choice
            ids = self._ids_with(choice, allowed_ids)
            allowed_ids = IdSet(ids)
            if not len(ids):
                return {}
        positions_by_id: dict[int, dict[Term, Any]] = {}
        lengths: dict[int, int] = {}
        terms = [*dict.fromkeys(term for choice in choices for term in choice)]
        for record_id, term, length, positions in self._places_of(terms, allowed_ids):
            positions_by_id.setdefault(record_id, {})[term] = positions_of(positions)
            lengths[record_id] = length
        matches = {}
        for record_id, places in positions_by_id.items():
            steps = [[places[term] for term in choice if term in places] for choice in choices]
            if all(steps) and (times := times_in_a_row([np.concatenate(step) for step in steps])):
                matches[record_id] = times, lengths[record_id]
        return matches

    def _find_prefix_ids(self, clause: Clause, view: PublishedStatistics, allowed_ids: IdSet | None) -> Ids:
        """Return the records with the tokens of a clause in a row, the last of them as a prefix."""
        *before, last = clause.tokens
        last_terms = view.list_terms_by_prefix(last)
        if not last_terms or not all(view.frequency(SEQUENCE, token) for token in before):
            return np.empty(0, np.int64)
        if not before:
            return self._ids_with(last_terms, allowed_ids)
        choices = [*([view.term(SEQUENCE, token)] for token in before), last_terms]
        if len(before) + len(last_terms) <= MOST_EXPANSIONS:
            return np.array(sorted(self._find_sequences(choices, allowed_ids)), np.int64)
        ids: Ids | None = None
        for choice in choices:  # as over an index: the tokens at any position
            choice_ids = self._ids_with(choice, allowed_ids)
            ids = choice_ids if ids is None else np.intersect1d(ids, choice_ids)
        return np.empty(0, np.int64) if ids is None else ids

    def _collect_ids(self, selected_clauses: Sequence[Clause], view: PublishedStatistics) -> Ids:
        id_arrays = [self._find_matches(clause, view, None)[0] for clause in selected_clauses]
        return np.unique(np.concatenate(id_arrays)) if id_arrays else np.empty(0, np.int64)

    @property
    @abstractmethod
    def _now(self) -> Publication:
        """Return the present publication."""

    @abstractmethod
    def _build_statistics(self) -> PublishedStatistics:
        """Return the statistics of the type in the present publication."""

    @abstractmethod
    def _postings_of(self, term: Term, allowed: IdSet | None) -> tuple[Ids, Scores, Ids]:
        """Return the records with a term, ascending, how often each has it, and the stored length of its field."""

    @abstractmethod
    def _ids_with(self, terms: Sequence[Term], allowed: IdSet | None) -> Ids:
        """Return the records with any of some terms, ascending, each once."""

    @abstractmethod
    def _places_of(self, terms: Sequence[Term], allowed: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        """Yield each record with a term, in the order of its tokens: the record, the term, the stored length, and
        its positions.
        """

    @abstractmethod
    def _others(self, gone: IdSet, depth: int, allowed: IdSet | None) -> list[int]:
        """Return the first records in the order of their identities, without excluded ones."""

    @abstractmethod
    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """Return the sort key of each record's identity, by id."""

    def _best(self, scored_ids: Sequence[Scored], depth: int) -> Sequence[Scored]:
        """Return the first `depth` records; order the same score by identity."""
        places = self._order([record_id for _, record_id in scored_ids]) if len(scored_ids) > 1 else {}
        return best_first(scored_ids, depth, places.__getitem__, SLACK)

    def _count_records(self, clause: Clause, view: PublishedStatistics) -> int:
        if clause.part == "prefix" or len(clause.tokens) > 1:
            return len(self._find_matches(clause, view, None)[0])
        return view.frequency(clause.field, clause.tokens[0])

    def _list_sources(self, clause: Clause) -> list[str]:
        for words in self._fields:
            if words.name == clause.field:
                return sorted(words.sources)
        return [field.name for field in self._kind.full_text]


def _can_rank(clause: Clause, view: PublishedStatistics) -> bool:
    """Return False for a form if no record has another form: a form that all records share ranks nothing."""
    return clause.part != "form" or view.frequency(*clause.terms[1]) > 0


def _is_term(clause: Clause) -> bool:
    return clause.part not in CONSTANT and len(clause.tokens) == 1


def _sum_scores(matches: Sequence[Found]) -> Found:
    """Return all ids, ascending, with the sum of their scores."""
    if not matches:
        return np.empty(0, np.int64), np.empty(0)
    every = np.concatenate([ids for ids, _ in matches])
    ids, places = np.unique(every, return_inverse=True)
    total: Scores = np.bincount(places, np.concatenate([scores for _, scores in matches]), len(ids)).astype(np.float64)
    return ids, total
