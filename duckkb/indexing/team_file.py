"""The files of the team's cache: where they lie, and how their bytes are read. Nothing here knows what is in them.

It is `data/indices/search_cache.parquet`, or from 8 MB on the segments in `data/indices/search_cache/`, each named after its
kind and the hash of its bytes. Whoever made the clone made them: they may be anything.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO

from duckkb.errors import Finding
from duckkb.indexing.cache_rows import Kind
from duckkb.values import dataclass

TEAM_FILE = "data/indices/search_cache.parquet"
TEAM_FOLDER = "data/indices/search_cache"
LARGEST = 512 * 1024 * 1024
"""Bytes of a cache file at most; duckkb writes none near it."""

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
class TeamFile:
    """A file that should be a cache: its path relative to the base."""

    root: Path
    path: str

    @property
    def stamp(self) -> tuple[int, ...]:
        """Size, times in ns, inode and device, which tell whether it changed; nothing where it is gone."""
        try:
            return stamp_of((self.root / self.path).lstat())
        except OSError:
            return ()

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file, open to read. Raises `Damaged` for a link or what is no file, FileNotFoundError where it is gone."""
        target = self.root / self.path
        if any(folder.is_symlink() for folder in target.parents if self.root in folder.parents):
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

    def sniff(self) -> None:
        """Look at both ends alone, which shows pointers, conflict markers and most torn files; raises as `opened` does."""
        with self.opened() as file:
            head = file.read(_HEAD)
            file.seek(-min(4, len(head)), os.SEEK_END)
            _refuse(head, file.read())

    def refuse_misnamed(self, file_hash: str) -> None:
        """Raise `Damaged` for a segment whose name is not that of its bytes, by their hash."""
        match = _SEGMENT.fullmatch(self.path.rsplit("/", 1)[-1])
        if match and not self.path.endswith(_name(match[1], file_hash)):
            raise Damaged("its content is not what its name says")

    def finding(self, message: str, remedy: str, code: str = "W_CACHE") -> Finding:
        return Finding(code, message, self.path, remedy=remedy)


def team_files(root: Path) -> list[TeamFile]:
    """The team's file, if it is there in whatever form, and the team's segments by name."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in (root / TEAM_FOLDER).iterdir() if _SEGMENT.fullmatch(entry.name))
    single = [TeamFile(root, TEAM_FILE)] if os.path.lexists(root / TEAM_FILE) else []
    return [*single, *(TeamFile(root, f"{TEAM_FOLDER}/{name}") for name in names)]


def stamp_of(about: os.stat_result) -> tuple[int, ...]:
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev


def digest(data: bytes) -> str:
    """Names the bytes of a file: in a segment's name, and in what this machine remembers of it."""
    return sha256(data).hexdigest()


def digest_of(file: IO[bytes]) -> str:
    """`digest` of a file that is open to read, from its beginning."""
    file.seek(0)
    found = sha256()
    while block := file.read(_BLOCK):
        found.update(block)
    return found.hexdigest()


def segment_name(kind: Kind, data: bytes) -> str:
    return _name(kind, digest(data))


def _name(kind: str, file_hash: str) -> str:
    return f"{kind}-{file_hash[:16]}.parquet"


def _refuse(head: bytes, tail: bytes) -> None:
    if head.startswith(b"version https://git-lfs"):
        raise Damaged("it is a Git LFS pointer, not its content", "git lfs pull")
    if head.startswith(b"<<<<<<<"):
        raise Damaged("it holds git's conflict markers", "git checkout --ours FILE, then `duckkb index build`")
    if not head.startswith(b"PAR1") or tail != b"PAR1":
        raise Damaged("it is torn or not Parquet")
