"""A backup as a file: a ZIP whose comment is the SHA-256, in hex, of every byte before it. `manifest.json` lists
its content: `repository.bundle` is the history, and below `files/` are the files that the commit does not have.

Nothing in it is compressed (a bundle already is), so that unpacking never yields more than the archive's size.

Gathers a backup of a base: history, and each file of its work tree that the commit does not have. Nothing is
changed; if something is staged, git gets an additional commit that no ref names.

Changed and staged files are saved from the whole repository around a base. Untracked files are saved from the
base and from document collections; files of truth even if git ignores them.

Restores a backup: builds everything in a folder beside the target, which then takes the target's name in a
single step.

A backup is untrusted data: none of its paths leads out of the folder or to files of git or duckkb, nothing is
written through a link, and git receives only history."""

import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, get_args, get_type_hints
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from msgspec import Struct, StructMeta, to_builtins
from msgspec.structs import replace

from duckkb import atomic_write
from duckkb.atomic_write import open_without_blocking
from duckkb.storage import base_lock, bundle, clone_state, commit_protocol, git_process, journal, layout, repository
from duckkb.storage.bundle import Checkout
from duckkb.storage.git_process import find_repository
from duckkb.storage.path_guard import plain
from duckkb.storage.revisions import TreeEntry
from duckkb.types.errors import Conflict, StateError, Unavailable

