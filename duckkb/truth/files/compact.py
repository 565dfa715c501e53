"""Joining small parts: one part a table and day, up to the size limits, in the order of identities. No line changes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from duckkb.truth.files.render import RenderedPart, Writer
from duckkb.truth.files.table import StoredRow
from duckkb.truth.files.tree import Part, Tree
from duckkb.truth.layout import parse_part


def compacted(tree: Tree, before: str, limits: Writer) -> list[RenderedPart]:
    """The parts of days before one (`YYYYMMDD`) that joining changes; none of a table and day that would not have fewer.

    Parts that are not canonical are left as they are, with those of the same table and day: `fmt` comes first.
    """
    groups: defaultdict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in tree.parts.values():
        address = parse_part(part.path)
        if address is not None and address.day < before:
            groups[part.kind.name, address.day].append(part)
    return [made for _, parts in sorted(groups.items()) for made in _joined(parts, limits)]


def _joined(parts: Sequence[Part], limits: Writer) -> Iterator[RenderedPart]:
    if len(parts) < 2 or not all(part.canonical and part.sorted and not part.findings for part in parts):
        return
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: row.order)
    heaps = list(_heaps(rows, limits))
    if len(heaps) >= len(parts):
        return
    for number, part in enumerate(sorted(parts, key=_number)):
        heap = heaps[number] if number < len(heaps) else []
        placed = tuple(StoredRow(row.record, row.line, part.path, at) for at, row in enumerate(heap, 1))
        data = b"".join(row.line + b"\n" for row in placed) or None
        yield RenderedPart(part.path, part.kind, part.digest, data, placed)


def _heaps(rows: Sequence[StoredRow], limits: Writer) -> Iterator[list[StoredRow]]:
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


def _number(part: Part) -> int:
    address = parse_part(part.path)
    return address.number if address else 0
