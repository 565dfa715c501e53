"""Where cache files lie, and how their bytes are read and written. Nothing here knows what is in them.

`.duckkb/cache/` holds the segments that this machine made. The team's cache is `data/indices/search_cache.parquet`, or
from 8 MB on the segments in `data/indices/search_cache/`. A segment is named after its kind and the hash of its bytes.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import IO, Literal

from duckkb.errors import Finding
from duckkb.values import dataclass

Kind = Literal["tokens", "vector"]
KINDS: tuple[Kind, ...] = ("tokens", "vector")

LOCAL_FOLDER = ".duckkb/cache"
TEAM_FILE = "data/indices/search_cache.parquet"
TEAM_FOLDER = "data/indices/search_cache"
LARGEST = 512 * 1024 * 1024
"""Bytes of a cache file at most; duckkb writes none near it."""

_MANY_SEGMENTS = 16
_TIERS = (64 * 1024, 1024 * 1024, 16 * 1024 * 1024)
"""Bytes. As many segments below one of these sizes, and not below the one before, become one: a row is written anew three
times at most until it lies in a segment that stays."""

TEMPORARY = ".tmp-*"
"""Names of files that are being written; what a killed process leaves of them serves nobody."""

_SEGMENT = re.compile(r"(tokens|vector)-[0-9a-f]{16}\.parquet")
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_HEAD = 64
_BLOCK = 1 << 20


class Damaged(ValueError):
    """A file that is no cache. The message says what it is instead, `remedy` what mends it."""

    def __init__(self, message: str, remedy: str = "duckkb index build") -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class CacheFile:
    """A file that should be a cache: its path relative to the base, and the kind of row in it (None: both)."""

    root: Path
    path: str
    kind: Kind | None = None

    @property
    def is_local(self) -> bool:
        return self.path.startswith(LOCAL_FOLDER)

    @property
    def size(self) -> int:
        """Bytes on disk, 0 where it is gone."""
        with suppress(OSError):
            return (self.root / self.path).lstat().st_size
        return 0

    @property
    def place(self) -> Path:
        return self.root / self.path

    @property
    def stamp(self) -> tuple[int, ...]:
        """Size, time in ns and inode, which tell whether it changed; nothing where it is gone."""
        try:
            status = self.place.lstat()
        except OSError:
            return ()
        return status.st_size, status.st_mtime_ns, status.st_ino

    def opened(self) -> AbstractContextManager[IO[bytes]]:
        """The file, open to read. Raises as `raw` does."""
        return _opened(self.root, self.path)

    def sniff(self) -> None:
        """Look at both ends alone, which shows pointers, conflict markers and most torn files; raises as `read` does."""
        with self.opened() as file:
            head = file.read(_HEAD)
            file.seek(-min(4, len(head)), os.SEEK_END)
            _refuse(head, file.read())

    def read(self) -> bytes:
        """All of its bytes. Raises `Damaged` for what cannot be a cache, FileNotFoundError where it is gone."""
        data = self.checked(self.raw())
        if self.kind:
            self.refuse_misnamed(digest(data))
        return data

    def raw(self) -> bytes:
        """All of its bytes, whatever they are. Raises `Damaged` for a link or what is no file, FileNotFoundError."""
        with self.opened() as file:
            return file.read(LARGEST)

    def checked(self, data: bytes) -> bytes:
        """The same bytes; raises `Damaged` where both ends show that they are no cache."""
        _refuse(data[:_HEAD], data[-4:])
        return data

    def refuse_misnamed(self, file_hash: str) -> None:
        """Raise `Damaged` for a segment whose name is not that of its bytes, by their hash."""
        if self.kind and not self.path.endswith(_name(self.kind, file_hash)):
            raise Damaged("its content is not what its name says")

    def remove(self) -> None:
        """Never behind a link: what lies there is somebody else's."""
        if is_behind_link(self.root, self.root / self.path):
            return
        with suppress(OSError):
            (self.root / self.path).unlink()

    def finding(self, message: str, remedy: str, code: str = "W_CACHE") -> Finding:
        return Finding(code, message, self.path, remedy=remedy)


