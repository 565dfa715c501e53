"""Index entries of records: chunks of their searched fields, with tokens and vectors as far as the cache has them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from duckkb.entries import Chunk, Fingerprint, IndexEntry, Tokens
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.chunk import chunk, field_text
from duckkb.ontology.model import RecordType, SearchField
from duckkb.ports import Tokenizer
from duckkb.records import Record
from duckkb.settings import Settings

if TYPE_CHECKING:
    import numpy as np

KEY_BYTES = 16


def token_key(tokenizer: Fingerprint, text: str) -> bytes:
    """Names the tokens that a tokenizer makes of a text: 16 bytes of BLAKE2b."""
    return _keys(tokenizer, [text])[0]


def vector_key(model: Fingerprint, text: str) -> bytes:
    """Names the vector that a model makes of a text: 16 bytes of BLAKE2b."""
    return _keys(model, [text])[0]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one field of a type is indexed."""

    name: str
    chunk_size: int
    lexical: bool
    vectors: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """One chunk of one field of one record, by the record's place in the batch."""

    at: int
    plan: _Plan
    chunk: Chunk


class EntryBuilder:
    """Makes the entries of records. Missing tokens are computed and added to the cache, missing vectors never are."""

    def __init__(self, tokenizer: Tokenizer, settings: Settings, model: Fingerprint | None, cache: SearchCache) -> None:
        self._tokenizer = tokenizer
        self._chunk_size = settings.chunk_size
        self._model = model
        self._cache = cache

    def build(self, kind: RecordType, records: Sequence[Record]) -> list[tuple[IndexEntry, ...]]:
        """The entries of each record: its fields in the order of the ontology (lexical ones first, then those that have
        vectors alone), each field's chunks in the order of the text."""
        pieces = list(_pieces(self._plans(kind), records))
        tokens = self._tokens([piece.chunk.text for piece in pieces if piece.plan.lexical])
        vectors = self._vectors([piece.chunk.text for piece in pieces if piece.plan.vectors])
        made: list[list[IndexEntry]] = [[] for _ in records]
        for piece in pieces:
            text, plan = piece.chunk.text, piece.plan
            key, vector = vectors[text] if plan.vectors and self._model else (None, None)
            entry = IndexEntry(plan.name, piece.chunk.seq, text, tokens[text] if plan.lexical else None, key, vector)
            made[piece.at].append(entry)
        return [tuple(entries) for entries in made]

    def _plans(self, kind: RecordType) -> list[_Plan]:
        lexical = {item.name: item for item in kind.full_text}
        vectors = {item.name: item for item in kind.vectors}
        names = dict.fromkeys([*lexical, *vectors])
        return [
            _Plan(name, self._size(vectors.get(name), lexical.get(name)), name in lexical, name in vectors)
            for name in names
        ]

    def _size(self, *items: SearchField | None) -> int:
        sizes = (item.chunk_size for item in items if item and item.chunk_size)
        return next(sizes, self._chunk_size)

    def _tokens(self, texts: Sequence[str]) -> dict[str, Tokens]:
        distinct = list(dict.fromkeys(texts))
        keys = _keys(self._tokenizer.fingerprint, distinct)
        self._cache.verify_tokens(dict(zip(keys, distinct, strict=True)), self._tokenizer.tokenize)
        cached = self._cache.tokens(keys)
        found = {text: tokens for text, tokens in zip(distinct, cached, strict=True) if tokens is not None}
        missing = [(key, text) for key, text in zip(keys, distinct, strict=True) if text not in found]
        made = self._tokenizer.tokenize([text for _, text in missing])
        fresh = {key: (text, tokens) for (key, text), tokens in zip(missing, made, strict=True)}
        self._cache.add_tokens(fresh, self._tokenizer.fingerprint)
        return found | dict(fresh.values())

    def _vectors(self, texts: Sequence[str]) -> "dict[str, tuple[bytes, np.ndarray | None]]":
        if self._model is None or not texts:
            return {}
        distinct = list(dict.fromkeys(texts))
        keys = _keys(self._model, distinct)
        return dict(zip(distinct, zip(keys, self._cache.vectors(keys), strict=True), strict=True))


def _pieces(plans: Sequence[_Plan], records: Sequence[Record]) -> Iterable[_Piece]:
    for at, record in enumerate(records):
        for plan in plans:
            value = record.fields.get(plan.name)
            if value is not None:
                for piece in chunk(field_text(value), plan.chunk_size):
                    yield _Piece(at, plan, piece)


def _keys(fingerprint: Fingerprint, texts: Sequence[str]) -> list[bytes]:
    start = blake2b(f"{fingerprint}\0".encode(), digest_size=KEY_BYTES)
    keys = []
    for text in texts:
        state = start.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        keys.append(state.digest())
    return keys
