"""Ranked lists: two become one, a question is moved by what it finds, and a score is taken apart so that it can be added up
again. Pure functions over keys; a key is whatever names a record."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from math import fsum, sqrt
from typing import Any, TypeVar

from msgspec import Struct

from duckkb.queries import Lane, Plan
from duckkb.settings import Fusion

Key = TypeVar("Key", bound=Hashable)
Ranking = Sequence[tuple[Key, float]]


class Fused(Struct, frozen=True):
    """One record after fusion: its final score, and its score and rank (from 1) in each lane that had it."""

    key: Any
    score: float
    scores: Mapping[Lane, float] = {}
    ranks: Mapping[Lane, int] = {}


class Gate(Struct, frozen=True):
    """Whether the lexical lane counts in a min-max fusion: it does where its best record, the first over all types, covers a
    `share` of the question of at least `least`. The share (0 to 1) is that of the question's idf mass, counted in the index of
    that record's type; 0 where no record is found by words, None where the question asks for none."""

    least: float
    share: float | None

    @property
    def is_closed(self) -> bool:
        return self.share is not None and self.share < self.least

    @property
    def account(self) -> dict[str, Any]:
        return {"least": self.least, "share": self.share, "closed": self.is_closed}


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


def score_account(fused: Fused, plan: Plan) -> dict[str, Any]:
    """The `_scores` of a hybrid hit: lane scores, final score, the lanes that had it, its rank in each (None beyond)."""
    return {
        "vector": fused.scores.get("vector"),
        "fts": fused.scores.get("fts"),
        "final": fused.score,
        "sources": [lane for lane in plan.lanes if lane in fused.ranks],
        "rank": {lane: fused.ranks.get(lane) for lane in ("vector", "fts")},
    }


def trace(
    fused: Fused,
    plan: Plan,
    lexical: Mapping[str, Any] | None,
    gate: Gate | None = None,
) -> dict[str, Any]:
    """Why a record ranks where it does: each lane's contribution under the plan's fusion, and the terms of the lexical
    score (`lexical` as the lane explains it), which add up to it. Where the `gate` closed, the lexical lane has no record."""
    parts: dict[str, Any] = {}
    for lane in plan.lanes:
        if lane not in fused.ranks:
            parts[lane] = {"rank": None, "score": None, "part": 0.0}
            continue
        rank, score = fused.ranks[lane], fused.scores[lane]
        part = fused.score if len(plan.lanes) == 1 else _share(plan, rank)
        parts[lane] = {"rank": rank, "score": score, "part": part}
    terms = list(lexical["terms"]) if lexical else None
    return {"lanes": parts, "final": fused.score, "terms": terms} | ({"gate": gate.account} if gate else {})


def plan_account(plan: Plan, moved_to: Sequence[Any] = (), gate: Gate | None = None) -> dict[str, Any]:
    """The plan as a plain dict, for `--explain`; `moved_to`: the identities that an expansion moved the question to; `gate`:
    what became of the lexical lane."""
    expansion = {"weight": plan.expansion.weight, "hits": plan.expansion.hits, "moved_to": list(moved_to)}
    fusion: dict[str, Any] = {"method": plan.fusion.method}
    fusion |= {"k": plan.fusion.k} if plan.fusion.method == "rrf" else {"weight": plan.fusion.weight}
    fusion |= {"gate": gate.account} if gate else {}
    return {
        "mode": plan.mode,
        "lanes": list(plan.lanes),
        "limit": plan.limit,
        "depth": plan.depth,
        "fusion": fusion if len(plan.lanes) > 1 else None,
        "expansion": {"method": "feedback", **expansion} if plan.expansion.method == "feedback" else None,
    }


def _share(plan: Plan, rank: int) -> float | None:
    """A lane's part of an RRF score. A min-max part depends on the whole list, which the lane scores show instead."""
    return 1.0 / (plan.fusion.k + rank) if plan.fusion.method == "rrf" else None
