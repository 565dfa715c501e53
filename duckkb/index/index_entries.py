"""Builds the index entries of records: chunks of their searched fields, with the tokens and vectors that the cache
has.

Tokens of ASCII texts are not cached: making them costs no more than looking them up, and nothing to store and
to check.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb.documents import document_chunks
from duckkb.documents import document_chunks as of_documents
from duckkb.documents.document import contexts
from duckkb.documents.document_chunks import Passage
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.text_chunks import FINGERPRINT, chunk, field_text, iter_nested_texts, read_value_at
from duckkb.ontology.model import EVERY, RecordType, SearchField
from duckkb.ontology.validation import vector_problem
from duckkb.ports import Tokenizer
from duckkb.types.queries import Lane
from duckkb.types.records import Chunk, Fingerprint, IndexEntry, Record, Tokens
from duckkb.types.settings import Settings

if TYPE_CHECKING:
    import numpy as np

KEY_BYTES = 16
Models = Callable[[RecordType], Fingerprint | None]
"""The fingerprint of the model that embeds a type's texts; None if no model does."""
Lengths = Callable[[RecordType], Mapping[str, int]]
"""The lengths of the vectors that a type's records give, by field."""


def text_key(maker: Fingerprint, text: str) -> bytes:
    """Return the cache key of a text's tokens or vector: 16 bytes of BLAKE2b over its maker and the text."""
    return _hash_texts(maker, [text])[0]


class _Field(Struct, frozen=True):
    """A field of a type with its indexing."""

    name: str
    chunk_size: int
    lexical: bool
    vectors: bool
    passages: "Callable[[Record], list[Passage]] | None" = None
    """Cuts the field's text if it is a document's text."""

    def is_read_by(self, lane: Lane | None) -> bool:
        """Return whether a lane has entries of this field; None stands for all lanes."""
        return lane is None or (self.lexical if lane == "fts" else self.vectors)


class Needs(Struct, frozen=True):
    """The demand of some records: the number of their entries, and the distinct texts of their token rows and
    vector rows, by key.
    """

    entries: int
    tokens: dict[bytes, str]
    vectors: dict[bytes, str]


_NESTED = "paths 1"
"""The version of how texts inside objects are found, for lanes of fields that include them."""
_Chunk = tuple[_Field, int, str, Passage | None]
"""Field, place in the field's text, text, and the passage of a document. A plain tuple, because there may be
millions.
"""
_Pieces = list[list[_Chunk]]
"""The chunks of each record."""


