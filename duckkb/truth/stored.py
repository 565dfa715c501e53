"""The records of one type out of a snapshot: found and decoded one by one, when they are asked for."""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import overload

import orjson

from duckkb.errors import Unavailable
from duckkb.ontology.model import RecordType
from duckkb.records import Identity
from duckkb.truth.sheet import CANONICAL, COMPLETE, Entry, Sheet, identity_hash
from duckkb.truth.table import Difference, StoredRow, difference, record_of

_KEPT = 4096  # rows that were decoded lately


class Repeated(Exception):
    """Two records have come to share an identity or an id, which takes all records of the type to mend."""


class Stored:
    """One type's part of a snapshot: the sheets that are mapped, the lines that they point into, and which parts are
    alive: by path the number of the sheet and the entry there. `give_up` sees to it that no process opens them again."""

    def __init__(
        self,
        kind: RecordType,
        sheets: Sequence[Sheet],
        lines: "mmap.mmap | bytes",
        dead: Sequence[Iterable[int]],
        give_up: Callable[[], None],
    ) -> None:
        self.kind = kind
        self.sheets = sheets
        self.lines = lines
        self._give_up = give_up
        self.entries: dict[str, tuple[int, Entry]] = {}
        for number, (sheet, gone) in enumerate(zip(sheets, dead, strict=True)):
            left_out = set(gone)
            for place, entry in enumerate(sheet.entries):
                if place not in left_out:
                    self.entries[entry.path] = (number, entry)
        self._rows: dict[tuple[int, int], StoredRow] = {}

    def row(self, number: int, place: int) -> StoredRow:
        """The row at a place of a sheet. Raises `errors.Unavailable` where the snapshot does not hold what it says."""
        known = self._rows.get((number, place))
        if known is None:
            if len(self._rows) >= _KEPT:
                self._rows.clear()
            known = self._rows[number, place] = self.decode(number, place)
        return known

    def decode(self, number: int, place: int) -> StoredRow:
        """As `row`, for rows that are passed once."""
        sheet = self.sheets[number]
        line = self.line(number, place)
        if hashlib.sha256(line).digest()[:8] != sheet.etags[place].to_bytes(8, "big"):
            self._give_up()
            raise damaged()
        flags, path = sheet.flags[place], sheet.entries[sheet.parts[place]].path
        record = record_of(self.kind, orjson.loads(line))
        return StoredRow(record, line, path, sheet.line_nos[place], bool(flags & COMPLETE), bool(flags & CANONICAL))

    def line(self, number: int, place: int) -> bytes:
        """The canonical line at a place of a sheet."""
        sheet = self.sheets[number]
        start = sheet.offsets[place]
        return self.lines[start : start + sheet.lengths[place]]

    def size(self, path: str) -> int:
        """Bytes of the lines of a part, which stand one behind the other."""
        number, entry = self.entries[path]
        if not entry.count:
            return 0
        sheet, last = self.sheets[number], entry.start + entry.count - 1
        return sheet.offsets[last] + sheet.lengths[last] - sheet.offsets[entry.start]

    def is_alive(self, number: int, place: int, replaced: "set[str]") -> bool:
        """Whether a row belongs to a part that has not been replaced since."""
        sheet = self.sheets[number]
        path = sheet.entries[sheet.parts[place]].path
        return path not in replaced and self.entries.get(path, (-1,))[0] == number


class PartRows(Sequence[StoredRow]):
    """The rows of one part, in the order of its lines."""

    def __init__(self, stored: Stored, number: int, entry: Entry) -> None:
        self._stored, self._number, self._entry = stored, number, entry

    def __len__(self) -> int:
        return self._entry.count

    def __iter__(self) -> Iterator[StoredRow]:
        start = self._entry.start
        return (self._stored.decode(self._number, place) for place in range(start, start + self._entry.count))

    @overload
    def __getitem__(self, index: int) -> StoredRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StoredRow, ...]: ...
    def __getitem__(self, index: int | slice) -> StoredRow | tuple[StoredRow, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = range(self._entry.count)[index]
        return self._stored.row(self._number, self._entry.start + place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._entry.path, self._entry.digest))

    @property
    def stored(self) -> tuple[Stored, int, Entry]:
        """Where the rows lie."""
        return self._stored, self._number, self._entry


class StoredTable:
    """As `table.Table`, of a type without duplicates and contested ids: rows are found through the sheets, and those of
    parts that were replaced since are held here."""

    is_mended = False

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._replaced: set[str] = set()
        self._fresh: dict[Identity, StoredRow] = {}
        self._fresh_ids: dict[int, Identity] = {}
        self._count = sum(entry.count for _, entry in stored.entries.values())

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> int:
        """How many records are in memory: those of parts that were replaced."""
        return len(self._fresh)

    def __iter__(self) -> Iterator[Identity]:
        for path, (number, entry) in self._stored.entries.items():
            if path not in self._replaced:
                yield from (row.record.identity for row in PartRows(self._stored, number, entry))
        yield from self._fresh

    def get(self, identity: Identity) -> StoredRow | None:
        known = self._fresh.get(identity)
        if known is not None:
            return known
        wanted = identity_hash(identity)
        for number, sheet in enumerate(self._stored.sheets):
            for place in sheet.rows_with_hash(wanted):
                if self._stored.is_alive(number, place, self._replaced):
                    row = self._stored.row(number, place)
                    if row.record.identity == identity:
                        return row
        return None

    def by_id(self, record_id: int) -> StoredRow | None:
        identity = self._fresh_ids.get(record_id)
        if identity is not None:
            return self._fresh[identity]
        for number, sheet in enumerate(self._stored.sheets):
            for place in sheet.rows_with_id(record_id):
                if self._stored.is_alive(number, place, self._replaced):
                    return self._stored.row(number, place)
        return None

    def ids(self) -> Iterator[int]:
        """The ids of all records, in path order of what is stored, then of what was replaced."""
        for path, (number, entry) in self._stored.entries.items():
            if path not in self._replaced:
                yield from self._stored.sheets[number].ids[entry.start : entry.start + entry.count]
        yield from self._fresh_ids

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        row = self.get(identity)
        return (row,) if row else ()

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]:
        return {}

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]:
        return {}

    def swap(self, paths: set[str], old: Iterable[StoredRow], new: Iterable[StoredRow]) -> Difference:
        """As `Table.swap`. Raises `Repeated`, with nothing changed, where two records would share an identity or an id."""
        before = {row.record.identity: row for row in old}
        after: dict[Identity, StoredRow] = {}
        ids: dict[int, Identity] = {}
        for row in new:
            identity = row.record.identity
            if identity in after or row.record.id in ids or self._is_elsewhere(row, paths):
                raise Repeated
            after[identity], ids[row.record.id] = row, identity
        self._replaced |= paths
        for identity, row in before.items():
            if self._fresh.pop(identity, None) is not None:
                del self._fresh_ids[row.record.id]
        self._fresh |= after
        self._fresh_ids |= ids
        self._count += len(after) - len(before)
        return difference({identity: before.get(identity) for identity in {**before, **after}}, after)

    def _is_elsewhere(self, row: StoredRow, paths: set[str]) -> bool:
        holders = (self.get(row.record.identity), self.by_id(row.record.id))
        return any(holder is not None and holder.path not in paths for holder in holders)


def damaged() -> Unavailable:
    """The error for a snapshot whose bytes are not those that were written."""
    return Unavailable(
        "The snapshot in .duckkb/ was damaged and has been dropped; nothing in data/ is touched.",
        code="E_IO",
        suggestion="repeat the command",
    )
