"""What a backup holds of a base: history, and each file of its work tree that the commit does not have. Nothing is
changed; git gets one commit more, which no name leads to, where something is staged.

Of the repository around a base, changed and staged files are saved wherever they lie, and files that git does not track where
the base or a document collection is; what is truth also where git ignores it.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from duckkb.errors import Conflict
from duckkb.truth import layout, state
from duckkb.truth.backup.archive import BUNDLE, KEPT_STATE, ArchiveWriter, Manifest, SavedFile, entry_name, is_sound
from duckkb.truth.commit import journal, protocol
from duckkb.truth.git import bundle
from duckkb.truth.git.bundle import Checkout
from duckkb.truth.git.revisions import TreeEntry
from duckkb.truth.git.run import find_repository
from duckkb.values import dataclass, field

SUFFIX = ".duckkb.zip"
"""How backups are called by themselves: those that lie in a base are in no backup of it."""
_TRUTH = (f"{layout.DATA}/nodes", f"{layout.DATA}/edges", layout.FORMAT_PATH, "ontology", "config.yaml")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupSource:
    """A base to be saved, the folders and files of its document collections, by their real paths, and the backup itself, which
    may lie among them."""

    root: Path
    folders: tuple[Path, ...]
    documents: tuple[Path, ...]
    backup: Path
    created: str
    lock_timeout: float = 60.0
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """What is known of a work tree, and what a backup of it holds so far. `base` is where the knowledge base lies in it; `head`
    are the files of its commit, `indexed` those of the index."""

    top: Path
    base: str
    left_out: list[str]
    head: dict[str, TreeEntry] = field(default_factory=dict)
    indexed: set[str] = field(default_factory=set)
    saved: list[SavedFile] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


def save(source: BackupSource, file: BinaryIO) -> Manifest:
    """Write a backup into an empty file. While files are gathered nobody writes to the base, and an interrupted write is
    recovered before.

    Raises `errors.Conflict` (E_STALE) where files or HEAD change meanwhile, `errors.Refused` and `errors.Unavailable` as
    `bundle.checkout_of`, `bundle.bundled` and `protocol.reading` do.
    """
    repository = find_repository(source.root)
    top = repository.work_tree if repository else Path(os.path.realpath(source.root))
    inside = repository.prefix.rstrip("/") if repository else ""
    checkout, history = bundle.checkout_of(source.root) if repository else None, None
    found = _Found(top, inside, [*source.left_out])
    with ArchiveWriter(file) as writer:
        if checkout and bundle.has_history(source.root, checkout):
            pieces = bundle.bundled(source.root, checkout)
            history = writer.add(BUNDLE, BUNDLE, stat.S_IFREG | 0o644, pieces)
        elif checkout and checkout.index:
            checkout = replace(checkout, index="")
            found.left_out.append("what is staged, but not the files: there is no commit yet")
        with protocol.reading(source.root, source.lock_timeout):
            if checkout:
                found.head, found.indexed = bundle.tracked(source.root, checkout.commit)
            own = {source.backup, source.backup.with_name(Path(file.name).name)}
            names = found.head.keys() | found.indexed | _others(source, found, git=checkout is not None)
            for path in sorted(name for name in names if name in found.head or top / name not in own):
                _save(found, path, writer)
        if checkout and _moved(checkout, bundle.checkout_of(source.root)):
            raise Conflict("HEAD or a stash changed while the backup was made", "E_STALE", "repeat the command")
        told = top.name, inside, source.created, version("duckkb"), checkout, history
        manifest = Manifest(*told, tuple(found.saved), tuple(found.deleted), tuple(found.left_out))
        writer.seal(manifest)
    return manifest


def _moved(before: Checkout, after: Checkout) -> bool:
    return replace(before, index="") != replace(after, index="")


def _others(source: BackupSource, found: _Found, *, git: bool) -> set[str]:
    """The files that the index does not have, by their path from the top of the work tree."""
    top, root = found.top, found.top / found.base
    if git:
        inside = [f"{found.base}/", *(os.path.relpath(one, top) for one in source.folders if one.is_relative_to(top))]
        names = bundle.untracked(root, inside if found.base else [])
        truth = [str(Path(found.base, name)) for name in _TRUTH]
        names |= bundle.untracked(root, truth, ignored=True)
    else:
        names = set(_walk(root, top))
    names |= {os.path.relpath(one, top) for one in source.documents if one.is_relative_to(top)}
    names = {name for name in names if state.FOLDER not in name.split("/")}
    for kept in (state.folder_of(root) / name for name in KEPT_STATE):
        names |= set(_walk(kept, top)) if state.is_folder(kept) else {os.path.relpath(kept, top)}
    return names


def _walk(folder: Path, top: Path) -> Iterator[str]:
    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=stop):
        links = [name for name in folders if Path(place, name).is_symlink()]
        repositories = [name for name in (*folders, *files) if name == ".git"]
        folders[:] = [name for name in folders if name not in (".git", *links)]
        yield from (os.path.relpath(Path(place, one), top) for one in {*files, *links, *repositories})


def _save(found: _Found, path: str, writer: ArchiveWriter) -> None:
    """Note what became of one path, or add the file that lies there."""
    place, entry = found.top / path, found.head.get(path)
    status = _status(found.top, path)
    if path.endswith("/") or path.split("/")[-1] == ".git" or (entry and entry.mode == "160000"):
        found.left_out.append(f"{path}: a repository of its own")
    elif status is None or stat.S_ISDIR(status.st_mode):
        found.deleted += [path] if entry else []
    elif not _is_committed(place, status, entry):
        if why := _unfit(found, path, status):
            found.left_out.append(f"{path}: {why}")
        else:
            found.saved.append(writer.add(entry_name(path), path, status.st_mode, _pieces(place)))


def _status(top: Path, path: str) -> os.stat_result | None:
    """What lies at a path itself: what is behind a link lies elsewhere."""
    if any((top / parent).is_symlink() for parent in journal.parents_of(path)):
        return None
    try:
        return (top / path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _unfit(found: _Found, path: str, status: os.stat_result) -> str:
    """Why a file cannot be saved; empty where it can."""
    if not is_sound(path, found.base):
        return "a name that git or duckkb keeps for itself"
    if stat.S_ISLNK(status.st_mode):
        return "a link that leads out" if leads_out(found.top, path) else ""
    if not stat.S_ISREG(status.st_mode):
        return "neither a file nor a link"
    return "a backup" if path not in found.head and path.endswith(SUFFIX) else ""


def leads_out(top: Path, path: str) -> bool:
    """Whether a link leads to a place outside of a folder, or to git's own."""
    if (top / path).readlink().is_absolute():
        return True
    place = Path(os.path.relpath(os.path.realpath(top / path), os.path.realpath(top))).parts
    return place[:1] == ("..",) or ".git" in place


