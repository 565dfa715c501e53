"""Parses a lexical query into clauses, builds Tantivy queries from them, and scores the chunks of a record by
them. Only prefixes look into an index, for the words that they stand for.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain, groupby, islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from tantivy import Occur, Query

from duckkb.index.word_fields import (
    MARKS,
    SEQUENCE,
    Forms,
    IndexView,
    Statistics,
    WordsField,
    form_mark,
    form_marks,
    split,
    texts_of,
)
from duckkb.ports import Row, Tokenizer
from duckkb.types.queries import NOTHING, LexicalQuery, Weight
from duckkb.types.records import IndexEntry, Tokens

Part = Literal["word", "character", "phrase", "prefix", "form"]

Term = tuple[str, str]
"""A field of the index and a token in it."""

_MOST_TERMS = 4_096
"""The most distinct words, open ends, or words of a phrase that are looked up; only a query of tens of kilobytes
has more.
"""
MOST_EXPANSIONS = 16_000
PREFIX_SCORE = 1.0
FORM_SCORE = 0.1
"""The score for a word in exactly the query's form: enough only to rank it before equal records."""
CONSTANT: tuple[Part, ...] = ("prefix", "form")
"""The parts that add the same score to every matching record."""
_HAN = ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))


class Clause(Struct, frozen=True):
    """A condition on a field of the index: a term, a phrase, a phrase with an open end, or a `form`. A form is a
    token in the query's spelling, with accents or (the second token is the first) without.
    """

    part: Part
    field: str
    tokens: tuple[str, ...]
    weight: float = 1.0

    @property
    def text(self) -> str:
        if self.part == "form":
            return self.tokens[1]
        token_text = (" " if any(token.isascii() for token in self.tokens) else "").join(self.tokens)
        return f"{token_text}*" if self.part == "prefix" else token_text

    @property
    def terms(self) -> tuple[Term, ...]:
        """Return the searched terms, each with its field. For a form: its token, and the mark of the form."""
        if self.part == "form":
            return (SEQUENCE, self.tokens[0]), (MARKS, form_mark(self.tokens[1]))
        return tuple((self.field, token) for token in self.tokens)

    @property
    def has_accents(self) -> bool:
        """Return whether a form has accents in the query; then records with its mark match, otherwise those
        without.
        """
        return self.tokens[0] != self.tokens[1]


class Clauses(Struct, frozen=True, dict=True):
    """The clauses of a query. `scored` clauses rank: at least one of them, or all of `required`, must match. A
    record that matches one of `excluded` is left out. `exact` is the query's.
    """

    scored: tuple[Clause, ...] = ()
    required: tuple[Clause, ...] = ()
    excluded: tuple[Clause, ...] = ()
    exact: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.scored or self.required or self.excluded)

    @property
    def only_excludes(self) -> bool:
        return bool(self.excluded) and not self.scored and not self.required

    @cached_property
    def counted(self) -> tuple[Clause, ...]:
        """Return the clauses that add to a score."""
        return self.required + self.scored


def chunk_weight(
    entry: IndexEntry, wanted: Iterable[Clause], fields: Iterable[WordsField], rarity: Callable[[str, str], float]
) -> Weight:
    """Return how much of `wanted` a chunk contains, each clause once; `rarity` gives the weight of a field's
    token.

    A phrase counts once for each of its tokens and again as a whole: half of it may lie in the next chunk. A
    Chinese character is not a word: many of them make no chunk better than a chunk with a word.
    """
    assert entry.tokens is not None, "only entries with tokens are weighed"
    entry_fields = [words for words in fields if words.holds(entry.field)]
    forms = Forms.from_tokens(entry.tokens)
    stems = {words.name: set(words.stems(set(split(forms.words_in(words))))) for words in entry_fields}
    values = [forms.sequence, *forms.parts]
    sequence, weight, of_characters = set(chain.from_iterable(map(split, values))), 0.0, 0.0
    for clause in wanted:
        if clause.part == "word":
            (term,) = clause.tokens
            weight += clause.weight * rarity(clause.field, term) if term in stems.get(clause.field, ()) else 0.0
        elif clause.part == "prefix":
            weight += any(token.startswith(clause.tokens[-1]) for token in sequence)
        elif clause.part == "form":
            weight += FORM_SCORE * _has_form(clause, sequence, form_marks([forms]))
        else:
            whole = len(clause.tokens) > 1 and any(f" {' '.join(clause.tokens)} " in f" {value} " for value in values)
            token_weight = sum(rarity(clause.field, token) for token in clause.tokens if token in sequence)
            token_weight *= 2.0 if whole else 1.0
            weight += token_weight if clause.part == "phrase" else 0.0
            of_characters += token_weight if clause.part == "character" else 0.0
    return weight > 0, weight + of_characters


