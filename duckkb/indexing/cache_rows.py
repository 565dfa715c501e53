"""What rows of the cache hold, without the libraries that read and write their files."""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from duckkb.entries import Tokens

if TYPE_CHECKING:
    import numpy as np

CacheRow = tuple[bytes, bytes, str, Any]
"""key, content hash, fingerprint, and the payload: `fts_content` as text, or the vector."""

_SAME_DIRECTION = 0.99
"""Cosine from which on a recomputed vector counts as the stored one: models differ a little between machines."""


def content_hash(text: str) -> bytes:
    """Names a text, whatever made tokens or vectors of it."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def fts_content(tokens: Tokens) -> str:
    return tokens.words if tokens.words == tokens.sequence else f"{tokens.words}\n{tokens.sequence}"


def tokens_of(content: str) -> Tokens:
    words, split, sequence = content.partition("\n")
    return Tokens(words, sequence if split else words)


def same_direction(stored: "np.ndarray", made: "np.ndarray") -> bool:
    """Whether two vectors count as the same one, made on different machines."""
    return stored.shape == made.shape and float(stored @ made) >= _SAME_DIRECTION
