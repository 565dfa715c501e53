"""Conflicts in a part: one record each, wrapped in git's markers (diff3 form), written and read back.

A block of ours has one line a side, and both sides already hold the clean edits of the other; their remaining
difference is open. So a block itself shows what has been chosen and what has not. It needs only the standard
library.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from duckkb.truth.files.source_text import join, split
from duckkb.truth.merge.field_merge import MergeRules

OURS, BASE, THEIRS = b"ours (duckkb resolve)", b"base", b"theirs"
SIZE = 7
_MARKER = re.compile(rb"(<{7,}|\|{7,}|={7,}|>{7,})(?: [^\n]*)?\r?")
_OPENING = re.compile(rb"<{7,} " + re.escape(OURS))


class Block(Struct, frozen=True):
    """A record in conflict: its line in the base and on either side, without LF; None if a version lacks it."""

    base: bytes | None
    ours: bytes | None
    theirs: bytes | None

    def open_fields(self, rules: MergeRules) -> tuple[str, ...]:
        """Return the fields that still need a choice; a single empty name if the whole record does."""
        if self.ours == self.theirs:
            return ()
        if self.ours is None or self.theirs is None or rules.granularity == "record":
            return ("",)
        ours, theirs = split(self.ours), split(self.theirs)
        return tuple(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))

    def value(self, side: str, name: str) -> str | None:
        """Return a field's source text on a side (`base`, `ours`, `theirs`), the whole line for an empty name;
        None if absent.
        """
        line: bytes | None = getattr(self, side)
        if line is None or not name:
            return None if line is None else line.decode()
        field = split(line).get(name)
        return None if field is None else field[1]

    def with_field(self, name: str, source: str | None, rules: MergeRules) -> "Block":
        """Return the block with a field settled on both sides: as JSON source text, or None to leave it out."""
        ours, theirs = (_set(line, name, source, rules) for line in (self.ours, self.theirs))
        return Block(self.base, ours, theirs)

    def lines(self, size: int = SIZE) -> list[bytes]:
        """Return the block as lines of a file, without LF."""
        marks = [mark * size for mark in (b"<", b"|", b"=", b">")]
        heads = [marks[0] + b" " + OURS, marks[1] + b" " + BASE, marks[2], marks[3] + b" " + THEIRS]
        sides = [[line] if line is not None else [] for line in (self.ours, self.base, self.theirs)]
        return [heads[0], *sides[0], heads[1], *sides[1], heads[2], *sides[2], heads[3]]


def has_markers(data: bytes) -> bool:
    """Return whether a line begins with a conflict marker."""
    return any(_MARKER.fullmatch(line) for line in data.split(b"\n") if line[:1] in (b"<", b"|", b"=", b">"))


def is_marker(line: bytes) -> bool:
    return line[:1] in (b"<", b"|", b"=", b">") and _MARKER.fullmatch(line) is not None


def remove_conflict_markers(data: bytes) -> tuple[bytes, set[int]]:
    """Return a file with the lines of ours and of theirs, the other lines of its conflicts blank; and the numbers
    of all these lines.
    """
    lines, numbers = data.split(b"\n"), set()
    mark = b""
    for number, line in enumerate(lines, 1):
        is_mark = is_marker(line)
        if is_mark and (mark or line[:1] == b"<"):
            mark = line[:1]
        if is_mark or mark:
            numbers.add(number)
        if is_mark or mark == b"|":
            lines[number - 1] = b""
        if mark == b">":
            mark = b""
    return b"\n".join(lines), numbers


def read(data: bytes) -> list[bytes | Block] | None:
    """Return the lines and blocks of a file; None unless all its markers have the form of `Block.lines`."""
    items: list[bytes | Block] = []
    lines = iter(data.split(b"\n"))
    for line in lines:
        if not line:
            continue
        if not is_marker(line):
            items.append(line)
            continue
        block = _block(line, lines)
        if block is None:
            return None
        items.append(block)
    return items


def join_blocks(items: Sequence[bytes | Block], size: int = SIZE) -> bytes:
    """Return the bytes of a file of these lines and blocks."""
    lines: list[bytes] = []
    for item in items:
        lines += item.lines(size) if isinstance(item, Block) else [item]
    return b"".join(line + b"\n" for line in lines)


def _block(opening: bytes, lines: Iterator[bytes]) -> Block | None:
    if not _OPENING.fullmatch(opening):
        return None
    sides: list[list[bytes]] = [[]]
    for line in lines:
        if not is_marker(line):
            sides[-1].append(line)
        elif line[:1] == b">":
            break
        else:
            sides.append([])
    if len(sides) != 3 or any(len(side) > 1 for side in sides):
        return None
    ours, base, theirs = (side[0] if side else None for side in sides)
    return Block(base, ours, theirs)


def _set(line: bytes | None, name: str, source: str | None, rules: MergeRules) -> bytes | None:
    if line is None:
        return None
    fields = split(line)
    former_field = fields.pop(name, None)
    if source is not None:
        fields[name] = (former_field[0] if former_field else _quote_name(name), source)
    return join(fields, rules.identity)


def _quote_name(name: str) -> str:
    import json

    return json.dumps(name, ensure_ascii=False)
