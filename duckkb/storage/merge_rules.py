"""The merge rules of each table, stored in `.duckkb/merge.json`: a merge cannot read a configuration that is
itself in conflict, and git's driver has no time to. It needs only the standard library.

The file is written at boot if it differs, with a digest of its source files; if they have changed since, the
rules are computed again. An unknown table is merged by whole records, and its parts keep their order.

Conflicts in a part: one record each, wrapped in git's markers (diff3 form), written and read back.

A block of ours has one line a side, and both sides already hold the clean edits of the other; their remaining
difference is open. So a block itself shows what has been chosen and what has not. It needs only the standard
library."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb.atomic_write import open_without_blocking
from duckkb.storage import clone_state
from duckkb.storage.field_merge import MergeRules
from duckkb.storage.layout import read_regular
from duckkb.storage.source_text import join, split
from duckkb.types.errors import Unavailable

if TYPE_CHECKING:
    from duckkb.ontology.model import Ontology

FILE = f"{clone_state.FOLDER}/{clone_state.MERGE}"
_FORMAT = 1
_LONGEST = 4_000_000
_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)

Key = tuple[str, str]
"""node or edge, and the table or label."""


class RulesByTable(Struct, frozen=True):
    """The rules of all tables."""

    tables: Mapping[Key, MergeRules] = {}

    def get_rules(self, key: Key) -> MergeRules:
        return self.tables.get(key) or MergeRules(granularity="record", name=key[1], known=False)

    def rename_tables(self, former: Mapping[Key, Key]) -> "RulesByTable":
        """Return the rules, and those of renamed tables under their new names; `former` has the old names."""
        new_tables = {
            new: self.tables[old] for new, old in former.items() if old in self.tables and new not in self.tables
        }
        return RulesByTable({**self.tables, **new_tables})


def dump(rules: RulesByTable, configuration: str = "") -> bytes:
    """Return the content of the file; `configuration` is the result of `digest`."""
    tables = {
        "/".join(key): {
            "type": table.name,
            "identity": list(table.identity),
            "merge": dict(table.fields),
            "granularity": table.granularity,
        }
        for key, table in sorted(rules.tables.items())
    }
    content = {"format": _FORMAT, "configuration": configuration, "tables": tables}
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"


def digest(root: Path) -> str:
    """Return a digest of the present files that define merging; each unreadable file changes it."""
    hasher = hashlib.sha256()
    for path in (root / "config.yaml", *sorted((root / "ontology").rglob("*.yaml"))):
        hasher.update(f"{path.relative_to(root).as_posix()}\0".encode("utf-8", "surrogateescape"))
        try:
            with open_without_blocking(path) as file:
                hasher.update(hashlib.sha256(file.read(_LONGEST)).digest())
        except OSError:
            hasher.update(b"?")
    return hasher.hexdigest()


def rules_of(ontology: "Ontology", granularity: Literal["field", "record"]) -> RulesByTable:
    """Return each type's merge rules; `granularity` applies to types without their own."""
    return RulesByTable(
        {
            (kind.kind, kind.table): MergeRules(
                kind.identity_fields, dict(kind.merge_rules), kind.granularity or granularity, kind.name
            )
            for kind in ontology
        }
    )


def remember(root: Path, rules: RulesByTable) -> bool:
    """Write `.duckkb/merge.json` if it differs; return False if it cannot be written."""
    data = dump(rules, digest(root))
    with contextlib.suppress(OSError):
        if read_regular(clone_state.folder_of(root) / clone_state.MERGE)[0] == data:
            return True
    try:
        clone_state.write_atomic(clone_state.ensure(root) / clone_state.MERGE, data, durable=False)
    except (OSError, Unavailable):
        return False
    return True


def load(root: Path) -> RulesByTable:
    """Read the rules from the file; empty if it is absent, damaged, or of another format."""
    try:
        content = _read_file(root)
        if content["format"] != _FORMAT:
            return RulesByTable()
        return RulesByTable({_parse_key(name): _parse_table(entry) for name, entry in content["tables"].items()})
    except _DAMAGED:
        return RulesByTable()


def is_current(root: Path) -> bool:
    """Return whether the file matches the present configuration."""
    try:
        return bool(_read_file(root)["configuration"] == digest(root))
    except _DAMAGED:
        return False


def _read_file(root: Path) -> Any:
    with open_without_blocking(root / FILE) as file:
        return json.loads(file.read(_LONGEST))


def _parse_key(name: str) -> Key:
    kind, _, table = name.partition("/")
    if kind not in ("node", "edge"):
        raise ValueError(name)
    return kind, table


def _parse_table(entry: Mapping[str, Any]) -> MergeRules:
    granularity = entry["granularity"]
    if granularity not in ("field", "record"):
        raise ValueError(granularity)
    identity = tuple(map(str, entry["identity"]))
    return MergeRules(identity, dict(entry["merge"]), granularity, str(entry["type"]))


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


def read_blocks(data: bytes) -> list[bytes | Block] | None:
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
