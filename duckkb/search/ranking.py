"""Ranked lists: their fusion, relevance feedback, and accounts of scores.

Pure functions over keys; a key is whatever names a record.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from math import fsum, sqrt
from typing import Any, Literal, TypeVar

from msgspec import Struct

from duckkb.queries import NO_WORDS, Lane, LaneHit, LexicalQuery, Plan
from duckkb.settings import Fusion

Key = TypeVar("Key", bound=Hashable)
QueryKind = Literal["original", "variant"]


class RankedList(Struct, frozen=True):
    """What one lane finds for one question: keys with the lane's scores, best first, each key once.

    `query` is the question as written, `words` what the lexical lane reads of it. `hits` has the lane's hit of
    each key.
    """

    lane: Lane
    ranking: Sequence[tuple[Any, float]]
    kind: QueryKind = "original"
    query: str = ""
    words: LexicalQuery = NO_WORDS
    hits: Mapping[Any, LaneHit] = {}


class Contribution(Struct, frozen=True):
    """What one list adds to a record: its rank there (from 1), its score in the lane, and the fused `value`."""

    source: RankedList
    rank: int
    score: float
    weight: float
    value: float


class Fused(Struct, frozen=True):
    """A record after fusion, at a `rank` from 1; `base` is the sum of its parts, one per list in their order."""

    key: Any
    rank: int
    parts: Sequence[Contribution]
    base: float
    bonus: float = 0.0

    @property
    def score(self) -> float:
        return self.base + self.bonus

    @property
    def best(self) -> Contribution:
        """The part of the list in which the record ranks best; on ties the vector list's."""
        return min(self.parts, key=lambda part: (part.rank, part.source.lane != "vector"))

    def part(self, lane: Lane) -> Contribution | None:
        """Return the first part of a lane; None where the lane does not have the record."""
        return next((part for part in self.parts if part.source.lane == lane), None)


class Profile(Struct, frozen=True):
    """How lists are fused: a fusion, weights and a bonus.

    Lists of an `original` question have a weight of their own (`minmax` weighs lanes instead). The bonus
    depends on the best rank in any list. With a bonus, scores equal to `places` decimals are ties.
    """

    fusion: Fusion
    original: float = 1.0
    bonus: Mapping[int, float] = {}
    places: int = 12


DOCUMENTS = Profile(Fusion("rrf", 60), 2.0, {1: 0.05, 2: 0.02, 3: 0.02})
"""The profile of `query`. 1/72 + 1/90 and 2/80 are a tie."""


class Gate(Struct, frozen=True):
    """The decision whether the lexical lane counts in a min-max fusion.

    It counts where its best record, the first over all types, covers a `share` of the question of at least
    `least`. The share (0 to 1) is that of the question's idf mass in the index of that record's type. It is 0
    where no record matches by words, None where the question has no words.
    """

    least: float
    share: float | None

    @property
    def is_closed(self) -> bool:
        return self.share is not None and self.share < self.least

    @property
    def account(self) -> dict[str, Any]:
        return {"least": self.least, "share": self.share, "closed": self.is_closed}


def rank_keys(score: Mapping[Key, float], tie: Callable[[Key], Any], limit: int) -> list[Key]:
    """Return the first `limit` keys by falling score, ties by `tie`, which is called for ties alone.

    >>> rank_keys({"b": 1.0, "a": 1.0, "c": 2.0}, str, 2)
    ['c', 'a']
    """
    results: list[Key] = []
    for _, group in groupby(sorted(score, key=score.__getitem__, reverse=True), key=score.__getitem__):
        keys = list(group)
        results += sorted(keys, key=tie) if len(keys) > 1 else keys
        if len(results) >= limit:
            break
    return results[:limit]