def text_weights(
    texts: Sequence[str],
    source: str,
    found: Clauses,
    fields: Sequence[WordsField],
    lane: "tuple[Tokenizer, Callable[[], Statistics]]",
) -> list[Weight]:
    """Return how much of the counted clauses each of these texts of a record field contains, as `chunk_weight`
    does.
    """
    if not found.counted:
        return [NOTHING] * len(texts)
    tokenizer, view = lane
    rarity = cache(view().idf)
    entries = (IndexEntry(source, seq, "", text_tokens) for seq, text_tokens in enumerate(tokenizer.tokenize(texts)))
    return [chunk_weight(entry, found.counted, fields, rarity) for entry in entries]


def terms_of(row: Row, fields: Sequence[WordsField]) -> dict[str, list[list[str]]]:
    """Return the index terms of a record in order, by field; `sequence` has a value for each record field."""
    texts = texts_of(row, fields)
    terms_by_field = {words.name: [list(words.stems(split(texts.words[words.name])))] for words in fields}
    return {SEQUENCE: list(map(split, texts.sequences)), MARKS: [texts.marks], **terms_by_field}


def clause_score(clause: Clause, held: Mapping[str, list[list[str]]], view: Statistics) -> float:
    """Return what a clause other than a prefix adds to the score of a record with these terms; 0 if it does not
    match.
    """
    if clause.part == "form":
        is_told = view.frequency(*clause.terms[1]) > 0
        return FORM_SCORE * (is_told and _has_form(clause, chain.from_iterable(held[SEQUENCE]), held[MARKS][0]))
    return clause.weight * view.score(clause.field, clause.tokens, held[clause.field])


def iter_terms(
    text: Tokens, found: Clauses, fields: Sequence[WordsField], view: Statistics
) -> Iterable[tuple[Term, ...]]:
    """Yield for each distinct search term of the clauses `found` its alternatives; `text` has the words for
    ranking.
    """
    query_words = islice(dict.fromkeys(split(text.words)), _MOST_TERMS)
    yield from dict.fromkeys(
        tuple((words.name, stem) for words in fields for stem in words.stems([word])) for word in query_words
    )
    tokens: dict[str, None] = {}
    for clause in found.counted:
        complete_tokens = clause.tokens
        if clause.part == "prefix":
            complete_tokens, last = clause.tokens[:-1], clause.tokens[-1]
            yield tuple((SEQUENCE, term) for term in view.list_tokens_by_prefix(last)) or ((SEQUENCE, last),)
        tokens |= dict.fromkeys(complete_tokens if clause.field == SEQUENCE else ())
    yield from (((SEQUENCE, token),) for token in tokens)


def best_chunk(
    entries: Sequence[IndexEntry],
    found: Clauses,
    fields: Sequence[WordsField],
    view: Callable[[], Statistics],
    preferred: tuple[str, int] | None = None,
) -> tuple[str, int]:
    """Return the field and number of the record's chunk that contains most of the counted clauses; ("", 0) without
    chunks. The `preferred` chunk wins if it contains a word, or no chunk does. `view` is not called if there is
    no choice.
    """
    places = [(entry.field, entry.seq) for entry in entries]
    if not found.counted or not places or {*places} <= {preferred}:
        return preferred or next(iter(places), ("", 0))
    if len(places) == 1 and preferred is None:
        return places[0]
    rarity = cache(view().idf)
    weights = {
        place: chunk_weight(entry, found.counted, fields, rarity) if entry.tokens is not None else NOTHING
        for place, entry in zip(places, entries, strict=True)
    }
    best = max(places, key=weights.__getitem__)
    if preferred is not None and (weights.get(preferred, NOTHING)[0] or not weights[best][0]):
        return preferred
    return best


