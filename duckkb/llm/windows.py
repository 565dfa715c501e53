"""Texts longer than a model's limit: estimates their tokens, cuts them, and joins the vectors of the pieces."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

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
