"""Which commit a record's line, or a field of it, is from.

As `git blame` finds lines, but by `__id`: a record that moved to another part has not changed. A text is from the commit in
which it stands and in none of whose parents it does.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from duckkb.ontology.model import RecordType
from duckkb.records import ID, Identity, component_value
from duckkb.truth import layout
from duckkb.truth.files.line import Limits, LineShape, encode
from duckkb.truth.files.part import Lines, StoredRow
from duckkb.truth.files.source_text import elements, split
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import REGULAR, Blobs, CommitStep, Revision, Signature, Touched, TreeEntry
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class LinePlace:
    """A record's line (canonical, without LF) and where it stands; lines count from 1."""

    path: str
    line: bytes
    line_no: int = 0


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds the records of one type in parts of any time."""

    kind: RecordType
    limits: Limits
    blobs: Blobs

    def among(self, entries: Mapping[str, TreeEntry], number: int, first: str = "") -> LinePlace | None:
        """The record in one of these files, looked for where it was `first`."""
        if first in entries and (found := self.within(first, entries[first], number)):
            return found
        places = (self.within(path, entries[path], number) for path in sorted(entries) if path != first)
        return next(filter(None, places), None)

    def within(self, path: str, entry: TreeEntry, number: int) -> LinePlace | None:
        """The record in one file."""
        if entry.mode not in REGULAR:
            return None
        data, head = self.blobs.read(entry.blob), b'{"__id":%d,' % number
        at = -1
        while (at := data.find(head, at + 1)) >= 0:
            if at == 0 or data[at - 1 : at] == b"\n":
                end = data.find(b"\n", at)
                return LinePlace(path, data[at : end if end >= 0 else len(data)], data.count(b"\n", 0, at) + 1)
        return self._by_hand(path, data, number)

    def _by_hand(self, path: str, data: bytes, number: int) -> LinePlace | None:
        """The record in a line that is not in canonical form."""
        known = frozenset(line for line in data.split(b"\n") if line.startswith(b'{"__id":'))
        if data.count(b"\n") == len(known) and data.endswith(b"\n"):
            return None
        lines = Lines(path, self.kind, self.limits, known)
        lines.read(data)
        return next((LinePlace(path, row.line, row.line_no) for row in lines.rows if row.record.id == number), None)

    def row(self, place: LinePlace | None) -> StoredRow | None:
        """The record at a place; None where its line cannot be read."""
        if place is None:
            return None
        lines = Lines(place.path, self.kind, self.limits)
        lines.read(place.line + b"\n")
        return next((row.at_line(place.line_no) for row in lines.rows), None)

    def id_of(self, touched: Sequence[Touched], identity: Identity) -> int | None:
        """The `__id` under which a record of this identity stood in the old side of these files."""
        fields = dict(zip(self.kind.identity_fields, map(component_value, identity), strict=True))
        written = re.escape(encode(fields, LineShape(self.kind.identity_fields))[1:-1])
        for one in touched:
            if one.old is not None and one.old.mode in REGULAR:
                found = re.search(
                    rb'^\{"__id":([0-9]+),' + written + rb"[,}]", self.blobs.read(one.old.blob), re.MULTILINE
                )
                if found:
                    return int(found[1])
        return None


Texts = Mapping[str, bytes]
"""What is asked for, by name."""
Parted = Callable[[bytes], Texts]
"""A line as texts that each come from somewhere."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record's line, or a field, is from: `by` is None where it is not committed as it is; `is_boundary` says that a
    shallow clone's history ends there, so that it may be older. `uri` cites the record."""

    path: str
    line_no: int
    by: Signature | None
    is_boundary: bool = False
    uri: str = ""


@dataclass(frozen=True, slots=True)
class FieldOrigin:
    """A field of a record, its value as JSON source text, and where that is from."""

    name: str
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Carried:
    """A record on its way back through history: where it stands in a commit, and the texts that are not yet explained."""

    path: str
    texts: Texts


@dataclass(frozen=True, slots=True)
class HistorySource:
    """The repository, and the revision from which history is followed back; None before the first commit."""

    root: Path
    at: Revision | None
    limits: Limits


def origins(ground: HistorySource, kind: RecordType, rows: Iterable[StoredRow]) -> dict[int, Origin]:
    """Where the lines of records of one type are from, by `__id`."""
    rows = list(rows)
    named = _explained(ground, kind, rows, lambda line: {"": line})
    return {row.record.id: named[row.record.id, ""] for row in rows}


def fields(ground: HistorySource, kind: RecordType, row: StoredRow) -> list[FieldOrigin]:
    """Where the fields of one record are from, in the order of its line."""
    named = _explained(ground, kind, [row], _fields)
    return [FieldOrigin(name, text.decode(), named[row.record.id, name]) for name, text in _fields(row.line).items()]


