"""Fakes of the ports, for tests that need neither a model nor the time of day. They keep the contracts of `duckkb.ports`."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zlib import crc32

import numpy as np

from duckkb.entries import Cut, Fingerprint
from duckkb.errors import Unavailable

_WORDS = re.compile(r"\w+")
_NOTHING = "\x00nothing"


class HashEmbedder:
    """Maps a text to a unit vector by hashing its words and character trigrams: texts that share them are near.

    Passages and queries get the same vectors. `passages` and `queries` count the texts that were embedded, `calls` the
    calls. `limit` is the number of words that it reads in one go, 0 for any. With `fail=True` (it may be set at any time)
    embedding raises as a missing model does.
    """

    def __init__(self, dimension: int = 64, fail: bool = False, name: str = "hash", limit: int = 0) -> None:
        self.dimension = dimension
        self.limit = limit
        self.fail = fail
        self.name = name
        self.passages = 0
        self.queries = 0
        self.calls = 0

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.name, "trigrams-and-words-1", self.dimension)

    def embed_passages(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._embed(texts)
        self.passages += len(texts)
        return vectors

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._embed(texts)
        self.queries += len(texts)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(_WORDS.findall(text)) for text in texts]

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        cuts = []
        for text in texts:
            ends = [word.end() for word in _WORDS.finditer(text)]
            kept = text[: ends[self.limit - 1]] if self.limit and len(ends) > self.limit else text
            cuts.append(Cut(kept, len(ends), len(_WORDS.findall(kept)), self.limit or None))
        return cuts

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += 1
        if self.fail:
            raise Unavailable("the model is switched off", code="E_MODEL", suggestion="pip install 'duckkb[local]'")
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            self._add_features(row, text)
        return vectors

    def _add_features(self, row: np.ndarray, text: str) -> None:
        for feature in _features(text):
            digest = crc32(feature.encode("utf-8", "surrogatepass"))
            row[(digest >> 1) % self.dimension] += 1.0 if digest & 1 else -1.0
        norm = float(np.linalg.norm(row))
        if norm == 0.0:  # no features, or features that cancelled out: the contract is a unit vector all the same
            row[0] = norm = 1.0
        row /= norm


def _features(text: str) -> list[str]:
    lowered = text.casefold()
    words = _WORDS.findall(lowered)
    padded = f" {' '.join(words)} "
    trigrams = [padded[at : at + 3] for at in range(len(padded) - 2)]
    return [*words, *trigrams] or [_NOTHING]


class FrozenClock:
    """Says `start` until told otherwise: moves on by `step` microseconds at each call, or by `advance`."""

    def __init__(self, start: str = "2026-01-15T08:00:00.000000Z", step: int = 0) -> None:
        self._next = datetime.strptime(start, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        self.step = step

    def now(self) -> str:
        said = self._next
        self.advance(self.step)
        return said.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def advance(self, microseconds: int) -> None:
        self._next += timedelta(microseconds=microseconds)
