"""The rows of a part that changed: what is still as the snapshot has it is found there, not read and held anew.

So a change of one line costs what that line costs, however many the part has. Only canonical parts are looked at so: their
lines are those of the snapshot byte for byte, and a row's line number is its place among them.
"""

import hashlib
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT
from duckkb.truth.files.canonical import CanonicalRows
from duckkb.truth.files.line import Limits, LineError, LineShape, decode
from duckkb.truth.files.table import RowsByPlace, StoredRow, record_of
from duckkb.truth.snapshot.sheet import Named, named
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.truth.files.tree import Part
    from duckkb.truth.snapshot.stored import Stored

_FEW_SHARE = 20  # of the rows of a part: so many new ones find their places one by one
Item = int | StoredRow
"""The place of a row in a sheet, or a row that is in none."""


@dataclass(frozen=True, slots=True)
class Laid:
    """The rows of a canonical part, in the order of its lines, and the snapshot and the number of the sheet in which those
    lie that are given by place."""

    stored: "Stored"
    number: int
    items: Sequence[Item]

    def line(self, item: Item) -> bytes:
        return self.stored.line(self.number, item) if isinstance(item, int) else item.line

    def row(self, item: Item) -> StoredRow:
        return self.stored.row(self.number, item) if isinstance(item, int) else item

    def order(self, item: Item) -> tuple[tuple[Any, ...], int]:
        """Sorts the lines of a part."""
        return self.row(item).order

    def numbered(self, items: Iterable[Item]) -> "Laid":
        """Other rows of the part, those that lie in no sheet with the numbers that their lines have now."""
        found = enumerate(items, 1)
        return Laid(
            self.stored, self.number, [item if isinstance(item, int) else item.at_line(at) for at, item in found]
        )


class KeptRows(RowsByPlace):
    """The rows of a part some of which lie in a snapshot."""

    def __init__(self, laid: Laid) -> None:
        self.laid = laid

    def __len__(self) -> int:
        return len(self.laid.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self.lines))

    @property
    def lines(self) -> list[bytes]:
        return [*map(self.laid.line, self.laid.items)]

    @property
    def named(self) -> list[Named]:
        """What a sheet says of each of them."""
        sheet = self.laid.stored.sheets[self.laid.number]
        return [sheet.named(item) if isinstance(item, int) else named(item) for item in self.laid.items]

    def _row(self, index: int) -> StoredRow:
        return self.laid.row(self.laid.items[index]).at_line(index + 1)


def kept(part: "Part | None") -> Laid | None:
    """Where the rows of a canonical and sorted part lie; None where none of them is in a snapshot."""
    if part is None or part.findings or not (part.canonical and part.sorted):
        return None
    found: Laid | None = getattr(part.rows, "laid", None)
    return found


def reread(part: "Part", raw: bytes, kind: RecordType, limits: Limits) -> KeptRows | None:
    """The rows of a part that has these bytes now. None where that cannot be said without looking at all of them: they are
    not canonical, not sorted, or the part was not before."""
    before = kept(part)
    *lines, rest = raw.split(b"\n")
    if before is None or rest or not lines:
        return None
    known = {before.line(item): item for item in before.items}
    shape, items = LineShape(kind.identity_fields, kind.generated), list[Item]()
    for number, line in enumerate(lines, 1):
        item = known[line] if line in known else _row(line, kind, shape, limits, (part.path, number))
        if item is None:
            return None
        items.append(item)
    now = before.numbered(items)
    return KeptRows(now) if _is_sorted(now) else None


def changed(part: "Part", gone: Iterable[int], come: Iterable[StoredRow]) -> KeptRows | None:
    """The rows of a part without the lines with these numbers, and with others; None as of `kept`.

    Raises `errors.Unavailable` where the lines in the snapshot are not those that the part was read with.
    """
    before = kept(part)
    if before is None:
        return None
    if hashlib.sha256(joined(KeptRows(before).lines)).hexdigest() != part.digest:
        raise before.stored.damaged()
    left_out = set(gone)
    items = [item for number, item in enumerate(before.items, 1) if number not in left_out]
    return KeptRows(before.numbered(_with(items, list(come), before.order)))


def _with(items: list[Item], come: list[StoredRow], order: Callable[[Item], Any]) -> list[Item]:
    """The items, which are in order, with others in their places. Of few others, few items are looked at."""
    if len(come) > len(items) // _FEW_SHARE:
        return sorted([*items, *come], key=order)
    for row in come:
        insort(items, row, key=order)
    return items


def lines_of(rows: Sequence[StoredRow]) -> list[bytes]:
    """The canonical lines of these rows."""
    return rows.lines if isinstance(rows, (CanonicalRows, KeptRows)) else [row.line for row in rows]


def joined(lines: Iterable[bytes]) -> bytes:
    """The file with these lines."""
    return b"".join(line + b"\n" for line in lines)


def _row(line: bytes, kind: RecordType, shape: LineShape, limits: Limits, at: tuple[str, int]) -> StoredRow | None:
    try:
        values, canonical = decode(line, shape, limits)
    except LineError:
        return None
    if not (canonical and ID in values and CREATED_AT in values and UPDATED_AT in values):
        return None
    return StoredRow(record_of(kind, values), line, *at)


def _is_sorted(rows: Laid) -> bool:
    """Whether the lines are in order; those of one sheet are as far as their places are."""
    return all(
        one < other if isinstance(one, int) and isinstance(other, int) else rows.order(one) <= rows.order(other)
        for one, other in pairwise(rows.items)
    )
