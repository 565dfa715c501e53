"""New records that mean nearly what another record means: by the vectors that are cached. No model runs for it."""

from collections.abc import Iterator

from duckkb.codes import CODES
from duckkb.engine.base import Base
from duckkb.errors import Finding
from duckkb.ontology.model import EVERY, RecordType
from duckkb.records import identity_text
from duckkb.review.diff.model import Diff, RecordChange
from duckkb.truth.files.table import StoredRow

NEAR = 0.97
"""The least cosine, as the mean over a record's chunks of the best chunk of the other record. Of 381 records of duckkb's own
base, all different, the nearest two have 0.956 with the offline model."""
# Nobody reads more new records of one type than this one by one.
_MANY = 200


def near_by_vector(base: Base, diff: Diff) -> Iterator[Finding]:
    """A W_NEAR_DUPLICATE for each new node that is near one in the base, of types whose texts have vectors; those that have
    the finding already, and records without vectors, are passed over."""
    told = {(one.type, one.identity) for one in diff.findings if one.code == "W_NEAR_DUPLICATE"}
    for kind in base.ontology.nodes.values():
        if not kind.has_text_vectors:
            continue
        added = [one for one in diff.changes if one.op == "insert" and one.type == kind.name]
        numbers = {one.id for one in added}
        for change in added[:_MANY]:
            if (change.type, change.identity) not in told:
                yield from _near(base, kind, change, numbers)


def _near(base: Base, kind: RecordType, change: RecordChange, added: set[int]) -> Iterator[Finding]:
    found = _nearest(base, kind, change.id)
    if found is None or found[1] < NEAR or change.after is None:
        return
    other, cosine = found
    if other.record.id in added and other.position > (change.after.path, change.after.line_no):
        return  # of two new records the later one is told
    who = f"{kind.name} {identity_text(other.record.identity)} ({other.path}:{other.line_no})"
    said = f"it means what {who} means (cosine {cosine:.3f})"
    remedy, place = CODES["W_NEAR_DUPLICATE"].remedy, change.after
    yield Finding("W_NEAR_DUPLICATE", said, place.path, place.line_no, "", remedy, change.type, change.identity)


def _nearest(base: Base, kind: RecordType, record_id: int) -> tuple[StoredRow, float] | None:
    """The record nearest to all chunks of another one, with the mean cosine; None where a vector is missing."""
    names = {item.name for item in kind.vectors}
    entries = base.rows(kind)[record_id].entries
    vectors = [entry.vector for entry in entries if entry.field in names or EVERY in names]
    sums: dict[int, float] = {}
    for vector in vectors:
        if vector is None:
            return None
        for hit in base.lanes(kind).vectors.ask(vector, 10):
            sums[hit.id] = sums.get(hit.id, 0.0) + hit.score
    sums.pop(record_id, None)
    if not sums:
        return None
    best = max(sums, key=lambda number: (sums[number], -number))
    row = base.tree.by_id(kind, best)
    return (row, sums[best] / len(vectors)) if row is not None else None
