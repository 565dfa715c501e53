"""The commit of a record's line, or of a field; and the changes of a record, commit by commit.

It works as `git blame` does for lines, but by `__id`: a record that moved to another part is unchanged. A text
is from the commit that has it and whose parents all lack it.

Citations: a record, the commit of that version, and a chunk of it, as one URI that `get` resolves.

    duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ

TYPE and IDENTITY are percent-encoded, the identity as the command line writes it (a JSON array where it is
composite or an edge's). Without `@COMMIT` it is the present record; `@worktree+ETAG` also requires that
version."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from urllib.parse import quote, unquote

from msgspec import Struct

from duckkb.ontology.model import RecordType
from duckkb.review.diff_model import RecordChange
from duckkb.review.record_changes import change_of
from duckkb.storage import layout, revisions
from duckkb.storage.document_parts import (
    DocumentLines,
    IgnoreFiles,
    file_of,
    find_part,
    is_ignore_file,
    lines_of,
    places_above,
)
from duckkb.storage.git_facts import line_commits
from duckkb.storage.git_process import find_repository
from duckkb.storage.line import Limits, LineShape, encode
from duckkb.storage.part import Lines, StoredRow
from duckkb.storage.repository import renames
from duckkb.storage.revisions import REGULAR, Blobs, CommitStep, Revision, Signature, Touched, TreeEntry
from duckkb.storage.source_text import elements, split
from duckkb.storage.strict_lines import hash_id
from duckkb.storage.tree import Tree
from duckkb.types.errors import StateError, UsageError
from duckkb.types.records import ID, Identity, Record, component_value

Texts = Mapping[str, bytes]
"""The texts whose origin is searched, by name."""
Parted = Callable[[bytes], Texts]
"""Function that splits a line into texts with an origin each."""


class HistorySource(Struct, frozen=True):
    """The repository, and the revision from which history is followed back; None before the first commit."""

    root: Path
    at: Revision | None
    limits: Limits


class Origin(Struct, frozen=True):
    """The origin of a record's line, or of a field. `uri` cites the record.

    `by` is None where it is not committed in this form; `is_boundary`: a shallow clone's history ends there, so
    that it may be older.
    """

    path: str
    line_no: int
    by: Signature | None
    is_boundary: bool = False
    uri: str = ""


class FieldOrigin(Struct, frozen=True):
    """A field of a record, its value as JSON source text, and its origin."""

    name: str
    text: str
    origin: Origin


class LineOrigin(Struct, frozen=True):
    """Lines of a file, `first` to `last`, from one commit; `path`, `by` and `is_boundary` as in `Origin`.

    `repository` is the work tree of the file, where that differs from the base's.
    """

    first: int
    last: int
    path: str
    by: Signature | None
    is_boundary: bool = False
    repository: str = ""


class LogEntry(Struct, frozen=True):
    """A change of a record, and who committed it; None where it is not committed.

    `record` is its version then, None where it was deleted. `is_boundary`: history ends there, so that the
    record may be older.
    """

    by: Signature | None
    change: RecordChange
    record: Record | None
    is_boundary: bool = False


def origins(source: HistorySource, kind: RecordType, rows: Iterable[StoredRow]) -> dict[int, Origin]:
    """Return the origins of records' lines of one type, by `__id`."""
    text_origins = _trace_origins(source, kind, list(rows), lambda line: {"": line})
    return {number: origin for (number, _), origin in text_origins.items()}


def select_committed(source: HistorySource, kind: RecordType, rows: Iterable[StoredRow]) -> frozenset[int]:
    """Return the ids of the records that the revision has in the same file with the same line."""
    with Blobs(source.root) as blobs:
        finder = _Finder(source, kind, blobs)
        entries = finder.read_committed_files()
        pairs = (
            (row, finder.find_place({row.path: entry}, row.record.id))
            for row in rows
            if (entry := entries.get(row.path))
        )
        return frozenset(row.record.id for row, place in pairs if _line(place) == row.line)


