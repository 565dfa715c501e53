"""A backup as one file: a ZIP whose comment is the SHA-256, in hex, of every byte before it. It says in `manifest.json` what
it holds: `repository.bundle` for the history, and below `files/` the files that the commit does not have.

Nothing in it is compressed (a bundle is so itself), so that what comes out is never more than what went in.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from duckkb.errors import StateError
from duckkb.truth import state
from duckkb.truth.commit.outside import plain
from duckkb.truth.git.bundle import Checkout
from duckkb.values import dataclass

FORMAT = 1
MANIFEST, BUNDLE, FILES = "manifest.json", "repository.bundle", "files/"
_DIGEST_LENGTH = 64
_CHUNK = 1 << 20
_LONGEST_MANIFEST = 64 << 20
_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?")
KEPT_STATE = ("emptied", state.RESCUED)
"""What of `.duckkb/` is nowhere else: that a base has no records on purpose, and files that `recover` put aside."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a backup: its path from the top of the work tree, its bytes, their SHA-256 in hex, and its mode with the kind
    as `os.lstat` gives it. A link's bytes are its target."""

    path: str
    size: int
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`name` is that of the folder, `base` the path of the knowledge base in it, `checkout` None without git, `bundle` None
    without history; `deleted` are files of the commit that were gone, `left_out` what is in no backup, and why."""

    name: str
    base: str
    created: str
    duckkb: str
    checkout: Checkout | None
    bundle: SavedFile | None
    files: tuple[SavedFile, ...]
    deleted: tuple[str, ...]
    left_out: tuple[str, ...]


def damaged(why: str) -> StateError:
    return StateError(f"the file is no backup that can be used: {why}", code="E_BACKUP")


class ArchiveWriter:
    """Adds to a backup, then seals it: use it in a `with` block."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._zip = file, ZipFile(file, "w", ZIP_STORED)

    def __enter__(self) -> "ArchiveWriter":
        return self

    def __exit__(self, *reason: object) -> None:
        self._zip.close()  # while its file is open

    def add(self, name: str, path: str, mode: int, pieces: Iterable[bytes]) -> SavedFile:
        entry, digest, size = ZipInfo(name), hashlib.sha256(), 0
        entry.external_attr = mode << 16
        with self._zip.open(entry, "w", force_zip64=True) as target:
            for piece in pieces:
                target.write(piece)
                digest.update(piece)
                size += len(piece)
        return SavedFile(path, size, digest.hexdigest(), mode)

    def seal(self, manifest: Manifest) -> None:
        """Write the manifest and the digest, and make the file durable."""
        told = json.dumps({"format": FORMAT, **asdict(manifest)}).encode()
        if len(told) > _LONGEST_MANIFEST:
            raise StateError(
                f"{len(manifest.files)} files are more than a backup can list; commit them first", "E_BACKUP"
            )
        self.add(MANIFEST, "", stat.S_IFREG | 0o644, [told])
        self._zip.comment = b"0" * _DIGEST_LENGTH
        self._zip.close()
        digest = _digest(self._file)
        self._file.seek(-_DIGEST_LENGTH, os.SEEK_END)
        self._file.write(digest)
        self._file.flush()
        os.fsync(self._file.fileno())


