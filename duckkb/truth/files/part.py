"""One part: the file as it was read, its rows, and what is known of each line without decoding it.

What must be known of a row (its id, a hash of its identity, its etag) follows from its line, so that a part is held as its
bytes and makes records of those lines alone that are asked for. Where the lines lie in the store, not even they are held.
"""

import gc
import hashlib
import os
from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from sys import byteorder
from typing import Any

from msgspec import Struct

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.fast_json import orjson
from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Identity, Record, component_of, component_value, identity_key
from duckkb.truth.files.ids import day_start, hash_id
from duckkb.truth.files.line import Limits, LineError, LineShape, decode_all, encode
from duckkb.truth.layout import parse_part

_POINTER = b"version https://git-lfs"
# File systems keep times as coarse as two seconds: a file written that close to its reading may change unseen.
_GRANULARITY_NS = 2_000_000_000
_COMPLETE, _CANONICAL = 1, 2
_ETAG = 8
_FEW = 8  # lines of a part that are read one by one; for more the text is read whole

Named = tuple[int, int, bytes, bytes]
"""Of a line: its record's id, the hash of its identity, its etag, and the identity as JSON."""


class StoredRow(Struct, frozen=True):
    """A record and the line that holds it.

    `line` is canonical, with `__id` and times, without LF, whatever the file has. `complete` says that the file has id and
    times too, `canonical` that what it has is in canonical form. `path` is relative to the knowledge base; lines count
    from 1.
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
        """Sorts the lines of a part: by identity, then `__id`."""
        return identity_key(self.record.identity), self.record.id

    @property
    def as_stored(self) -> bool:
        """Whether the file has exactly `line`."""
        return self.complete and self.canonical

    def place_at_line(self, number: int) -> "StoredRow":
        """The row where that is the number of its line, as the file has it."""
        if self.line_no == number and self.as_stored:
            return self
        return StoredRow(self.record, self.line, self.path, number)


def record_of(kind: RecordType, values: dict[str, Any]) -> Record:
    """A record of a complete and sound line's values; takes `__id` and the times out of them and keeps the rest."""
    identity, created_at = identity_in(kind, values), values.pop(CREATED_AT)
    return Record(kind.name, values.pop(ID), identity, values, created_at, values.pop(UPDATED_AT))


def row_in(kind: RecordType, line: bytes) -> StoredRow:
    """The row of a canonical line that lies in no file here."""
    return StoredRow(record_of(kind, orjson.loads(line)), line, "", 0)


def identity_in(kind: RecordType, values: Mapping[str, Any]) -> Identity:
    """The identity that the values of a sound line spell."""
    names = kind.identity_fields
    if len(names) == 1 and type(only := values[names[0]]) is str:  # nearly all of them, and there may be millions
        return (only,)
    return tuple([component_of(values[name]) for name in names])


def identity_hash(identity: Identity) -> int:
    """64 bits of BLAKE2b over the identity as JSON; equal identities have equal hashes. Raises TypeError for half a
    character, which no line can hold."""
    return hash_of(encode_identity(identity))


def encode_identity(identity: Identity) -> bytes:
    """An identity as JSON. Raises TypeError as `identity_hash` does."""
    return orjson.dumps([component if type(component) is str else component_value(component) for component in identity])


def hash_of(spelled: bytes) -> int:
    """The hash of an identity as JSON."""
    return int.from_bytes(hashlib.blake2b(spelled, digest_size=8).digest(), "little")


def etag(line: bytes) -> bytes:
    """What guards a line: the first 8 bytes of its SHA-256."""
    return hashlib.sha256(line).digest()[:_ETAG]


def name_row(row: StoredRow) -> Named:
    """What is known of a row."""
    identity_text = encode_identity(row.record.identity)
    return row.record.id, hash_of(identity_text), etag(row.line), identity_text


