"""Parts all of whose lines are canonical, as nearly all are: passed over without making a record of each line.

What a snapshot writes down of a row follows from its line, so that reading a base for the first time makes no object for
it that is thrown away at once. A part of which that cannot be said for certain is read line by line (`read`).
"""

import hashlib

import orjson

from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, identity_key
from duckkb.truth.files.line import Limits, LineShape, canonical_values
from duckkb.truth.files.table import RowsByPlace, StoredRow, identity_in, record_of
from duckkb.truth.snapshot.sheet import Named, identity_hash


class CanonicalRows(RowsByPlace):
    """The rows of a part in the order of its lines, decoded when they are asked for. `named` is what a sheet says of each."""

    def __init__(self, kind: RecordType, path: str, lines: list[bytes], named: list[Named]) -> None:
        self._kind, self._path = kind, path
        self.lines, self.named = lines, named

    def __len__(self) -> int:
        return len(self.lines)

    def _row(self, index: int) -> StoredRow:
        line = self.lines[index]
        return StoredRow(record_of(self._kind, orjson.loads(line)), line, self._path, index + 1)


def scan(raw: bytes, path: str, kind: RecordType, limits: Limits) -> tuple[CanonicalRows, bool] | None:
    """The rows of a part with these bytes, and whether they are sorted. None where not every line is canonical for certain,
    with its id and times."""
    found = canonical_values(raw, LineShape(kind.identity_fields, kind.generated), limits)
    if found is None:
        return None
    named, orders, sha256 = [], [], hashlib.sha256
    for line, values in found:
        if ID not in values or CREATED_AT not in values or UPDATED_AT not in values:
            return None
        identity, record_id = identity_in(kind, values), values[ID]
        named.append((record_id, identity_hash(identity), int.from_bytes(sha256(line).digest()[:8], "big")))
        orders.append((identity_key(identity), record_id))
    return CanonicalRows(kind, path, [line for line, _ in found], named), orders == sorted(orders)