def fuse(
    lists: Sequence[RankedList], profile: Profile, tie: Callable[[Any], Any], limit: int | None = None
) -> list[Fused]:
    """Fuse lists; return the first `limit` records (None: all) by falling score, ties by `tie` (of a key)."""
    parts: dict[Any, list[Contribution]] = {}
    for source in lists:
        weight, values = _weigh(source, profile)
        for rank, ((key, score), value) in enumerate(zip(source.ranking, values, strict=True), 1):
            parts.setdefault(key, []).append(Contribution(source, rank, score, weight, value))
    bases = {key: fsum(part.value for part in some) for key, some in parts.items()}
    best = {key: min(part.rank for part in some) for key, some in parts.items()} if profile.bonus else {}
    bonus = {key: profile.bonus.get(rank, 0.0) for key, rank in best.items()}
    scores = {key: round(base + bonus[key], profile.places) for key, base in bases.items()} if bonus else bases
    order = rank_keys(scores, tie, len(scores) if limit is None else limit)
    return [Fused(key, rank, parts[key], bases[key], bonus.get(key, 0.0)) for rank, key in enumerate(order, 1)]


def _weigh(source: RankedList, profile: Profile) -> tuple[float, list[float]]:
    """Return the weight of a list, and the value of each record in it.

    `rrf`: weight / (k + rank), reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR 2009). `minmax`:
    weight x score, scaled to 0..1 in the list. Equal scores show only that the lane has the records, so each
    counts half.
    """
    fusion = profile.fusion
    if fusion.method == "rrf":
        weight = profile.original if source.kind == "original" else 1.0
        return weight, [weight / (fusion.k + rank) for rank in range(1, len(source.ranking) + 1)]
    weight = fusion.weight if source.lane == "vector" else 1.0 - fusion.weight
    scores = [score for _, score in source.ranking]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return weight, [weight * ((score - low) / (high - low) if high > low else 0.5) for score in scores]


def feedback(question: Sequence[float], found: Sequence[Sequence[float]], weight: float) -> list[float]:
    """Move the question's vector by `weight` (0 to 1) towards the mean of `found`; return it at length 1.

    Rocchio's relevance feedback (in Salton, The SMART Retrieval System, 1971) without a part for irrelevant
    texts; the best hits replace judged texts. All vectors are 1-d, equally long, and scaled to unit length; a
    zero vector counts as it is. With nothing in `found` the question stays, at unit length.
    """
    unit_question = _normalize_vector(question)
    if not found:
        return unit_question
    mean = [fsum(column) / len(found) for column in zip(*map(_normalize_vector, found), strict=True)]
    return _normalize_vector(
        [(1 - weight) * mine + weight * theirs for mine, theirs in zip(unit_question, mean, strict=True)]
    )


def _normalize_vector(vector: Sequence[float]) -> list[float]:
    values = [float(value) for value in vector]
    length = sqrt(fsum(value * value for value in values))
    return [value / length for value in values] if length else values


def score_account(fused: Fused, plan: Plan) -> dict[str, Any]:
    """Return the `_scores` of a hybrid hit: lane scores, final score, lanes, and rank in each (None: absent)."""
    vector, fts = fused.part("vector"), fused.part("fts")
    return {
        "vector": vector.score if vector else None,
        "fts": fts.score if fts else None,
        "final": fused.score,
        "sources": [lane for lane in plan.lanes if fused.part(lane)],
        "rank": {"vector": vector.rank if vector else None, "fts": fts.rank if fts else None},
    }


def trace(
    fused: Fused,
    plan: Plan,
    lexical: Mapping[str, Any] | None,
    gate: Gate | None = None,
) -> dict[str, Any]:
    """Explain a record's rank: each lane's part under the plan's fusion, and the lexical score's terms.

    `lexical` is the lane's own explanation; its terms add up to the score. Where the `gate` closed, the lexical
    lane has no record. A min-max part of two lanes depends on whole lists and is None; the lane scores show it
    instead.
    """
    parts: dict[str, Any] = {lane: {"rank": None, "score": None, "part": 0.0} for lane in plan.lanes}
    is_sum = len(plan.lanes) == 1 or plan.fusion.method == "rrf"
    for part in fused.parts:
        value = part.value if is_sum else None
        parts[part.source.lane] = {"rank": part.rank, "score": part.score, "part": value}
    terms = list(lexical["terms"]) if lexical else None
    return {"lanes": parts, "final": fused.score, "terms": terms} | ({"gate": gate.account} if gate else {})


def plan_account(plan: Plan, moved_to: Sequence[Any] = (), gate: Gate | None = None) -> dict[str, Any]:
    """Return the plan as a plain dict, for `--explain`.

    `moved_to` are the identities that an expansion moved the question to; `gate` is the decision on the lexical lane.
    """
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