FORMAT = 1
MANIFEST, BUNDLE, FILES = "manifest.json", "repository.bundle", "files/"
_DIGEST_LENGTH = 64
_CHUNK = 1 << 20
_LONGEST_MANIFEST, _LONGEST_LINK = 64 << 20, 1 << 16  # bytes
_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?")
KEPT_STATE = ("emptied", clone_state.RESCUED)
"""Files of `.duckkb/` that exist nowhere else: the note that a base is empty on purpose, and files that `recover`
put aside.
"""
_KEPT_NAMES = {"git~1", ".git", clone_state.FOLDER}
# What zipfile and json raise of an archive that may be anybody's, none of it a fault of ours: BadZipFile and EOFError where it is
# damaged or cut off, NotImplementedError for another compression or version, RuntimeError where it is encrypted, ValueError for a
# list that is no JSON or names places outside, OSError for bytes that lie where no file can.
_UNREADABLE = (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


class SavedFile(Struct, frozen=True):
    """A file of a backup: its path from the top of the work tree, its bytes, their SHA-256 in hex, and its mode
    with the kind as `os.lstat` gives it. The bytes of a link are its target.
    """

    path: str
    size: int
    sha256: str
    mode: int


class Manifest(Struct, frozen=True):
    """The content of a backup. `name` is the folder's, `base` the path of the knowledge base in it, `checkout`
    None without git, `bundle` None without history. `deleted` are missing files of the commit; `left_out` is
    what the backup lacks, and why.
    """

    name: str
    base: str
    created: str
    duckkb: str
    checkout: Checkout | None
    bundle: SavedFile | None
    files: tuple[SavedFile, ...]
    deleted: tuple[str, ...]
    left_out: tuple[str, ...]


def make_damage_error(why: str) -> StateError:
    return StateError(f"the file is not a usable backup: {why}", code="E_BACKUP")


class ArchiveWriter(ZipFile):
    """A writer that adds files to a backup, then seals it: use it in a `with` block."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, "w", ZIP_STORED)
        self._written = file

    def add(self, name: str, path: str, mode: int, pieces: Iterable[bytes]) -> SavedFile:
        entry, digest, size = ZipInfo(name), hashlib.sha256(), 0
        entry.external_attr = mode << 16
        with self.open(entry, "w", force_zip64=True) as target:
            for piece in pieces:
                target.write(piece)
                digest.update(piece)
                size += len(piece)
        return SavedFile(path, size, digest.hexdigest(), mode)

    def seal(self, manifest: Manifest) -> None:
        """Write the manifest and the digest, and make the file durable."""
        data = json.dumps({"format": FORMAT, **to_builtins(manifest)}).encode()
        if len(data) > _LONGEST_MANIFEST:
            raise StateError(
                f"{len(manifest.files)} files are more than a backup can list; commit them first", "E_BACKUP"
            )
        self.add(MANIFEST, "", stat.S_IFREG | 0o644, [data])
        self.comment = b"0" * _DIGEST_LENGTH
        self.close()
        digest = _digest(self._written)
        self._written.seek(-_DIGEST_LENGTH, os.SEEK_END)
        self._written.write(digest)
        self._written.flush()
        os.fsync(self._written.fileno())


class Archive:
    """A backup opened for reading. Its bytes are unchanged, and it holds exactly what its manifest names, each at
    a valid path. `pieces` raises if a file differs from the manifest.
    """

    def __init__(self, read: ZipFile, manifest: Manifest) -> None:
        self._zip, self.manifest = read, manifest

    def pieces(self, name: str, saved: SavedFile) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        try:
            with self._zip.open(name) as source:
                while size <= saved.size and (piece := source.read(_CHUNK)):
                    digest.update(piece)
                    size += len(piece)
                    yield piece
        except _UNREADABLE as error:
            raise make_damage_error(f"{name} cannot be read: {error}") from error
        if (size, digest.hexdigest()) != (saved.size, saved.sha256):
            raise make_damage_error(f"{name} is not the file that its manifest names")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a backup. Raises `errors.StateError` (E_BACKUP) if the file is not a backup or any byte has changed."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _DIGEST_LENGTH))
        if file.read() != _digest(file):
            raise make_damage_error("its checksum does not match")
        try:
            read = ZipFile(file)
        except _UNREADABLE as error:
            raise make_damage_error(str(error)) from error
        with read:
            yield Archive(read, _read_manifest(read, size))


def _digest(file: BinaryIO) -> bytes:
    """Return the SHA-256, in hex, of all bytes before the stored digest at the end."""
    remaining_bytes, digest = file.seek(0, os.SEEK_END) - _DIGEST_LENGTH, hashlib.sha256()
    file.seek(0)
    while remaining_bytes > 0 and (piece := file.read(min(_CHUNK, remaining_bytes))):
        digest.update(piece)
        remaining_bytes -= len(piece)
    return digest.hexdigest().encode()


def _read_manifest(read: ZipFile, size: int) -> Manifest:
    """Read the manifest; check that the archive lists the same entries, each stored uncompressed."""
    entries = {entry.filename: entry for entry in read.infolist()}
    if sum(entry.file_size for entry in entries.values()) > size or any(
        entry.compress_type for entry in entries.values()
    ):
        raise make_damage_error("it unfolds to more than it is")
    if MANIFEST not in entries or entries[MANIFEST].file_size > _LONGEST_MANIFEST:
        raise make_damage_error("it has no manifest, or one that is too long")
    try:
        fields = json.loads(read.read(MANIFEST))
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError(f"it is of another format than {FORMAT}")
        manifest: Manifest = _convert_value(Manifest, fields)
        _refuse_unsound(manifest)
    except _UNREADABLE as error:
        raise make_damage_error(f"its manifest cannot be used: {error}") from error
    expected_names = [
        MANIFEST,
        *([BUNDLE] if manifest.bundle else []),
        *(entry_name(entry.path) for entry in manifest.files),
    ]
    if sorted(expected_names) != sorted(read.namelist()) or len(entries) < len(expected_names):
        raise make_damage_error("its files differ from its manifest")
    return manifest


def _convert_value(kind: Any, data: Any) -> Any:
    """Convert a JSON value to the type of a manifest field. Raises ValueError."""
    kinds = get_args(kind)
    if isinstance(kind, StructMeta) and isinstance(data, dict):
        hints = get_type_hints(kind)
        if data.keys() == hints.keys():
            return kind(**{name: _convert_value(hint, data[name]) for name, hint in hints.items()})
    elif NoneType in kinds:
        return None if data is None else _convert_value(kinds[0], data)
    elif kinds and isinstance(data, list):
        each = kinds[:1] * len(data) if kinds[-1] is Ellipsis else kinds
        return tuple(_convert_value(item_kind, value) for item_kind, value in zip(each, data, strict=True))
    elif type(data) is kind:
        if kind is str and b"\0" in os.fsencode(data):  # fails for text that no system can have as a name
            raise ValueError("a text contains NUL")
        return data
    raise ValueError(f"{data!r:.40} does not match")


def _refuse_unsound(manifest: Manifest) -> None:
    """Raise ValueError for a file, a path or a commit that no valid backup has."""
    saved_files = (*manifest.files, *([manifest.bundle] if manifest.bundle else []))
    for path in (manifest.base or "base", *manifest.deleted, *(saved_file.path for saved_file in manifest.files)):
        if not is_sound(path, manifest.base):
            raise ValueError(f"it contains {path!r}, which is not a backup's file")
    for saved_file in saved_files:
        is_link = saved_file.mode >> 12 == stat.S_IFLNK >> 12
        if not (is_link or saved_file.mode >> 12 == stat.S_IFREG >> 12) or (
            is_link and saved_file.size > _LONGEST_LINK
        ):
            raise ValueError(f"{saved_file.path!r} is neither a file nor a link")
    if (git := manifest.checkout) is None:
        return
    for commit in (git.commit, git.index, *(stash for stash, _ in git.stashes), *git.shallow):
        if not _ID.fullmatch(commit):
            raise ValueError(f"{commit!r} is not a commit")
    if git.branch and not git.branch.startswith("refs/heads/"):
        raise ValueError(f"{git.branch!r} is not a branch")


def is_sound(path: str, base: str) -> bool:
    """Return whether a backup's file may lie at a path, on any file system; `base` is the folder of the knowledge
    base.
    """
    state_prefix = (f"{base}/" if base else "") + f"{clone_state.FOLDER}/"
    inner = path.removeprefix(state_prefix).split("/")
    parts = inner if path.startswith(state_prefix) and inner[0] in KEPT_STATE else path.split("/")
    return "\0" not in path and not any(part in ("", ".", "..") or plain(part) in _KEPT_NAMES for part in parts)


def entry_name(path: str) -> str:
    """Return the name of a file's entry: its path, with non-UTF-8 bytes escaped and backslashes doubled, so that
    no two files share a name.
    """
    return FILES + os.fsencode(path).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


SUFFIX = ".duckkb.zip"
"""The suffix of default backup names: a backup of a base leaves out such files in it."""
_TRUTH = (f"{layout.DATA}/nodes", f"{layout.DATA}/edges", layout.FORMAT_PATH, "ontology", "config.yaml")
_READ_SIZE = 1 << 20


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
        with commit_protocol.lock_for_reading(source.root, source.lock_timeout):
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
    names = {name for name in names if clone_state.FOLDER not in name.split("/")}
    for state_path in (clone_state.folder_of(root) / name for name in KEPT_STATE):
        names |= set(_walk(state_path, top)) if clone_state.is_folder(state_path) else make_relative([state_path])
    return names


def _walk(folder: Path, top: Path) -> Iterator[str]:
    """Yield the files below a folder, without duckkb's own state; a nested repository is its `.git` alone."""

    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=stop):
        alone = {name for name in folders if name == ".git" or Path(place, name).is_symlink()}
        folders[:] = [name for name in folders if name not in alone | {clone_state.FOLDER}]
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
        while piece := file.read(_READ_SIZE):
            size += len(piece)
            yield piece
        if (before.st_mtime_ns, before.st_size) != (os.fstat(file.fileno()).st_mtime_ns, size):
            raise conflict


