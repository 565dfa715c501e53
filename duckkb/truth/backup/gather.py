"""Gathers a backup of a base: history, and each file of its work tree that the commit does not have. Nothing is
changed; if something is staged, git gets an additional commit that no ref names.

Changed and staged files are saved from the whole repository around a base. Untracked files are saved from the
base and from document collections; files of truth even if git ignores them.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from duckkb.errors import Conflict
from duckkb.open_files import open_without_blocking
from duckkb.truth import layout, state
from duckkb.truth.backup.archive import BUNDLE, KEPT_STATE, ArchiveWriter, Manifest, SavedFile, entry_name, is_sound
from duckkb.truth.commit import journal, protocol
from duckkb.truth.git import bundle
from duckkb.truth.git.revisions import TreeEntry
from duckkb.truth.git.run import find_repository

SUFFIX = ".duckkb.zip"
"""The suffix of default backup names: a backup of a base leaves out such files in it."""
_TRUTH = (f"{layout.DATA}/nodes", f"{layout.DATA}/edges", layout.FORMAT_PATH, "ontology", "config.yaml")
_CHUNK = 1 << 20


class BackupSource(Struct, frozen=True):
    """A base to save: the folders and files of its document collections, by their real paths, and the backup
    itself, which may lie among them.
    """

    root: Path
    folders: tuple[Path, ...]
    documents: tuple[Path, ...]
    backup: Path
    created: str
    lock_timeout: float = 60.0
    left_out: tuple[str, ...] = ()


class _Found(Struct):
    """A work tree, and the backup's content so far. `base` is the folder of the knowledge base in it; `head` are
    the files that its commit has and that should exist.
    """

    top: Path
    base: str
    left_out: list[str]
    head: dict[str, TreeEntry] = {}
    saved: list[SavedFile] = []
    deleted: list[str] = []


def save(source: BackupSource, file: BinaryIO) -> Manifest:
    """Write a backup into an empty file. Gathering holds the lock against writers and first recovers an
    interrupted write.

    Raises `errors.Conflict` (E_STALE) if files or HEAD change meanwhile, `errors.Refused` and
    `errors.Unavailable` as `bundle.checkout_of`, `bundle.bundle_history` and `protocol.lock_for_reading` do.
    """
    repository = find_repository(source.root)
    top = repository.work_tree if repository else Path(os.path.realpath(source.root))
    work_tree = _Found(top, repository.prefix.rstrip("/") if repository else "", [*source.left_out])
    checkout, history = bundle.checkout_of(source.root) if repository else None, None
    with ArchiveWriter(file) as writer:
        if checkout and bundle.has_history(source.root, checkout):
            pieces = bundle.bundle_history(source.root, checkout)
            history = writer.add(BUNDLE, BUNDLE, stat.S_IFREG | 0o644, pieces)
        elif checkout and checkout.index:
            checkout = replace(checkout, index="")
            work_tree.left_out.append("the index, but not the files: no commit exists yet")
        with protocol.lock_for_reading(source.root, source.lock_timeout):
            names = _list_tracked_files(work_tree, checkout.commit) if checkout else set(_walk(top, top))
            names |= _list_untracked_files(source, work_tree, in_git=checkout is not None)
            backup_paths = {source.backup, source.backup.with_name(Path(file.name).name)}
            for path in sorted(name for name in names if name in work_tree.head or top / name not in backup_paths):
                _save(work_tree, path, writer)
        # The index commit has a time of its own and differs even without changes.
        if checkout and replace(bundle.checkout_of(source.root), index=checkout.index) != checkout:
            raise Conflict("HEAD or a stash changed while the backup was made", "E_STALE", "repeat the command")
        header = top.name, work_tree.base, source.created, version("duckkb"), checkout, history
        manifest = Manifest(*header, tuple(work_tree.saved), tuple(work_tree.deleted), tuple(work_tree.left_out))
        writer.seal(manifest)
    return manifest


def _list_tracked_files(work_tree: _Found, commit: str) -> set[str]:
    """List the files of the commit and of the index; files outside a sparse checkout count as the commit has them."""
    work_tree.head, index_paths, sparse_paths = bundle.list_tracked(work_tree.top, commit)
    absent = {path for path in sparse_paths if _read_status(work_tree.top, path) is None}
    for path in absent & work_tree.head.keys():
        del work_tree.head[path]
    return (work_tree.head.keys() | index_paths) - absent


def _list_untracked_files(source: BackupSource, work_tree: _Found, *, in_git: bool) -> set[str]:
    """List the files that the index does not have, and documents, by their path from the top of the work tree."""
    top, root = work_tree.top, work_tree.top / work_tree.base

    def make_relative(paths: Iterable[Path]) -> set[str]:
        return {os.path.relpath(path, top) for path in paths if path.is_relative_to(top)}

    names = make_relative(source.documents)
    if in_git:
        names |= bundle.list_untracked(
            root, [f"{work_tree.base}/", *make_relative(source.folders)] if work_tree.base else []
        )
        names |= bundle.list_untracked(root, [str(Path(work_tree.base, name)) for name in _TRUTH], ignored=True)
    names = {name for name in names if state.FOLDER not in name.split("/")}
    for state_path in (state.folder_of(root) / name for name in KEPT_STATE):
        names |= set(_walk(state_path, top)) if state.is_folder(state_path) else make_relative([state_path])
    return names


def _walk(folder: Path, top: Path) -> Iterator[str]:
    """Yield the files below a folder, without duckkb's own state; a nested repository is its `.git` alone."""

    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=stop):
        alone = {name for name in folders if name == ".git" or Path(place, name).is_symlink()}
        folders[:] = [name for name in folders if name not in alone | {state.FOLDER}]
        yield from (os.path.relpath(Path(place, name), top) for name in {*files, *alone})


