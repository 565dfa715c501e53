"""Parts all of whose lines are canonical, as nearly all are: passed over without making a record of each line.

What the store writes down of a row follows from its line, so that reading a base for the first time makes no object for
it that is thrown away at once. A part of which that cannot be said for certain is read line by line (`read`).
"""

from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, identity_key
from duckkb.truth.files.line import Limits, LineShape, canonical_values
from duckkb.truth.files.part_rows import Named, PartContent, PartRows, etag, identity_hash
from duckkb.truth.files.table import identity_in


def scan(raw: bytes, path: str, kind: RecordType, limits: Limits) -> tuple[PartRows, bool] | None:
    """The rows of a part with these bytes, and whether they are sorted. None where not every line is canonical for certain,
    with its id and times."""
    found = canonical_values(raw, LineShape(kind.identity_fields, kind.generated), limits)
    if found is None:
        return None
    names, orders = list[Named](), []
    for line, values in found:
        if ID not in values or CREATED_AT not in values or UPDATED_AT not in values:
            return None
        identity, record_id = identity_in(kind, values), values[ID]
        names.append((record_id, identity_hash(identity), etag(line)))
        orders.append((identity_key(identity), record_id))
    content = PartContent.of([line for line, _ in found], names)
    return PartRows.of(kind, path, content), orders == sorted(orders)
