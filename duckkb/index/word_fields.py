"""The fields of a lexical index: which fields a record type has, and how a record's tokens get into them.

`words_N` ranks: there is a field for each weight and language among the type's full-text fields, stemmed,
without positions. `sequence` keeps the order of the whole record, unstemmed, for phrases, prefixes and single
Chinese characters. It is built with the others: a separate index for it took as long again. `marks` are short
texts of a record's fields. With them a condition that other records satisfy is a single list of documents to
walk. Without them the search would filter thousands of results by id.

An index at a state of the records, with the counts that BM25 needs.

Tantivy counts a replaced document until its segment is merged away, and its lengths roughly after that. Scores
must not depend on this history: terms are weighted by their rarity among the present records. For exact scores
the first results are rescored from the tokens of their records, with the average length of the present records."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from tantivy import Document, Filter, Index, Query, SchemaBuilder, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from duckkb.id_set import IdSet
from duckkb.ontology.model import EVERY, RecordType
from duckkb.ports import Row
from duckkb.sql.columns import list_declared_columns
from duckkb.types.errors import UsageError
from duckkb.types.records import FORM, VALUE, Tokens

ID, SEQUENCE, MARKS = "id", "sequence", "marks"
COMMIT = "meta.json"
"""The file of an index on disk that lists the content of its last commit."""

_LONGEST = 10_000  # characters; Tantivy drops terms over 65,530 bytes
_STEMS_KEPT = 200_000
_MOST_MARKED = 16
_LONGEST_MARK = 64  # bytes of a text; conditions rarely compare with longer texts
_WITHOUT_ACCENTS = frozenset({"none", "arabic", "english", "german", "greek", "russian", "tamil"})
"""Languages whose stemmers ignore accents. Stemmers of other languages also get the written form of a word."""


class WordsField(Struct, frozen=True, eq=False, dict=True):
    """A stemmed field with the words of `sources`, the record fields of a weight and language. `EVERY` among them
    stands for all record fields except `elsewhere`, which are in another words field.
    """

    name: str
    weight: float
    language: str
    sources: frozenset[str]
    analyzer: TextAnalyzer
    elsewhere: frozenset[str] = frozenset()

    def holds(self, source: str) -> bool:
        """Return whether this field holds the words of a record field."""
        return source in self.sources or (EVERY in self.sources and source not in self.elsewhere)

    @property
    def spoken(self) -> str:
        """Return the name of the analyzer that stems this field's words."""
        return f"words_{self.language}"

    def stems(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the index term of each word."""
        return map(self._stem, words)

    @cached_property
    def _stem(self) -> Callable[[str], str]:
        # showing a hit's best chunk looks up every word of a record
        return lru_cache(_STEMS_KEPT)(lambda word: (self.analyzer.analyze(word) or [word])[0])


def words_fields(kind: RecordType, language: str) -> tuple[WordsField, ...]:
    """Return the words fields of a type; `language` applies to its fields that name none."""
    sources: dict[tuple[float, str], set[str]] = {}
    for search_field in kind.full_text:
        sources.setdefault((search_field.weight, (search_field.language or language).lower()), set()).add(
            search_field.name
        )
    every = frozenset(search_field.name for search_field in kind.full_text)
    return tuple(
        WordsField(
            f"words_{number}", weight, field_language, frozenset(names), _build_analyzer(field_language), every - names
        )
        for number, ((weight, field_language), names) in enumerate(sources.items())
    )


def new_index(fields: Sequence[WordsField], folder: Path | None = None) -> Index:
    """Create an empty index, in memory without a folder. It shows changes only after `reload`."""
    schema = SchemaBuilder()
    schema.add_integer_field(ID, indexed=True, fast=True)
    schema.add_text_field(MARKS, tokenizer_name="raw", index_option="basic")
    schema.add_text_field(SEQUENCE, tokenizer_name=SEQUENCE, index_option="position")
    for words in fields:
        schema.add_text_field(words.name, tokenizer_name=words.spoken, index_option="freq")
    for name in (SEQUENCE, *(words.name for words in fields)):
        schema.add_unsigned_field(length_field(name), fast=True)
    index = Index(schema.build(), path=str(folder), reuse=False) if folder else Index(schema.build())
    return _prepare_index(index, fields)


def open_index(fields: Iterable[WordsField], folder: Path) -> Index:
    """Open the index in a folder; raises ValueError if there is none."""
    return _prepare_index(Index.open(str(folder)), fields)


def index_files(folder: Path) -> list[str]:
    """List the files of the last commit in a folder."""
    segments = json.loads((folder / COMMIT).read_bytes())["segments"]
    names = tuple(segment["segment_id"].replace("-", "") for segment in segments)
    return [path.name for path in folder.iterdir() if path.name == COMMIT or path.name.startswith(names)]


def _prepare_index(index: Index, fields: Iterable[WordsField]) -> Index:
    """Register the analyzers, which stem in the index's threads while the next records are prepared."""
    index.register_tokenizer(SEQUENCE, _build_analyzer("none"))
    for words in fields:
        index.register_tokenizer(words.spoken, words.analyzer)
    index.config_reader("manual")
    return index


class Forms(Struct, frozen=True):
    """The tokens of a text, each list joined by spaces. `sequence` has the searched tokens in the order of the
    text, `words` those for ranking. `parts` are the parts of its names, each a separate value. `written` pairs
    each token without accents with its accented spelling.
    """

    words: str
    sequence: str
    parts: tuple[str, ...] = ()
    written: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_tokens(cls, tokens: Tokens) -> "Forms":
        """Parse the tokens as they are stored."""
        if FORM not in tokens.sequence:
            return cls(tokens.words, tokens.sequence)
        sequence, *parts = tokens.sequence.split(VALUE)
        pairs = [token.partition(FORM) for token in sequence.split(" ")]
        written_pairs = tuple(dict.fromkeys((form, written_form) for form, sign, written_form in pairs if sign))
        return cls(tokens.words, " ".join(form for form, _, _ in pairs), tuple(parts), written_pairs)

    def words_in(self, field: WordsField) -> str:
        """Return the words of a text in a field."""
        written_forms = (
            [written_form for _, written_form in self.written] if field.language not in _WITHOUT_ACCENTS else []
        )
        return " ".join([self.words, *self.parts, *written_forms]) if self.parts or written_forms else self.words


class Texts(Struct, frozen=True):
    """The tokens of a record for an index, joined by spaces. Each record field is a separate value in `sequences`,
    so that no phrase spans two fields; `words` are by words field, which stems them. `lengths` count the tokens
    by field of the index. `marks` name the words with another form.
    """

    sequences: list[str]
    words: dict[str, str]
    lengths: dict[str, int]
    marks: list[str]


def texts_of(row: Row, fields: Sequence[WordsField]) -> Texts:
    """Return the texts under which a record is indexed."""
    forms_by_field: dict[str, list[Forms]] = {}
    for entry in row.entries:
        if entry.tokens is not None:
            forms_by_field.setdefault(entry.field, []).append(Forms.from_tokens(entry.tokens))
    sequences = [_join_pieces([text_forms.sequence for text_forms in pieces]) for pieces in forms_by_field.values()]
    sequences += [
        clip_tokens(part) for pieces in forms_by_field.values() for text_forms in pieces for part in text_forms.parts
    ]
    length = sum(map(_count, sequences))
    words, lengths = {}, {SEQUENCE: length}
    for target in fields:
        text = _join_pieces(
            [
                text_forms.words_in(target)
                for name, pieces in forms_by_field.items()
                if target.holds(name)
                for text_forms in pieces
            ]
        )
        words[target.name] = text  # for most records this is the text of the sequence
        lengths[target.name] = length if len(sequences) == 1 and text == sequences[0] else _count(text)
    return Texts(
        sequences, words, lengths, form_marks(text_forms for pieces in forms_by_field.values() for text_forms in pieces)
    )


def form_marks(texts: Iterable[Forms]) -> list[str]:
    """Return a mark for each other form in a record: for each accented word, and for the token under which it, or
    a part of a name, is found.
    """
    forms = (
        form for text_forms in texts for forms in (*text_forms.written, *map(split, text_forms.parts)) for form in forms
    )
    return [*map(form_mark, dict.fromkeys(forms))]


def form_mark(form: str) -> str:
    """Return the mark of a form. That of `café` says that this spelling occurs; that of `cafe`, distinct from all
    such marks, says that another form occurs.
    """
    return f"{FORM}{clip_tokens(form)}"


def _join_pieces(pieces: Sequence[str]) -> str:
    return clip_tokens(pieces[0] if len(pieces) == 1 else " ".join(filter(None, pieces)))


def _count(tokens: str) -> int:
    return tokens.count(" ") + 1 if tokens else 0


def document(row: Row, texts: Texts, marked: tuple[str, ...]) -> Document:
    """Build the index document of a record with the marks of the `marked` fields."""
    index_document = Document(**{ID: row.record.id, SEQUENCE: texts.sequences, **texts.words})
    for mark in (*texts.marks, *(marks_of(row.record.fields, marked) if marked else ())):
        index_document.add_text(MARKS, mark)
    for name, length in texts.lengths.items():
        index_document.add_unsigned(length_field(name), length)
    return index_document


@cache
def length_field(name: str) -> str:
    """Return the name of the field that holds a document's token count in a field of the index."""
    return f"{name}_length"


def list_mark_fields(kind: RecordType) -> tuple[str, ...]:
    """List the fields of a type whose texts are marks, at most sixteen: fields that the schema declares as text,
    without the identity and fields searched by words or vectors.
    """
    searched_names = {field.name for field in (*kind.full_text, *kind.vectors)} | set(kind.identity_fields)
    text_fields = [field.name for field in list_declared_columns(kind) if field.candidates == ("text",)]
    return tuple(name for name in text_fields if name not in searched_names and EVERY not in searched_names)[
        :_MOST_MARKED
    ]


def marks_of(fields: Mapping[str, Any], marked: tuple[str, ...]) -> Iterator[str]:
    """Yield the marks of a record with these fields."""
    for name in marked:
        value = fields.get(name)
        if type(value) is str and (mark := _mark(name, value)):
            yield mark


def marks_for(allowed: IdSet, marked: tuple[str, ...]) -> list[str]:
    """Return the marks that all records of a set, and no others, have; empty if the set is not known to have any."""
    marks = [_mark(name, value) if name in marked else "" for name, value in allowed.texts]
    return marks if all(marks) else []


def _mark(name: str, value: str) -> str:
    is_short = len(value) <= _LONGEST_MARK and (value.isascii() or len(value.encode()) <= _LONGEST_MARK)
    return f"{name}\0{value}" if is_short else ""


def clip_tokens(tokens: str) -> str:
    """Shorten each token to the length that the index can hold; queries and records are clipped alike."""
    if len(tokens) <= _LONGEST:
        return tokens
    return " ".join(token[:_LONGEST] for token in tokens.split(" "))


def split(tokens: str) -> list[str]:
    """Split a joined list into tokens, clipped as in the index."""
    return clip_tokens(tokens).split(" ") if tokens else []


def _build_analyzer(language: str) -> TextAnalyzer:
    builder = TextAnalyzerBuilder(Tokenizer.whitespace())
    if language == "none":
        return builder.build()
    try:
        return builder.filter(Filter.stemmer(language)).build()
    except ValueError as error:
        raise UsageError(
            f"No stemmer for the language {language!r}.",
            code="E_CONFIG",
            suggestion="Set `language` to none, english or another of Tantivy's languages.",
        ) from error


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
