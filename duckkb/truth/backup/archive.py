"""A backup as a file: a ZIP whose comment is the SHA-256, in hex, of every byte before it. `manifest.json` lists
its content: `repository.bundle` is the history, and below `files/` are the files that the commit does not have.

Nothing in it is compressed (a bundle already is), so that unpacking never yields more than the archive's size.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, get_args, get_type_hints
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from msgspec import Struct, StructMeta, to_builtins

from duckkb.errors import StateError
from duckkb.truth import state
from duckkb.truth.commit.outside import plain
from duckkb.truth.git.bundle import Checkout

FORMAT = 1
MANIFEST, BUNDLE, FILES = "manifest.json", "repository.bundle", "files/"
_DIGEST_LENGTH = 64
_CHUNK = 1 << 20
_LONGEST_MANIFEST, _LONGEST_LINK = 64 << 20, 1 << 16  # bytes
_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?")
KEPT_STATE = ("emptied", state.RESCUED)
"""Files of `.duckkb/` that exist nowhere else: the note that a base is empty on purpose, and files that `recover`
put aside.
"""
_KEPT_NAMES = {"git~1", ".git", state.FOLDER}
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
    state_prefix = (f"{base}/" if base else "") + f"{state.FOLDER}/"
    inner = path.removeprefix(state_prefix).split("/")
    parts = inner if path.startswith(state_prefix) and inner[0] in KEPT_STATE else path.split("/")
    return "\0" not in path and not any(part in ("", ".", "..") or plain(part) in _KEPT_NAMES for part in parts)


def entry_name(path: str) -> str:
    """Return the name of a file's entry: its path, with non-UTF-8 bytes escaped and backslashes doubled, so that
    no two files share a name.
    """
    return FILES + os.fsencode(path).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
