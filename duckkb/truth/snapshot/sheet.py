"""A sheet: where the records of some parts of one type lie in a file of lines, as arrays that are mapped, not read.

One file: the arrays of `_LAYOUT` one behind the other, each with a number per row, then JSON about the parts. Rows come
part by part in the order of the lines. Records are found by id and by a 64-bit hash of their identity, through the order
of the rows by either.
"""

import mmap
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b, sha256
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import orjson

from duckkb.records import Identity, component_value
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.truth.files.table import StoredRow
    from duckkb.truth.files.tree import Part

_LAYOUT: tuple[tuple[str, Literal["q", "Q", "I", "B"]], ...] = (
    ("ids", "q"),
    ("identities", "Q"),
    ("etags", "Q"),
    ("offsets", "q"),
    ("lengths", "I"),
    ("line_nos", "I"),
    ("parts", "I"),
    ("by_id", "I"),
    ("by_identity", "I"),
    ("flags", "B"),
)
"""Name and type code of each array. `identities` are hashes; `offsets` and `lengths` of lines are bytes; `parts` numbers
the sheet's parts; `by_id` and `by_identity` are row numbers in that order."""
_GIVEN = ("ids", "identities", "etags", "offsets", "lengths", "line_nos", "flags")
_ROW_BYTES = sum(array(code).itemsize for _, code in _LAYOUT)
COMPLETE, CANONICAL = 1, 2

Named = tuple[int, int, int]
"""A row's id, the hash of its identity, and its etag."""


def identity_hash(identity: Identity) -> int:
    """64 bits of BLAKE2b over the identity as JSON; equal identities have equal hashes."""
    text = orjson.dumps([one if type(one) is str else component_value(one) for one in identity])
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def named(row: "StoredRow") -> Named:
    """What a sheet says of a row."""
    record = row.record
    return record.id, identity_hash(record.identity), int.from_bytes(sha256(row.line).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class Entry:
    """A part in a sheet: its first row, how many there are, and what `tree.Part` says of it."""

    path: str
    start: int
    count: int
    stamp: tuple[int, ...]
    digest: str
    canonical: bool
    sorted: bool


class Columns:
    """The arrays of a sheet while it is made."""

    def __init__(self) -> None:
        self.arrays = {name: array(code) for name, code in _LAYOUT if name in _GIVEN}
        self.entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self.arrays["ids"])

    def add(self, part: "Part", lines: Sequence[bytes], at: int) -> None:
        """The rows of a part, whose lines stand one behind the other from byte `at` on."""
        line_nos = [row.line_no for row in part.rows]
        flags = [COMPLETE * row.complete | CANONICAL * row.canonical for row in part.rows]
        self._add(part, [*map(len, lines)], at, ([*map(named, part.rows)], line_nos, flags))

    def add_canonical(self, part: "Part", lines: Sequence[bytes], at: int, names: Sequence[Named]) -> None:
        """As `add`, for a canonical part of which it is known what the sheet has to say."""
        count = len(lines)
        self._add(part, [*map(len, lines)], at, (names, range(1, count + 1), [COMPLETE | CANONICAL] * count))

    def _add(
        self,
        part: "Part",
        lengths: Sequence[int],
        at: int,
        said: tuple[Sequence[Named], Sequence[int], Sequence[int]],
    ) -> None:
        start, arrays, (names, line_nos, flags) = len(self), self.arrays, said
        for name, values in zip(("ids", "identities", "etags"), zip(*names, strict=True), strict=False):
            arrays[name].extend(values)
        arrays["offsets"].extend(accumulate(lengths[:-1], initial=at) if lengths else ())
        arrays["lengths"].extend(lengths)
        arrays["line_nos"].extend(line_nos)
        arrays["flags"].extend(flags)
        stamp = part.stamp.numbers
        self.entries.append(Entry(part.path, start, len(lengths), stamp, part.digest, part.canonical, part.sorted))

    def copy(self, sheet: "Sheet", entry: Entry) -> None:
        """The rows of a part from another sheet over the same lines."""
        start = len(self)
        for name in _GIVEN:
            self.arrays[name].frombytes(getattr(sheet, name)[entry.start : entry.start + entry.count].tobytes())
        self.entries.append(replace(entry, start=start))

    def extend(self, other: "Columns") -> None:
        """All rows of another sheet in the making."""
        start = len(self)
        for name, values in self.arrays.items():
            values.extend(other.arrays[name])
        self.entries += [replace(entry, start=start + entry.start) for entry in other.entries]

    def written(self) -> bytes:
        """The file."""
        parts = array("I")
        for number, entry in enumerate(self.entries):
            parts.extend([number] * entry.count)
        arrays = self.arrays | {
            "parts": parts,
            "by_id": _order(self.arrays["ids"]),
            "by_identity": _order(self.arrays["identities"]),
        }
        rows = b"".join(arrays[name].tobytes() for name, _ in _LAYOUT)
        entries = [[getattr(entry, name) for name in Entry.__slots__] for entry in self.entries]
        return rows + orjson.dumps(entries)

    @property
    def repeats(self) -> bool:
        """Whether an id or the hash of an identity occurs twice."""
        return any(len(set(self.arrays[name])) < len(self) for name in ("ids", "identities"))


class Sheet:
    """A sheet that is mapped. Raises ValueError or TypeError for bytes that are none."""

    ids: Sequence[int]
    identities: Sequence[int]
    etags: Sequence[int]
    offsets: Sequence[int]
    lengths: Sequence[int]
    line_nos: Sequence[int]
    parts: Sequence[int]
    by_id: Sequence[int]
    by_identity: Sequence[int]
    flags: Sequence[int]

    def __init__(self, data: "mmap.mmap | bytes", count: int) -> None:
        if len(data) < count * _ROW_BYTES:
            raise ValueError("a sheet is too short")
        self.count = count
        view, at = memoryview(data), 0
        for name, code in _LAYOUT:
            size = count * array(code).itemsize
            setattr(self, name, view[at : at + size].cast(code))
            at += size
        self.entries = [_entry(*item) for item in orjson.loads(view[at:])]

    def named(self, row: int) -> Named:
        return self.ids[row], self.identities[row], self.etags[row]

    def rows_with_id(self, record_id: int) -> Iterator[int]:
        return self._equal(self.ids, self.by_id, record_id)

    def rows_with_hash(self, identity: int) -> Iterator[int]:
        return self._equal(self.identities, self.by_identity, identity)

    def _equal(self, values: Sequence[int], order: Sequence[int], wanted: int) -> Iterator[int]:
        at = bisect_left(order, wanted, key=values.__getitem__)
        while at < self.count and values[order[at]] == wanted:
            yield order[at]
            at += 1


def _entry(path: str, start: int, count: int, stamp: list[int], *rest: Any) -> Entry:
    return Entry(path, start, count, tuple(stamp), *rest)


def _order(values: "array[int]") -> "array[int]":
    """The places of the values in rising order."""
    listed = values.tolist()  # an array makes an object each time that it is asked
    return array("I", sorted(range(len(listed)), key=listed.__getitem__))
