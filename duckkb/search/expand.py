"""Expansion of a question by what it finds: its vector moves towards the best hits, and the lane runs once more."""

from collections.abc import Sequence
from math import fsum, sqrt


def feedback(question: Sequence[float], found: Sequence[Sequence[float]], weight: float) -> list[float]:
    """The question's vector, moved by `weight` (0 to 1) towards the mean of the vectors found, with length 1.

    Rocchio's relevance feedback (in Salton, The SMART Retrieval System, 1971) without a part for irrelevant texts, the
    best hits standing in for judged ones. All vectors are 1-d of one length and taken at unit length; a zero vector
    counts as it is. Without anything found the question stays, at unit length.
    """
    own = _unit(question)
    if not found:
        return own
    mean = [fsum(column) / len(found) for column in zip(*map(_unit, found), strict=True)]
    return _unit([(1 - weight) * mine + weight * theirs for mine, theirs in zip(own, mean, strict=True)])


def _unit(vector: Sequence[float]) -> list[float]:
    values = [float(value) for value in vector]
    length = sqrt(fsum(value * value for value in values))
    return [value / length for value in values] if length else values