class PartHead(Struct):
    """What is known of the lines of a part: `ids`, `hashes` of identities, `etags` of 8 bytes one behind the other, `ends` in the
    text, behind each LF, and the identities as JSON, `spelled` one behind the other with the end of each (`spelled_ends`). Where
    the file has not exactly these lines, `numbers` has those of its lines and `flags` whether they are complete and canonical."""

    ids: "array[int]"
    hashes: "array[int]"
    etags: bytes
    ends: "array[int]"
    spelled: bytes
    spelled_ends: "array[int]"
    numbers: "array[int] | None" = None
    flags: bytes = b""

    @property
    def data(self) -> bytes:
        """As bytes; `load` is the inverse."""
        odd = self.numbers.tobytes() + self.flags if self.numbers is not None else b""
        columns = (
            self.ids.tobytes(),
            self.hashes.tobytes(),
            self.etags,
            self.ends.tobytes(),
            self.spelled_ends.tobytes(),
        )
        return b"".join((*columns, self.spelled, odd))

    @classmethod
    def load(cls, count: int, data: bytes) -> "PartHead":
        """The head of `count` rows. Raises ValueError for what is none."""
        at = [wide * count for wide in (8, 16, 24, 28, 32)]
        ids, hashes, ends = array("q", data[: at[0]]), array("Q", data[at[0] : at[1]]), array("I", data[at[2] : at[3]])
        spelled_ends = array("I", data[at[3] : at[4]])
        end = at[4] + (spelled_ends[-1] if count else 0)
        head = cls(ids, hashes, data[at[1] : at[2]], ends, data[at[4] : end], spelled_ends)
        if len(data) > end:
            head.numbers, head.flags = array("I", data[end : end + 4 * count]), data[end + 4 * count :]
        return head

    def encode_identity_at(self, at: int) -> bytes:
        """The identity of a line as JSON."""
        return self.spelled[self.spelled_ends[at - 1] if at else 0 : self.spelled_ends[at]]


def _place(keys: "array[int]", key: int) -> int | None:
    """The first place of a key of 64 bits; None where it is not there. Looked for in bytes: a tenth of what `index` takes, as
    that makes an object of each key."""
    try:
        pattern = key.to_bytes(8, byteorder, signed=keys.typecode == "q")
    except OverflowError:
        return None
    data, at = keys.tobytes(), -1
    while (at := data.find(pattern, at + 1)) >= 0:
        if at % 8 == 0:
            return at // 8
    return None


class PartContent:
    """The lines of a part in canonical form, each with an LF, and what is known of them."""

    def __init__(self, head: PartHead, lines: list[bytes]) -> None:
        self.head = head
        self._lines = lines

    @classmethod
    def of(cls, lines: Sequence[bytes], names: Sequence[Named]) -> "PartContent":
        """The content of a canonical part."""
        ids, hashes, etags, identity_texts = zip(*names, strict=True) if names else ((), (), (), ())
        ends = array("I", accumulate(len(line) + 1 for line in lines))
        spelled_ends = array("I", accumulate(map(len, identity_texts)))
        head = PartHead(
            array("q", ids), array("Q", hashes), b"".join(etags), ends, b"".join(identity_texts), spelled_ends
        )
        return cls(head, [*lines])

    @classmethod
    def from_rows(cls, rows: Sequence[StoredRow]) -> "PartContent":
        """The content of any part."""
        content = cls.of([row.line for row in rows], [name_row(row) for row in rows])
        if not all(row.as_stored and row.line_no == at for at, row in enumerate(rows, 1)):
            content.head.numbers = array("I", [row.line_no for row in rows])
            content.head.flags = bytes(_COMPLETE * row.complete | _CANONICAL * row.canonical for row in rows)
        return content

    @property
    def lines(self) -> list[bytes]:
        return self._lines

    @property
    def text(self) -> bytes:
        """The file with these lines."""
        return b"".join(line + b"\n" for line in self.lines)

    @property
    def keys(self) -> Iterator[int]:
        """What the rows are found by: ids and hashes of identities."""
        return chain(self.head.ids, self.head.hashes)

    def line(self, at: int) -> bytes:
        """A line, which is what it was when its etag was taken."""
        return self._lines[at]

    def named(self, at: int) -> Named:
        head = self.head
        return head.ids[at], head.hashes[at], head.etags[at * _ETAG : (at + 1) * _ETAG], head.encode_identity_at(at)

    def identity(self, at: int) -> Identity:
        """The identity of a line, which need not be read for it."""
        return tuple([component_of(component) for component in orjson.loads(self.head.encode_identity_at(at))])

    def damaged(self) -> Exception:
        """The error for a line that is not what it was."""
        return AssertionError("lines in memory are what they were")


