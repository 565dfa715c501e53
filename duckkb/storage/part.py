"""A part: the file as it was read, its rows, and what is known of each line without decoding it.

A part holds its lines with their ids and identities, and decodes only the requested lines to records. If the
lines are in the store, the part holds none of them.
"""

import gc
import hashlib
import os
from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from duckkb.fast_json import orjson
from duckkb.ontology.model import RecordType
from duckkb.storage.layout import parse_part
from duckkb.storage.line import Limits, LineError, LineShape, decode_all, encode
from duckkb.storage.strict_lines import day_start, hash_id
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding
from duckkb.types.records import (
    CREATED_AT,
    ID,
    UPDATED_AT,
    Identity,
    Record,
    component_of,
    component_value,
    identity_key,
)

_POINTER = b"version https://git-lfs"
# File systems keep times as coarse as two seconds: a file written that close to its reading may change unseen.
_GRANULARITY_NS = 2_000_000_000
_COMPLETE, _CANONICAL = 1, 2
AS_STORED = _COMPLETE | _CANONICAL
"""The flags of a row whose line the file has exactly."""
_FEW = 8  # rows of a part that are read singly; for more the whole part is read
_AT_ONCE = 64  # rows of a part that an iteration reads together


class StoredRow(Struct, frozen=True):
    """A record and the line that holds it.

    `line` is canonical, with `__id` and times, without LF, whatever the file has. `complete` says that the file
    also has id and times, `canonical` that its line is in canonical form. `path` is relative to the knowledge
    base; lines count from 1.
    """

    record: Record
    line: bytes
    path: str
    line_no: int
    complete: bool = True
    canonical: bool = True

    @property
    def position(self) -> tuple[str, int]:
        return self.path, self.line_no

    @property
    def order(self) -> tuple[tuple[Any, ...], int]:
        """Return the sort key of a part's lines: identity, then `__id`."""
        return identity_key(self.record.identity), self.record.id

    @property
    def as_stored(self) -> bool:
        """Return whether the file has exactly `line`."""
        return self.complete and self.canonical

    def place_at_line(self, number: int) -> "StoredRow":
        """Return the row at this line number of its file."""
        if self.line_no == number and self.as_stored:
            return self
        return StoredRow(self.record, self.line, self.path, number)


def record_of(kind: RecordType, values: dict[str, Any]) -> Record:
    """Build a record from the values of a complete and valid line; takes `__id` and the times out of them and
    keeps the rest.
    """
    identity, created_at = identity_in(kind, values), values.pop(CREATED_AT)
    return Record(kind.name, values.pop(ID), identity, values, created_at, values.pop(UPDATED_AT))


def row_in(kind: RecordType, line: bytes) -> StoredRow:
    """Return the row of a canonical line that lies in no file here."""
    return StoredRow(record_of(kind, orjson.loads(line)), line, "", 0)


def identity_in(kind: RecordType, values: Mapping[str, Any]) -> Identity:
    """Return the identity in the values of a valid line."""
    names = kind.identity_fields
    if len(names) == 1 and type(only := values[names[0]]) is str:  # the most frequent case among millions
        return (only,)
    return tuple([component_of(values[name]) for name in names])


def encode_identity(identity: Identity) -> bytes:
    """Encode an identity as JSON, equal identities alike and different ones differently. Raises TypeError for half
    a character, which no line can hold.
    """
    return orjson.dumps([component if type(component) is str else component_value(component) for component in identity])


def identity_of(spelled: bytes) -> Identity:
    """Decode an identity that `encode_identity` wrote. Raises ValueError."""
    return tuple([component_of(component) for component in orjson.loads(spelled)])


def etag(line: bytes) -> bytes:
    """Return the first 8 bytes of a line's SHA-256, which detect damage."""
    return hashlib.sha256(line).digest()[:8]


