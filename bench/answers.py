"""What the right answers are, found without any of the systems: nearest vectors and BM25, in numpy."""

from collections.abc import Sequence

import numpy as np
from corpus import SIDES, Corpus, Question, identity
from systems import DEPTH, LIMIT, fused

K1, B = 1.2, 0.75
_ROWS = 100_000


def nearest(corpus: Corpus, question: Question, allowed: np.ndarray | None = None, limit: int = LIMIT) -> list[str]:
    """The ids of the nearest records (of those that `allowed`, a mask, lets through), in double precision."""
    scores = np.concatenate(
        [
            np.asarray(corpus.vectors[first : first + _ROWS], np.float64) @ question.vector.astype(np.float64)
            for first in range(0, corpus.size, _ROWS)
        ]
    )
    return _best(scores, allowed, limit)


def bm25(corpus: Corpus, question: Question, allowed: np.ndarray | None = None, limit: int = LIMIT) -> list[str]:
    """The ids of the best records by BM25 over the words of which the texts were made, without stems."""
    lengths = np.diff(corpus.ends, prepend=0)
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    scores = np.zeros(corpus.size)
    for word in dict.fromkeys(question.words):
        records = np.searchsorted(corpus.ends, np.flatnonzero(corpus.words == word), side="right")
        counts = np.bincount(records, minlength=corpus.size)
        having = np.count_nonzero(counts)
        weight = np.log1p((corpus.size - having + 0.5) / (having + 0.5))
        scores += weight * counts * (K1 + 1) / (counts + norms)
    return _best(scores, allowed, limit, least=0.0)


def hybrid(corpus: Corpus, question: Question, allowed: np.ndarray | None = None) -> list[str]:
    """The ids of the ten best by reciprocal rank fusion of both rankings, fifty deep."""
    return list(fused([ranked(corpus, question, allowed, DEPTH) for ranked in (nearest, bm25)]))


def satisfying(corpus: Corpus, question: Question, step: str) -> np.ndarray | None:
    """Which records satisfy the filter of a step, as a mask; None where it has none."""
    if step.endswith(" 1 %"):
        return corpus.scalars[:, 0] == int(question.topic[1:])
    if step.endswith(" 50 %"):
        return corpus.scalars[:, 1] == SIDES.index(question.side)
    return None


def recall(found: Sequence[str], wanted: Sequence[str]) -> float:
    """The share of the wanted ids that were found; 1 where nothing is wanted.

    >>> recall(["a", "c"], ["a", "b"])
    0.5
    """
    return len(set(found) & set(wanted)) / len(wanted) if wanted else 1.0


def keeps_to(found: Sequence[str], allowed: np.ndarray) -> bool:
    """Whether every id satisfies the filter, and as many were found as exist, up to ten."""
    places = [int(name[1:]) for name in found]
    return all(allowed[place] for place in places) and len(set(found)) == min(LIMIT, int(np.count_nonzero(allowed)))


def _best(scores: np.ndarray, allowed: np.ndarray | None, limit: int, least: float = -np.inf) -> list[str]:
    usable = scores if allowed is None else np.where(allowed, scores, -np.inf)
    count = min(limit, len(usable))
    first = np.argpartition(-usable, count - 1)[:count]
    ordered = first[np.lexsort((first, -usable[first]))]
    return [identity(int(place)) for place in ordered if usable[place] > least]