class PartRows:
    """The rows of a part in the order of its lines, each decoded when it is asked for."""

    def __init__(self, kind: RecordType, path: str, count: int, load: Callable[[], PartContent]) -> None:
        self._kind, self._path, self._count, self._load = kind, path, count, load

    @classmethod
    def of(cls, kind: RecordType, path: str, rows: "PartContent | Sequence[StoredRow]" = ()) -> "PartRows":
        """Rows in memory."""
        content = rows if isinstance(rows, PartContent) else PartContent.from_rows(rows)
        return cls(kind, path, len(content.head.ids), lambda: content)

    @property
    def content(self) -> PartContent:
        return self._load()

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartRows) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._path, self._count))

    def __iter__(self) -> Iterator[StoredRow]:
        content = self._load()
        return (self._row(content, at, line) for at, line in enumerate(content.lines))

    def __getitem__(self, index: int) -> StoredRow:
        return self._load_row(self._load(), range(self._count)[index])

    @property
    def records(self) -> Iterator[Record]:
        """The records of the rows."""
        return (record_of(self._kind, values) for values in self.values)

    @property
    def values(self) -> Iterator[dict[str, Any]]:
        """What the lines hold, ids and times as well."""
        return map(orjson.loads, self._load().lines)

    def among(self, ids: Container[int]) -> Iterator[StoredRow]:
        """The rows with one of these ids, decoded as they are taken."""
        content = self._load()
        places = [at for at, record_id in enumerate(content.head.ids) if record_id in ids]
        for at in places[:_FEW]:
            yield self._load_row(content, at)
        lines = content.lines if len(places) > _FEW else ()  # one reading of the text instead of one a line
        for at in places[_FEW:]:
            yield self._row(content, at, lines[at])

    def having(self, text: bytes) -> Iterator[StoredRow]:
        """The rows in whose lines these bytes stand."""
        content = self._load()
        return (self._row(content, at, line) for at, line in enumerate(content.lines) if text in line)

    def places(self, key: int) -> Iterator[int]:
        """Where a key stands: an id, or the hash of an identity."""
        head = self.content.head
        for keys in (head.ids, head.hashes):
            if (at := _place(keys, key)) is not None:
                yield at

    def has(self, key: int, at: int) -> bool:
        """Whether a key stands there."""
        head = self.content.head
        return at < self._count and key in (head.ids[at], head.hashes[at])

    def unlike(self, others: "PartRows | None") -> list[StoredRow]:
        """The rows whose lines the part has not at another time: only they are decoded."""
        other_lines = set(others.content.lines) if others is not None else ()
        return [self[at] for at, line in enumerate(self.content.lines) if line not in other_lines]

    def kept(self, gone: Container[int]) -> list[int]:
        """The places of the rows without those lines of the file."""
        numbers = self.content.head.numbers or range(1, self._count + 1)
        return [at for at, number in enumerate(numbers) if number not in gone]

    def is_complete(self, at: int) -> bool:
        """Whether the file has the id and the times of a row."""
        head = self.content.head
        return head.numbers is None or bool(head.flags[at] & _COMPLETE)

    def laid(self, items: "Sequence[int | StoredRow]") -> "PartRows":
        """The rows of the part once it has these lines: those at places of now, and others."""
        content = self.content
        lines = [content.lines[item] if isinstance(item, int) else item.line for item in items]
        names = [content.named(item) if isinstance(item, int) else name_row(item) for item in items]
        return PartRows.of(self._kind, self._path, PartContent.of(lines, names))

    def _load_row(self, content: PartContent, at: int) -> StoredRow:
        return self._row(content, at, content.line(at))

    def _row(self, content: PartContent, at: int, line: bytes) -> StoredRow:
        record, head = record_of(self._kind, orjson.loads(line)), content.head
        if head.numbers is None:
            return StoredRow(record, line, self._path, at + 1)
        flags = head.flags[at]
        return StoredRow(record, line, self._path, head.numbers[at], bool(flags & _COMPLETE), bool(flags & _CANONICAL))