def _is_committed(path: Path, status: os.stat_result, entry: TreeEntry | None) -> bool:
    """Whether the commit has a file as it lies there, byte for byte."""
    if entry is None:
        return False
    is_link = stat.S_ISLNK(status.st_mode)
    if not (is_link or stat.S_ISREG(status.st_mode)):
        return False
    if entry.mode != ("120000" if is_link else "100755" if status.st_mode & stat.S_IXUSR else "100644"):
        return False
    digest = hashlib.new("sha1" if len(entry.blob) == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % status.st_size)
    for piece in _pieces(path):
        digest.update(piece)
    return digest.hexdigest() == entry.blob


def _pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file, or the target of a link. Raises `errors.Conflict` (E_STALE) where it changes meanwhile."""
    if path.is_symlink():
        yield os.fsencode(os.readlink(path))  # noqa: PTH115 (a Path would drop `./` and `//`)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | state.NO_FOLLOW | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        raise _changed(path) from error
    with os.fdopen(descriptor, "rb") as file:
        before, size = os.fstat(descriptor), 0
        while piece := file.read(_CHUNK):
            size += len(piece)
            yield piece
        after = os.fstat(descriptor)
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, size):
            raise _changed(path)


def _changed(path: Path) -> Conflict:
    return Conflict(f"{path} changed while it was read", code="E_STALE", suggestion="repeat the command")