def inside(ground: HistorySource, kind: RecordType, row: StoredRow, path: str) -> list[FieldOrigin]:
    """Where each value below a field is from that stands at a path or below it: `names.fr` in a map; in a list `tags[0]` by
    its place, or `tags["red"]` by what it is where the schema merges the list as a set. Empty where nothing stands there."""
    sets = [name for name, rule in kind.merge_rules.items() if rule == "set"]

    def parted(line: bytes) -> Texts:
        found = {name: text for top, value in _fields(line).items() for name, text in _below(top, value.decode(), sets)}
        return {name: text for name, text in found.items() if name == path or name.startswith((f"{path}.", f"{path}["))}

    texts = parted(row.line)
    named = _explained(ground, kind, [row], parted) if texts else {}
    return [FieldOrigin(name, text.decode(), named[row.record.id, name]) for name, text in texts.items()]


def _below(name: str, text: str, sets: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """The values that hold no others, by path."""
    if text.startswith("{") and text != "{}":
        for key, (_, value) in split(text.encode()).items():
            yield from _below(f"{name}.{key}", value, ())
    elif text.startswith("[") and text != "[]":
        for index, value in enumerate(elements(text) or ()):
            yield from [(f"{name}[{value}]", value.encode())] if name in sets else _below(f"{name}[{index}]", value, ())
    else:
        yield name, text.encode()


def folder_of(kind: RecordType) -> str:
    return f"{layout.DATA}/{layout.FOLDERS[kind.kind]}/{kind.table}"


def _fields(line: bytes) -> Texts:
    return {name: found[1].encode() for name, found in split(line).items() if name != ID}


def _explained(
    ground: HistorySource, kind: RecordType, rows: list[StoredRow], parted: Parted
) -> dict[tuple[int, str], Origin]:
    with Blobs(ground.root) as blobs:
        walk = _BlameWalk(ground, Finder(kind, ground.limits, blobs), parted)
        commits = walk.run(rows)
    by = revisions.signatures(ground.root, filter(None, commits.values()))
    ends = revisions.boundary(ground.root) if by else frozenset()
    places = {row.record.id: (row.path, row.line_no) for row in rows}
    return {key: Origin(*places[key[0]], by.get(commit or ""), commit in ends) for key, commit in commits.items()}


class _BlameWalk:
    """From a revision back through the commits that touched a type's folder, until every text is explained."""

    def __init__(self, ground: HistorySource, finder: Finder, parted: Parted) -> None:
        self._ground, self._finder, self._parted = ground, finder, parted
        self._waiting: dict[str, dict[int, _Carried]] = {}
        self._found: dict[tuple[int, str], str | None] = {}

    def run(self, rows: Iterable[StoredRow]) -> dict[tuple[int, str], str | None]:
        """The commit of each text, None where it is not committed."""
        rows = list(rows)
        start = self._committed(rows)
        folder = folder_of(self._finder.kind)
        for step in revisions.steps(self._ground.root, self._ground.at, folder) if start and self._ground.at else ():
            if start:
                self._waiting[step.commit], start = start, {}
            for number, carried in self._waiting.pop(step.commit, {}).items():
                self._explain(step, number, carried)
            if not self._waiting:
                break
        return self._found

    def _committed(self, rows: list[StoredRow]) -> dict[int, _Carried]:
        """What of the records stands in the revision; of the rest it is known that it does not."""
        at, places = self._ground.at, (folder_of(self._finder.kind),)
        entries = revisions.entries(self._ground.root, at, places) if at else {}
        found = {}
        for row in rows:
            number, wanted = row.record.id, self._parted(row.line)
            place = self._finder.among(entries, number, row.path)
            known = self._parted(place.line) if place else {}
            same = {name: text for name, text in wanted.items() if known.get(name) == text}
            self._found |= {(number, name): None for name in wanted}
            if place and same:
                found[number] = _Carried(place.path, same)
        return found

    def _explain(self, step: CommitStep, number: int, carried: _Carried) -> None:
        """Hand each text on to a parent that has it too; what none has is from this commit."""
        left = dict(carried.texts)
        for parent, touched in zip(step.parents, step.touched, strict=True):
            if not left:
                break
            old = {one.path: one.old for one in touched if one.old is not None}
            if any(one.path == carried.path for one in touched):
                before = self._finder.among(old, number, carried.path)
            else:
                before = LinePlace(carried.path, b"")
            if before is not None:
                texts = self._parted(before.line) if before.line else left
                same = {name: text for name, text in left.items() if texts.get(name) == text}
                self._hand_on(parent, number, _Carried(before.path, same))
                left = {name: text for name, text in left.items() if name not in same}
        self._found |= {(number, name): step.commit for name in left}

    def _hand_on(self, parent: str, number: int, carried: _Carried) -> None:
        if carried.texts:
            there = self._waiting.setdefault(parent, {})
            known = there.get(number)
            there[number] = _Carried(carried.path, {**(known.texts if known else {}), **carried.texts})
