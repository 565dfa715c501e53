"""Renders a changeset to the bytes of the parts that change: each changed record is a single line of the diff.

A record stays in its file. In a part that changes, unchanged records are copied byte for byte; lines that a
person wrote (without id or times, or not in canonical form) are completed and made canonical.
"""

import hashlib
import os
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.storage.layout import FORMAT_PATH, PART_BYTES, PART_RECORDS, format_bytes, parse_part, part_path
from duckkb.storage.line import LineError, LineShape, decode, record_line, record_lines
from duckkb.storage.part import Part, PartRows, Stamp, StoredRow
from duckkb.storage.strict_lines import day_of
from duckkb.storage.tree import Tree
from duckkb.types.codes import CODES
from duckkb.types.errors import Conflict, Finding, InvalidRecord, Unreadable
from duckkb.types.records import Change, Changeset, Record, identity_key, identity_text

_FEW_SHARE = 20
"""Up to this share of a part's rows, new rows are inserted singly."""
_SLAB = 1_000
"""Lines that are checked together."""
_order = attrgetter("order")


class Writer(Struct, frozen=True):
    """The place where a clone and branch put new records: the number of their part of the day
    (`layout.base_number`; 0 if `layout.part` is `fixed`), and the limits of a part, in records and bytes.
    """

    number: int = 0
    max_records: int = PART_RECORDS
    max_bytes: int = PART_BYTES


class RenderedPart(Struct, frozen=True):
    """The new state of a part. `before` is the digest of the present file, None if there is none; `data` None
    deletes it; `come` are those of its rows that a changeset adds.
    """

    path: str
    kind: RecordType
    before: str | None
    data: bytes | None
    rows: PartRows
    come: Sequence[StoredRow] = ()

    def build_part(self, status: os.stat_result) -> Part | None:
        """Return the part as it lies on disk once written, for `Tree.replace`; None if it was deleted."""
        if self.data is None:
            return None
        # Read and written at the same moment: until it is read again only its digest vouches for it.
        stamp = Stamp(status.st_size, status.st_mtime_ns, status.st_ino, status.st_mtime_ns)
        return Part(self.path, self.kind, stamp, hashlib.sha256(self.data).hexdigest(), self.rows)


def render(
    tree: Tree, changeset: Changeset, writer: Writer, places: Mapping[tuple[str, int], str] | None = None
) -> list[RenderedPart]:
    """Render the parts that a changeset changes, in path order; skip parts whose bytes stay the same.

    `places` gives the parts, by type and id, of records that must go elsewhere than the defaults.

    A change to an identity with several lines leaves a single line, at the first one's place. Inserts go, in
    the order of their identities, to the writer's part of the day of their creation and, when it is full, to
    the next number. A part that loses its last record is deleted. The order of the changes makes no difference.

    Raises `Conflict` if a record to change is missing (E_STALE) or a record to insert exists (E_EXISTS),
    `InvalidRecord` (the code of the finding, such as E_TOO_LARGE) for a line that could not be read again,
    `Unreadable` if a part to change holds such a line.
    """
    draft = _Draft(tree)
    _refuse_clash(draft, changeset.changes)
    inserts: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for change in changeset.changes:
        path = places.get((change.record.type, change.record.id)) if places else None
        if change.old:
            draft.change(change.old, change.new, path)
        elif change.new and path:
            draft.put(change.new, path)
        elif change.new:
            inserts[change.new.type, day_of(change.new.created_at)].append(change.new)
    for (_, day), records in sorted(inserts.items()):
        draft.place(day, sorted(records, key=lambda record: identity_key(record.identity)), writer)
    _raise_unfit(draft.unfit)
    return draft.render_parts()


def fmt_parts(tree: Tree) -> list[RenderedPart]:
    """Render the parts that are not canonical, complete and sorted: what `duckkb fmt` writes.

    Raises `Unreadable` if such a part also holds an unreadable line.
    """
    draft = _Draft(tree)
    for part in tree.parts.values():
        if not (part.canonical and part.sorted):
            draft.touch(part.path)
    return draft.render_parts()


def compact_parts(tree: Tree, before: str, limits: Writer) -> list[RenderedPart]:
    """Join small parts: one for each table and day up to the size limits, in the order of identities; no line
    changes. Returns the changed parts of days before `before` (`YYYYMMDD`), and none of a table and day that
    would not have fewer parts.

    Parts of a table and day stay as they are if any of them is not canonical: `fmt` comes first.
    """
    groups: defaultdict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in tree.parts.values():
        address = parse_part(part.path)
        if address is not None and address.day < before:
            groups[part.kind.name, address.day].append(part)
    return [rendered_part for _, parts in sorted(groups.items()) for rendered_part in _join_parts(parts, limits)]