def measure_coverage(
    text: Tokens, found: Clauses, fields: Sequence[WordsField], rows: Iterable[Row], view: Statistics
) -> float | None:
    """Return the share of the clauses' idf mass that the terms of some rows contain. A word counts in any field,
    in that field's form, with the idf of the field where it is most frequent; an unknown word has the idf of a
    word in no record. The same holds for a Chinese character, for each token of a phrase, and for the most
    frequent word of an open end.
    """
    held_terms: set[Term] = set()
    for row in rows:
        values = terms_of(row, fields).items()
        held_terms.update((field, term) for field, terms in values for value in terms for term in value)
    rarity = cache(view.idf)
    weighted_terms = [(min(rarity(*term) for term in forms), forms) for forms in iter_terms(text, found, fields, view)]
    mass = math.fsum(idf for idf, _ in weighted_terms)
    return math.fsum(idf for idf, forms in weighted_terms if not held_terms.isdisjoint(forms)) / mass if mass else None


def clauses(query: LexicalQuery, tokenizer: Tokenizer, fields: Sequence[WordsField]) -> Clauses:
    """Return the clauses of a query. Parts without tokens, such as punctuation, have none.

    A word that the query repeats counts as often; phrases, prefixes and exclusions count once.
    """
    phrases, excluded_texts, prefixes = map(dict.fromkeys, (query.phrases, query.excluded, query.prefixes))
    parsed_forms = [
        Forms.from_tokens(tokens) for tokens in tokenizer.tokenize([query.text, *phrases, *excluded_texts, *prefixes])
    ]
    text, start, end = parsed_forms[0], 1 + len(phrases), 1 + len(phrases) + len(excluded_texts)
    required_clauses = _drop_duplicates(map(_build_phrase, parsed_forms[1:start]))
    ruled_out = _drop_duplicates(
        chain.from_iterable(_iter_exclusions(forms, fields) for forms in parsed_forms[start:end])
    )
    if query.every:
        required_clauses = tuple(
            dict.fromkeys((*required_clauses, *chain.from_iterable(map(_iter_required_clauses, parsed_forms[end:]))))
        )
    open_ends = () if query.every else _drop_duplicates(map(_prefix, parsed_forms[end:]))[:_MOST_TERMS]
    ranked_forms = [
        *parsed_forms[:start],
        *(text_forms for text_forms in parsed_forms[end:] if query.every or " " not in text_forms.sequence),
    ]
    forms = _build_form_clauses(ranked_forms) if tokenizer.has_forms else ()  # form clauses find no additional records
    return Clauses(
        (*_iter_word_clauses(text, fields), *_iter_character_clauses(text), *open_ends, *forms),
        required_clauses,
        ruled_out,
        query.exact,
    )


def is_han(token: str) -> bool:
    """Return whether the token is a single Chinese character."""
    return len(token) == 1 and any(first <= ord(token) <= last for first, last in _HAN)


def clause_query(clause: Clause, view: IndexView) -> Query:
    """Build the query that finds the records of a clause and scores them by BM25; a prefix adds the same for every
    record.
    """
    if clause.part == "form":
        return _build_form_query(clause, view)
    if clause.part == "prefix":
        base_query, weight = _prefix_query(clause, view), clause.weight
    else:
        weight = clause.weight * view.correction(clause.field, clause.tokens)
        if len(clause.tokens) > 1:
            base_query = Query.phrase_query(view.schema, clause.field, list(clause.tokens))
        else:
            base_query = Query.term_query(view.schema, clause.field, clause.tokens[0])
    return base_query if weight == 1.0 else Query.boost_query(base_query, weight)


def any_of(queries: Iterable[Query]) -> Query:
    return Query.boolean_query([(Occur.Should, query) for query in queries])


def narrow_query(query: Query, *conditions: Query) -> Query:
    """Require further conditions in a query without changing its scores."""
    filter_queries = [(Occur.Must, Query.const_score_query(condition, 0.0)) for condition in conditions]
    return Query.boolean_query([(Occur.Must, query), *filter_queries])


def ranking_query(found: Clauses, view: IndexView) -> Query:
    """Build the whole query: the ranking clauses without excluded records."""
    roles = ((Occur.Must, found.required), (Occur.Should, found.scored))
    query = Query.boolean_query([(role, clause_query(clause, view)) for role, members in roles for clause in members])
    if not found.excluded:
        return query
    exclusions = [(Occur.MustNot, clause_query(clause, view)) for clause in found.excluded]
    return Query.boolean_query([(Occur.Must, query), *exclusions])


def _iter_word_clauses(text: Forms, fields: Sequence[WordsField]) -> Iterable[Clause]:
    """Yield the words of a query; the parts of its names are not searched."""
    whole = replace(text, parts=())
    for words in fields:
        for term, count in islice(Counter(words.stems(split(whole.words_in(words)))).items(), _MOST_TERMS):
            yield Clause("word", words.name, (term,), words.weight * count)