class PartLines(Struct):
    """Rows of a part by column: ids, identities as JSON, canonical lines without LF, and the numbers of the lines
    in the file. `flags` say which rows the file has complete and canonical; empty if it has all of them so.
    """

    ids: Sequence[int]
    identities: list[bytes]
    lines: list[bytes]
    numbers: Sequence[int]
    flags: bytes = b""

    @classmethod
    def from_rows(cls, rows: Sequence[StoredRow]) -> "PartLines":
        """Build the columns of these rows."""
        ids = array("q", [row.record.id for row in rows])
        identities = [encode_identity(row.record.identity) for row in rows]
        columns = cls(ids, identities, [row.line for row in rows], range(1, len(rows) + 1))
        if not all(row.as_stored and row.line_no == at for at, row in enumerate(rows, 1)):
            columns.numbers = array("I", [row.line_no for row in rows])
            columns.flags = bytes(_COMPLETE * row.complete | _CANONICAL * row.canonical for row in rows)
        return columns

    def cut(self, start: int, stop: int | None) -> "PartLines":
        """Return the rows from `start` to `stop`."""
        if start == 0 and (stop is None or stop >= len(self.ids)):
            return self
        rows = slice(start, stop)
        return PartLines(self.ids[rows], self.identities[rows], self.lines[rows], self.numbers[rows], self.flags[rows])

    @property
    def row_flags(self) -> bytes:
        """Return the `flags` of each row."""
        return self.flags or bytes([AS_STORED]) * len(self.ids)

    @property
    def text(self) -> bytes:
        """Return the bytes of a file with these lines."""
        return b"".join([line + b"\n" for line in self.lines])


class PartRows:
    """The rows of a part in the order of its lines, each decoded on request. They are in memory, unless a part of
    the store reads them there; `number` is then its number in the store, else 0.
    """

    number = 0

    def __init__(self, kind: RecordType, path: str, lines: PartLines) -> None:
        self._kind, self._path, self._lines = kind, path, lines

    @classmethod
    def from_rows(cls, kind: RecordType, path: str, rows: Sequence[StoredRow] = ()) -> "PartRows":
        """Return rows in memory."""
        return PartRows(kind, path, PartLines.from_rows(rows))

    def read(self, start: int = 0, stop: int | None = None) -> PartLines:
        """Return the rows from `start` to `stop` by column."""
        return self._lines.cut(start, stop)

    @property
    def ids(self) -> Sequence[int]:
        return self._lines.ids

    @property
    def etags(self) -> Sequence[bytes]:
        """Return the etag of each line."""
        return [etag(line) for line in self.read().lines]

    @property
    def identities(self) -> Sequence[Identity]:
        """Return the identity of each row without decoding lines."""
        return [identity_of(spelled) for spelled in self._lines.identities]

    def __len__(self) -> int:
        return len(self._lines.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartRows) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._path, len(self)))

    def __iter__(self) -> Iterator[StoredRow]:
        return self._iter_rows(self.read())

    def __getitem__(self, index: int) -> StoredRow:
        return self._build_row(self._lines, range(len(self))[index])

    def iter_behind(self, start: int) -> Iterator[StoredRow]:
        """Yield the rows from a place on; read few at first, because most callers take few of each part."""
        size = 1
        while start < len(self):
            yield from self._iter_rows(self.read(start, start + size))
            start, size = start + size, min(4 * size, _AT_ONCE)

    @property
    def records(self) -> Iterator[Record]:
        """Yield the records of the rows."""
        return (record_of(self._kind, values) for values in self.values)

    @property
    def values(self) -> Iterator[dict[str, Any]]:
        """Yield the values of the lines, including ids and times."""
        return map(orjson.loads, self.read().lines)

    def select_rows(self, ids: Container[int]) -> Iterator[StoredRow]:
        """Yield the rows with these ids, decoded as they are taken."""
        places = [at for at, record_id in enumerate(self.ids) if record_id in ids]
        if len(places) <= _FEW:
            yield from (self[at] for at in places)
        else:
            lines = self.read()
            yield from (self._build_row(lines, at) for at in places)

    def find_by_text(self, text: bytes) -> Iterator[StoredRow]:
        """Yield the rows whose lines contain these bytes."""
        lines = self.read()
        return (self._build_row(lines, at) for at, line in enumerate(lines.lines) if text in line)

    def names_at(self, at: int) -> tuple[int, bytes]:
        """Return the id and the identity, as JSON, of the row at a place."""
        return self._lines.ids[at], self._lines.identities[at]

    def has(self, key: int | bytes, at: int) -> bool:
        """Return whether the row at a place has this id, or this identity as JSON."""
        return at < len(self) and key == self.names_at(at)[isinstance(key, bytes)]

    def kept(self, gone: Container[int]) -> list[int]:
        """Return the places of the rows except those with the line numbers `gone`."""
        return [at for at, number in enumerate(self.read().numbers) if number not in gone]

    def is_complete(self, at: int) -> bool:
        """Return whether the file has the id and the times of a row."""
        flags = self.read().flags
        return not flags or bool(flags[at] & _COMPLETE)

    def laid(self, items: "Sequence[int | StoredRow]") -> "PartRows":
        """Return the rows of the part with these lines: a number is the place of a present row, a row is new."""
        now, new = self.read(), PartLines.from_rows([item for item in items if not isinstance(item, int)])
        new_places = iter(range(len(new.ids)))
        places = [(now, item) if isinstance(item, int) else (new, next(new_places)) for item in items]
        columns = PartLines(
            array("q", [lines.ids[at] for lines, at in places]),
            [lines.identities[at] for lines, at in places],
            [lines.lines[at] for lines, at in places],
            range(1, len(places) + 1),
        )
        return PartRows(self._kind, self._path, columns)

    def _iter_rows(self, lines: PartLines) -> Iterator[StoredRow]:
        return (self._build_row(lines, at) for at in range(len(lines.ids)))

    def _build_row(self, lines: PartLines, at: int) -> StoredRow:
        return decode_row(self._kind, self._path, lines, at)