def digest(data: bytes) -> str:
    """Names the bytes of a file: in a segment's name, and in what this machine remembers of it."""
    return sha256(data).hexdigest()


def digest_of(file: IO[bytes]) -> str:
    """`digest` of a file that is open to read, from where it stands."""
    found = sha256()
    while block := file.read(_BLOCK):
        found.update(block)
    return found.hexdigest()


def segment_name(kind: Kind, data: bytes) -> str:
    return _name(kind, digest(data))


def _name(kind: Kind, file_hash: str) -> str:
    return f"{kind}-{file_hash[:16]}.parquet"


def local_files(root: Path) -> list[CacheFile]:
    """The segments made here, by name."""
    return list(_segments(root, LOCAL_FOLDER))


def team_files(root: Path) -> list[CacheFile]:
    """The team's file, if it is there in whatever form, and the team's segments by name."""
    single = [CacheFile(root, TEAM_FILE)] if os.path.lexists(root / TEAM_FILE) else []
    return [*single, *_segments(root, TEAM_FOLDER)]


def write_local(root: Path, kind: Kind, data: bytes) -> CacheFile:
    """Write a local segment, whole or not at all; makes `.duckkb/` where it is missing. Raises OSError, also for a link:
    what lies behind one is somebody else's."""
    folder, name = root / LOCAL_FOLDER, segment_name(kind, data)
    if is_behind_link(root, folder / name):
        raise OSError(errno.ELOOP, "it lies behind a link", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder.parent / ".gitignore"
    if not os.path.lexists(ignore):
        ignore.write_bytes(b"*\n")
    with replacing(folder / name) as file:
        file.write(data)
    return CacheFile(root, f"{LOCAL_FOLDER}/{name}", kind)


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the target's place at the end, and is gone if anything fails."""
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile(dir=target.parent, prefix=TEMPORARY.removesuffix("*"), delete=False) as file:
        try:
            yield file
            file.close()
            Path(file.name).replace(target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _segments(root: Path, folder: str) -> Iterator[CacheFile]:
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in (root / folder).iterdir())
    for name in names:
        if match := _SEGMENT.fullmatch(name):
            kind: Kind = "tokens" if match[1] == "tokens" else "vector"
            yield CacheFile(root, f"{folder}/{name}", kind)


def is_behind_link(root: Path, target: Path) -> bool:
    """Whether a folder between the base and a path in it is a link."""
    return any(folder.is_symlink() for folder in target.parents if root in folder.parents)


@contextmanager
def _opened(root: Path, path: str) -> Iterator[IO[bytes]]:
    """The file, open to read: neither it nor a folder above it inside the base may be a link, nor anything but a file."""
    target = root / path
    if is_behind_link(root, target):
        raise Damaged("it lies behind a link", "replace the link by the folder")
    try:
        number = os.open(target, _OPEN)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise Damaged(f"it cannot be opened ({problem.strerror})") from problem
    about = os.fstat(number)
    if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
        os.close(number)
        raise Damaged("it is no regular file, or too large", "remove it, then `duckkb index build`")
    with os.fdopen(number, "rb") as file:
        yield file


def _refuse(head: bytes, tail: bytes) -> None:
    if head.startswith(b"version https://git-lfs"):
        raise Damaged("it is a Git LFS pointer, not its content", "git lfs pull")
    if head.startswith(b"<<<<<<<"):
        raise Damaged("it holds git's conflict markers", "git checkout --ours FILE, then `duckkb index build`")
    if not head.startswith(b"PAR1") or tail != b"PAR1":
        raise Damaged("it is torn or not Parquet")


def crowded(files: Sequence[CacheFile]) -> list[CacheFile]:
    """Of the tiers of sizes those that are full: the segments that should become one."""
    sizes = {file: file.size for file in files}
    found: list[CacheFile] = []
    for least, most in pairwise((0, *_TIERS)):
        tier = [file for file, size in sizes.items() if least <= size < most]
        found += tier if len(tier) >= _MANY_SEGMENTS else []
    return found