def format_change(root: Path) -> bytes | None:
    """Return the bytes to write to data/FORMAT.json, None if it exists."""
    return None if os.path.lexists(root / FORMAT_PATH) else format_bytes()


def _refuse_clash(draft: "_Draft", changes: Sequence[Change]) -> None:
    """Raise if a change would give a record an identity that another record has and keeps."""
    moves = [
        change for change in changes if not (change.old and change.new and change.old.identity == change.new.identity)
    ]
    free_identities = {(change.old.type, change.old.identity) for change in moves if change.old}
    for new in (change.new for change in moves if change.new):
        if (new.type, new.identity) not in free_identities and draft.holds(new):
            raise Conflict(
                f"{_describe_record(new)} already exists", code="E_EXISTS", suggestion=CODES["E_EXISTS"].remedy
            )


def _describe_record(record: Record) -> str:
    return f"{record.type} {identity_text(record.identity)}"


def _unfit(record: Record, findings: Sequence[Finding]) -> list[Finding]:
    """Return the problems of a record that cannot be a line."""
    identity = identity_text(record.identity)
    return [
        replace(finding, remedy=CODES[finding.code].remedy, type=record.type, identity=identity) for finding in findings
    ]


def _raise_unfit(findings: Sequence[Finding]) -> None:
    """Raise `InvalidRecord` with all findings, if there are any."""
    if not findings:
        return
    first, records = findings[0], len({(finding.type, finding.identity) for finding in findings})
    raise InvalidRecord(
        f"{first.type} {first.identity} cannot be stored: {first.message}"
        if records == 1
        else f"{records} records cannot be stored; nothing was written",
        code=first.code,
        suggestion=first.remedy,
        findings=tuple(findings),
    )


