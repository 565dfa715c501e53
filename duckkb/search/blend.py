"""The last steps of `duckkb query`: the ranked lists of all its questions become one, its first records are read again by a
reranker, and both orders are blended. Pure arithmetic, each step kept so that a score can be added up again.

    fused     the sum of weight / (60 + rank) over the lists that have the record (reciprocal rank fusion, Cormack, Clarke,
              Buettcher, SIGIR 2009); the lists of the original question weigh 2, those of a variant 1
    + bonus   by the best rank in any list, once: .05 for the first, .02 for the second and third
    position  exp(-(rank - 1) / 5.5) of the fused rank, at least .01
    final     w x position + (1 - w) x rerank; w is .75 for the fused ranks 1 to 3, .60 for 4 to 10, .40 beyond;
              without a reranker the mean of the lanes' scores: by words |s| / (1 + |s|), by meaning 1 / (1 + distance), the best
              of a lane's lists, and 0 in a lane that did not find the record
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, fsum
from typing import Any, Literal

from msgspec import Struct

from duckkb.queries import Lane
from duckkb.search.ranking import ranked

QueryKind = Literal["original", "variant"]

CANDIDATES = 30
"""Records that a reranker reads, if a caller names no other number."""
WEIGHTS: Mapping[QueryKind, float] = {"original": 2.0, "variant": 1.0}
_K = 60
_BONUS = {1: 0.05, 2: 0.02, 3: 0.02}
_DECAY, _LEAST_POSITION = 5.5, 0.01
_BLENDS = ((3, 0.75), (10, 0.60))
_BLEND_BEYOND = 0.40
_PLACES = 12  # decimals that scores are compared by: 1/72 + 1/90 and 2/80 are a tie


class RankedList(Struct, frozen=True):
    """What one lane found for one question: keys with raw scores, best first, each key once."""

    lane: Lane
    kind: QueryKind
    query: str
    ranking: Sequence[tuple[Any, float]]


class Contribution(Struct, frozen=True):
    """What one list adds to a record: `part` is its weight / (60 + rank), `score` the lane's raw score."""

    lane: Lane
    kind: QueryKind
    query: str
    rank: int
    weight: float
    score: float
    part: float


class Candidate(Struct, frozen=True):
    """A record after fusion, at a `rank` from 1; `base` is the sum of its contributions, in the order of the lists; `lanes` are
    its scores (0 to 1) in the lanes that were asked."""

    key: Any
    rank: int
    base: float
    bonus: float
    contributions: tuple[Contribution, ...]
    lanes: Mapping[Lane, float]

    @property
    def position(self) -> float:
        return max(_LEAST_POSITION, exp(-(self.rank - 1) / _DECAY))

    @property
    def relevance(self) -> float:
        """The mean of its scores in the lanes: of use where nothing has read it."""
        return fsum(self.lanes.values()) / len(self.lanes)

    @property
    def weight(self) -> float:
        """The part of the position in the final score where there is a rerank score."""
        return next((weight for last, weight in _BLENDS if self.rank <= last), _BLEND_BEYOND)


class Blended(Struct, frozen=True):
    """A record as it is given: its `final` score, and the `rerank` score (0 to 1) in it, None where it was not read again.
    `weights` are those of position and rerank score."""

    candidate: Candidate
    weights: tuple[float, float]
    rerank: float | None
    final: float

    @property
    def account(self) -> dict[str, Any]:
        """Everything that the final score is made of, for `--explain`."""
        one = self.candidate
        return {
            "contributions": [
                {
                    "lane": part.lane,
                    "query_kind": part.kind,
                    "query": part.query,
                    "rank": part.rank,
                    "weight": part.weight,
                    "raw_score": part.score,
                    "contribution": part.part,
                }
                for part in one.contributions
            ],
            "base_score": one.base,
            "bonus": one.bonus,
            "fused_rank": one.rank,
            "position_score": one.position,
            "lane_scores": dict(one.lanes),
            "weights": {"position": self.weights[0], "rerank": self.weights[1]},
            "rerank_score": self.rerank,
            "final": self.final,
        }


def fuse_lists(lists: Sequence[RankedList], tie: Callable[[Any], Any]) -> list[Candidate]:
    """Every record of the lists by falling base score with bonus, equal ones in the order of `tie` (of a key)."""
    parts: dict[Any, list[Contribution]] = {}
    for one in lists:
        weight = WEIGHTS[one.kind]
        for rank, (key, score) in enumerate(one.ranking, 1):
            found = Contribution(one.lane, one.kind, one.query, rank, weight, score, weight / (_K + rank))
            parts.setdefault(key, []).append(found)
    base = {key: fsum(part.part for part in found) for key, found in parts.items()}
    bonus = {key: _BONUS.get(min(part.rank for part in found), 0.0) for key, found in parts.items()}
    order = ranked({key: round(base[key] + bonus[key], _PLACES) for key in base}, tie, len(base))
    lanes = tuple(dict.fromkeys(one.lane for one in lists))
    return [
        Candidate(key, rank, base[key], bonus[key], tuple(parts[key]), _lane_scores(lanes, parts[key]))
        for rank, key in enumerate(order, 1)
    ]


def _lane_scores(lanes: Sequence[Lane], parts: Sequence[Contribution]) -> dict[Lane, float]:
    """The best score of a record in each lane, 0 where it was not found there."""
    scores = dict.fromkeys(lanes, 0.0)
    for part in parts:
        score = lexical_score(part.score) if part.lane == "fts" else vector_score(part.score)
        scores[part.lane] = max(scores[part.lane], score)
    return scores


def blend(
    candidates: Sequence[Candidate], rerank: Mapping[Any, float] | None, tie: Callable[[Any], Any]
) -> list[Blended]:
    """Blend the fused order with the scores (0 to 1) of a reranker, which has read the first so many candidates: they come by
    falling final score, equal ones in the order of `tie`. Those behind them stay there as they are fused, with the part
    of their position alone. With None, where no reranker answered, all stay as they are fused, and final is their `relevance`.

    Raises ValueError for scores of others than the first candidates, or out of range: an answer that is not whole is none.
    """
    if rerank is None:
        return [Blended(one, (0.0, 0.0), None, one.relevance) for one in candidates]
    again, behind = candidates[: len(rerank)], candidates[len(rerank) :]
    if {one.key for one in again} != set(rerank):
        raise ValueError("a reranker scores the first candidates, all of them and no others")
    if not all(0.0 <= score <= 1.0 for score in rerank.values()):
        raise ValueError("a rerank score is between 0 and 1")
    read = {one.key: _blended(one, rerank[one.key]) for one in again}
    order = ranked({key: round(one.final, _PLACES) for key, one in read.items()}, tie, len(read))
    return [*(read[key] for key in order), *(_blended(one, None) for one in behind)]


def lexical_score(raw: float) -> float:
    """A BM25 score as it is shown, 0 to 1: |s| / (1 + |s|)."""
    return abs(raw) / (1 + abs(raw))


def vector_score(cosine: float) -> float:
    """A cosine as it is shown: 1 / (1 + distance), where the distance is 1 - cosine; so 1/3 to 1."""
    return 1 / (1 + max(0.0, 1 - cosine))


def _blended(one: Candidate, rerank: float | None) -> Blended:
    weight, other = one.weight, 1 - one.weight
    return Blended(one, (weight, other), rerank, weight * one.position + other * (rerank or 0.0))
