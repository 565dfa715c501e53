"""Reads documents as parts: a document is a part with a single record, and its links are another part, of edges.

A part of edges is named as its file with `#links` after the name. Neither is stored: the content of a file is
its record. An unreadable file is a record that says so, never a part that stops the base.

Decides which files of a document collection the .gitignore files of a state exclude, equally on disk and in
git.

They apply from the top of the repository down to the folder of the file. An excluded folder is not searched,
except the collection's own folder, which was requested explicitly."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, TypeVar
from unicodedata import normalize

from msgspec import Struct

from duckkb.documents import document
from duckkb.documents.document import (
    exclusion,
    find_inner_file,
    find_inner_path,
    folder_exclusion,
    is_attachment,
    is_document,
    place_path,
)
from duckkb.documents.glob import IgnoreFile
from duckkb.documents.markdown import wiki_name
from duckkb.ontology.model import DocumentSource, Ontology, RecordType
from duckkb.storage.layout import Listing, list_folder, parse_part, read_regular
from duckkb.storage.line import Limits, LineShape, encode
from duckkb.storage.part import Part, PartRows, Stamp, StoredRow, part_of, record_of
from duckkb.storage.strict_lines import hash_id, scalar_problem
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding
from duckkb.types.records import CREATED_AT, FROM, ID, TO, UPDATED_AT

if TYPE_CHECKING:
    from duckkb.storage.revisions import TreeEntry

GITIGNORE = ".gitignore"
_MOST_BYTES = 1024 * 1024
Binding = tuple[tuple[str, int, IgnoreFile], ...]
"""The .gitignore files that apply to a folder, outermost first. Each has the text to add before a path, and the
number of characters to remove from it, to get the path relative to that file.
"""
_File = TypeVar("_File")


def parse_ignore_file(raw: bytes) -> IgnoreFile | None:
    """Parse the bytes of a .gitignore; None for an empty file and for a file of more than a MiB."""
    return IgnoreFile(raw.decode("utf-8", "replace").split("\n")) if raw and len(raw) <= _MOST_BYTES else None


def bind(binding: Binding, folder: str, lines: IgnoreFile | None) -> Binding:
    """Add the .gitignore of a folder, by its path in the collection's folder, to those above it."""
    return (*binding, ("", len(folder) + 1 if folder else 0, lines)) if lines else binding


def is_ignored(path: str, is_folder: bool, binding: Binding) -> bool:
    """Return whether the last line that matches a path, in the innermost file with such a line, excludes it."""
    for lead, start, lines in reversed(binding):
        verdict = lines.leaves_out(lead + path[start:], is_folder)
        if verdict is not None:
            return verdict
    return False


def places_above(root: Path, kinds: Iterable[RecordType]) -> tuple[str, ...]:
    """Return where a .gitignore above the folders of some collections may lie, up to the top of the repository,
    relative to the base (`../.gitignore`). Those in the folders lie among the documents.
    """
    sources = {kind.source for kind in kinds if kind.source is not None}
    heeding = [source for source in sources if source.gitignore and not source.is_outside]
    if not heeding:
        return ()
    prefix = _prefix(root)
    return tuple(sorted({path for source in heeding for path, _ in _list_outer_files(prefix, source)}))