def fields(source: HistorySource, kind: RecordType, row: StoredRow, path: str | None = None) -> list[FieldOrigin]:
    """Return the origins of one record's fields, in the order of its line, or of the values at `path` and below
    it.

    A path is `names.fr` in a map; in a list `tags[0]` by index, or `tags["red"]` by value where the schema
    merges the list as a set. Empty where nothing is there.
    """
    sets = [name for name, rule in kind.merge_rules.items() if rule == "set"]

    def split_fields(line: bytes) -> Texts:
        tops = {name: pieces[1] for name, pieces in split(line).items() if name != ID}
        if path is None:
            return {name: text.encode() for name, text in tops.items()}
        pieces = {name: text for top, value in tops.items() for name, text in _iter_leaves(top, value, sets)}
        return {
            name: text for name, text in pieces.items() if name == path or name.startswith((f"{path}.", f"{path}["))
        }

    texts = split_fields(row.line)
    text_origins = _trace_origins(source, kind, [row], split_fields) if texts else {}
    return [FieldOrigin(name, text.decode(), text_origins[row.record.id, name]) for name, text in texts.items()]


def lines(root: Path, path: str, count: int, at: Revision | None) -> list[LineOrigin]:
    """Return the origins of the `count` lines of a document's file, by the repository in which it lies.

    `at` is the revision at which it was read, None for the file on disk. Raises `errors.StateError` (E_GIT).
    """
    folder, name = (root, path) if at else ((root / path).parent, path.rpartition("/")[2])
    commits = line_commits(folder, name, at.commit if at else "") or [None] * count
    if len(commits) != count:
        message = f"{path} has {count} lines of text, and {len(commits)} for git, which knows no encoding but UTF-8"
        raise StateError(message, code="E_GIT", suggestion="save the file as UTF-8, and commit it")
    file_repository, ground = find_repository(folder), find_repository(root)
    repository_path = (
        str(file_repository.work_tree)
        if file_repository and (ground is None or file_repository.work_tree != ground.work_tree)
        else ""
    )
    by, ends = _read_signatures(folder, filter(None, commits))
    line_origins: list[LineOrigin] = []
    for commit, some in groupby(commits):
        first = line_origins[-1].last + 1 if line_origins else 1
        last = first + len([*some]) - 1
        line_origins.append(LineOrigin(first, last, path, by.get(commit or ""), commit in ends, repository_path))
    return line_origins


