"""The account of `why`, as a page of text and as an object."""

from collections.abc import Iterator
from typing import Any

from duckkb.review.impact.why import LaneRank, Token, Why

_LANES = {"fts": "by words", "vector": "by meaning"}


def as_object(why: Why) -> dict[str, Any]:
    found: dict[str, Any] = {"type": why.type, "identity": why.identity, "question": why.question, "mode": why.mode}
    found |= {
        "found": why.is_found,
        "rank": why.rank,
        "limit": why.limit,
        "plain": why.is_plain,
        "reasons": list(why.reasons),
    }
    found["lanes"] = {
        lane.lane: {"rank": lane.rank, "score": lane.score, "ranked": lane.ranked, "depth": lane.depth}
        for lane in why.lanes
    }
    found["tokens"] = [
        {"token": token.text, "score": token.score, "records": token.records, "elsewhere": list(token.elsewhere)}
        for token in why.tokens
    ]
    found["filter"] = None if why.where is None else {"where": why.where, "passes": why.passes_filter}
    found |= {"excluded": list(why.excluded), "chunks": why.chunks, "pending": why.pending}
    return found | {"policy": dict(why.policy), "first": list(why.first), "notices": list(why.notices)}


def as_text(why: Why) -> Iterator[str]:
    yield f"{why.type} {why.identity}: {'found' if why.is_found else 'not found'} by {why.question!r}"
    yield from (f"  {said}" for said in why.reasons)
    if not why.mode:
        return
    yield f"search: {why.mode}, the first {why.limit}"
    yield from (f"  {_lane(lane)}" for lane in why.lanes)
    if why.where is not None:
        yield f"  filter: {why.where}: {'satisfied' if why.passes_filter else 'not satisfied'}"
    if why.chunks:
        yield f"  vectors: {why.chunks - why.pending} of {why.chunks} chunks have one"
    if why.tokens:
        yield "words of the question"
        yield from (f"  {_token(token)}" for token in why.tokens)
    yield f"first: {', '.join(why.first) or 'nothing'}"
    policy = why.policy
    yield f"policy: {policy['policy'] or 'none'}; words in {', '.join(policy['full_text']) or 'no field'}; vectors of {', '.join(policy['vectors']) or 'no field'}"
    yield from (f"note: {said}" for said in why.notices)


def _lane(lane: LaneRank) -> str:
    if lane.rank is None:
        return f"{_LANES[lane.lane]}: not among the {lane.ranked} ranked"
    return (
        f"{_LANES[lane.lane]}: rank {lane.rank} of {lane.ranked}, score {lane.score:.4f} (the first {lane.depth} count)"
    )


def _token(token: Token) -> str:
    if token.score:
        return f"{token.text}: {token.score:.4f}, in {token.records} records"
    return f"{token.text}: not in the record" + (f", but in {', '.join(token.elsewhere)}" if token.elsewhere else "")
