"""Index entries: chunks of fields with their tokens and vectors, and the fingerprints that key them."""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np

FORM, VALUE = "|", " | "
"""The separators in a sequence of tokens: between a token and its written form, and between values."""


class Fingerprint(Struct, frozen=True):
    """The exact name of a tokenizer, chunker or model: equal fingerprints mean equal output.

    `digest` covers everything that shapes the output (weights' hash, mode, prefix rule, dictionary version).
    `dimension` is the length of a vector, 0 where there is none.
    """

    name: str
    digest: str
    dimension: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.dimension}/{self.digest}" if self.dimension else f"{self.name}/{self.digest}"


class Tokens(Struct, frozen=True):
    """A text's tokens, each list joined by single spaces.

    `words` feeds ranking: lower-cased Latin words (not stemmed; the index stems), whole identifiers and their
    parts, and Chinese words as jieba's search mode cuts them. `sequence` keeps the order of the text for
    phrases and prefixes: Latin words and parts of identifiers as written, and Chinese text with each character
    a token.

    Where a base asks for all forms of words (`global.word_forms`), tokens have no accents; in the sequence
    `cafe|café` is a word written with accents. Values after ` | ` stand for themselves: the parts of a name
    such as `getUserName`.
    """

    words: str
    sequence: str


class Chunk(Struct, frozen=True):
    """A piece of a text: `text == whole[start:start + len(text)]`.

    The chunks of a text cover it. In a document, each chunk begins with the end of the one before.
    """

    seq: int
    start: int
    text: str


class IndexEntry(Struct, frozen=True):
    """A chunk of a field of a record, with its tokens and its vector.

    `tokens` is None where the field is not searched lexically. `vector_key` is None where the field has no
    vectors. `vector` is None while it is pending, else float32 of the model's dimension with unit length.
    `meaning` is the text that is embedded: the content, and in a document the headings above it too.
    """

    field: str
    seq: int
    content: str
    tokens: Tokens | None = None
    vector_key: bytes | None = None
    vector: "np.ndarray | None" = None
    meaning: str = ""


class Cut(Struct, frozen=True):
    """A text as far as a model reads it in one go: `text` is the whole or its beginning.

    `original` and `tokens` count the whole and `text`, with everything that the model adds. `limit` is the most
    tokens that the model reads. Where the model does not tell, it is None, nothing is cut, and the counts are
    estimates.
    """

    text: str
    original: int
    tokens: int
    limit: int | None = None

    @property
    def is_truncated(self) -> bool:
        return self.tokens < self.original
