"""The keyed merge of three versions of a table's parts: records by `__id` over all files given, whatever file they
are in.

A record that moved on one side and changed on the other is merged at its new place. A record stays in its file;
a new record goes where its side put it (if both did, in the first of the two). Lines are in the order of their
identities. It needs only the standard library: git starts this once per file.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from duckkb.storage.field_merge import MergedRecord, MergeRules, merge_record
from duckkb.storage.layout import is_cut_off, parse_part
from duckkb.storage.merge_rules import Block, Key, is_marker, join_blocks
from duckkb.storage.source_text import join, split
from duckkb.types.records import component_key, component_of

Files = Mapping[str, bytes]
"""The parts of a table by path; a path that a version lacks is left out."""

_HEAD = re.compile(rb'\{"__id":([1-9][0-9]{0,15}),')
_BROKEN = "not a line of one record"
_DECODER = json.JSONDecoder(strict=False)


class Unmergeable(ValueError):
    """A part that cannot be merged by records, because a line of it is not a record. It is merged by lines
    instead.
    """

    def __init__(self, path: str, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")
        self.path = path


class RecordConflict(Struct, frozen=True):
    """A record in conflict: the part with its block, its identity as the command line writes it (`#ID` if the
    table's rules are unknown), and the block.
    """

    path: str
    identity: str
    block: Block


class TableMerge(Struct, frozen=True):
    """The merged parts by path (None: deleted), with blocks for records in conflict; and these records."""

    parts: Mapping[str, bytes | None] = {}
    conflicts: tuple[RecordConflict, ...] = ()


class _Row(Struct, frozen=True):
    path: str
    line: bytes


class _Item(Struct, frozen=True):
    """An item of a merged part: a line or a block, and the key of its record."""

    key: Any
    content: bytes | Block

    @property
    def line(self) -> bytes:
        if isinstance(self.content, Block):
            return self.content.ours or self.content.theirs or b"{}"
        return self.content


def table_of(path: str) -> Key | None:
    """Return the table of a part's path, relative to the knowledge base; None for another path."""
    address = parse_part(path)
    return (address.kind, address.table) if address else None


def merge_table(base: Files, ours: Files, theirs: Files, table: MergeRules, *, is_base: bool = False) -> TableMerge:
    """Merge three versions of a table's parts. Files that are equal in all versions may be left out of all.

    With `is_base` the result serves as the base of another merge: conflicting fields stay as in `base`, so that
    the conflict shows there. Raises `Unmergeable`.
    """
    versions = (base, ours, theirs)
    _refuse_cut_off(versions)
    sides = _index_rows([list(_iter_rows(files, table)) for files in versions])
    parts: dict[str, list[_Item]] = {path: [] for path in sorted({path for files in versions for path in files})}
    conflicts = []
    for key in dict.fromkeys(key for side in sides for key in side):
        rows = [side.get(key) for side in sides]
        content = _merge_rows(rows, table, is_base)
        if content is None:
            continue
        path = _choose_path(*rows)
        parts[path].append(_Item(key, content))
        if isinstance(content, Block):
            conflicts.append(RecordConflict(path, identity_of(content, table), content))
    return TableMerge(
        {path: _build_part(items, path, versions, sides, table) for path, items in parts.items()},
        tuple(sorted(conflicts, key=lambda conflict: (conflict.path, conflict.identity))),
    )


def _refuse_cut_off(versions: Sequence[Files]) -> None:
    """Refuse a part that held records and is empty now: it was cut off, which deletes no records."""
    base, *sides = versions
    for path, data in base.items():
        if data.strip() and any(path in side and is_cut_off(side[path]) for side in sides):
            raise Unmergeable(path, 0, "it was cut off: no record is in it")


def _merge_rows(rows: "Sequence[_Row | None]", table: MergeRules, is_base: bool) -> bytes | Block | None:
    """Merge three versions of a record: to a line, a block if they conflict, None if it is deleted."""
    old, mine, their_line = (None if row is None else row.line for row in rows)
    try:
        outcome = merge_record(old, mine, their_line, table.make_base_rules() if is_base else table)
    except ValueError as error:
        raise Unmergeable(next(row.path for row in rows if row), 0, str(error)) from error
    if outcome.alternatives is None:
        return outcome.line
    return _restore_conflicts(outcome, old, table) if is_base else Block(old, *outcome.alternatives)


def _build_part(
    items: "list[_Item]", path: str, versions: Sequence[Files], sides: "Sequence[Mapping[Any, _Row]]", table: MergeRules
) -> bytes | None:
    """Return the bytes of a part with these lines and blocks; reuse a version with the same lines. None if nothing
    is left.
    """
    same_part = _find_same_part(items, path, versions)
    if same_part is not None or not items:
        return same_part
    ordered_items = (
        _sort_items(items, table)
        if table.known
        else _merge_orders(items, [_list_keys(side, path) for side in sides[1:]])
    )
    return join_blocks([item.content for item in ordered_items])


def identity_of(block: Block, table: MergeRules) -> str:
    """Return the identity of a record in conflict as the command line writes it."""
    value = identity_value_of(block, table)
    return str(value) if isinstance(value, str | int) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def identity_value_of(block: Block, table: MergeRules) -> Any:
    """Return the identity of a record in conflict as in JSON: a scalar, or the list of its parts; `#ID` for a
    table without rules.
    """
    line = block.ours or block.theirs or block.base
    assert line is not None, "a block has a side"
    values = _read_components(line, table.identity) if table.known else None
    if values is None:
        return f"#{split(line).get('__id', ('', '?'))[1]}"
    return values[0] if len(values) == 1 and isinstance(values[0], str | int) else list(values)


def _iter_rows(files: Files, table: MergeRules) -> Iterator[tuple[Any, _Row]]:
    for path, data in files.items():
        for number, line in enumerate(data.split(b"\n"), 1):
            if line:
                yield _parse_id(line, path, number, table), _Row(path, line)


def _parse_id(line: bytes, path: str, number: int, table: MergeRules) -> int:
    match = _HEAD.match(line)
    if match:
        return int(match[1])
    if line[:1] != b"{" or is_marker(line):
        raise Unmergeable(path, number, _BROKEN)
    try:
        id_field = split(line).get("__id")
    except ValueError as error:
        raise Unmergeable(path, number, str(error)) from error
    if id_field and re.fullmatch("[1-9][0-9]{0,15}", id_field[1]):
        return int(id_field[1])
    values = _read_components(line, table.identity) if table.known and not id_field else None
    key = table_of(path)
    if values is None or key is None:
        raise Unmergeable(path, number, "the line has no __id")
    return _compute_id(key, values)


def _compute_id(key: Key, values: Sequence[Any]) -> int:
    """Compute the id that a line without an id will get."""
    from duckkb.storage.strict_lines import hash_id

    return hash_id(*key, tuple(map(component_of, values)))


def _index_rows(sides: Sequence[list[tuple[Any, _Row]]]) -> list[dict[Any, _Row]]:
    """Return the rows of each version by id; by id, path and turn if an id occurs twice in any version."""
    twice = {key for side in sides for key, times in Counter(key for key, _ in side).items() if times > 1}
    indexes = []
    for side in sides:
        turns: Counter[tuple[Any, str]] = Counter()
        index = {}
        for key, row in side:
            turns[key, row.path] += 1
            index[(key, row.path, turns[key, row.path]) if key in twice else key] = row
        indexes.append(index)
    return indexes


def _choose_path(base: _Row | None, ours: _Row | None, theirs: _Row | None) -> str:
    """Choose the path of a record: where the side that moved it put it; the first of two chosen paths."""
    if ours is None or theirs is None:
        return next(row.path for row in (ours, theirs, base) if row is not None)
    if base is not None and ours.path == base.path:
        return theirs.path
    if base is not None and theirs.path == base.path:
        return ours.path
    return min(ours.path, theirs.path)


def _restore_conflicts(outcome: MergedRecord, base: bytes | None, table: MergeRules) -> bytes | None:
    """Return the line with the clean edits of both sides, and conflicting fields as in the base."""
    mine = outcome.alternatives[0] if outcome.alternatives else None
    if mine is None or "" in outcome.conflicts:
        return base
    fields, old = split(mine), split(base) if base else {}
    for name in outcome.conflicts:
        fields.pop(name, None)
        if name in old:
            fields[name] = old[name]
    return join(fields, table.identity)


def _find_same_part(items: list[_Item], path: str, versions: Sequence[Files]) -> bytes | None:
    """Return the bytes of a version with the same lines; None if there is none or there are no lines."""
    base, ours, theirs = (files.get(path) for files in versions)
    if items and not any(isinstance(item.content, Block) for item in items):
        expected_lines = sorted(item.line for item in items)
        for data in (theirs, ours, base) if ours == base else (ours, theirs, base):
            if data is not None and sorted(filter(None, data.split(b"\n"))) == expected_lines:
                return data
    return None


def arrange_lines(contents: Sequence[bytes | Block], table: MergeRules) -> list[bytes | Block]:
    """Sort lines and blocks of a part, as far as the table's rules define an order."""
    if not table.known:
        return list(contents)
    return [item.content for item in _sort_items([_Item(0, content) for content in contents], table)]


def _sort_items(items: list[_Item], table: MergeRules) -> list[_Item]:
    return sorted(items, key=lambda item: _order(item, table.identity))


def _order(item: _Item, identity: Sequence[str]) -> tuple[Any, ...]:
    """Return a sort key by identity, then `__id`; lines with an unreadable identity come last."""
    number = item.key[0] if isinstance(item.key, tuple) else item.key
    values = _read_components(item.line, identity)
    if values is None:
        return ((9,),), number, item.line
    return tuple(component_key(component_of(value)) for value in values), number, item.line


def _read_components(line: bytes, identity: Sequence[str]) -> list[Any] | None:
    """Return the values of the identity fields; None if any is missing or invalid."""
    try:
        text = line.decode()
        values = _scan_components(text, identity)
        if values is None:
            fields = split(line)
            values = [json.loads(fields[name][1], strict=False) for name in identity]
        for value in values:
            component_of(value)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return values


def _scan_components(text: str, identity: Sequence[str]) -> list[Any] | None:
    """Read the identity fields at their canonical place, after `__id`; None if they are not there."""
    at = text.find(",")
    if not text.startswith('{"__id":') or at < 0:
        return None
    values = []
    for name in identity:
        head = f',"{name}":'
        if not text.startswith(head, at):
            return None
        value, at = _DECODER.raw_decode(text, at + len(head))
        values.append(value)
    return values


def _list_keys(side: Mapping[Any, _Row], path: str) -> list[Any]:
    return [key for key, row in side.items() if row.path == path]


def _merge_orders(items: list[_Item], orders: Sequence[list[Any]]) -> list[_Item]:
    """Keep the order of our lines and put each new line of theirs after the line that precedes it there; for a
    table with an unknown order.
    """
    by_key = {item.key: item for item in items}
    mine, their_keys = ([key for key in order if key in by_key] for order in orders)
    behind: dict[Any, list[Any]] = {None: []}
    last, ours = None, set(mine)
    for key in their_keys:
        if key in ours:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    key_order = behind[None] + [key for our_key in mine for key in (our_key, *behind.get(our_key, ()))]
    return [by_key[key] for key in dict.fromkeys([*key_order, *by_key])]