class IgnoreFiles:
    """The .gitignore files of a state of the base, by their paths as in `places_above`; `prefix` is the folder of
    the base in its repository, with a final `/`.
    """

    def __init__(self, prefix: str = "", files: Mapping[str, bytes] | None = None) -> None:
        self._prefix, self._files = prefix, {**(files or {})}
        self._bindings: dict[tuple[str, str], Binding | None] = {}

    @classmethod
    def read(cls, root: Path, entries: "Mapping[str, TreeEntry]") -> "IgnoreFiles":
        """Read the .gitignore files of a revision, with at most a single call of git. Raises `errors.Unavailable`
        (E_GIT).
        """
        files = {path: entry for path, entry in entries.items() if is_ignore_file(path)}
        if not files:
            return cls()
        from duckkb.storage import revisions  # takes a while to import, and every read of the disk imports this module

        return cls(_prefix(root), revisions.contents(root, files))

    def replace_files(self, root: Path, paths: Iterable[str], new: Mapping[str, bytes]) -> "IgnoreFiles":
        """Return the .gitignore files of a state in which the files at some paths differ: as in `new`, or deleted."""
        ignore_paths = {path for path in paths if is_ignore_file(path)}
        if not ignore_paths:
            return self
        files = {path: raw for path, raw in self._files.items() if path not in ignore_paths}
        return IgnoreFiles(_prefix(root), files | {path: new[path] for path in ignore_paths if path in new})

    def leaves_out(self, source: DocumentSource, path: str) -> bool:
        """Return whether a file, by its path from the base, or a folder above it is excluded."""
        inner = find_inner_file(source, path) if self._files and source.gitignore else None
        if inner is None:
            return False
        binding = self._bind_folder(source, inner.rpartition("/")[0])
        return binding is None or is_ignored(inner, False, binding)

    def serve(self, ontology: Ontology, files: Mapping[str, _File]) -> dict[str, _File]:
        """Return the files that no collection of an ontology excludes."""
        sources = [kind.source for kind in ontology.nodes.values() if kind.source is not None] if self._files else []
        return {
            path: file for path, file in files.items() if not any(self.leaves_out(source, path) for source in sources)
        }

    def _bind_folder(self, source: DocumentSource, folder: str) -> Binding | None:
        """Return the .gitignore files that apply to a folder of a collection; None if the folder itself is
        excluded.
        """
        if (source.path, folder) in self._bindings:
            return self._bindings[source.path, folder]
        names, binding = folder.split("/") if folder else [], self._bind_top(source)
        for depth in range(1, len(names) + 1):
            inner = "/".join(names[:depth])
            if is_ignored(inner, True, binding):
                self._bindings[source.path, folder] = None
                return None
            binding = bind(binding, inner, self._read_ignore_file(place_path(source, f"{inner}/{GITIGNORE}")))
        self._bindings[source.path, folder] = binding
        return binding

    def _bind_top(self, source: DocumentSource) -> Binding:
        above = ((lead, self._read_ignore_file(path)) for path, lead in _list_outer_files(self._prefix, source))
        binding = tuple((lead, 0, lines) for lead, lines in above if lines)
        return bind(binding, "", self._read_ignore_file(place_path(source, GITIGNORE)))

    def _read_ignore_file(self, path: str) -> IgnoreFile | None:
        return parse_ignore_file(self._files.get(path, b""))


def is_ignore_file(path: str) -> bool:
    """Return whether a path is that of a .gitignore."""
    return path.rpartition("/")[2] == GITIGNORE


def _list_outer_files(prefix: str, source: DocumentSource) -> list[tuple[str, str]]:
    """List the .gitignore files above the folder of a collection, outermost first, each with the prefix of the
    documents' paths relative to it.
    """
    outside = prefix.split("/")[:-1]
    inside = [] if source.path == "." else source.path.split("/")
    folders = ["../" * up for up in range(len(outside), 0, -1)]
    folders += ["".join(f"{name}/" for name in inside[:depth]) for depth in range(len(inside))]
    names = [*outside, *inside]
    return [(folder + GITIGNORE, "/".join(names[at:]) + "/") for at, folder in enumerate(folders)]


def _prefix(root: Path) -> str:
    from duckkb.storage.git_process import find_repository

    repository = find_repository(root)
    return repository.prefix if repository is not None else ""


LINKS = "#links"
PERMISSION = "give yourself permission to read it, or name it under `ignore`"
_EPOCH = "1970-01-01T00:00:00.000000Z"
"""The times of all documents: git keeps no file times, and a record is the same in every clone. Its history says
more.
"""

Seen = tuple[str, os.stat_result]


def file_of(path: str) -> str:
    """Return the file of a part."""
    return path.removesuffix(LINKS)


def type_at(ontology: Ontology, path: str) -> RecordType | None:
    """Return the type of the records at a path; None if the path belongs to no type."""
    if address := parse_part(path):
        kind = ontology.find_by_table(address.kind, address.table)
        return kind if kind is not None and kind.source is None else None
    target_kind = "edge" if path.endswith(LINKS) else "node"
    for kind in ontology:
        if kind.source is not None and kind.kind == target_kind:
            inner = find_inner_path(kind.source, file_of(path))
            if inner is not None and is_document(kind.source, inner):
                return kind
    return None


def parts_in(ontology: Ontology, path: str) -> Iterator[tuple[str, RecordType]]:
    """Yield the parts in a file, with their types."""
    for part in (path, path + LINKS):
        if kind := type_at(ontology, part):
            yield part, kind