def decode_row(kind: RecordType, path: str, lines: PartLines, at: int) -> StoredRow:
    """Decode a row of a part."""
    line = lines.lines[at]
    record, number = record_of(kind, orjson.loads(line)), lines.numbers[at]
    if not lines.flags:
        return StoredRow(record, line, path, number)
    flags = lines.flags[at]
    return StoredRow(record, line, path, number, bool(flags & _COMPLETE), bool(flags & _CANONICAL))


class Stamp(Struct, frozen=True):
    """Numbers that tell cheaply whether a file changed: size in bytes, mtime in ns, inode, the time of reading in
    ns, and ctime in ns, which nobody can set back as they can the mtime; 0 if it is unknown.
    """

    size: int
    mtime_ns: int
    inode: int
    read_ns: int
    ctime_ns: int = 0

    @classmethod
    def from_status(cls, status: os.stat_result, read_ns: int) -> "Stamp":
        """Return the stamp of a file read at `read_ns`."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, read_ns, status.st_ctime_ns)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the stamp: `Stamp(*numbers)` rebuilds it."""
        return self.size, self.mtime_ns, self.inode, self.read_ns, self.ctime_ns

    @property
    def is_racy(self) -> bool:
        """Return whether the file was written so shortly before it was read that only its digest can tell."""
        return max(self.mtime_ns, self.ctime_ns) > self.read_ns - _GRANULARITY_NS

    def vouches(self, status: os.stat_result) -> bool:
        """Return whether the file is certainly unchanged, so that its digest need not be computed."""
        is_same = (
            self.size == status.st_size
            and self.mtime_ns == status.st_mtime_ns
            and self.inode == status.st_ino
            and self.ctime_ns == status.st_ctime_ns
        )
        return is_same and not self.is_racy


