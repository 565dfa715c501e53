"""How values look on stdout: the keys of result lines. Keys with a leading _ are duckkb's own."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from duckkb.records import CREATED_AT, ID, UPDATED_AT, identity_value

if TYPE_CHECKING:
    from duckkb.queries import FindResult, Hit, Receipt
    from duckkb.review.provenance import Origin


def hit_line(hit: "Hit", *, degraded: bool) -> dict[str, Any]:
    """A hit: the record's fields, then `_type`, `_etag`, `_score`, `_engine`, and what its mode adds."""
    line: dict[str, Any] = {ID: hit.id, **hit.record, CREATED_AT: hit.times[0], UPDATED_AT: hit.times[1]}
    line |= {"_type": hit.type, "_etag": hit.etag, "_engine": hit.engine}
    if hit.score is not None:
        line["_score"] = hit.score
    if hit.scores is not None:
        line["_scores"] = dict(hit.scores)
    if hit.chunk is not None:
        line["_chunk"] = {"field": hit.chunk.field, "chunk_seq": hit.chunk.seq, "text": hit.chunk.text}
    if hit.trace is not None:
        line["_explain"] = dict(hit.trace)
    if degraded:
        line["_degraded"] = True
    return line


def hit_lines(result: "FindResult", origins: "Sequence[Origin]" = ()) -> Iterator[dict[str, Any]]:
    """The hits of an answer, each with its origin where these are given."""
    for hit, origin in zip_longest(result, origins):
        line = hit_line(hit, degraded=result.degraded)
        yield line | ({"_provenance": origin_object(origin)} if origin else {})


def origin_object(origin: "Origin") -> dict[str, Any]:
    """Where a record's line is from. Without a commit it is not committed as it is; `shallow` says that history ends
    there, so that the line may be older."""
    line: dict[str, Any] = {"commit": None, "path": origin.path, "line": origin.line_no}
    if origin.by is None:
        line["uncommitted"] = True
    else:
        line |= {"commit": origin.by.commit, "author": origin.by.author, "date": origin.by.date}
        line |= {"shallow": True} if origin.is_boundary else {}
    return line | {"uri": origin.uri}


def result_object(result: "FindResult", origins: "Sequence[Origin]" = ()) -> dict[str, Any]:
    """A whole answer as one object, for `--json`."""
    found: dict[str, Any] = {
        "results": list(hit_lines(result, origins)),
        "mode": result.mode,
        "engine": result.engine,
        "degraded": result.degraded,
        "notices": [notice_object(notice) for notice in result.notices],
    }
    return found | ({"explain": dict(result.explain)} if result.explain else {})


def notice_object(notice: Any) -> dict[str, str]:
    return {"code": notice.code, "message": notice.message, "remedy": notice.remedy}


def receipt_line(receipt: "Receipt", *, named: bool = True) -> Mapping[str, Any]:
    """What a write did, on one line. `identities`, `ids` and `etags` run in the order of the records given; an import of
    many leaves them out (`named` False)."""
    line: dict[str, Any] = {
        "inserted": receipt.inserted,
        "updated": receipt.updated,
        "unchanged": receipt.unchanged,
        "deleted": receipt.deleted,
        "pending": receipt.pending,
        "files": list(receipt.files),
    }
    if named:
        line["identities"] = [identity_value(identity) for identity in receipt.identities]
        line |= {"ids": list(receipt.ids), "etags": list(receipt.etags)}
    return line