class EntryBuilder:
    """A builder of index entries. It computes missing tokens and adds them to the cache; it never computes
    vectors.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: Settings, models: Models, lengths: Lengths, cache: SearchCache
    ) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._models = models
        self._lengths = lengths
        self._cache = cache

    def build(
        self, kind: RecordType, records: Sequence[Record], lane: Lane | None = None
    ) -> list[tuple[IndexEntry, ...]]:
        """Build the entries of each record: fields in the order of the ontology (lexical ones first, then those
        that have only vectors), each field's chunks in the order of the text. With `lane`, only the entries and
        values that this lane reads.
        """
        pieces = self._cut_records(kind, records, lane)
        tokens = self._collect_tokens(_collect_texts(pieces, "lexical")) if lane != "vector" else {}
        vectors = self._fetch_vectors(self._models(kind), _collect_texts(pieces, "vectors")) if lane != "fts" else {}
        record_entries = [tuple([_build_entry(piece, tokens, vectors) for piece in row]) for row in pieces]
        return (
            _append_record_vectors(self._lengths(kind), records, record_entries)
            if kind.given_vectors and lane != "fts"
            else record_entries
        )

    def words(self, kind: RecordType, record: Record) -> list[IndexEntry]:
        """Return the chunks of a record that are searched by words; if there are several, with their tokens and
        those of their headings. Computes the tokens: for the few records that are displayed, opening a cache
        would cost more.
        """
        lexical_pieces = [piece for piece in self._cut_records(kind, [record])[0] if piece[0].lexical]
        if len(lexical_pieces) < 2:
            return [IndexEntry(field.name, seq, text) for field, seq, text, _ in lexical_pieces]
        tokens = self._tokenizer.tokenize(
            [passage.meaning if passage else text for _, _, text, passage in lexical_pieces]
        )
        return [
            IndexEntry(field.name, seq, text, piece_tokens)
            for (field, seq, text, _), piece_tokens in zip(lexical_pieces, tokens, strict=True)
        ]

    def text(self, kind: RecordType, record: Record, field: str, seq: int) -> str | None:
        """Return the text of a record's chunk as it is displayed; None if there is no such chunk."""
        record_chunk = self.chunk(kind, record, field, seq)
        return record_chunk.text if record_chunk else None

    def chunk(self, kind: RecordType, record: Record, field: str, seq: int) -> Chunk | None:
        """Return a chunk of a record with its place in the field's text; None if there is no such chunk."""
        start = 0
        for piece_field, number, text, passage in self._cut_records(kind, [record])[0]:
            if piece_field.name == field:
                if number == seq:
                    return Chunk(seq, passage.start if passage else start, text)
                start += len(text)
        return None

    def cut_by(self, kind: RecordType) -> tuple[object, ...]:
        """Return what shapes the chunks of a type besides its records."""
        settings = kind.settings(self._settings)
        cut: tuple[object, ...] = str(FINGERPRINT), settings.chunk_size, kind.full_text, kind.vectors
        if any(item.reach == "auto" or "." in item.name for item in (*kind.full_text, *kind.vectors)):
            cut = (*cut, _NESTED)
        if kind.source is None:
            return cut
        size = document_chunks.size_for(settings.embedding.reads)
        grammars = of_documents.cut_by(kind.source.pattern)
        return (*cut, str(document_chunks.FINGERPRINT), size, sorted(kind.source.contexts.items()), grammars)

    def needs(self, kind: RecordType, records: Sequence[Record]) -> Needs:
        """Return what the entries of these records need. Computes neither tokens nor vectors."""
        pieces = self._cut_records(kind, records)
        vector_entries = (
            _append_record_vectors(self._lengths(kind), records, [()] * len(records)) if kind.given_vectors else ()
        )
        entries = sum(map(len, pieces)) + sum(map(len, vector_entries))
        lexical = [text for text in _collect_texts(pieces, "lexical") if not text.isascii()]
        vectors = _collect_texts(pieces, "vectors")
        tokens = dict(zip(_hash_texts(self._tokenizer.fingerprint, lexical), lexical, strict=True))
        model = self._models(kind)
        return Needs(entries, tokens, dict(zip(_hash_texts(model, vectors), vectors, strict=True)) if model else {})

    def make_tokens(self, kind: RecordType, records: Sequence[Record]) -> None:
        """Compute the missing tokens of these records' chunks and add them to the cache, except tokens that are
        not cached.
        """
        some = [record for record in records if kind.source is not None or not _is_ascii(record)]
        self._fetch_cached_tokens(
            [text for text in _collect_texts(self._cut_records(kind, some), "lexical") if not text.isascii()]
        )

    def list_texts_to_embed(self, kind: RecordType, records: Sequence[Record]) -> list[tuple[bytes, str]]:
        """List the keys and texts of these records' chunks that have no vector yet, once for each chunk."""
        model = self._models(kind)
        texts = list(_iter_meanings(self._cut_records(kind, records))) if model else []
        if model is None or not texts:
            return []
        keys = _hash_texts(model, texts)
        lacking = set(self._cache.list_missing_keys("vector", dict.fromkeys(keys), model))
        return [(key, text) for key, text in zip(keys, texts, strict=True) if key in lacking]

    def _cut_records(self, kind: RecordType, records: Sequence[Record], lane: Lane | None = None) -> "_Pieces":
        """Cut each record into chunks; with `lane`, only those that this lane reads. Words belong to records, not
        to chunks. So a text without cached tokens stays uncut, and has the words of its chunks and any word
        that a border would split.
        """
        whole = lane == "fts"
        lexical = {item.name: item for item in kind.full_text}
        vectors = {item.name: item for item in kind.vectors if not item.given}
        size, documents = kind.settings(self._settings).chunk_size, self._build_document_cutter(kind)
        names = dict.fromkeys([*lexical, *vectors])
        if EVERY not in names:
            fields = [_build_field(name, lexical.get(name), vectors.get(name), size, documents) for name in names]
            read = [field for field in fields if field.is_read_by(lane)]
            return [_cut(read, record, whole=whole) for record in records]
        lanes = lexical, vectors
        of_records = (_iter_record_fields(kind, record, lanes, size, documents) for record in records)
        return [
            _cut([field for field in some if field.is_read_by(lane)], record, whole=whole)
            for some, record in zip(of_records, records, strict=True)
        ]

    def _build_document_cutter(self, kind: RecordType) -> "Callable[[Record], list[Passage]] | None":
        """Return the function that cuts the texts of a type's documents; None if its records are not documents."""
        source = kind.source
        if source is None or kind.kind != "node":
            return None
        size = document_chunks.size_for(kind.settings(self._settings).embedding.reads)

        def cut(record: Record) -> list[Passage]:
            path = str(record.identity[0])
            return of_documents.passages(path, record.fields, contexts(source, path), size)

        return cut

    def _collect_tokens(self, texts: Sequence[str]) -> dict[str, Tokens]:
        plain = [text for text in texts if text.isascii()]
        ascii_tokens = dict(zip(plain, self._tokenizer.tokenize(plain), strict=True))
        return ascii_tokens | self._fetch_cached_tokens([text for text in texts if text not in ascii_tokens])

    def _fetch_cached_tokens(self, texts: Sequence[str]) -> dict[str, Tokens]:
        if not texts:
            return {}
        keys = _hash_texts(self._tokenizer.fingerprint, texts)
        self._cache.verify_tokens(dict(zip(keys, texts, strict=True)), self._tokenizer.tokenize)
        cached_tokens = dict(zip(texts, self._cache.tokens(keys), strict=True))
        missing = [(key, text) for key, text in zip(keys, texts, strict=True) if cached_tokens[text] is None]
        new_tokens = self._tokenizer.tokenize([text for _, text in missing])
        fresh = {key: (text, tokens) for (key, text), tokens in zip(missing, new_tokens, strict=True)}
        self._cache.add_tokens(fresh, self._tokenizer.fingerprint)
        return {text: tokens for text, tokens in cached_tokens.items() if tokens is not None} | dict(fresh.values())

    def _fetch_vectors(
        self, model: Fingerprint | None, texts: Sequence[str]
    ) -> "dict[str, tuple[bytes, np.ndarray | None]]":
        if model is None:
            return {}
        keys = _hash_texts(model, texts)
        return dict(zip(texts, zip(keys, self._cache.vectors(keys, model), strict=True), strict=True))


