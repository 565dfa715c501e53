"""Blending of a reranker's scores with the fused order, the last step of `query`.

Pure arithmetic. Each step is kept so that a score can be added up again.

    fused     as `ranking.DOCUMENTS` has it: weight / (60 + rank) over the lists that have the record, and a bonus
    position  exp(-(rank - 1) / 5.5) of the fused rank, at least .01
    final     w x position + (1 - w) x rerank; w is .75 for the fused ranks 1 to 3, .60 for 4 to 10, .40 beyond;
              without a reranker the mean of the lanes' scores: by words |s| / (1 + |s|), by meaning 1 / (1 + distance), the best
              of a lane's lists, and 0 in a lane that did not find the record
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import exp, fsum
from typing import Any

from msgspec import Struct

from duckkb.queries import Lane
from duckkb.search.ranking import Fused, rank_keys

_DECAY, _LEAST_POSITION = 5.5, 0.01
_BLENDS = ((3, 0.75), (10, 0.60))
_BLEND_BEYOND = 0.40
_PLACES = 12  # decimals in which scores are compared


class Blended(Struct, frozen=True):
    """A record with its `final` score, and the `rerank` score (0 to 1) in it, None where it was not reranked.

    `lanes` are its scores (0 to 1) in the lanes that were asked; `weights` are those of position and rerank score.
    """

    record: Fused
    lanes: Mapping[Lane, float]
    weights: tuple[float, float]
    rerank: float | None
    final: float

    @property
    def account(self) -> dict[str, Any]:
        """Everything that the final score is made of, for `--explain`."""
        return {
            "contributions": [
                {
                    "lane": part.source.lane,
                    "query_kind": part.source.kind,
                    "query": part.source.query,
                    "rank": part.rank,
                    "weight": part.weight,
                    "raw_score": part.score,
                    "contribution": part.value,
                }
                for part in self.record.parts
            ],
            "base_score": self.record.base,
            "bonus": self.record.bonus,
            "fused_rank": self.record.rank,
            "position_score": _score_position(self.record.rank),
            "lane_scores": dict(self.lanes),
            "weights": {"position": self.weights[0], "rerank": self.weights[1]},
            "rerank_score": self.rerank,
            "final": self.final,
        }


def blend(
    records: Sequence[Fused], lanes: Collection[Lane], rerank: Mapping[Any, float] | None, tie: Callable[[Any], Any]
) -> list[Blended]:
    """Blend the fused order with a reranker's scores (0 to 1).

    The reranked records, which are the first of the fused list, come by falling final score, ties by `tie`. The
    records behind them stay as they are fused, with only the part of their position. With None, where no
    reranker answered, all stay as they are fused, and `final` is the mean of their scores in the `lanes` that
    were asked.

    Raises ValueError where scores are out of range, or are not those of the first records: a partial answer is
    refused.
    """
    if rerank is None:
        return [_score_record(record, lanes, None, is_read=False) for record in records]
    results = [_score_record(record, lanes, rerank.get(record.key)) for record in records]
    first = {result.record.key: result for result in results[: len(rerank)]}
    if first.keys() != rerank.keys():
        raise ValueError("a reranker scores the first candidates, all of them and no others")
    if not all(0.0 <= score <= 1.0 for score in rerank.values()):
        raise ValueError("a rerank score is between 0 and 1")
    order = rank_keys({key: round(result.final, _PLACES) for key, result in first.items()}, tie, len(first))
    return [*(first[key] for key in order), *results[len(rerank) :]]


def _score_record(record: Fused, lanes: Collection[Lane], rerank: float | None, *, is_read: bool = True) -> Blended:
    """Score a record. `is_read`: the reranker has judged the first records."""
    scores = dict.fromkeys(lanes, 0.0)
    for part in record.parts:
        score = lexical_score(part.score) if part.source.lane == "fts" else vector_score(part.score)
        scores[part.source.lane] = max(scores[part.source.lane], score)
    if not is_read:
        return Blended(record, scores, (0.0, 0.0), None, fsum(scores.values()) / len(scores))
    weight = next((weight for last, weight in _BLENDS if record.rank <= last), _BLEND_BEYOND)
    final = weight * _score_position(record.rank) + (1 - weight) * (rerank or 0.0)
    return Blended(record, scores, (weight, 1 - weight), rerank, final)


def _score_position(rank: int) -> float:
    return max(_LEAST_POSITION, exp(-(rank - 1) / _DECAY))


def lexical_score(raw: float) -> float:
    """Return the displayed form of a BM25 score, 0 to 1: |s| / (1 + |s|)."""
    return abs(raw) / (1 + abs(raw))


def vector_score(cosine: float) -> float:
    """Return the displayed form of a cosine: 1 / (1 + distance), where distance is 1 - cosine; so 1/3 to 1."""
    return 1 / (1 + max(0.0, 1 - cosine))