class Part(Struct, frozen=True):
    """A JSONL file as it was read.

    `digest` is the SHA-256 of its bytes in hex. `findings` are the unreadable lines; `rows` are the others, in
    file order. `canonical` says that every line is canonical, the last LF is there and no line is blank;
    `sorted` that the rows are in the order of identity, then `__id`.
    """

    path: str
    kind: RecordType
    stamp: Stamp
    digest: str
    rows: PartRows
    findings: tuple[Finding, ...] = ()
    canonical: bool = True
    sorted: bool = True


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause Python's garbage collector: while many records are made it would walk all of them again and again, a
    third of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Lines(Struct):
    """The lines of a part, read one after the other: `rows` in file order, `findings` for unreadable lines, and
    whether all of it is `canonical`. Lines whose bytes are in `known` are counted but not decoded.
    """

    path: str
    kind: RecordType
    limits: Limits
    known: Container[bytes] = ()
    rows: list[StoredRow] = []
    findings: list[Finding] = []
    canonical: bool = True

    def read(self, raw: bytes) -> None:
        """Read the bytes of the file."""
        if raw.startswith(_POINTER):
            self.findings.append(
                Finding("E_POINTER", "the file is a Git LFS pointer", self.path, 1, remedy=CODES["E_POINTER"].remedy)
            )
            return
        *lines, tail = raw.split(b"\n")
        if tail or not raw:
            # The last LF is missing, or the file is empty and should not be.
            self.canonical = False
            lines.append(tail)
        shape = LineShape(self.kind.identity_fields, self.kind.generated)
        nonblank_lines = [(number, line) for number, line in enumerate(lines, 1) if line.strip(b" \t")]
        self.canonical = self.canonical and len(nonblank_lines) == len(lines)
        new_lines = [(number, line) for number, line in nonblank_lines if line not in self.known]
        in_conflict = False
        for (number, line), outcome in zip(
            new_lines, decode_all([line for _, line in new_lines], shape, self.limits), strict=True
        ):
            if isinstance(outcome, LineError):
                self.findings += [_place_in_file(finding, self.path, number) for finding in outcome.findings]
                if outcome.findings[0].code == "E_MARKERS":
                    # A divider or an end marker without a beginning does not hide the lines after it.
                    in_conflict = line.startswith(b"<") or (in_conflict and not line.startswith(b">"))
            elif not in_conflict:  # neither side of a conflict is the record until someone has chosen
                self.rows.append(self._build_row(outcome.values, line, number, shape, outcome.canonical))

    def _build_row(
        self, values: dict[str, Any], line: bytes, number: int, shape: LineShape, canonical: bool
    ) -> StoredRow:
        complete = ID in values and CREATED_AT in values and UPDATED_AT in values
        if not complete:
            self._complete(values)
        if not (complete and canonical):
            self.canonical = False
            line = encode(values, shape, self.limits.depth)
        return StoredRow(record_of(self.kind, values), line, self.path, number, complete, canonical)

    def _complete(self, values: dict[str, Any]) -> None:
        address = parse_part(self.path)
        assert address is not None, f"{self.path} is not a part"
        identity = tuple(component_of(values[name]) for name in self.kind.identity_fields)
        values.setdefault(ID, hash_id(self.kind.kind, self.kind.table, identity))
        values.setdefault(CREATED_AT, day_start(address.day))
        values.setdefault(UPDATED_AT, values[CREATED_AT])


def _place_in_file(finding: Finding, path: str, line: int) -> Finding:
    return Finding(finding.code, finding.message, path, line, finding.field, CODES[finding.code].remedy)


def part_of(path: str, kind: RecordType, raw: bytes, limits: Limits, stamp: Stamp) -> Part:
    """Return the part that holds these bytes."""
    lines = Lines(path, kind, limits)
    lines.read(raw)
    order = [row.order for row in lines.rows]
    rows, findings, is_in_order = (
        PartRows.from_rows(kind, path, lines.rows),
        tuple(lines.findings),
        order == sorted(order),
    )
    return Part(path, kind, stamp, hashlib.sha256(raw).hexdigest(), rows, findings, lines.canonical, is_in_order)