def _build_entry(
    piece: "_Chunk", tokens: Mapping[str, Tokens], vectors: "Mapping[str, tuple[bytes, np.ndarray | None]]"
) -> IndexEntry:
    field, seq, text, passage = piece
    words, meaning = (passage.words, passage.meaning) if passage else (text, text)
    key, vector = (vectors.get(meaning) if field.vectors else None) or (None, None)
    word_tokens = tokens.get(words) if field.lexical else None
    return IndexEntry(field.name, seq, text, word_tokens, key, vector, meaning if passage else "")


def _iter_record_fields(
    kind: RecordType,
    record: Record,
    lanes: Sequence[Mapping[str, SearchField]],
    size: int,
    documents: Callable[[Record], list[Passage]] | None,
) -> Iterator[_Field]:
    """Yield the searched fields of a record: fields that a lane (words, vectors) names, and fields that a lane's
    wildcard covers, also inside objects.
    """
    nested_paths = [
        path
        for name, value in record.fields.items()
        if isinstance(value, (dict, list)) and name not in kind.given_vectors
        for path, _ in iter_nested_texts(name, value)
    ]
    for name in dict.fromkeys([*lanes[0], *lanes[1], *record.fields, *nested_paths]):
        value = read_value_at(record.fields, name)
        if value is None or name in kind.given_vectors:
            continue
        lexical, vectors = (
            lane.get(name) or (lane[EVERY] if EVERY in lane and _can_reach(lane[EVERY], kind, name, value) else None)
            for lane in lanes
        )
        if lexical or vectors:
            yield _build_field(name, lexical, vectors, size, documents)