def find_part(kind: RecordType, file: str) -> str | None:
    """Return the part of a file for a type of documents or of their links; None if the file is not one of its
    documents.
    """
    assert kind.source is not None, "asked of documents"
    inner = find_inner_path(kind.source, file_of(file))
    if inner is None or not is_document(kind.source, inner):
        return None
    return file_of(file) + LINKS if kind.kind == "edge" else file_of(file)


def folders(kinds: Iterable[RecordType]) -> tuple[str, ...]:
    """Return the folders of documents inside the base, which git may track."""
    sources = (kind.source for kind in kinds)
    return tuple(dict.fromkeys(source.path for source in sources if source is not None and not source.is_outside))


class WalkNotes(Struct):
    """Notes of a walk through the folder of a source: the content of each folder, the .gitignore files that were
    looked for, whether part of the folder was inaccessible, and what was `left_out`. Its keys are paths in the
    folder, with a final `/` for folders; its values are `hidden`, `reserved`, `gitignore`, `repository`,
    `pattern`, `ignore`, `link`, `name` or `unreadable`.
    """

    listed: dict[str, Listing] = {}
    ignore_files: dict[str, os.stat_result | None] = {}
    is_partial: bool = False
    left_out: list[tuple[str, str]] = []


def walk(root: Path, source: DocumentSource, notes: WalkNotes | None = None) -> Iterator[Seen | Finding]:
    """Yield the documents of a source in the order of their paths, named as parts, with their status. Yields
    findings for links, which are not followed, for other non-files, for a folder that cannot be listed (E_IO),
    and for a missing source (E_SOURCE_MISSING).
    """
    yield from _Walk(root / source.path, source, WalkNotes() if notes is None else notes).run()