def _build_form_clauses(texts: Iterable[Forms]) -> Iterable[Clause]:
    """Build a clause for the query's form of each token that has other spellings."""
    pairs: dict[tuple[str, str], None] = {}
    for text in texts:
        accented_tokens = {token for token, _ in text.written}
        plain = (token for token in split(text.sequence) if token not in accented_tokens and not is_han(token))
        pairs |= dict.fromkeys([*text.written, *((token, token) for token in plain)])
    return [Clause("form", MARKS, pair) for pair in islice(pairs, _MOST_TERMS)]


def _has_form(clause: Clause, tokens: Iterable[str], marks: Iterable[str]) -> bool:
    """Return whether the tokens and marks of a text show a word in the query's form."""
    (_, token), (_, mark) = clause.terms
    return mark in marks if clause.has_accents else token in tokens and mark not in marks


def _build_form_query(clause: Clause, view: IndexView) -> Query:
    """Build the query for a form; empty if no record has another form, because it would rank nothing."""
    (field, token), (marks, mark) = clause.terms
    if not view.frequency(marks, mark):
        return Query.empty_query()
    form_query = Query.term_query(view.schema, marks, mark)
    if not clause.has_accents:
        either = [(Occur.Must, Query.term_query(view.schema, field, token)), (Occur.MustNot, form_query)]
        form_query = Query.boolean_query(either)
    return Query.const_score_query(form_query, FORM_SCORE)


def _iter_character_clauses(text: Forms) -> Iterable[Clause]:
    character_counts = Counter(token for token in split(text.sequence) if is_han(token))
    for character, count in islice(character_counts.items(), _MOST_TERMS):
        yield Clause("character", SEQUENCE, (character,), float(count))


def _build_phrase(tokens: Forms) -> Clause | None:
    phrase_tokens = tuple(split(tokens.sequence)[:_MOST_TERMS])
    return Clause("phrase", SEQUENCE, phrase_tokens) if phrase_tokens else None


def _prefix(tokens: Forms) -> Clause | None:
    prefix_tokens = tuple(split(tokens.sequence)[-_MOST_TERMS:])
    if not prefix_tokens:
        return None
    # A Chinese character is a whole token: nothing longer begins with it.
    return Clause("phrase" if is_han(prefix_tokens[-1]) else "prefix", SEQUENCE, prefix_tokens)


def _iter_required_clauses(tokens: Forms) -> Iterable[Clause]:
    """Yield a clause for each text between spaces: Chinese words as the tokenizer cuts them, others as a phrase
    with an open end.
    """
    for is_chinese, run in groupby(split(tokens.sequence), is_han):
        if not is_chinese:
            yield Clause("prefix", SEQUENCE, tuple(run))
    for word in split(tokens.words):
        if all(map(is_han, word)):
            yield Clause("phrase", SEQUENCE, tuple(word))


def _iter_exclusions(tokens: Forms, fields: Sequence[WordsField]) -> Iterable[Clause]:
    """Yield the exclusions: several tokens as a phrase, a single word in all its forms."""
    phrase = _build_phrase(tokens)
    if phrase is None:
        return
    yield phrase
    if len(phrase.tokens) == 1 and not is_han(phrase.tokens[0]):
        for words in fields:
            yield Clause("word", words.name, tuple(words.stems(phrase.tokens)))


def _drop_duplicates(candidates: Iterable[Clause | None]) -> tuple[Clause, ...]:
    return tuple(dict.fromkeys(clause for clause in candidates if clause is not None))


def _prefix_query(clause: Clause, view: IndexView) -> Query:
    *before, last = clause.tokens
    expansions = view.list_tokens_by_prefix(last)
    base_query = Query.term_set_query(view.schema, clause.field, [*expansions])
    if before and len(before) + len(expansions) <= MOST_EXPANSIONS:
        patterns: list[str | tuple[int, str]] = [*map(_escape_token, before), f"{_escape_token(last)}.*"]
        base_query = Query.regex_phrase_query(view.schema, clause.field, patterns)
    elif before:
        # Tantivy follows no more tokens and continuations than this: search for the tokens at any position.
        distinct_tokens = dict.fromkeys(before)
        base_query = narrow_query(
            base_query, *(Query.term_query(view.schema, clause.field, token) for token in distinct_tokens)
        )
    return Query.const_score_query(base_query, PREFIX_SCORE)


def _escape_token(token: str) -> str:
    return "".join(f"\\{sign}" if sign.isascii() and not sign.isalnum() else sign for sign in token)
