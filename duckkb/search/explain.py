"""The account of a score: every part of it, so that it can be added up again."""

from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.queries import Plan
from duckkb.search.fuse import Fused


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
    fused: Fused, plan: Plan, lexical: Mapping[str, Any] | None, scales: tuple[float, float] = (1.0, 1.0)
) -> dict[str, Any]:
    """Why a record ranks where it does: each lane's contribution under the plan's fusion, and the terms of the lexical
    score (`lexical` as the lane explains it), which add up to it. `scales`: what lexical scores and final ones were
    multiplied by for a record that does not fit the operators of the question, to come behind those that do; the account
    has scores after that, and says it."""
    in_lane, in_all = scales
    both = in_lane * in_all
    in_terms = both if len(plan.lanes) == 1 else in_lane  # the only lane's score is the final one
    parts: dict[str, Any] = {}
    for lane in plan.lanes:
        if lane not in fused.ranks:
            parts[lane] = {"rank": None, "score": None, "part": 0.0}
            continue
        rank, score = fused.ranks[lane], fused.scores[lane]
        part = fused.score if len(plan.lanes) == 1 else _share(plan, rank, in_all)
        parts[lane] = {"rank": rank, "score": score, "part": part}
    terms = [{**term, "score": term["score"] * in_terms} for term in lexical["terms"]] if lexical else None
    account = {"lanes": parts, "final": fused.score, "terms": terms}
    return account | ({} if scales == (1.0, 1.0) else {"reading": "plain", "scaled_by": both})


def plan_account(plan: Plan, moved_to: Sequence[Any] = ()) -> dict[str, Any]:
    """The plan as a plain dict, for `--explain`; `moved_to`: the identities that an expansion moved the question to."""
    expansion = {"weight": plan.expansion.weight, "hits": plan.expansion.hits, "moved_to": list(moved_to)}
    fusion = {"method": plan.fusion.method} | (
        {"k": plan.fusion.k} if plan.fusion.method == "rrf" else {"weight": plan.fusion.weight}
    )
    return {
        "mode": plan.mode,
        "lanes": list(plan.lanes),
        "limit": plan.limit,
        "depth": plan.depth,
        "fusion": fusion if len(plan.lanes) > 1 else None,
        "expansion": {"method": "feedback", **expansion} if plan.expansion.method == "feedback" else None,
    }


def _share(plan: Plan, rank: int, scale: float) -> float | None:
    """A lane's part of an RRF score. A min-max part depends on the whole list, which the lane scores show instead."""
    return scale / (plan.fusion.k + rank) if plan.fusion.method == "rrf" else None
