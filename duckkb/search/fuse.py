"""Fusion: two ranked lists become one. Pure functions over keys; a key is whatever names a record."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from duckkb.queries import Lane
from duckkb.settings import Fusion
from duckkb.values import dataclass, field

Key = TypeVar("Key", bound=Hashable)
Ranking = Sequence[tuple[Key, float]]


@dataclass(frozen=True, slots=True)
class Fused:
    """One record after fusion: its final score, and its score and rank (from 1) in each lane that had it."""

    key: Any
    score: float
    scores: Mapping[Lane, float] = field(default_factory=dict)
    ranks: Mapping[Lane, int] = field(default_factory=dict)


def ranked(score: Mapping[Key, float], tie: Callable[[Key], Any], limit: int) -> list[Key]:
    """The first `limit` keys by falling score, equal scores in the order of `tie`, which is asked for those alone.

    >>> ranked({"b": 1.0, "a": 1.0, "c": 2.0}, str, 2)
    ['c', 'a']
    """
    found: list[Key] = []
    for _, group in groupby(sorted(score, key=score.__getitem__, reverse=True), key=score.__getitem__):
        keys = list(group)
        found += sorted(keys, key=tie) if len(keys) > 1 else keys
        if len(found) >= limit:
            break
    return found[:limit]


def fuse(lanes: Mapping[Lane, "Ranking[Key]"], fusion: Fusion, tie: Callable[[Key], Any], limit: int) -> list[Fused]:
    """Fuse rankings (best first, each key once a lane): the first `limit`, equal scores in the order of `tie`."""
    score = _rrf(lanes, fusion.k) if fusion.method == "rrf" else _minmax(lanes, fusion.weight)
    ranks: dict[Key, dict[Lane, int]] = {}
    scores: dict[Key, dict[Lane, float]] = {}
    for lane, ranking in lanes.items():
        for rank, (key, lane_score) in enumerate(ranking, 1):
            ranks.setdefault(key, {})[lane] = rank
            scores.setdefault(key, {})[lane] = lane_score
    return [Fused(key, score[key], scores[key], ranks[key]) for key in ranked(score, tie, limit)]


def _rrf(lanes: Mapping[Lane, "Ranking[Key]"], k: int) -> dict[Key, float]:
    """Reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR 2009): the sum of 1 / (k + rank), ranks from 1."""
    total: dict[Key, float] = {}
    for ranking in lanes.values():
        for rank, (key, _) in enumerate(ranking, 1):
            total[key] = total.get(key, 0.0) + 1.0 / (k + rank)
    return total


def _minmax(lanes: Mapping[Lane, "Ranking[Key]"], weight: float) -> dict[Key, float]:
    """Weighted sum of scores scaled to 0..1 in each lane; `weight` is the vector lane's share, a missing record has 0.
    Scores that are all alike tell nothing but that the lane has the record: they count half."""
    share: dict[Lane, float] = {"vector": weight, "fts": 1.0 - weight}
    total: dict[Key, float] = {}
    for lane, ranking in lanes.items():
        if not ranking:
            continue
        values = [score for _, score in ranking]
        low, span = min(values), max(values) - min(values)
        for key, score in ranking:
            scaled = (score - low) / span if span > 0 else 0.5
            total[key] = total.get(key, 0.0) + share[lane] * scaled
    return total