_AT_FDCWD, _EXCHANGE = -100, 2


def rebuild(archive: Archive, folder: Path) -> None:
    """Restore the whole backup into an empty folder, durably.

    Raises `errors.StateError` (E_BACKUP, E_SYMLINK, E_NOT_REGULAR) for content that no backup may hold,
    `errors.Unavailable` (E_IO) if there is no room, OSError.
    """
    try:
        _fill(archive, folder)
    except Unavailable as error:
        if error.code != "E_GIT" or isinstance(error, git_process.NoGit):
            raise
        raise make_damage_error(error.message) from error
    if not (folder / archive.manifest.base).is_dir():
        raise make_damage_error(f"it lacks the folder {archive.manifest.base} of its base")
    _sync(folder)


def _fill(archive: Archive, folder: Path) -> None:
    manifest = archive.manifest
    if manifest.checkout:
        history = archive.pieces(BUNDLE, manifest.bundle) if manifest.bundle else None
        bundle.unbundle(folder, manifest.checkout, history)
    if repository.tracks_state(folder / manifest.base):
        raise make_damage_error(f"its history contains {clone_state.FOLDER}/, which must stay local")
    for path in manifest.deleted:
        _remove(folder, path)
    for saved_file in manifest.files:
        _put(archive, folder, saved_file)
    if out := [entry.path for entry in manifest.files if stat.S_ISLNK(entry.mode) and leads_out(folder, entry.path)]:
        raise make_damage_error(f"{out[0]} is a link that leads out of it")
    if manifest.checkout and (manifest.checkout.commit or manifest.checkout.index):
        bundle.stage(folder, manifest.checkout)