def _iter_leaves(name: str, text: str, sets: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the values that contain no others, by path."""
    if text.startswith("{") and text != "{}":
        for key, (_, value) in split(text.encode()).items():
            yield from _iter_leaves(f"{name}.{key}", value, ())
    elif text.startswith("[") and text != "[]":
        for index, value in enumerate(elements(text) or ()):
            yield from (
                [(f"{name}[{value}]", value.encode())] if name in sets else _iter_leaves(f"{name}[{index}]", value, ())
            )
    else:
        yield name, text.encode()


def changes(source: HistorySource, kind: RecordType, identity: Identity, tree: Tree) -> list[LogEntry]:
    """Return the changes of a record, newest first; empty where nothing is known of it.

    It is the record with this identity in the tree, else the one that had it last, whatever its name is now,
    deleted or not.
    """
    with Blobs(source.root) as blobs:
        finder = _Finder(source, kind, blobs)
        record_id = tree.id_of(kind, identity)
        number = finder.recover_record_number(identity) if record_id is None else record_id
        events = list(_iter_events(finder, number, tree.find_by_id(kind, number)))
        entries = [(commit, *pair) for commit, old, new in events if (pair := finder.change(old, new)) is not None]
    by, ends = _read_signatures(source.root, (commit for commit, *_ in entries if commit))
    return [LogEntry(by.get(commit), change, record, commit in ends) for commit, change, record in entries]


def _read_signatures(root: Path, commits: Iterable[str]) -> tuple[Mapping[str, Signature], Collection[str]]:
    """Return the authors of these commits, and the commits at which a shallow clone's history ends."""
    by = revisions.signatures(root, commits)
    return by, revisions.boundary(root) if by else ()


class _LinePlace(Struct, frozen=True):
    """A record's line (canonical, without LF) and its place; lines count from 1."""

    path: str
    line: bytes
    line_no: int


class _Finder(Struct, frozen=True):
    """A finder of the records of one type in parts of any revision; documents only where that revision's
    .gitignore kept them.
    """

    source: HistorySource
    kind: RecordType
    blobs: Blobs
    _ignored: dict[str, IgnoreFiles] = {}  # by commit

    @property
    def folder(self) -> str:
        if self.kind.source is not None:
            return self.kind.source.path
        return f"{layout.DATA}/{layout.FOLDERS[self.kind.kind]}/{self.kind.table}"

    @property
    def places(self) -> tuple[str, ...]:
        """The folder, and the .gitignore files above it that apply to it."""
        return (self.folder, *places_above(self.source.root, [self.kind]))

    @property
    def at(self) -> Revision | None:
        """The revision where history begins; None for documents outside of the base."""
        return None if self.kind.source is not None and self.kind.source.is_outside else self.source.at

    def steps(self) -> Iterator[CommitStep]:
        """Yield the commits that touched the type's folder, or its .gitignore files, newest first."""
        return revisions.steps(self.source.root, self.at, self.places) if self.at else iter(())

    def read_committed_files(self) -> Mapping[str, TreeEntry]:
        """The type's files in the revision."""
        return self._read_files(self.at) if self.at else {}

    def _read_files(self, at: Revision) -> dict[str, TreeEntry]:
        """Return the type's files in a revision, and store its .gitignore files."""
        entries = revisions.entries(self.source.root, at, self.places)
        ignore_files = self._ignored[at.commit] = IgnoreFiles.read(self.source.root, entries)
        return {path: entry for path, entry in entries.items() if self._should_serve(path, ignore_files)}

    def _should_serve(self, path: str, ignore_files: IgnoreFiles) -> bool:
        return self.kind.source is None or not ignore_files.leaves_out(self.kind.source, path)

    def _read_parent_files(self, step: CommitStep, index: int) -> tuple[dict[str, TreeEntry], IgnoreFiles]:
        """Return the files of a commit's parent in which the two may differ, and the parent's .gitignore files."""
        commit, parent, touched_files = step.commit, step.parents[index], step.touched[index]
        old = {file.path: file.old for file in touched_files if file.old is not None}
        if self.kind.source is None or not self.kind.source.gitignore:
            return old, IgnoreFiles()
        if commit not in self._ignored:
            self._read_files(Revision(commit, commit, commit))
        if any(is_ignore_file(file.path) for file in touched_files):
            files = self._read_files(Revision(parent, parent, parent))
            return {
                path: entry
                for path, entry in files.items()
                if path in old or not self._should_serve(path, self._ignored[commit])
            }, self._ignored[parent]
        ignore_files = self._ignored[parent] = self._ignored[commit]
        return {path: entry for path, entry in old.items() if self._should_serve(path, ignore_files)}, ignore_files

    def befores(self, step: CommitStep, number: int, after: _LinePlace | None) -> Iterator[_LinePlace | None]:
        """Yield the record in each parent of a commit; `after` itself where its file is the same there."""
        for index, touched_files in enumerate(step.touched):
            files, ignore_files = self._read_parent_files(step, index)
            if after is not None and all(file.path != after.path for file in touched_files):
                yield after if self._should_serve(after.path, ignore_files) else None
            elif after is not None and self.kind.source is not None and self.kind.kind == "node":
                yield self._find_document(
                    [file for file in touched_files if file.old is None or file.path in files], after.path
                )
            else:
                yield self.find_place(files, number, after.path if after else "")

    def _find_document(self, touched_files: Iterable[Touched], path: str) -> _LinePlace | None:
        """Return a document in a parent of a commit, in which its file may have had another name."""
        type_files = [item for item in touched_files if find_part(self.kind, item.path)]
        old = {item.path: item.old.blob for item in type_files if item.old is not None and item.old.mode in REGULAR}
        new = {item.path: item.new.blob for item in type_files if item.new is not None and item.new.mode in REGULAR}
        if path not in old:
            went, came = old.keys() - new.keys(), new.keys() - old.keys()
            read = self.blobs.read
            sides = {item: read(old[item]) for item in went}, {item: read(new[item]) for item in came if went}
            path = renames(self.source.root, *sides).get(path, "")
        line = self._read_lines(path, self.blobs.read(old[path])).data.rstrip(b"\n") if path else b""
        return _LinePlace(path, line, 1) if line else None

    def find_place(self, entries: Mapping[str, TreeEntry], number: int, first: str = "") -> _LinePlace | None:
        """Return the record in one of these files, searching `first` first."""
        if first in entries and (place := self._find_in_file(first, entries[first], number)):
            return place
        places = (self._find_in_file(path, entries[path], number) for path in sorted(entries) if path != first)
        return next(filter(None, places), None)

    def _find_in_file(self, path: str, entry: TreeEntry, number: int) -> _LinePlace | None:
        if entry.mode not in REGULAR:
            return None
        lines = self._read_lines(path, self.blobs.read(entry.blob))
        data, head = lines.data, b'{"__id":%d,' % number
        at = -1
        while (at := data.find(head, at + 1)) >= 0:
            if at == 0 or data[at - 1 : at] == b"\n":
                end = data.find(b"\n", at)
                index = data.count(b"\n", 0, at)
                line_no = lines.numbers[index] if lines.numbers else index + 1
                return _LinePlace(path, data[at : end if end >= 0 else len(data)], line_no)
        # The record may stand in a line that is not canonical.
        known_lines = frozenset(line for line in data.split(b"\n") if line.startswith(b'{"__id":'))
        if data.count(b"\n") == len(known_lines) and data.endswith(b"\n"):
            return None
        rows = self._rows(path, data, known_lines)
        return next((_LinePlace(path, row.line, row.line_no) for row in rows if row.record.id == number), None)

    def _read_lines(self, path: str, data: bytes) -> DocumentLines:
        """Return a file's records of the type, as lines."""
        if self.kind.source is None:
            return DocumentLines(data, ())
        part = find_part(self.kind, path)
        return lines_of({part: self.kind}, data)[part] if part else DocumentLines(b"", ())

    def _rows(self, path: str, data: bytes, known_lines: Collection[bytes] = ()) -> list[StoredRow]:
        lines = Lines(path, self.kind, self.source.limits, known_lines)
        lines.read(data)
        return lines.rows

    def change(self, *sides: _LinePlace | None) -> tuple[RecordChange, Record | None] | None:
        """Return the change between two lines, and the record after it.

        None where neither can be read as a record of today's type, or both are equal.
        """
        rows = [self._rows(side.path, side.line + b"\n") if side else () for side in sides]
        old, new = (
            some[0].place_at_line(side.line_no) if side and some else None
            for some, side in zip(rows, sides, strict=True)
        )
        is_same = (old and old.line) == (new and new.line)
        return None if is_same else (change_of(self.kind, old, new), new.record if new else None)

    def recover_record_number(self, identity: Identity) -> int:
        """Return the `__id` of a deleted record, from the last commit that had it."""
        values = dict(zip(self.kind.identity_fields, map(component_value, identity), strict=True))
        identity_pattern = re.escape(encode(values, LineShape(self.kind.identity_fields))[1:-1])
        line = re.compile(rb'^\{"__id":([0-9]+),' + identity_pattern + rb"[,}]", re.MULTILINE)
        for touched_file in (file for step in self.steps() for some in step.touched for file in some):
            is_file = touched_file.old is not None and touched_file.old.mode in REGULAR
            if (
                touched_file.old is not None
                and is_file
                and (match := line.search(self.blobs.read(touched_file.old.blob)))
            ):
                return int(match[1])
        return hash_id(self.kind.kind, self.kind.table, identity)


_Event = tuple[str, _LinePlace | None, _LinePlace | None]
"""A commit (empty for none), and the record before and after it."""


def _iter_events(finder: _Finder, number: int, row: StoredRow | None) -> Iterator[_Event]:
    now = _LinePlace(row.path, row.line, row.line_no) if row is not None else None
    last = finder.find_place(finder.read_committed_files(), number, now.path if now else "")
    if _line(now) != _line(last):
        yield "", last, now
    waiting: dict[str, _LinePlace | None] = {}
    for step in finder.steps():
        after = waiting.pop(step.commit, last)
        befores = list(finder.befores(step, number, after))
        waiting |= zip(step.parents, befores, strict=True)
        if all(_line(before) != _line(after) for before in befores) and (befores or after):
            yield step.commit, befores[0] if befores else None, after


def _line(place: _LinePlace | None) -> bytes | None:
    return place.line if place else None


def _trace_origins(
    source: HistorySource, kind: RecordType, rows: list[StoredRow], split_line: Parted
) -> dict[tuple[int, str], Origin]:
    with Blobs(source.root) as blobs:
        commits = _trace_commits(_Finder(source, kind, blobs), rows, split_line)
    by, ends = _read_signatures(source.root, filter(None, commits.values()))
    places = {row.record.id: (file_of(row.path), row.line_no) for row in rows}
    return {key: Origin(*places[key[0]], by.get(commit or ""), commit in ends) for key, commit in commits.items()}


_Carried = tuple[_LinePlace, Texts]
"""A record on its way back through history: its place in a commit, and the texts without an origin yet."""


def _trace_commits(finder: _Finder, rows: Iterable[StoredRow], split_line: Parted) -> dict[tuple[int, str], str | None]:
    """Return the commit of each text, None where it is not committed.

    The walk goes from the revision back through the commits that touched the type's folder, until every text is
    explained.
    """
    commits_by_text: dict[tuple[int, str], str | None] = {}
    start: dict[int, _Carried] = {}
    entries = finder.read_committed_files()
    for row in rows:
        number, texts = row.record.id, split_line(row.line)
        commits_by_text |= {(number, name): None for name in texts}
        place = finder.find_place(entries, number, row.path)
        if place and (same := _intersect_texts(texts, split_line(place.line))):
            start[number] = place, same
    waiting: dict[str, dict[int, _Carried]] = {}
    for step in finder.steps() if start else ():
        for number, (place, remaining_texts) in (waiting.pop(step.commit, {}) if waiting else start).items():
            for parent, before in zip(step.parents, finder.befores(step, number, place), strict=True):
                same = (
                    remaining_texts
                    if before is place
                    else _intersect_texts(remaining_texts, split_line(before.line))
                    if before
                    else {}
                )
                if before and same:
                    there = waiting.setdefault(parent, {})
                    there[number] = before, {**(there[number][1] if number in there else {}), **same}
                remaining_texts = {name: text for name, text in remaining_texts.items() if name not in same}
                if not remaining_texts:
                    break
            commits_by_text |= {(number, name): step.commit for name in remaining_texts}
        if not waiting:
            break
    return commits_by_text


def _intersect_texts(texts: Texts, other_texts: Texts) -> Texts:
    return {name: text for name, text in texts.items() if other_texts.get(name) == text}


_FORM = re.compile(
    r"duckkb://(?P<type>[^/@#]+)/(?P<identity>[^/@#]+)(?:@(?P<commit>[^/@#]+))?(?:#(?P<field>[^/@#]+)/(?P<seq>[0-9]{1,9}))?"
)
COMMIT_DIGITS = 16
"""Digits of a commit in a citation: short enough for a model, and unique in a repository."""
_NOW = "worktree+"
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Citation(Struct, frozen=True):
    """A citation of a record.

    `identity` is as the command line writes it; `commit` is a name that git knows, None for the present; a
    chunk is named by its field and its number there.
    """

    type: str
    identity: str
    commit: str | None = None
    field: str | None = None
    seq: int = 0

    @property
    def at(self) -> str | None:
        """The commit at which the record is read; None for the present record."""
        return None if self.version else self.commit

    @property
    def version(self) -> str:
        """The `_etag` that the record must have now; empty where any will do, or where it is read at a commit."""
        return self.commit.removeprefix(_NOW) if self.commit and self.commit.startswith(_NOW) else ""

    def __str__(self) -> str:
        """Return the URI.

        >>> str(Citation("cites", '["a/b","c"]', "1f0c2a9", "why", 0))
        'duckkb://cites/%5B%22a%2Fb%22%2C%22c%22%5D@1f0c2a9#why/0'
        """
        text = f"duckkb://{_quote_part(self.type)}/{_quote_part(self.identity)}"
        text += f"@{_quote_part(self.commit)}" if self.commit else ""
        return text + (f"#{_quote_part(self.field)}/{self.seq}" if self.field is not None else "")


def worktree(etag: str) -> str:
    """Return the stand-in for a commit: the present record, while it has this `_etag`."""
    return _NOW + etag


def parse(uri: str) -> Citation:
    """Parse a URI, as the inverse of `str`; raises `errors.UsageError`."""
    match = _FORM.fullmatch(uri)
    if match is None or _ESCAPE.search(uri):
        raise _build_error(uri)
    try:
        part = {name: unquote(text, errors="strict") for name, text in match.groupdict().items() if text is not None}
    except UnicodeDecodeError as error:
        raise _build_error(uri) from error
    return Citation(part["type"], part["identity"], part.get("commit"), part.get("field"), int(part.get("seq", "0")))


def _quote_part(text: str) -> str:
    return quote(text, safe="")


def _build_error(uri: str) -> UsageError:
    return UsageError(
        f"{uri} is not a citation: duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ, percent-encoded",
        suggestion="`duckkb find --provenance` prints the URI of each hit",
    )
