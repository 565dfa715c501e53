"""An embedder whose every fault becomes `errors.Unavailable` (E_MODEL).

So a write keeps its record with the vector pending, and a hybrid search answers by words. Callers bring
embedders of their own, and ours call libraries.

Vectors as exact text: each float32 as 8 hex digits, big-endian (1.0 is `3f800000`).

Texts longer than a model's limit: estimates their tokens, cuts them, and joins the vectors of the pieces."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from duckkb.ports import Embedder
from duckkb.types.errors import DuckkbError, Unavailable
from duckkb.types.records import Cut, Fingerprint

if TYPE_CHECKING:
    import numpy as np

Answer = TypeVar("Answer")


class Checked:
    """An embedder (`ports.Embedder`) that checks another one.

    It also refuses a vector of another length than its fingerprint has. A fingerprint without a length is
    checked where vectors are stored.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def fingerprint(self) -> Fingerprint:
        return self._embedder.fingerprint

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed_texts(texts, self._embedder.embed_passages)

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed_texts(texts, self._embedder.embed_queries)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return _call_embedder(lambda: self._embedder.count_tokens(texts))

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        return _call_embedder(lambda: self._embedder.cut(texts, passage=passage))

    def _embed_texts(self, texts: Sequence[str], embed: "Callable[[Sequence[str]], np.ndarray]") -> "np.ndarray":
        import numpy as np

        vectors = _call_embedder(lambda: np.asarray(embed(texts), np.float32))
        dimension = self.fingerprint.dimension or (vectors.shape[1] if vectors.ndim == 2 else 0)
        if vectors.shape != (len(texts), dimension) or not np.isfinite(vectors).all():
            raise Unavailable(
                f"The embedder did not return {len(texts)} rows of {dimension or 'so many'} finite numbers.",
                code="E_MODEL",
            )
        return vectors


def _call_embedder(call: Callable[[], Answer]) -> Answer:
    try:
        return call()
    except DuckkbError:
        raise
    except Exception as error:  # any exception is possible; its text may quote the input
        raise Unavailable(f"The embedder failed ({type(error).__name__}).", code="E_MODEL") from error


DIGITS = 8  # of one value


def to_hex(vectors: "np.ndarray") -> list[list[str]]:
    """Return rows of float32 as lists of 8 hex digits a value."""
    width = vectors.shape[1] * DIGITS
    rows = (row.tobytes().hex() for row in vectors.astype(">f4"))
    return [[row[at : at + DIGITS] for at in range(0, width, DIGITS)] for row in rows]


def from_hex(words: Sequence[str]) -> "np.ndarray":
    """Return the float32 vector (1-d) of words of 8 hex digits, bit for bit, finite or not.

    Other words raise `ValueError`.
    """
    import numpy as np

    return np.frombuffer(bytes.fromhex("".join(words)), ">f4").astype(np.float32)


def from_numbers(numbers: Sequence[float]) -> "np.ndarray":
    """Return the float32 values (1-d) nearest to the numbers; those too large for float32 become infinite."""
    import numpy as np

    with np.errstate(over="ignore"):  # the caller checks for infinite values
        return np.array(numbers, np.float64).astype(np.float32)


# Where a text may be cut, from the best place to the worst: paragraphs, lines, sentences, clauses, words.
_BOUNDARIES = tuple(map(re.compile, (r"\n\s*\n", r"\n", r"[。！？]|[.!?]\s", r"[；;，,、：:]", r"\s")))


def estimate_window_tokens(text: str) -> int:
    """Estimate tokens: four characters each, but one character from the Chinese, Japanese and Korean blocks on.

    >>> estimate_window_tokens("abcdefgh"), estimate_window_tokens("内存")
    (2, 2)
    """
    wide = sum(character >= "\u2e80" for character in text)
    return wide + math.ceil((len(text) - wide) / 4)


def clip_to_tokens(text: str, tokens: int) -> str:
    """Return the beginning of a text of about so many tokens (`estimate_window_tokens`), or all of a shorter one.

    >>> clip_to_tokens("abcdefgh", 1), clip_to_tokens("内存数据库", 2), clip_to_tokens("内存", 2)
    ('abcd', '内存', '内存')
    """
    if len(text) <= tokens or estimate_window_tokens(text) <= tokens:
        return text
    quarters = 0
    for place, character in enumerate(text):
        quarters += 4 if character >= "\u2e80" else 1
        if quarters > 4 * tokens:
            return text[:place]
    return text


def spans(length: int, limit: int) -> list[tuple[int, int]]:
    """Return `(start, end)` of the fewest contiguous windows that cover `length` tokens with at most `limit` each.

    Their sizes differ by one at most, so that no remnant of a few tokens weighs as much as a full window. No
    tokens give one empty window.

    >>> spans(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    count = max(1, -(-length // limit))
    edges = [length * place // count for place in range(count + 1)]
    return list(pairwise(edges))


def halves(text: str) -> tuple[str, str]:
    """Cut a text of two or more characters near its middle, behind the best boundary in its middle half.

    >>> halves("One sentence here. And another one.")
    ('One sentence here. ', 'And another one.')
    """
    middle = len(text) // 2
    reach = len(text) // 4
    for boundary in _BOUNDARIES:
        cuts = [match.end() for match in boundary.finditer(text, middle - reach, middle + reach)]
        if cuts:
            cut = min(cuts, key=lambda place: abs(place - middle))
            return text[:cut], text[cut:]
    return text[:middle], text[middle:]


def unit_mean(vectors: "np.ndarray", weights: Sequence[float]) -> "np.ndarray":
    """Return the weighted mean of row vectors, at unit length.

    Vectors that cancel each other out give the first of them.
    """
    mean: np.ndarray = vectors.T @ weights
    norm = float(mean @ mean) ** 0.5
    unit: np.ndarray = mean / norm if norm > 0.0 else vectors[0]
    return unit


def mean_of(vectors: "Sequence[np.ndarray]") -> list[float]:
    """Return the unweighted mean of vectors of one length, at unit length, with numbers as short as float32
    allows.
    """
    import numpy as np

    mean = vectors[0] if len(vectors) == 1 else unit_mean(np.stack(vectors), [1.0] * len(vectors))
    return [float(str(value)) for value in mean.astype(np.float32)]
