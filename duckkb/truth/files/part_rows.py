"""The rows of one part as its bytes, and what is known of each line without decoding it.

Nearly all parts are canonical: what must be known of a row (its id, a hash of its identity, its etag) follows from the
line, so that reading or changing a part makes records of those lines alone that are new. A change of one line costs what
that line costs, however many the part has.
"""

import hashlib
from array import array
from bisect import insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, overload

import orjson

from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Identity, Record, component_value
from duckkb.truth.files.line import Limits, LineError, LineShape, decode
from duckkb.truth.files.table import StoredRow, record_of
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.truth.files.tree import Part

_FEW_SHARE = 20  # of the rows of a part: so many new ones find their places one by one
_COMPLETE, _CANONICAL = 1, 2
_ETAG = 8
_FEW = 8  # lines of a part that are read one by one; for more the text is read whole

Named = tuple[int, int, bytes]
"""Of a line: its record's id, the hash of its identity, and its etag."""


def identity_hash(identity: Identity) -> int:
    """64 bits of BLAKE2b over the identity as JSON; equal identities have equal hashes."""
    text = orjson.dumps([one if type(one) is str else component_value(one) for one in identity])
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def etag(line: bytes) -> bytes:
    """What guards a line: the first 8 bytes of its SHA-256."""
    return hashlib.sha256(line).digest()[:_ETAG]


def named(row: StoredRow) -> Named:
    """What is known of a row."""
    return row.record.id, identity_hash(row.record.identity), etag(row.line)


def joined(lines: Iterable[bytes]) -> bytes:
    """The file with these lines."""
    return b"".join(line + b"\n" for line in lines)


@dataclass(slots=True)
class PartHead:
    """What is known of the lines of a part: `ids`, `hashes` of identities, `etags` of 8 bytes one behind the other, and `ends`
    in the text, behind each LF. Where the file has not exactly these lines, `numbers` has those of its lines and `flags`
    whether they are complete and canonical."""

    ids: "array[int]"
    hashes: "array[int]"
    etags: bytes
    ends: "array[int]"
    numbers: "array[int] | None" = None
    flags: bytes = b""

    @property
    def data(self) -> bytes:
        """As bytes; `load` is the inverse."""
        odd = self.numbers.tobytes() + self.flags if self.numbers is not None else b""
        return self.ids.tobytes() + self.hashes.tobytes() + self.etags + self.ends.tobytes() + odd

    @classmethod
    def load(cls, count: int, data: bytes) -> "PartHead":
        """The head of `count` rows. Raises ValueError for what is none."""
        at = [wide * count for wide in (8, 16, 24, 28, 32)]
        ids, hashes, ends = array("q", data[: at[0]]), array("Q", data[at[0] : at[1]]), array("I", data[at[2] : at[3]])
        made = cls(ids, hashes, data[at[1] : at[2]], ends)
        if len(data) > at[3]:
            made.numbers, made.flags = array("I", data[at[3] : at[4]]), data[at[4] :]
        return made


class PartContent:
    """The lines of a part in canonical form, each with an LF, and what is known of them."""

    def __init__(self, head: PartHead, lines: list[bytes]) -> None:
        self.head = head
        self._lines = lines

    @classmethod
    def of(cls, lines: Sequence[bytes], names: Sequence[Named]) -> "PartContent":
        """The content of a canonical part."""
        ids, hashes = array("q", [one for one, _, _ in names]), array("Q", [one for _, one, _ in names])
        ends = array("I", accumulate(len(line) + 1 for line in lines))
        return cls(PartHead(ids, hashes, b"".join(one for _, _, one in names), ends), [*lines])

    @classmethod
    def of_rows(cls, rows: Sequence[StoredRow]) -> "PartContent":
        """The content of any part."""
        made = cls.of([row.line for row in rows], [*map(named, rows)])
        if not all(row.as_stored and row.line_no == at for at, row in enumerate(rows, 1)):
            made.head.numbers = array("I", [row.line_no for row in rows])
            made.head.flags = bytes(_COMPLETE * row.complete | _CANONICAL * row.canonical for row in rows)
        return made

    @property
    def lines(self) -> list[bytes]:
        return self._lines

    @property
    def text(self) -> bytes:
        """The lines as one."""
        return joined(self.lines)

    def line(self, at: int) -> bytes:
        """A line, which is what it was when its etag was taken."""
        return self._lines[at]

    def named(self, at: int) -> Named:
        head = self.head
        return head.ids[at], head.hashes[at], head.etags[at * _ETAG : (at + 1) * _ETAG]

    def damaged(self) -> Exception:
        """The error for a line that is not what it was."""
        return AssertionError("lines in memory are what they were")


