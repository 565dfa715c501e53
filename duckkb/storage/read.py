"""Reads truth: the files below `data/`, the lines in its parts, and which parts changed since.

Nothing below `data/` is followed, waited for or trusted: links, FIFOs, devices and unknown files are findings.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import DocumentSource, NodeType, Ontology, RecordType
from duckkb.storage.document_parts import LINKS, PERMISSION, WalkNotes, file_of, parts_at, walk
from duckkb.storage.layout import (  # fmt: skip
    DATA,
    FOLDERS,
    Kind,
    Listing,
    is_as_listed,
    is_cut_off,
    is_day,
    is_part,
    list_folder,
    read_regular,
    safe_table_name,
)
from duckkb.storage.line import Limits
from duckkb.storage.part import Part, PartRows, Stamp, pause_collector
from duckkb.storage.tree import Tree
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, Unavailable

_TOP = {"nodes": True, "edges": True, "indices": True, "FORMAT.json": False}
"""The entries that `data/` itself may have, and whether each is a folder."""

_YOUNG_NS, _MOMENT_S, _PATIENCE = 2_000_000_000, 0.02, 50
"""The age up to which an empty file may yet be filled, the length of a wait for it, and the number of waits."""


class Survey(Struct):
    """The parts of the ontology's types with their status and type, in path order, other findings, and the content
    of each folder that was examined. `is_partial`: a folder of documents is missing or cannot be listed.
    """

    files: dict[str, os.stat_result] = {}
    kinds: dict[str, RecordType] = {}
    findings: list[Finding] = []
    folders: dict[str, Listing] = {}
    ignore_files: dict[str, os.stat_result | None] = {}
    is_partial: bool = False
    _placed: list[tuple[str, os.stat_result]] = []

    def still_holds(self, root: Path) -> bool:
        """Return whether everything is still as surveyed; for many small files this takes a third of a new survey."""
        try:
            return (
                not self.is_partial
                and all(is_as_listed(folder, state) for folder, state in self.folders.items())
                and all(_is_same_file(path, state) for path, state in self.ignore_files.items())
                and all(_is_same(os.lstat(path), state) for path, state in self._list_places(root))
            )
        except OSError:
            return False

    def _list_places(self, root: Path) -> list[tuple[str, os.stat_result]]:
        if not self._placed:
            self._placed += [
                (str(root / path), status) for path, status in self.files.items() if not path.endswith(LINKS)
            ]
        return self._placed


def _is_same(status: os.stat_result, earlier_status: os.stat_result) -> bool:
    return (
        status.st_mtime_ns == earlier_status.st_mtime_ns
        and status.st_ctime_ns == earlier_status.st_ctime_ns
        and status.st_size == earlier_status.st_size
        and status.st_ino == earlier_status.st_ino
    )


def _is_same_file(path: str, earlier_status: os.stat_result | None) -> bool:
    """Return whether a path, which may be missing, is unchanged."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return earlier_status is None
    return earlier_status is not None and _is_same(status, earlier_status)


def survey(root: Path, ontology: Ontology) -> Survey:
    """List every path below `data/` without opening files or following links. An absent `data/` holds nothing.

    Raises `Unavailable` (E_IO) for a folder that cannot be listed.
    """
    return _Surveyor(root, ontology).survey()


def load(root: Path, ontology: Ontology, limits: Limits, found: Survey | None = None) -> Tree:
    """Read every part of the types in the ontology. An absent `data/` is an empty tree. `found` is a fresh survey.

    Unreadable lines are findings of their part; the rest of the file is loaded. Raises `Unavailable` (E_IO) for
    a folder that cannot be listed.
    """
    found = found or survey(root, ontology)
    with pause_collector():
        parts = {part.path: part for part in read_parts(root, found.kinds, limits)}
    return Tree(ontology, limits, parts, found.findings)


def read_parts(root: Path, wanted: Mapping[str, RecordType], limits: Limits) -> Iterator[Part]:
    """Read parts in their order; consecutive parts of the same file read it once. A missing part is skipped; a
    part that cannot be opened has a finding.

    A line without `__id` or times gets the id that follows from its identity, and the first moment of the file's day.
    """
    for file, paths in groupby(wanted, file_of):
        yield from _read_file(root, file, {path: wanted[path] for path in paths}, limits)


def read_part(root: Path, path: str, kind: RecordType, limits: Limits) -> Part | None:
    """Read a part as `read_parts` does; None if it is missing."""
    return next(read_parts(root, {path: kind}, limits), None)