class _Draft:
    """Parts while they change: by path the lines to remove and the rows to add."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._kinds: dict[str, RecordType] = {}
        self._gone: defaultdict[str, set[int]] = defaultdict(set)
        self._come: defaultdict[str, list[StoredRow]] = defaultdict(list)
        self.unfit: list[Finding] = []
        """What is wrong with records that cannot be lines: of these, nothing is to be rendered."""

    def touch(self, path: str) -> None:
        self._kinds[path] = self._tree.parts[path].kind

    def holds(self, record: Record) -> bool:
        return bool(self._tree.find_lines(self._kind(record), record.identity))

    def put(self, record: Record, path: str) -> None:
        """Add a record to a part, even if it is full."""
        kind = self._kinds[path] = self._kind(record)
        self._come[path].extend(StoredRow(record, line, path, 0) for line in self._encode_lines(kind, [record]))

    def change(self, old: Record, new: Record | None, path: str | None = None) -> None:
        """Put `new` at the place of the first line of `old`, or into another part; remove every line of `old`."""
        kind = self._kind(old)
        lines = self._tree.find_lines(kind, old.identity)
        if not lines:
            suggestion = CODES["E_STALE"].remedy
            raise Conflict(f"{_describe_record(old)} is no longer there", code="E_STALE", suggestion=suggestion)
        for line in lines:
            self.touch(line.path)
            self._gone[line.path].add(line.line_no)
        if new:
            self.put(new, path or lines[0].path)

    def place(self, day: str, records: list[Record], writer: Writer) -> None:
        """Add records of a type and day to the writer's part, and to the next numbers when it is full."""
        kind = self._kind(records[0])
        blocked_paths = {finding.path for finding in self._tree.findings}
        number = writer.number
        path = part_path(kind.kind, kind.table, day, number)
        count, size = self._measure_part(path, kind)
        for record, line in zip(records, self._encode_lines(kind, records), strict=True):
            while path in blocked_paths or (
                count and (count + 1 > writer.max_records or size + len(line) + 1 > writer.max_bytes)
            ):
                number += 1
                path = part_path(kind.kind, kind.table, day, number)
                count, size = self._measure_part(path, kind)
            self._kinds[path] = kind
            self._come[path].append(StoredRow(record, line, path, 0))
            count, size = count + 1, size + len(line) + 1

    def render_parts(self) -> list[RenderedPart]:
        parts = (self._render(path, kind) for path, kind in sorted(self._kinds.items(), key=itemgetter(0)))
        return [part for part in parts if part]

    def _kind(self, record: Record) -> RecordType:
        kind = self._tree.ontology.find(record.type)
        assert kind is not None, f"a record of the unknown type {record.type}"
        return kind

    def _encode_lines(self, kind: RecordType, records: Sequence[Record]) -> Iterator[bytes]:
        """Encode records as lines and read each line back, many at a time: a line that cannot be read again would
        close the whole base. The line of an `unfit` record is empty.
        """
        limits, shape = self._tree.limits, LineShape(kind.identity_fields)
        for start in range(0, len(records), _SLAB):
            slab = records[start : start + _SLAB]
            yield from record_lines(slab, shape, limits) or (self._encode_line(record, shape) for record in slab)

    def _encode_line(self, record: Record, shape: LineShape) -> bytes:
        try:
            line = record_line(record, shape, self._tree.limits.depth)
            decode(line, shape, self._tree.limits)
        except LineError as error:
            self.unfit += _unfit(record, error.findings)
        except ValueError as error:
            self.unfit += _unfit(record, [Finding("E_INVALID", str(error))])
        else:
            return line
        return b""

    def _measure_part(self, path: str, kind: RecordType) -> tuple[int, int]:
        """Return the present records and bytes of a part. Examines no line of a day's full parts."""
        part = self._tree.parts.get(path)
        if part and part.canonical and not part.findings and not (self._gone.get(path) or self._come.get(path)):
            return len(part.rows), part.stamp.size
        rows = self._rows(path, kind)
        return len(rows), len(rows.read().text)

    def _rows(self, path: str, kind: RecordType) -> PartRows:
        """Return the new rows of a part, in order."""
        part, come = self._tree.parts.get(path), self._come.get(path, [])
        if part is None:
            return PartRows.from_rows(kind, path).laid(sorted(come, key=_order))
        rows = part.rows
        items = [self._complete_line(rows, at) for at in rows.kept(self._gone.get(path, ()))]

        def order(item: int | StoredRow) -> Any:
            return _order(rows[item] if isinstance(item, int) else item)

        if not part.sorted or len(come) > len(items) // _FEW_SHARE:
            return rows.laid(sorted([*items, *come], key=order))
        for row in come:
            insort(items, row, key=order)
        return rows.laid(items)

    def _complete_line(self, rows: PartRows, at: int) -> int | StoredRow:
        """Give a line without `__id` the id that its record has in memory, which no other record has."""
        if rows.is_complete(at):
            return at
        row = rows[at]
        kind = self._tree.parts[row.path].kind
        record = self._tree.get(kind, row.record.identity)
        is_alone = len(self._tree.find_lines(kind, row.record.identity)) == 1
        return record if record and is_alone else row

    def _render(self, path: str, kind: RecordType) -> RenderedPart | None:
        part = self._tree.parts.get(path)
        if part and part.findings:
            raise Unreadable(f"{path} cannot be read; nothing was changed", findings=part.findings)
        rows = self._rows(path, kind)
        before = part.digest if part else None
        if not rows:
            return RenderedPart(path, kind, before, None, rows) if part else None
        data = rows.read().text
        if before is not None and hashlib.sha256(data).hexdigest() == before:
            return None
        return RenderedPart(path, kind, before, data, rows, self._come.get(path, ()))


def _join_parts(parts: Sequence[Part], limits: Writer) -> Iterator[RenderedPart]:
    if len(parts) < 2 or not all(part.canonical and part.sorted and not part.findings for part in parts):
        return
    rows = sorted((row for part in parts for row in part.rows), key=_order)
    heaps = list(_split_heaps(rows, limits))
    if len(heaps) >= len(parts):
        return
    for number, part in enumerate(sorted(parts, key=_parse_number)):
        heap = heaps[number] if number < len(heaps) else []
        part_rows = PartRows.from_rows(part.kind, part.path).laid(heap)
        yield RenderedPart(part.path, part.kind, part.digest, part_rows.read().text or None, part_rows)


def _split_heaps(rows: Sequence[StoredRow], limits: Writer) -> Iterator[list[StoredRow]]:
    heap: list[StoredRow] = []
    size = 0
    for row in rows:
        length = len(row.line) + 1
        if heap and (len(heap) >= limits.max_records or size + length > limits.max_bytes):
            yield heap
            heap, size = [], 0
        heap.append(row)
        size += length
    if heap:
        yield heap


def _parse_number(part: Part) -> int:
    address = parse_part(part.path)
    return address.number if address else 0