def _remove(folder: Path, path: str) -> None:
    journal.check_parents(folder, path)
    (folder / path).unlink(missing_ok=True)
    for parent in reversed(journal.parents_of(path)):
        with suppress(OSError):  # there is more in it
            (folder / parent).rmdir()


def _put(archive: Archive, folder: Path, saved_file: SavedFile) -> None:
    journal.check_parents(folder, saved_file.path)
    target, pieces = folder / saved_file.path, archive.pieces(entry_name(saved_file.path), saved_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if stat.S_ISLNK(saved_file.mode):
        target.symlink_to(os.fsdecode(b"".join(pieces)))
    else:
        atomic_write.write_new(target, pieces, mode=stat.S_IMODE(saved_file.mode) & 0o777, durable=False)


def _sync(folder: Path) -> None:
    """Make a folder and all its content durable."""
    if hasattr(os, "sync"):
        os.sync()  # syncs everything at once; syncing each file afterwards mainly reports errors
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        atomic_write.fsync_folder(Path(place))


@contextmanager
def make_folder_beside(target: Path) -> Iterator[Path]:
    """Create an empty folder beside a target, named after it; remove it at the end unless it was renamed."""
    folder = target.with_name(f".{target.name}.restoring-{os.urandom(4).hex()}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, target: Path, aside: Path, base: Path, timeout: float) -> bool:
    """Give a folder the name of the target; move the existing target, unless it is an empty folder, to `aside`.
    Returns whether it was moved. Waits for writers of the `base` there. If the system can exchange names, the
    target always exists; otherwise it is missing for a moment while the old folder is at `aside`.
    """
    is_new = not os.path.lexists(target) or not any(target.iterdir())
    if is_new:
        folder.rename(target)
    else:
        with base_lock.exclusive(base, timeout) if (base / "config.yaml").is_file() else nullcontext():
            folder.rename(aside)  # the old folder never has the name of the new one
            if not _swap_names(aside, target):
                aside.rename(folder)
                target.rename(aside)
                try:
                    folder.rename(target)
                except OSError:
                    aside.rename(target)
                    raise
    atomic_write.fsync_folder(target.parent)
    return not is_new


def _swap_names(source: Path, target: Path) -> bool:
    """Exchange the names of two folders, which Linux does in a single step on most file systems; return whether
    that worked.
    """
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and not rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _EXCHANGE)
