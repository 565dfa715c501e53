"""How values look on stdout: the keys of result lines. Keys with a leading _ are duckkb's own."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from duckkb.records import CREATED_AT, ID, UPDATED_AT, identity_value

if TYPE_CHECKING:
    from duckkb.queries import ChunkRef, FindResult, Hit, Receipt
    from duckkb.review.provenance.history import Origin


_LEAST_SHARE = 5  # a chunk whose text is not printed again is more than one in so many of its field


def hit_line(hit: "Hit", *, degraded: bool, origin: "Origin | None" = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A hit with every field there is, and in its default form: the record's fields, then `_type`, `_etag`, `_engine`,
    `_score`, where in a longer text it was found, and what options of their own ask for."""
    form: dict[str, Any] = {**hit.record, "_type": hit.type, "_etag": hit.etag, "_engine": hit.engine}
    form |= {} if hit.score is None else {"_score": hit.score}
    whole = {ID: hit.id, **form, CREATED_AT: hit.times[0], UPDATED_AT: hit.times[1]}
    if hit.scores is not None:
        whole["_scores"] = dict(hit.scores)
        form |= {} if hit.trace is None else {"_scores": whole["_scores"]}
    if hit.chunk is not None:
        whole["_chunk"] = {"field": hit.chunk.field, "chunk_seq": hit.chunk.seq, "text": hit.chunk.text}
        form |= _found_in(hit.chunk, hit.record.get(hit.chunk.field))
    said: dict[str, Any] = {"_degraded": True} if degraded else {}
    said |= {} if hit.trace is None else {"_explain": dict(hit.trace)}
    said |= {} if origin is None else {"_provenance": origin_object(origin)}
    return whole | said, form | said


def _found_in(chunk: "ChunkRef", value: Any) -> dict[str, Any]:
    """`_chunk` in the default form: nothing where it is all of its field, and the text only where it is a small part of
    what the field, which is printed too, says anyway."""
    from duckkb.indexing.chunk import field_text

    text = field_text(value)
    if len(chunk.text) >= len(text.strip()):
        return {}
    place: dict[str, Any] = {"field": chunk.field, "chunk_seq": chunk.seq}
    small = len(chunk.text) * _LEAST_SHARE <= len(text)
    return {"_chunk": place | ({"text": chunk.text} if small else {})}


def hit_lines(result: "FindResult", origins: "Sequence[Origin]" = ()) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The hits of an answer, each whole and in its default form, with its origin where these are given."""
    pairs = zip_longest(result, origins)
    return [hit_line(hit, degraded=result.degraded, origin=origin) for hit, origin in pairs]


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


def result_object(result: "FindResult", lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A whole answer as one object, for `--json`; `lines` are its hits as they are printed."""
    found: dict[str, Any] = {
        "results": list(lines),
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
