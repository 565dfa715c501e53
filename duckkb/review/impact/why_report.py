"""The account of `why`, as a page of text and as an object."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from duckkb.review.impact.why import LaneRank, Token, Why

_LANES = {"fts": "by words", "vector": "by meaning"}


def as_object(why: Why) -> dict[str, Any]:
    told = asdict(why)
    lanes = {lane.pop("lane"): lane for lane in told["lanes"]}
    tokens = [{"token": token.pop("text"), **token} for token in told["tokens"]]
    filtered = None if why.where is None else {"where": why.where, "passes": why.passes_filter}
    found = {name: told[name] for name in ("type", "identity", "question", "mode")}
    found |= {"found": why.is_found, "rank": why.rank, "limit": why.limit, "plain": why.is_plain}
    found |= {"reasons": why.reasons, "lanes": lanes, "tokens": tokens, "filter": filtered}
    return found | {name: told[name] for name in ("excluded", "chunks", "pending", "policy", "first", "notices")}


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
