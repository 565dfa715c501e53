"""Lines of a part as rows: what each says, and what is wrong with it."""

import gc
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, component_of
from duckkb.truth.files.ids import day_start, hash_id
from duckkb.truth.files.line import Limits, LineError, LineShape, decode, encode
from duckkb.truth.files.table import StoredRow, record_of
from duckkb.truth.layout import parse_part
from duckkb.values import dataclass, field

_POINTER = b"version https://git-lfs"


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's collector: while many records are made it would walk all of them again and again, a third of the
    time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(slots=True)
class Lines:
    """The lines of one part, read one after the other: `rows` in file order, `findings` for those that cannot be read, and
    whether all of it is `canonical`. Lines whose bytes are in `known` are passed over, counted but not decoded."""

    path: str
    kind: RecordType
    limits: Limits
    known: Container[bytes] = ()
    rows: list[StoredRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    canonical: bool = True

    def read(self, raw: bytes) -> None:
        """Take in the bytes of the file."""
        if raw.startswith(_POINTER):
            self.findings.append(
                Finding("E_POINTER", "the file is a Git LFS pointer", self.path, 1, remedy=CODES["E_POINTER"].remedy)
            )
            return
        *lines, rest = raw.split(b"\n")
        if rest or not raw:
            # The last LF is missing, or the file is empty and should not be.
            self.canonical = False
            lines.append(rest)
        shape = LineShape(self.kind.identity_fields, self.kind.generated)
        in_conflict = False
        for number, line in enumerate(lines, 1):
            if not line.strip(b" \t"):
                self.canonical = False
                continue
            if line in self.known:
                continue
            try:
                values, canonical = decode(line, shape, self.limits)
            except LineError as error:
                self.findings += [_placed(finding, self.path, number) for finding in error.findings]
                if error.findings[0].code == "E_MARKERS":
                    # A divider or an end that no beginning precedes hides nothing of what follows.
                    in_conflict = line.startswith(b"<") or (in_conflict and not line.startswith(b">"))
                continue
            # Neither side of a conflict is the record until someone has chosen.
            if not in_conflict:
                self.rows.append(self._row(values, line, number, shape, canonical))

    def _row(self, values: dict[str, Any], line: bytes, number: int, shape: LineShape, canonical: bool) -> StoredRow:
        complete = ID in values and CREATED_AT in values and UPDATED_AT in values
        if not complete:
            self._complete(values)
        if not (complete and canonical):
            self.canonical = False
            line = encode(values, shape, self.limits.depth)
        return StoredRow(record_of(self.kind, values), line, self.path, number, complete, canonical)

    def _complete(self, values: dict[str, Any]) -> None:
        address = parse_part(self.path)
        assert address is not None, f"{self.path} is no part"
        identity = tuple(component_of(values[name]) for name in self.kind.identity_fields)
        values.setdefault(ID, hash_id(self.kind.kind, self.kind.table, identity))
        values.setdefault(CREATED_AT, day_start(address.day))
        values.setdefault(UPDATED_AT, values[CREATED_AT])


def _placed(finding: Finding, path: str, line: int) -> Finding:
    return Finding(finding.code, finding.message, path, line, finding.field, CODES[finding.code].remedy)
