"""The records of one type out of a snapshot: found and decoded one by one, when they are asked for."""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import overload

import orjson

from duckkb.errors import Unavailable
from duckkb.ontology.model import RecordType
from duckkb.records import Identity, Record
from duckkb.truth.files.table import Difference, StoredRow, Swapped, difference, record_of
from duckkb.truth.snapshot.kept import Laid
from duckkb.truth.snapshot.sheet import CANONICAL, COMPLETE, Entry, Sheet, identity_hash

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
            raise self.damaged()
        flags, path = sheet.flags[place], sheet.entries[sheet.parts[place]].path
        record = record_of(self.kind, orjson.loads(line))
        return StoredRow(record, line, path, sheet.line_nos[place], bool(flags & COMPLETE), bool(flags & CANONICAL))

    def decoded(self, number: int, entry: Entry) -> Iterator[StoredRow]:
        """The rows of a part, as `row` gives them, each passed once."""
        sheet, own = self.sheets[number], slice(entry.start, entry.start + entry.count)
        for line, line_no, flags in zip(self._lines(number, own), sheet.line_nos[own], sheet.flags[own], strict=True):
            record = record_of(self.kind, orjson.loads(line))
            yield StoredRow(record, line, entry.path, line_no, bool(flags & COMPLETE), bool(flags & CANONICAL))

    def records(self, number: int, entry: Entry) -> Iterator[Record]:
        """The records of a part, each passed once."""
        own = slice(entry.start, entry.start + entry.count)
        return (record_of(self.kind, orjson.loads(line)) for line in self._lines(number, own))

    def _lines(self, number: int, own: slice) -> Iterator[bytes]:
        sheet, lines, sha256 = self.sheets[number], self.lines, hashlib.sha256
        columns = map(list, (sheet.offsets[own], sheet.lengths[own], sheet.etags[own]))
        for start, length, etag in zip(*columns, strict=True):
            line = lines[start : start + length]
            if sha256(line).digest()[:8] != etag.to_bytes(8, "big"):
                raise self.damaged()
            yield line

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

    def path(self, number: int, place: int) -> str | None:
        """The part that a row belongs to; None where that has been written anew since."""
        sheet = self.sheets[number]
        path = sheet.entries[sheet.parts[place]].path
        return path if self.entries.get(path, (-1,))[0] == number else None

    def damaged(self) -> Unavailable:
        """The error for bytes that are not those that were written; from now on no process opens them."""
        self._give_up()
        return Unavailable(
            "The snapshot in .duckkb/ was damaged and has been dropped; nothing in data/ is touched.",
            code="E_IO",
            suggestion="repeat the command",
        )


class PartRows(Sequence[StoredRow]):
    """The rows of one part, in the order of its lines."""

    def __init__(self, stored: Stored, number: int, entry: Entry) -> None:
        self._stored, self._number, self._entry = stored, number, entry

    def __len__(self) -> int:
        return self._entry.count

    def __iter__(self) -> Iterator[StoredRow]:
        return self._stored.decoded(self._number, self._entry)

    @property
    def records(self) -> Iterator[Record]:
        """The records of the rows."""
        return self._stored.records(self._number, self._entry)

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
    def laid(self) -> Laid | None:
        """Where the rows lie, those of a canonical part."""
        start = self._entry.start
        if not self._entry.canonical:
            return None
        return Laid(self._stored, self._number, range(start, start + self._entry.count))