class PartRows(Sequence[StoredRow]):
    """The rows of a part in the order of its lines, each decoded when it is asked for."""

    def __init__(self, kind: RecordType, path: str, count: int, load: Callable[[], PartContent]) -> None:
        self._kind, self._path, self._count, self._load = kind, path, count, load

    @classmethod
    def of(cls, kind: RecordType, path: str, content: PartContent) -> "PartRows":
        return cls(kind, path, len(content.head.ids), lambda: content)

    @property
    def content(self) -> PartContent:
        return self._load()

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._path, self._count))

    def __iter__(self) -> Iterator[StoredRow]:
        content = self._load()
        return (self._row(content, at, line) for at, line in enumerate(content.lines))

    @overload
    def __getitem__(self, index: int) -> StoredRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StoredRow, ...]: ...
    def __getitem__(self, index: int | slice) -> StoredRow | tuple[StoredRow, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self._at(self._load(), range(self._count)[index])

    @property
    def records(self) -> Iterator[Record]:
        """The records of the rows."""
        return (record_of(self._kind, orjson.loads(line)) for line in self._load().lines)

    def among(self, ids: Container[int]) -> Iterator[StoredRow]:
        """The rows with one of these ids."""
        content = self._load()
        places = [at for at, one in enumerate(content.head.ids) if one in ids]
        if len(places) > _FEW:  # one reading of the text instead of one a line
            lines = content.lines
            return (self._row(content, at, lines[at]) for at in places)
        return (self._at(content, at) for at in places)

    def with_id(self, record_id: int) -> StoredRow | None:
        """The first row of a record."""
        content = self._load()
        ids = content.head.ids
        return self._at(content, ids.index(record_id)) if record_id in ids else None

    def with_identity(self, identity: Identity, hashed: int) -> StoredRow | None:
        """The first row of an identity, whose hash is given."""
        content = self._load()
        for at in (at for at, one in enumerate(content.head.hashes) if one == hashed):
            row = self._at(content, at)
            if row.record.identity == identity:
                return row
        return None

    def _at(self, content: PartContent, at: int) -> StoredRow:
        return self._row(content, at, content.line(at))

    def _row(self, content: PartContent, at: int, line: bytes) -> StoredRow:
        record, head = record_of(self._kind, orjson.loads(line)), content.head
        if head.numbers is None:
            return StoredRow(record, line, self._path, at + 1)
        flags = head.flags[at]
        return StoredRow(record, line, self._path, head.numbers[at], bool(flags & _COMPLETE), bool(flags & _CANONICAL))


def rows_among(rows: Sequence[StoredRow], ids: Container[int]) -> Iterator[StoredRow]:
    """Those rows whose record has one of these ids; of rows that lie in the store no other is decoded."""
    if isinstance(rows, PartRows):
        return rows.among(ids)
    return (row for row in rows if row.record.id in ids)


def content_of(rows: Sequence[StoredRow]) -> PartContent:
    return rows.content if isinstance(rows, PartRows) else PartContent.of_rows(rows)


def lines_of(rows: Sequence[StoredRow]) -> list[bytes]:
    """The canonical lines of these rows."""
    return rows.content.lines if isinstance(rows, PartRows) else [row.line for row in rows]


def unshared(rows: Sequence[StoredRow], others: Sequence[StoredRow]) -> Iterable[StoredRow]:
    """Of the rows of a part those whose lines it has not at another time: only they are decoded."""
    if not (isinstance(rows, PartRows) and isinstance(others, PartRows)):
        return rows
    known = set(others.content.lines)
    return [rows[at] for at, line in enumerate(rows.content.lines) if line not in known]


def reread(part: "Part", raw: bytes, limits: Limits) -> PartRows | None:
    """The rows of a part that has these bytes now. None where that cannot be said without looking at all of them: they are
    not canonical, not sorted, or the part was not before."""
    *lines, rest = raw.split(b"\n")
    if rest or not lines or (before := _known(part)) is None:
        return None
    known = {line: at for at, line in enumerate(before.lines)}
    shape, items = LineShape(part.kind.identity_fields, part.kind.generated), list[_Item]()
    for number, line in enumerate(lines, 1):
        item = known[line] if line in known else _row(line, part, shape, limits, number)
        if item is None:
            return None
        items.append(item)
    return _laid(part, before, items) if _is_sorted(part, items) else None


def changed(part: "Part | None", gone: Iterable[int], come: Iterable[StoredRow]) -> PartRows | None:
    """The rows of a part without the lines with these numbers, and with others; None as of `reread`.

    Raises `errors.Unavailable` where the lines in the store are not those that the part was read with.
    """
    before = _known(part)
    if part is None or before is None:
        return None
    if hashlib.sha256(before.text).hexdigest() != part.digest:
        raise before.damaged()
    left_out, come = set(gone), list(come)
    items: list[_Item] = [at for at in range(len(before.head.ids)) if at + 1 not in left_out]
    key = _orders(part)
    if len(come) > len(items) // _FEW_SHARE:
        items = sorted([*items, *come], key=key)
    else:
        for row in come:
            insort(items, row, key=key)
    return _laid(part, before, items)


_Item = int | StoredRow
"""The place of a row that a part had before, or a new row."""


def _known(part: "Part | None") -> PartContent | None:
    if part is None or part.findings or not (part.canonical and part.sorted and isinstance(part.rows, PartRows)):
        return None
    return part.rows.content


def _laid(part: "Part", before: PartContent, items: Sequence[_Item]) -> PartRows:
    lines = [before.lines[item] if isinstance(item, int) else item.line for item in items]
    names = [before.named(item) if isinstance(item, int) else named(item) for item in items]
    return PartRows.of(part.kind, part.path, PartContent.of(lines, names))


def _row(line: bytes, part: "Part", shape: LineShape, limits: Limits, number: int) -> StoredRow | None:
    try:
        values, canonical = decode(line, shape, limits)
    except LineError:
        return None
    if not (canonical and ID in values and CREATED_AT in values and UPDATED_AT in values):
        return None
    return StoredRow(record_of(part.kind, values), line, part.path, number)


def _orders(part: "Part") -> Callable[[_Item], Any]:
    return lambda item: (part.rows[item] if isinstance(item, int) else item).order


def _is_sorted(part: "Part", items: Sequence[_Item]) -> bool:
    """Whether the lines are in order; those that the part had are as far as their places are."""
    key = _orders(part)
    return all(
        one < other if isinstance(one, int) and isinstance(other, int) else key(one) <= key(other)
        for one, other in pairwise(items)
    )