def _build_field(
    name: str,
    lexical: SearchField | None,
    vectors: SearchField | None,
    chunk_size: int,
    documents: Callable[[Record], list[Passage]] | None,
) -> _Field:
    """Build the indexing of a field. `chunk_size` is the type's, used if neither item has its own; texts of
    `documents` have no chunk size.
    """
    item_size = next((item.chunk_size for item in (vectors, lexical) if item and item.chunk_size), None)
    passages = documents if name == of_documents.TEXT and item_size is None else None
    return _Field(name, item_size or chunk_size, lexical is not None, vectors is not None, passages)


def _cut(fields: Sequence[_Field], record: Record, *, whole: bool) -> list[_Chunk]:
    pieces: list[_Chunk] = []
    for field in fields:
        text = record.fields.get(field.name)
        if text is None and "." in field.name:
            text = read_value_at(record.fields, field.name)
        if type(text) is not str:
            text = field_text(text)
        if field.passages is not None:
            pieces += [(field, seq, passage.text, passage) for seq, passage in enumerate(field.passages(record))]
        elif len(text) > field.chunk_size and not (whole and text.isascii()):
            pieces += [(field, piece.seq, piece.text, None) for piece in chunk(text, field.chunk_size)]
        elif text:
            pieces.append((field, 0, text, None))
    return pieces


def _is_ascii(record: Record) -> bool:
    """Return whether all texts of a record are certainly ASCII, so that none of its tokens are cached."""
    for value in record.fields.values():
        if isinstance(value, (list, dict)) or (type(value) is str and not value.isascii()):
            return False
    return True


def _can_reach(item: SearchField, kind: RecordType, name: str, value: Any) -> bool:
    """Return whether a search item for all fields covers this field: any value that the record has itself, or a
    text or list of texts other than the identity.
    """
    if item.reach == "all":
        return "." not in name
    if name in kind.identity_fields:
        return False
    texts = (isinstance(member, str) for member in value) if isinstance(value, list) else ()
    return isinstance(value, str) or (isinstance(value, list) and (any(texts) if "." in name else all(texts)))


def _collect_texts(pieces: _Pieces, use: Literal["lexical", "vectors"]) -> list[str]:
    """Collect the distinct texts that need tokens or vectors."""
    if use == "vectors":
        return list(dict.fromkeys(_iter_meanings(pieces)))
    word_texts = [
        passage.words if passage else text for row in pieces for field, _, text, passage in row if field.lexical
    ]
    return list(dict.fromkeys(word_texts))


def _iter_meanings(pieces: _Pieces) -> Iterator[str]:
    """Yield the text to embed of each chunk that has a vector."""
    return (passage.meaning if passage else text for row in pieces for field, _, text, passage in row if field.vectors)


def _hash_texts(fingerprint: Fingerprint, texts: Sequence[str]) -> list[bytes]:
    start = f"{fingerprint}\0".encode()
    return [blake2b(start + text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest() for text in texts]


def _append_record_vectors(
    dimensions: Mapping[str, int], records: Sequence[Record], record_entries: Sequence[tuple[IndexEntry, ...]]
) -> list[tuple[IndexEntry, ...]]:
    """Append to the entries of each record one entry for each vector that the record gives: without text, float32
    of unit length. A value that is not a vector, or not as long as `dimensions` says of its field, has no
    entry; `check` reports it.
    """
    entries = list(record_entries)
    for name, dimension in dimensions.items():
        for at, record in enumerate(records):
            vector = _normalise_vector(record.fields.get(name), dimension)
            if vector is not None:
                entries[at] = (*entries[at], IndexEntry(name, 0, "", vector=vector))
    return entries


def _normalise_vector(value: Any, dimension: int) -> "np.ndarray | None":
    import numpy as np

    if vector_problem(value, dimension):
        return None
    numbers = np.array(_parse_floats(value), np.float64)
    numbers /= np.abs(numbers).max()  # keeps the squares of very large or small numbers finite
    unit: np.ndarray = (numbers / np.sqrt(numbers @ numbers)).astype(np.float32)
    return unit


def _parse_floats(value: Sequence[Any]) -> list[float]:
    """Parse the numbers of a valid vector, given as numbers or as 8 hex digits each (float32, big-endian)."""
    if isinstance(value[0], str):
        numbers: list[float] = list(struct.unpack(f">{len(value)}f", bytes.fromhex("".join(value))))
        return numbers
    return [float(number) for number in value]