def _read_file(root: Path, file: str, kinds: Mapping[str, RecordType], limits: Limits) -> Iterator[Part]:
    read_ns = time.time_ns()
    is_part_file = file in kinds and kinds[file].source is None
    try:
        raw, status = _read_when_stable(root, file) if is_part_file else read_regular(root / file)
    except FileNotFoundError:
        return
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        for path, kind in kinds.items():
            finding = Finding("E_IO", message, path, remedy=CODES["E_IO"].remedy if is_part_file else PERMISSION)
            yield Part(path, kind, Stamp(-1, 0, 0, 0), "", PartRows.from_rows(kind, path), (finding,))
        return
    for part in parts_at(kinds, raw, limits, Stamp.from_status(status, read_ns)).values():
        is_cut = is_part_file and not part.rows and not part.findings and is_cut_off(raw)
        yield _mark_empty(part, root) if is_cut else part


def _read_when_stable(root: Path, path: str) -> tuple[bytes, os.stat_result]:
    """Read the bytes of a file. Waits for an empty file while git changes files: git creates a file before it
    fills it.
    """
    for _ in range(_PATIENCE):
        raw, status = read_regular(root / path)
        if raw or time.time_ns() - status.st_mtime_ns > _YOUNG_NS:
            break
        if not _is_git_at_work(root):
            return read_regular(root / path)  # it may have been created just now
        time.sleep(_MOMENT_S)
    return raw, status


def _is_git_at_work(root: Path) -> bool:
    from duckkb.storage import git_process  # which few reads need

    try:
        repository = git_process.find_repository(root)
    except (OSError, Unavailable):
        return False
    return repository is not None and (repository.git_dir / "index.lock").exists()


def _mark_empty(part: Part, root: Path) -> Part:
    from duckkb.storage import git_facts  # which asks git

    finding = git_facts.cut_off(root, part.path)
    return replace(part, findings=(finding,)) if finding else part


def list_changed_parts(tree: Tree, root: Path, found: Survey | None = None) -> list[str]:
    """List the paths of parts that are new, deleted, or differ from what the tree was read from. Cheap if nothing
    changed.

    Updates the findings beside the parts (`tree.findings`). `found` is a fresh survey.
    """
    if found is None and tree.seen is not None and tree.seen.still_holds(root):
        return []
    found = found or survey(root, tree.ontology)
    tree.findings, tree.seen = found.findings, None
    differing = [path for path in tree.parts if path not in found.files]
    is_trustworthy = not differing
    for path, status in found.files.items():
        part = tree.parts.get(path)
        if part is None or not part.stamp.vouches(status):
            is_trustworthy = False
            if part is None or _has_other_bytes(tree, root, path, part, status):
                differing.append(path)
    tree.seen = found if is_trustworthy else None
    return sorted(differing)


def is_edited_again(tree: Tree, root: Path) -> bool:
    """Return whether a recently replaced part has changed again, without looking at all others."""
    return any(_has_edits(tree, root, path) for path in tree.lately)


def _has_edits(tree: Tree, root: Path, path: str) -> bool:
    try:
        status = os.lstat(root / file_of(path))
    except OSError:
        return False
    part = tree.parts.get(path)
    return part is not None and S_ISREG(status.st_mode) and _has_other_bytes(tree, root, path, part, status)


def reload(tree: Tree, root: Path, paths: Iterable[str], found: Survey | None = None) -> dict[str, Part | None]:
    """Read parts again, for `Tree.replace`; None for a path that is no longer a part: deleted, behind a link, of
    no known type. `found` is a fresh survey.
    """
    paths = list(paths)
    kinds = (found or survey(root, tree.ontology)).kinds if paths else {}
    found_parts = read_parts(root, {path: kinds[path] for path in paths if path in kinds}, tree.limits)
    return dict.fromkeys(paths) | {part.path: part for part in found_parts}


def _has_other_bytes(tree: Tree, root: Path, path: str, part: Part, status: os.stat_result) -> bool:
    if part.stamp.size != status.st_size:
        return True
    if part.stamp.vouches(status):
        return False
    read_ns = time.time_ns()
    try:
        raw, new_status = read_regular(root / file_of(path))
    except OSError:
        return True
    if hashlib.sha256(raw).hexdigest() != part.digest:
        return True
    # The same bytes, read later: after the clock's granularity has passed, the stamp alone vouches for them.
    tree.parts[path] = replace(part, stamp=Stamp.from_status(new_status, read_ns))
    return False