class Stamp(Struct, frozen=True):
    """What tells cheaply whether a file changed: size in bytes, mtime in ns, inode, when it was read, in ns, and ctime in
    ns, which nobody can set back as they can the mtime; 0 where it is not known."""

    size: int
    mtime_ns: int
    inode: int
    read_ns: int
    ctime_ns: int = 0

    @classmethod
    def of(cls, status: os.stat_result, read_ns: int) -> "Stamp":
        """The stamp of a file read at `read_ns`."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, read_ns, status.st_ctime_ns)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What makes it: `Stamp(*numbers)`."""
        return self.size, self.mtime_ns, self.inode, self.read_ns, self.ctime_ns

    @property
    def is_racy(self) -> bool:
        """Whether the file was written so shortly before it was read that only its digest tells."""
        return max(self.mtime_ns, self.ctime_ns) > self.read_ns - _GRANULARITY_NS

    def vouches(self, status: os.stat_result) -> bool:
        """Whether the file is surely the one that was read, so that its digest need not be asked."""
        is_same = (
            self.size == status.st_size
            and self.mtime_ns == status.st_mtime_ns
            and self.inode == status.st_ino
            and self.ctime_ns == status.st_ctime_ns
        )
        return is_same and not self.is_racy


class Part(Struct, frozen=True):
    """One JSONL file as it was read.

    `digest` is the SHA-256 of its bytes in hex. `findings` are the lines that cannot be read; `rows` are the others, in
    file order. `canonical` says that every line, the last LF and the absence of blank lines are as they should be,
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
    """Without Python's collector: while many records are made it would walk all of them again and again, a third of the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Lines(Struct):
    """The lines of one part, read one after the other: `rows` in file order, `findings` for those that cannot be read, and
    whether all of it is `canonical`. Lines whose bytes are in `known` are passed over, counted but not decoded."""

    path: str
    kind: RecordType
    limits: Limits
    known: Container[bytes] = ()
    rows: list[StoredRow] = []
    findings: list[Finding] = []
    canonical: bool = True

    def read(self, raw: bytes) -> None:
        """Take in the bytes of the file."""
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
                    # A divider or an end that no beginning precedes hides nothing of what follows.
                    in_conflict = line.startswith(b"<") or (in_conflict and not line.startswith(b">"))
            elif not in_conflict:  # neither side of a conflict is the record until someone has chosen
                self.rows.append(self._row(outcome.values, line, number, shape, outcome.canonical))

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


def _place_in_file(finding: Finding, path: str, line: int) -> Finding:
    return Finding(finding.code, finding.message, path, line, finding.field, CODES[finding.code].remedy)


def part_of(path: str, kind: RecordType, raw: bytes, limits: Limits, stamp: Stamp) -> Part:
    """The part that holds these bytes."""
    lines = Lines(path, kind, limits)
    lines.read(raw)
    order = [row.order for row in lines.rows]
    rows, findings, is_in_order = PartRows.of(kind, path, lines.rows), tuple(lines.findings), order == sorted(order)
    return Part(path, kind, stamp, hashlib.sha256(raw).hexdigest(), rows, findings, lines.canonical, is_in_order)