class Archive:
    """A backup that is read. Its bytes are those that were written, and it holds what its manifest names and nothing else;
    `pieces` raises where a file is not the one that is named."""

    def __init__(self, read: ZipFile, manifest: Manifest) -> None:
        self._zip, self.manifest = read, manifest

    def pieces(self, name: str, saved: SavedFile) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        try:
            with self._zip.open(name) as source:
                while piece := source.read(_CHUNK):
                    digest.update(piece)
                    size += len(piece)
                    yield piece
        # What zipfile raises for an entry that is damaged, cut off, compressed in a way it does not know, encrypted, or elsewhere
        # than the archive says: the file may be anybody's, and none of these is a fault of ours.
        except (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise damaged(f"{name} cannot be read: {error}") from error
        if (size, digest.hexdigest()) != (saved.size, saved.sha256):
            raise damaged(f"{name} is not the file that its manifest names")


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Raises `errors.StateError` (E_BACKUP) for what is no backup, or one of which a byte is another."""
    with path.open("rb") as file:
        _check_digest(file)
        try:
            with ZipFile(file) as read:
                yield Archive(read, _listed(read, file.seek(0, os.SEEK_END)))
        except BadZipFile as error:
            raise damaged(str(error)) from error


def _check_digest(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _DIGEST_LENGTH))
    if file.read() != _digest(file):
        raise damaged("its bytes are not those that were written")


def _digest(file: BinaryIO) -> bytes:
    """The SHA-256, in hex, of all bytes before the last ones, which should be it."""
    left, digest = file.seek(0, os.SEEK_END) - _DIGEST_LENGTH, hashlib.sha256()
    file.seek(0)
    while left > 0 and (piece := file.read(min(_CHUNK, left))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest().encode()


def _listed(read: ZipFile, size: int) -> Manifest:
    """The manifest, of an archive that lists its entries as it does, each stored as it is."""
    entries = read.infolist()
    if sum(one.file_size for one in entries) > size or any(one.compress_type != ZIP_STORED for one in entries):
        raise damaged("it unfolds to more than it is")
    named = next((one for one in entries if one.filename == MANIFEST), None)
    if named is None or named.file_size > _LONGEST_MANIFEST:
        raise damaged("it has no manifest, or one that is too long")
    try:
        manifest = _parsed(json.loads(read.read(named)))
        wanted = [MANIFEST, *([BUNDLE] if manifest.bundle else []), *(entry_name(one.path) for one in manifest.files)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, RuntimeError, EOFError) as error:
        raise damaged(f"its manifest cannot be read: {error}") from error
    if sorted(wanted) != sorted(one.filename for one in entries) or len({*wanted}) < len(wanted):
        raise damaged("it holds other files than its manifest names")
    return manifest


def is_sound(path: str, base: str) -> bool:
    """Whether a file of a backup may lie at a path, on any file system; `base` is where the knowledge base lies."""
    own, parts = (f"{base}/" if base else "") + f"{state.FOLDER}/", path.split("/")
    if path.startswith(own) and path.removeprefix(own).split("/")[0] in KEPT_STATE:
        parts = path.removeprefix(own).split("/")
    kept = {"git~1", ".git", state.FOLDER}
    return "\0" not in path and not any(part in ("", ".", "..") or plain(part) in kept for part in parts)


def entry_name(path: str) -> str:
    """The name of a file's entry: its path, with bytes that are no UTF-8 written out."""
    return FILES + os.fsencode(path).decode("utf-8", "backslashreplace")


def _parsed(told: dict[str, Any]) -> Manifest:
    if told["format"] != FORMAT:
        raise damaged(f"it is of format {told['format']!r}, and this version knows {FORMAT}")
    git, bundle = told["checkout"], told["bundle"]
    name, base, created, duckkb = (_is(told[one], str) for one in ("name", "base", "created", "duckkb"))
    checkout = None if git is None else _checkout(git)
    history = None if bundle is None else _saved(bundle)
    files = tuple(map(_saved, _is(told["files"], list)))
    lists = _texts(told["deleted"]), _texts(told["left_out"])
    return Manifest(name, base, created, duckkb, checkout, history, files, *lists)


def _checkout(told: dict[str, Any]) -> Checkout:
    stashes = tuple((stash, said) for stash, said in map(_texts, _is(told["stashes"], list)))
    symbolic = tuple((name, of) for name, of in map(_texts, _is(told["symbolic"], list)))
    commit, branch, index = (_is(told[name], str) for name in ("commit", "branch", "index"))
    ends = _texts(told["shallow"])
    for one in (commit, index, *(stash for stash, _ in stashes), *ends):
        if not _ID.fullmatch(one):
            raise ValueError(f"{one!r} is no commit")
    if branch and not branch.startswith("refs/heads/"):
        raise ValueError(f"{branch!r} is no branch")
    return Checkout(commit, branch, index, stashes, symbolic, ends)


def _saved(told: dict[str, Any]) -> SavedFile:
    mode = _is(told["mode"], int)
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise ValueError(f"{told['path']!r} is neither a file nor a link")
    return SavedFile(_is(told["path"], str), _is(told["size"], int), _is(told["sha256"], str), mode)


def _texts(told: Any) -> tuple[str, ...]:
    return tuple(_is(one, str) for one in _is(told, list))


def _is(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
