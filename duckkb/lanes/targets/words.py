"""Words over what is published: the same clauses as over an index, found and scored by the postings that a target keeps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from duckkb.id_set import IdSet
from duckkb.lanes.lexical.fields import SEQUENCE, words_fields
from duckkb.lanes.lexical.query import (
    CONSTANT,
    FORM_SCORE,
    MOST_EXPANSIONS,
    PREFIX_SCORE,
    Clause,
    Clauses,
    best_chunk,
    clauses,
    covered,
    text_weights,
)
from duckkb.lanes.lexical.view import K1, B, Statistics
from duckkb.lanes.order import Scored, best_first, is_settled
from duckkb.lanes.targets.lane import PublishedLane
from duckkb.lanes.targets.postings import numbers_of, positions_of, times_in_a_row
from duckkb.ontology.model import RecordType
from duckkb.ports import Publication, Rows, Tokenizer
from duckkb.queries import LaneHit, LexicalQuery, Weight

SLACK = 1e-6  # of a score, as in the lane over an index
MARGIN, MORE = 16, 8
Ids = NDArray[np.int64]
Scores = NDArray[np.float64]
Found = tuple[Ids, Scores]
"""Ids, rising, and what a clause adds to the score of each."""

Term = Hashable
"""What a target knows a token of a field by."""


class PublishedStatistics(Statistics):
    """What is counted of a type as it is published when this is made; terms are looked up many at a time."""

    @abstractmethod
    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        """Look some terms up, by field and token."""

    @abstractmethod
    def term(self, field: str, token: str) -> Term:
        """What a term that some record has is known by."""

    @abstractmethod
    def terms_beginning(self, prefix: str) -> Sequence[Term]:
        """The terms in the order of texts whose tokens begin so."""


class PublishedWords(PublishedLane, ABC):
    """Implements `ports.WordLane` but for what each target does in its own way."""

    def __init__(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str) -> None:
        self._kind = kind
        self._rows = rows
        self._tokenizer = tokenizer
        self._fields = words_fields(kind, language)
        self._numbers = numbers_of(self._fields)
        self._asked: tuple[LexicalQuery, Clauses, PublishedStatistics, Publication] | None = None

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        found, view = self._clauses(query)
        depth = min(depth, view.documents)
        if found.is_empty or depth <= 0 or (allowed is not None and not allowed):
            return []
        wanted = None if allowed is None else IdSet.of(allowed)
        if found.only_excludes:
            ids = self._others(IdSet.of(self._ids(found.excluded, view)), depth, wanted)
            return [LaneHit(one, 0.0) for one in ids]
        found = replace(found, scored=tuple(clause for clause in found.scored if _ranks(clause, view)))
        is_plain = not (found.required or found.excluded) and all(_is_term(clause) for clause in found.scored)
        ranked = self._by_terms(found, depth, wanted, view) if is_plain else self._by_sets(found, depth, wanted, view)
        return [LaneHit(one, score) for score, one in ranked]

    def excluded(self, query: LexicalQuery) -> IdSet:
        found, view = self._clauses(query)
        return IdSet.of(self._ids(found.excluded, view) if found.excluded else ())

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        found, view = self._clauses(query)
        entries = [entry for entry in self._rows.words(record_id) if field in ("", entry.field)]
        return best_chunk(entries, found, self._fields, lambda: view, preferred)

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> Sequence[Weight]:
        found, view = self._clauses(query)
        return text_weights(texts, field, found, self._fields, (self._tokenizer, lambda: view))

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        found, view = self._clauses(query)
        if not found.counted:
            return None
        (text,) = self._tokenizer.tokenize([query.text])
        view.know([(words.name, stem) for words in self._fields for stem in words.stems(text.words.split(" "))])
        return covered(text, found, self._fields, self._rows.some([record_id], "fts"), view)

    def explain(self, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        found, view = self._clauses(query)
        nothing: dict[str, Any] = {"score": 0.0, "terms": []}
        if not found.counted or record_id not in self._rows:
            return nothing
        one = IdSet.of([record_id])
        if not self._by_sets(found, 1, one, view):
            return nothing
        parts = [float(self._found(clause, view, one)[1].sum()) for clause in found.counted]
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
        return {"score": math.fsum(parts), "terms": terms}

    def _clauses(self, query: LexicalQuery) -> tuple[Clauses, PublishedStatistics]:
        """What a query asks for, and what is counted of it: of the publication that is asked now."""
        asked, now = self._asked, self._now  # another thread may ask something else meanwhile
        if asked is None or asked[0] != query or asked[3] is not now:  # numbers of terms are those of one publication
            is_asked = bool(self._kind.full_text) and not query.is_empty
            found = clauses(query, self._tokenizer, self._fields) if is_asked else Clauses()
            view = self._counted()
            view.know([term for clause in (*found.counted, *found.excluded) for term in clause.terms])
            asked = self._asked = query, found, view, now
        return asked[1], asked[2]

    def _by_terms(
        self, found: Clauses, depth: int, allowed: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """The first of those that have one of some terms."""
        return self._by_sets(found, depth, allowed, view)

    def _by_sets(
        self, found: Clauses, depth: int, allowed: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """As `_by_terms`, of any clauses."""
        required = [self._found(clause, view, allowed) for clause in found.required]
        within = allowed
        for ids, _ in required:
            within = IdSet(ids) if within is None else within.within(IdSet(ids))
        if within is not None and not len(within):
            return []
        scored = [self._found(clause, view, within) for clause in found.scored]
        ids, scores = _added([*required, *scored])
        if within is not None:
            kept = within.holds(ids)
            ids, scores = ids[kept], scores[kept]
        if found.excluded and len(ids):
            kept = ~IdSet.of(self._ids(found.excluded, view)).holds(ids)
            ids, scores = ids[kept], scores[kept]
        order = np.argsort(-scores, kind="stable")
        falling = list(zip(scores[order].tolist(), ids[order].tolist(), strict=True))
        for fetch in (depth + MARGIN, (depth + MARGIN) * MORE, len(falling)):
            if fetch >= len(falling) or is_settled(falling[:fetch], depth, SLACK):
                return self._best(falling[:fetch], depth)
        return []

    def _found(self, clause: Clause, view: PublishedStatistics, allowed: IdSet | None) -> Found:
        """The records that a clause holds for, with what it adds to the score of each."""
        if clause.part == "prefix":
            ids = self._open_ended(clause, view, allowed)
            return ids, np.full(len(ids), PREFIX_SCORE * clause.weight)
        if clause.part == "form":
            ids = self._in_form(clause, view, allowed) if _ranks(clause, view) else np.empty(0, np.int64)
            return ids, np.full(len(ids), FORM_SCORE)
        if len(clause.tokens) == 1:
            return self._of_term(clause, view, allowed)
        found = {
            one: clause.weight * view.score_of(clause.field, clause.tokens, times, length)
            for one, (times, length) in self._in_a_row(clause.tokens, view, allowed).items()
        }
        ids = np.array(sorted(found), np.int64)
        return ids, np.array([found[one] for one in ids.tolist()], np.float64)

    def _in_form(self, clause: Clause, view: PublishedStatistics, allowed: IdSet | None) -> Ids:
        """The records that have a token in the form that the question has."""
        token, mark = (
            self._ids_with([view.term(*term)] if view.frequency(*term) else [], allowed) for term in clause.terms
        )
        return mark if clause.has_accents else np.setdiff1d(token, mark, assume_unique=True)

    def _of_term(self, clause: Clause, view: PublishedStatistics, allowed: IdSet | None) -> Found:
        field, (token,) = clause.field, clause.tokens
        if not view.frequency(field, token):
            return np.empty(0, np.int64), np.empty(0)
        ids, times, lengths = self._postings_of(view.term(field, token), allowed)
        norms = K1 * (1 - B + B * lengths / view.average(field))
        return ids, clause.weight * view.idf(field, token) * (K1 + 1) * times / (times + norms)

    def _in_a_row(
        self, tokens: Sequence[str], view: PublishedStatistics, allowed: IdSet | None
    ) -> dict[int, tuple[int, int]]:
        """The records in which tokens stand one behind the other: how often, and as how long their field counts."""
        distinct = dict.fromkeys(tokens)
        if not all(view.frequency(SEQUENCE, token) for token in distinct):
            return {}
        return self._stand([[view.term(SEQUENCE, token)] for token in tokens], allowed)

    def _stand(self, choices: Sequence[Sequence[Term]], allowed: IdSet | None) -> dict[int, tuple[int, int]]:
        """The records in which one of the terms of each choice stands behind one of that before."""
        for choice in sorted(choices, key=len)[
            :-1
        ]:  # who has one of the rest need not be looked at where it lacks another
            ids = self._ids_with(choice, allowed)
            allowed = IdSet(ids)
            if not len(ids):
                return {}
        held: dict[int, dict[Term, Any]] = {}
        lengths: dict[int, int] = {}
        wanted = [*dict.fromkeys(term for choice in choices for term in choice)]
        for one, term, length, positions in self._places_of(wanted, allowed):
            held.setdefault(one, {})[term] = positions_of(positions)
            lengths[one] = length
        found = {}
        for one, places in held.items():
            steps = [[places[term] for term in choice if term in places] for choice in choices]
            if all(steps) and (times := times_in_a_row([np.concatenate(step) for step in steps])):
                found[one] = times, lengths[one]
        return found

    def _open_ended(self, clause: Clause, view: PublishedStatistics, allowed: IdSet | None) -> Ids:
        """The records that have the tokens of a clause in a row, the last of them with an open end."""
        *before, last = clause.tokens
        meant = view.terms_beginning(last)
        if not meant or not all(view.frequency(SEQUENCE, token) for token in before):
            return np.empty(0, np.int64)
        if not before:
            return self._ids_with(meant, allowed)
        choices = [*([view.term(SEQUENCE, token)] for token in before), meant]
        if len(before) + len(meant) <= MOST_EXPANSIONS:
            return np.array(sorted(self._stand(choices, allowed)), np.int64)
        ids: Ids | None = None
        for choice in choices:  # as over an index: the tokens, wherever they stand
            own = self._ids_with(choice, allowed)
            ids = own if ids is None else np.intersect1d(ids, own)
        return np.empty(0, np.int64) if ids is None else ids

    def _ids(self, wanted: Sequence[Clause], view: PublishedStatistics) -> Ids:
        found = [self._found(clause, view, None)[0] for clause in wanted]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    @property
    @abstractmethod
    def _now(self) -> Publication:
        """What is asked."""

    @abstractmethod
    def _counted(self) -> PublishedStatistics:
        """What is counted of the type as it is published now."""

    @abstractmethod
    def _postings_of(self, term: Term, allowed: IdSet | None) -> tuple[Ids, Scores, Ids]:
        """The records with a term, rising, how often each has it, and as how long its field counts."""

    @abstractmethod
    def _ids_with(self, terms: Sequence[Term], allowed: IdSet | None) -> Ids:
        """The records with one of some terms, rising, each once."""

    @abstractmethod
    def _places_of(self, terms: Sequence[Term], allowed: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        """A record, a term that it has in the order of its tokens, as how long that counts, and where the term stands."""

    @abstractmethod
    def _others(self, gone: IdSet, depth: int, allowed: IdSet | None) -> list[int]:
        """The first records in the order of their identities without those that are excluded."""

    @abstractmethod
    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """By id what the identities of records are ordered by."""

    def _best(self, scored: Sequence[Scored], depth: int) -> Sequence[Scored]:
        """The first `depth`, those with one score in the order of their identities."""
        places = self._order([one for _, one in scored]) if len(scored) > 1 else {}
        return best_first(scored, depth, places.__getitem__, SLACK)

    def _frequency(self, clause: Clause, view: PublishedStatistics) -> int:
        if clause.part == "prefix" or len(clause.tokens) > 1:
            return len(self._found(clause, view, None)[0])
        return view.frequency(clause.field, clause.tokens[0])

    def _sources(self, clause: Clause) -> list[str]:
        for words in self._fields:
            if words.name == clause.field:
                return sorted(words.sources)
        return [searched.name for searched in self._kind.full_text]


def _ranks(clause: Clause, view: PublishedStatistics) -> bool:
    """False for a form where no record has another one: what holds for all of them ranks none."""
    return clause.part != "form" or view.frequency(*clause.terms[1]) > 0


def _is_term(clause: Clause) -> bool:
    return clause.part not in CONSTANT and len(clause.tokens) == 1


def _added(found: Sequence[Found]) -> Found:
    """All ids, rising, with the sum of what is added to each."""
    if not found:
        return np.empty(0, np.int64), np.empty(0)
    every = np.concatenate([ids for ids, _ in found])
    ids, places = np.unique(every, return_inverse=True)
    total: Scores = np.bincount(places, np.concatenate([scores for _, scores in found]), len(ids)).astype(np.float64)
    return ids, total
