"""A record's line inside the bytes of parts, found by its `__id`."""

import re
from collections.abc import Mapping, Sequence

from duckkb.ontology.model import RecordType
from duckkb.records import Identity, component_value
from duckkb.truth.files.line import Limits, LineShape, encode
from duckkb.truth.files.lines import Lines
from duckkb.truth.files.table import StoredRow
from duckkb.truth.git.ancestry import Blobs
from duckkb.truth.git.revisions import REGULAR, Touched, TreeEntry
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class LinePlace:
    """A record's line (canonical, without LF) and where it stands; lines count from 1."""

    path: str
    line: bytes
    line_no: int = 0


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds the records of one type in parts of any time."""

    kind: RecordType
    limits: Limits
    blobs: Blobs

    def among(self, entries: Mapping[str, TreeEntry], number: int, first: str = "") -> LinePlace | None:
        """The record in one of these files, looked for where it was `first`."""
        if first in entries and (found := self.within(first, entries[first], number)):
            return found
        places = (self.within(path, entries[path], number) for path in sorted(entries) if path != first)
        return next(filter(None, places), None)

    def within(self, path: str, entry: TreeEntry, number: int) -> LinePlace | None:
        """The record in one file."""
        if entry.mode not in REGULAR:
            return None
        data, head = self.blobs.read(entry.blob), b'{"__id":%d,' % number
        at = -1
        while (at := data.find(head, at + 1)) >= 0:
            if at == 0 or data[at - 1 : at] == b"\n":
                end = data.find(b"\n", at)
                return LinePlace(path, data[at : end if end >= 0 else len(data)], data.count(b"\n", 0, at) + 1)
        return self._by_hand(path, data, number)

    def _by_hand(self, path: str, data: bytes, number: int) -> LinePlace | None:
        """The record in a line that is not in canonical form."""
        known = frozenset(line for line in data.split(b"\n") if line.startswith(b'{"__id":'))
        if data.count(b"\n") == len(known) and data.endswith(b"\n"):
            return None
        lines = Lines(path, self.kind, self.limits, known)
        lines.read(data)
        return next((LinePlace(path, row.line, row.line_no) for row in lines.rows if row.record.id == number), None)

    def row(self, place: LinePlace | None) -> StoredRow | None:
        """The record at a place; None where its line cannot be read."""
        if place is None:
            return None
        lines = Lines(place.path, self.kind, self.limits)
        lines.read(place.line + b"\n")
        return next((row.at_line(place.line_no) for row in lines.rows), None)

    def id_of(self, touched: Sequence[Touched], identity: Identity) -> int | None:
        """The `__id` under which a record of this identity stood in the old side of these files."""
        fields = dict(zip(self.kind.identity_fields, map(component_value, identity), strict=True))
        written = re.escape(encode(fields, LineShape(self.kind.identity_fields))[1:-1])
        for one in touched:
            if one.old is not None and one.old.mode in REGULAR:
                found = re.search(
                    rb'^\{"__id":([0-9]+),' + written + rb"[,}]", self.blobs.read(one.old.blob), re.MULTILINE
                )
                if found:
                    return int(found[1])
        return None
