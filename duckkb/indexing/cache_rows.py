"""The rows of the cache, without the libraries that read and write the team's files."""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb.entries import Tokens

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["tokens", "vector", "answer"]
KINDS: tuple[Kind, ...] = ("tokens", "vector")
"""The kinds of rows that teams share. Answers of models (`answers`) stay on this machine."""
ALL_KINDS: tuple[Kind, ...] = (*KINDS, "answer")

CacheRow = tuple[bytes, bytes, str, bytes]
"""Key (16 bytes over fingerprint and text), content hash (16 bytes over the text), fingerprint, and the payload as bytes:
`fts_content` in UTF-8, the vector as little-endian float32, or an answer."""


class Damaged(ValueError):
    """A file is not a valid cache file. The message says what it is instead, `remedy` how to repair it."""

    def __init__(self, message: str, remedy: str = "duckkb index build") -> None:
        super().__init__(message)
        self.remedy = remedy


class Batch(Struct, frozen=True):
    """Valid rows of one kind from a file, and the number of faulty rows in their row group by problem."""

    kind: Kind
    rows: list[CacheRow]
    left_out: Counter[str]


_SAME_DIRECTION = 0.99
"""The least cosine at which a recomputed vector equals the stored vector: models differ a little between machines."""


def digest(data: bytes) -> str:
    """Return the digest of a file's bytes, used in a segment's name and in the store's record of it."""
    return sha256(data).hexdigest()


def content_hash(text: str) -> bytes:
    """Hash a text, independent of what makes tokens or vectors of it."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def checksums(kind: Kind, rows: Iterable[CacheRow]) -> list[bytes]:
    """Compute 8 bytes over each whole row: they detect damage, but do not stop a forger (see `cache`)."""
    heads: dict[str, bytes] = {}
    digests = []
    for key, content, fingerprint, payload in rows:
        head = heads.get(fingerprint) or heads.setdefault(fingerprint, f"{kind}\0{fingerprint}\0".encode())
        digests.append(blake2b(b"".join((head, key, content, payload)), digest_size=8).digest())
    return digests


def pack_value(kind: Kind, value: Any) -> bytes:
    """Pack tokens or a vector as a payload."""
    if kind == "tokens":
        return fts_content(value).encode()
    payload: bytes = value.astype("<f4", copy=False).tobytes()
    return payload


def vector_of(payload: bytes) -> "np.ndarray":
    """Return the vector in a payload, float32 and read-only."""
    import numpy as np

    return np.frombuffer(payload, "<f4")


def fts_content(tokens: Tokens) -> str:
    """Return the words, and the sequence after a line feed if it differs."""
    return tokens.words if tokens.words == tokens.sequence else f"{tokens.words}\n{tokens.sequence}"


def tokens_of(payload: bytes) -> Tokens:
    words, split, sequence = payload.decode().partition("\n")
    return Tokens(words, sequence if split else words)


def same_direction(stored: "np.ndarray", made: "np.ndarray") -> bool:
    """Return whether two vectors, made on different machines, count as equal."""
    return stored.shape == made.shape and float(stored @ made) >= _SAME_DIRECTION