class _Surveyor:
    def __init__(self, root: Path, ontology: Ontology) -> None:
        self._root = root
        self._ontology = ontology
        self._found = Survey()

    def survey(self) -> Survey:
        top = [entry for entry in self._entries("") if entry.name == DATA]
        if top and self._is_sound(top[0], DATA, folder=True):
            self._walk_data()
        for kind in self._ontology.nodes.values():
            if kind.source is not None:
                self._walk_collection(kind, kind.source)
        return self._found

    def _walk_collection(self, kind: NodeType, source: DocumentSource) -> None:
        """Add the documents of a collection, each with its links."""
        links = next(
            (edge for edge in self._ontology.edges.values() if edge.from_types == (kind.name,) and edge.source), None
        )
        notes = WalkNotes(self._found.folders, self._found.ignore_files)
        for item in walk(self._root, source, notes):
            if isinstance(item, Finding):
                self._found.findings.append(
                    replace(item, type=kind.name, remedy=item.remedy.replace("NAME", kind.name))
                )
                continue
            path, status = item
            for part, part_kind in ((path, kind), (path + LINKS, links)):
                if part_kind is not None:
                    self._found.files[part], self._found.kinds[part] = status, part_kind
        self._found.is_partial |= notes.is_partial

    def _walk_data(self) -> None:
        for entry in self._entries(DATA):
            folder = _TOP.get(entry.name)
            if folder is None:
                self._report_unknown(entry, f"{DATA}/{entry.name}", "nothing of this name belongs here")
            elif self._is_sound(entry, f"{DATA}/{entry.name}", folder=folder):
                for kind in (kind for kind, name in FOLDERS.items() if name == entry.name):
                    self._walk_tables(kind)

    def _walk_tables(self, kind: Kind) -> None:
        path = f"{DATA}/{FOLDERS[kind]}"
        record_types = (
            record_type for record_type in self._ontology if record_type.kind == kind and record_type.source is None
        )
        tables = {record_type.table: record_type for record_type in record_types if safe_table_name(record_type.table)}
        for name in self._iter_folders(path, tables.__contains__, "no type of the ontology has this table or label"):
            for day in self._iter_folders(f"{path}/{name}", is_day, "a day folder is named YYYYMMDD"):
                self._walk_day(f"{path}/{name}/{day}", tables[name])

    def _walk_day(self, path: str, kind: RecordType) -> None:
        files, kinds = self._found.files, self._found.kinds
        for entry in self._entries(path):
            part = f"{path}/{entry.name}"
            if not is_part(entry.name):
                self._report_unknown(entry, part, "a part is named part_NNN.jsonl")
            elif entry.is_file(follow_symlinks=False) or self._is_sound(entry, part, folder=False):
                try:
                    files[part] = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                kinds[part] = kind

    def _iter_folders(self, path: str, is_known: Callable[[str], bool], otherwise: str) -> Iterator[str]:
        for entry in self._entries(path):
            if not is_known(entry.name):
                self._report_unknown(entry, f"{path}/{entry.name}", otherwise)
            elif self._is_sound(entry, f"{path}/{entry.name}", folder=True):
                yield entry.name

    def _is_sound(self, entry: os.DirEntry[str], path: str, *, folder: bool) -> bool:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.is_symlink():
            self._report("E_SYMLINK", "a link; links in data/ are not followed", path)
        elif is_folder != folder or not (is_folder or entry.is_file(follow_symlinks=False)):
            self._report("E_NOT_REGULAR", f"not a {'folder' if folder else 'regular file'}", path)
        else:
            return True
        return False

    def _report_unknown(self, entry: os.DirEntry[str], path: str, message: str) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if self._is_sound(entry, path, folder=is_folder):
            self._report("E_UNEXPECTED_FILE", message, path + "/" * is_folder)

    def _report(self, code: str, message: str, path: str) -> None:
        self._found.findings.append(Finding(code, message, path, remedy=CODES[code].remedy))

    def _entries(self, path: str) -> list[os.DirEntry[str]]:
        folder = self._root / path
        try:
            entries, self._found.folders[str(folder)] = list_folder(folder)
        except OSError as error:
            message = f"{path or '.'} cannot be listed: {error.strerror}"
            raise Unavailable(message, code="E_IO", suggestion=CODES["E_IO"].remedy) from error
        return entries