class StoredTable:
    """As `table.Table`, of a type without duplicates and contested ids: rows are found through the sheets. Of parts that
    were replaced since, the rows that are new are held here, and of the others the numbers of their lines."""

    is_mended = False

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._kept: dict[str, dict[int, int]] = {}
        self._fresh: dict[Identity, StoredRow] = {}
        self._fresh_ids: dict[int, Identity] = {}
        self._lately: dict[int, StoredRow] = {}
        self._count = sum(entry.count for _, entry in stored.entries.values())

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> int:
        """How many records are in memory: those of parts that were replaced."""
        return len(self._fresh)

    def __iter__(self) -> Iterator[Identity]:
        for number, place in self._places():
            yield self._stored.decode(number, place).record.identity
        yield from self._fresh

    def get(self, identity: Identity) -> StoredRow | None:
        known = self._fresh.get(identity)
        if known is not None:
            return known
        wanted = identity_hash(identity)
        for number, sheet in enumerate(self._stored.sheets):
            for place in sheet.rows_with_hash(wanted):
                row = self._row(number, place)
                if row is not None and row.record.identity == identity:
                    return row
        return None

    def by_id(self, record_id: int) -> StoredRow | None:
        identity = self._fresh_ids.get(record_id)
        if identity is not None:
            return self._fresh[identity]
        known = self._lately.get(record_id)  # an answer asks for the same few again and again
        if known is None and (known := self._found(record_id)) is not None:
            if len(self._lately) >= _KEPT:
                self._lately.clear()
            self._lately[record_id] = known
        return known

    def _found(self, record_id: int) -> StoredRow | None:
        for number, sheet in enumerate(self._stored.sheets):
            for place in sheet.rows_with_id(record_id):
                row = self._row(number, place)
                if row is not None:
                    return row
        return None

    def ids(self) -> Iterator[int]:
        """The ids of all records, in path order of what is stored, then of what was replaced."""
        for path, (number, entry) in self._stored.entries.items():
            ids = self._stored.sheets[number].ids
            if path in self._kept:
                yield from (ids[place] for place in self._kept[path])
            else:
                yield from ids[entry.start : entry.start + entry.count]
        yield from self._fresh_ids

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        row = self.get(identity)
        return (row,) if row else ()

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]:
        return {}

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]:
        return {}

    def swap(self, old: Swapped, new: Swapped) -> Difference:
        """As `Table.swap`. Raises `Repeated` where two records would share an identity or an id; it is of no use then."""
        self._lately.clear()
        before = {row.record.identity: row for path, rows in old.items() for row in self._unshared(rows, new.get(path))}
        after = [row for path, rows in new.items() for row in self._unshared(rows, old.get(path))]
        for path in [*old, *new]:
            self._kept[path] = self._numbers(new.get(path, ()))
        for identity, row in before.items():
            if self._fresh.pop(identity, None) is not None:
                del self._fresh_ids[row.record.id]
        for row in after:
            identity, record_id = row.record.identity, row.record.id
            if self.get(identity) is not None or self.by_id(record_id) is not None:
                raise Repeated
            self._fresh[identity], self._fresh_ids[record_id] = row, identity
        self._count += sum(map(len, new.values())) - sum(map(len, old.values()))
        incoming = {row.record.identity: row for row in after}
        return difference({identity: before.get(identity) for identity in {**before, **incoming}}, incoming)

    def _unshared(self, rows: Sequence[StoredRow], others: Sequence[StoredRow] | None) -> Iterable[StoredRow]:
        """The rows of a part but those that have the same place in a sheet before and after."""
        laid, also = self._laid(rows), self._laid(others or ())
        if laid is None or also is None:
            return rows
        shared = {item for item in also.items if isinstance(item, int)}
        found = enumerate(laid.items)
        return [rows[at] for at, item in found if not (isinstance(item, int) and item in shared)]

    def _numbers(self, rows: Sequence[StoredRow]) -> dict[int, int]:
        """By the places of these rows, which rise, the numbers of their lines."""
        laid = self._laid(rows)
        return {item: at for at, item in enumerate(laid.items, 1) if isinstance(item, int)} if laid else {}

    def _laid(self, rows: Sequence[StoredRow]) -> Laid | None:
        """Where rows lie; None where that is nowhere, or in a snapshot that is not this one."""
        laid: Laid | None = getattr(rows, "laid", None)
        return laid if laid is not None and laid.stored is self._stored else None

    def _places(self) -> Iterator[tuple[int, int]]:
        """The sheets and the places there of the rows that are not held."""
        for path, (number, entry) in self._stored.entries.items():
            for place in self._kept.get(path, range(entry.start, entry.start + entry.count)):
                yield number, place

    def _row(self, number: int, place: int) -> StoredRow | None:
        """The row at a place of a sheet as it is now; None where it is not there any more."""
        path = self._stored.path(number, place)
        if path is None:
            return None
        if path not in self._kept:
            return self._stored.row(number, place)
        line_no = self._kept[path].get(place)
        return None if line_no is None else self._stored.row(number, place).at_line(line_no)