class _Walk:
    def __init__(self, top: Path, source: DocumentSource, notes: WalkNotes) -> None:
        self._top, self._source, self._notes = top, source, notes

    def run(self) -> Iterator[Seen | Finding]:
        try:
            is_there = S_ISDIR(self._top.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        except OSError as error:
            yield self._report_folder("", error)
            return
        if is_there:
            yield from self._walk_folder(self._top, "", self._collect_outer_ignores() if self._source.gitignore else ())
            return
        self._notes.is_partial = True
        path = self._source.path
        message = "the folder of the collection is missing; its documents are not served"
        yield Finding("E_SOURCE_MISSING", message, path, remedy=CODES["E_SOURCE_MISSING"].remedy)

    def _walk_folder(self, folder: Path, inner: str, binding: Binding) -> Iterator[Seen | Finding]:
        try:
            entries, self._notes.listed[str(folder)] = list_folder(folder)
        except NotADirectoryError:
            return
        except OSError as error:
            yield self._report_folder(inner, error)
            return
        names = {entry.name for entry in entries}
        if self._source.gitignore:
            if inner and ".git" in names:
                self._leave_out(inner, "repository", is_folder=True)
                return
            if GITIGNORE in names:
                binding = bind(binding, inner, self._read_ignore_file(folder))
        for entry in entries:
            path = f"{inner}/{entry.name}" if inner else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            normal_path = path if path.isascii() else normalize("NFC", path)
            why = folder_exclusion(self._source, normal_path) if is_folder else exclusion(self._source, normal_path)
            if path.endswith(LINKS):
                continue
            if why or is_ignored(path, is_folder, binding):
                self._leave_out(path, why or "gitignore", is_folder=is_folder)
            elif is_folder:
                yield from self._walk_folder(folder / entry.name, path, binding)
            else:
                has_twin = normal_path != path and normal_path.rpartition("/")[2] in names
                yield from self._yield_document(entry, path, scalar_problem(normal_path), has_twin)

    def _yield_document(
        self, entry: "os.DirEntry[str]", path: str, problem: str, has_twin: bool
    ) -> Iterator[Seen | Finding]:
        place = place_path(self._source, path)
        if has_twin:
            problem = "is that of another file in Unicode's form NFC"
        if problem:
            self._leave_out(path, "name")
            message = f"the name {problem}, so the file is no record"
            yield Finding("W_DOCUMENT", message, place, remedy="rename the file")
        elif entry.is_file(follow_symlinks=False):
            try:
                yield place, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                return
        else:
            self._leave_out(path, "link")
            is_link = entry.is_symlink()
            message = (
                "a link; duckkb does not follow links, so its target is no document" if is_link else "no regular file"
            )
            yield Finding("W_DOCUMENT", message, place, remedy=CODES["W_DOCUMENT"].remedy)

    def _leave_out(self, path: str, why: str, *, is_folder: bool = False) -> None:
        self._notes.left_out.append((f"{path}/" if is_folder else path, why))

    def _report_folder(self, inner: str, error: OSError) -> Finding:
        self._notes.is_partial = True
        self._leave_out(inner or ".", "unreadable", is_folder=True)
        message = f"the folder cannot be listed: {error.strerror}; its documents are not served"
        return Finding(
            "E_IO", message, place_path(self._source, inner) if inner else self._source.path, remedy=PERMISSION
        )

    def _collect_outer_ignores(self) -> Binding:
        """Collect the .gitignore files between the folder and the top of its repository, if any."""
        bindings, lead, folder = list[tuple[str, int, IgnoreFile]](), "", self._top.resolve()
        while not os.path.lexists(folder / ".git"):
            if folder.parent == folder:
                return ()
            lead, folder = f"{folder.name}/{lead}", folder.parent
            if lines := self._read_ignore_file(folder):
                bindings.append((lead, 0, lines))
        return tuple(reversed(bindings))

    def _read_ignore_file(self, folder: Path) -> IgnoreFile | None:
        path = folder / GITIGNORE
        try:
            raw, status = read_regular(path)
        except OSError:
            raw, status = b"", None
        self._notes.ignore_files[str(path)] = status
        return parse_ignore_file(raw)


class DocumentLines(Struct, frozen=True):
    """The lines of a document's part, in the form of a part of records, and for each line its line number in the
    file. The number belongs to no record, because it moves with the text above it. A part of records has none.
    """

    data: bytes
    numbers: tuple[int, ...]


def lines_of(wanted: Mapping[str, RecordType], raw: bytes) -> dict[str, DocumentLines]:
    """Return the lines that the bytes of a document file give at the paths of its parts."""
    return {
        path: DocumentLines(part.rows.read().text, tuple(row.line_no for row in part.rows))
        for path, part in _build_parts(wanted, raw, Stamp(-1, 0, 0, 0))
    }


def place_rows_in_file(rows: Iterable[StoredRow], numbers: Sequence[int] | None) -> list[StoredRow]:
    """Return rows with their line numbers in the file; unchanged for a part of records (None)."""
    return [row.place_at_line(numbers[row.line_no - 1]) for row in rows] if numbers else [*rows]


def parts_at(wanted: Mapping[str, RecordType], raw: bytes, limits: Limits, stamp: Stamp) -> dict[str, Part]:
    """Return the parts that the bytes of a file make, by path and type: a part of records, or a document and its
    links.
    """
    if any(kind.source is not None for kind in wanted.values()):
        return dict(_build_parts(wanted, raw, stamp))
    return {path: part_of(path, kind, raw, limits, stamp) for path, kind in wanted.items()}


def _build_parts(kinds: Mapping[str, RecordType], raw: bytes, stamp: Stamp) -> Iterator[tuple[str, Part]]:
    extract, digest = None, hashlib.sha256(raw).hexdigest()
    for path, kind in kinds.items():
        assert kind.source is not None, "asked of documents"
        inner, how = find_inner_path(kind.source, file_of(path)), kind.source.extraction
        assert inner is not None, f"{path} is elsewhere"
        extract = extract or document.read_document(inner, raw, how)
        rows = list[StoredRow]()
        if how.strict and not document.is_whole(extract.fields):
            pass  # not a record, so it has no links
        elif kind.kind == "edge":
            links = {to: lines[0] for to, lines in sorted(extract.links.items()) if _can_link(kind.source, to)}
            rows = [_build_row(kind, path, {FROM: inner, TO: to}, line) for to, line in links.items()]
        else:
            rows = [_build_row(kind, path, {"path": inner, **extract.fields}, 1)]
        yield path, Part(path, kind, stamp, digest, PartRows.from_rows(kind, path, rows))


def _can_link(source: DocumentSource, to: str) -> bool:
    """Return whether a link can lead to a document; pictures and other non-documents are not looked up."""
    name = wiki_name(to)
    if name is None:
        return is_document(source, to)
    return not is_attachment(name) or is_document(source, name)


def _build_row(kind: RecordType, path: str, values: dict[str, Any], number: int) -> StoredRow:
    identity = tuple(values[name] for name in kind.identity_fields)
    fields = {ID: hash_id(kind.kind, kind.table, identity), **values, CREATED_AT: _EPOCH, UPDATED_AT: _EPOCH}
    line = encode(fields, LineShape(kind.identity_fields))
    return StoredRow(record_of(kind, fields), line, path, number)