def _save(work_tree: _Found, path: str, writer: ArchiveWriter) -> None:
    """Record a missing or unfit path, or add the existing file."""
    place, entry = work_tree.top / path, work_tree.head.get(path)
    status = _read_status(work_tree.top, path)
    if path.endswith("/") or path.split("/")[-1] == ".git" or (entry and entry.mode == "160000"):
        work_tree.left_out.append(f"{path}: a separate repository")
    elif entry is None if status is None else _is_in_commit(place, status, entry):
        return
    elif why := _unfit(work_tree, path, status):
        work_tree.left_out.append(f"{path}: {why}")
    elif status is None:
        work_tree.deleted.append(path)
    else:
        work_tree.saved.append(writer.add(entry_name(path), path, status.st_mode, _iter_pieces(place)))


def _read_status(top: Path, path: str) -> os.stat_result | None:
    """Return the status at a path unless it is a folder; a path behind a link counts as missing."""
    if any((top / parent).is_symlink() for parent in journal.parents_of(path)):
        return None
    try:
        status = (top / path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if stat.S_ISDIR(status.st_mode) else status


def _unfit(work_tree: _Found, path: str, status: os.stat_result | None) -> str:
    """Return why a backup cannot hold a file or its deletion; empty if it can."""
    if not is_sound(path, work_tree.base):
        return "a name that git or duckkb keeps for itself"
    if status is None:
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "a link that leads out" if leads_out(work_tree.top, path) else ""
    if not stat.S_ISREG(status.st_mode):
        return "neither a file nor a link"
    return "a backup" if path not in work_tree.head and path.endswith(SUFFIX) else ""


def leads_out(top: Path, path: str) -> bool:
    """Return whether a link leads outside of a folder, or to git's own files."""
    if (top / path).readlink().is_absolute():
        return True
    place = Path(os.path.relpath(os.path.realpath(top / path), os.path.realpath(top))).parts
    return place[:1] == ("..",) or ".git" in place


def _is_in_commit(path: Path, status: os.stat_result, entry: TreeEntry | None) -> bool:
    """Return whether the commit has the file byte for byte."""
    is_link = stat.S_ISLNK(status.st_mode)
    mode = "120000" if is_link else "100755" if status.st_mode & stat.S_IXUSR else "100644"
    if entry is None or entry.mode != mode or not (is_link or stat.S_ISREG(status.st_mode)):
        return False
    digest = hashlib.new("sha1" if len(entry.blob) == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % status.st_size)
    for piece in _iter_pieces(path):
        digest.update(piece)
    return digest.hexdigest() == entry.blob


def _iter_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, or the target of a link. Raises `errors.Conflict` (E_STALE) if it changes
    meanwhile.
    """
    conflict = Conflict(f"{path} changed while it was read", code="E_STALE", suggestion="repeat the command")
    if path.is_symlink():
        yield os.fsencode(os.readlink(path))  # noqa: PTH115 (a Path would drop `./` and `//`)
        return
    try:
        stream = open_without_blocking(path)
    except FileNotFoundError as error:
        raise conflict from error
    with stream as file:
        before, size = os.fstat(file.fileno()), 0
        while piece := file.read(_CHUNK):
            size += len(piece)
            yield piece
        if (before.st_mtime_ns, before.st_size) != (os.fstat(file.fileno()).st_mtime_ns, size):
            raise conflict
