"""What the right answers are, found without any of the systems: nearest vectors and BM25, in numpy."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from corpus import SIDES, Corpus, Question, identity
from systems import DEPTH, LIMIT, fused

K1, B = 1.2, 0.75
_ROWS = 100_000


class Right:
    """The right answers to some questions, by number, among all records or those that a mask lets through."""

    def __init__(self, corpus: Corpus, questions: Sequence[Question]) -> None:
        self._corpus, self._questions = corpus, questions

    def vector(self, number: int, allowed: np.ndarray | None = None, limit: int = LIMIT) -> list[str]:
        """The ids of the nearest records, in double precision."""
        return _best(self._products[number], allowed, limit)

    def lexical(self, number: int, allowed: np.ndarray | None = None, limit: int = LIMIT) -> list[str]:
        """The ids of the best records by BM25 over the words of which the texts were made, without stems."""
        return _best(self._bm25[number], allowed, limit, least=0.0)

    def hybrid(self, number: int, allowed: np.ndarray | None = None) -> list[str]:
        """The ids of the ten best by reciprocal rank fusion of both rankings, fifty deep."""
        return list(fused([ranked(number, allowed, DEPTH) for ranked in (self.vector, self.lexical)]))

    @cached_property
    def _products(self) -> np.ndarray:
        """float64, (questions, records)."""
        asked = np.stack([question.vector for question in self._questions]).astype(np.float64)
        vectors = self._corpus.vectors
        starts = range(0, self._corpus.size, _ROWS)
        return np.concatenate([asked @ vectors[at : at + _ROWS].astype(np.float64).T for at in starts], axis=1)

    @cached_property
    def _bm25(self) -> np.ndarray:
        """float64, (questions, records)."""
        lengths = np.diff(self._corpus.ends, prepend=0)
        norms = K1 * (1 - B + B * lengths / lengths.mean())
        return np.stack([self._scores(question, norms) for question in self._questions])

    def _scores(self, question: Question, norms: np.ndarray) -> np.ndarray:
        size, scores = self._corpus.size, np.zeros(self._corpus.size)
        for word in dict.fromkeys(question.words):
            places = np.flatnonzero(self._corpus.words == word)
            counts = np.bincount(np.searchsorted(self._corpus.ends, places, side="right"), minlength=size)
            having = np.count_nonzero(counts)
            weight = np.log1p((size - having + 0.5) / (having + 0.5))
            scores += weight * counts * (K1 + 1) / (counts + norms)
        return scores


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
