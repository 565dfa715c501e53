"""Atomic writes: a file is written beside its place, then moved to it, so that it is there whole or not at all.

A killed process leaves a draft whose name matches `DRAFTS`. Nobody reads drafts; whoever sweeps the folder
removes them.

Opening files that others may have placed, without following links or blocking."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_UNBLOCKED: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
NO_FOLLOW: int = _UNBLOCKED | getattr(os, "O_NOFOLLOW", 0)
"""Flags of `os.open` that follow no link and wait for no FIFO."""


def open_without_blocking(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a file for reading without waiting for a FIFO.

    Raises OSError for a folder, and for a link unless `follow`.

    The caller checks for other files that are not regular. This is an opener for `open`, since `os.fdopen`
    would leave the descriptor open where it turns out to be a folder.
    """
    flags = _UNBLOCKED if follow else NO_FOLLOW
    return open(path, "rb", opener=lambda name, open_flags: os.open(name, open_flags | flags))


DRAFTS = ".*.tmp"

_NEW: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW


def replace_file(path: Path, data: bytes | Iterable[bytes], *, mode: int | None = None, durable: bool = True) -> None:
    """Replace or create a file atomically: readers see the old file or the new one, nothing between.

    Args:
        mode: The permission bits; None keeps those of the existing file.
        durable: Whether the file survives a power cut once this returns.

    Raises OSError, and what iterating `data` raises; the old file then stays as it was.
    """
    draft = draft_beside(path)
    with take_place(draft, path):
        write_new(draft, data, mode=_read_mode(path) if mode is None else mode, durable=durable)
    if durable:
        fsync_folder(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Create a file that survives a power cut; leave an existing file as it is. Raises OSError."""
    draft = draft_beside(path)
    try:
        write_new(draft, data)
        with suppress(FileExistsError):
            os.link(draft, path)
        fsync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def take_place(draft: Path, path: Path) -> Iterator[None]:
    """Move `draft` to `path` at the end of the block; remove it where the block fails. Raises OSError."""
    try:
        yield
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def draft_beside(path: Path) -> Path:
    """Return a new name beside a file, for a draft that is to take its place."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")


def write_new(
    path: Path, data: bytes | Iterable[bytes], *, mode: int | None = None, durable: bool = True
) -> os.stat_result:
    """Write a file that must not exist yet and return its facts. `mode` None means 0o644 less the umask; raises OSError."""
    descriptor = os.open(path, _NEW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
        file.flush()
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable. Windows cannot open a folder and needs no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_mode(path: Path) -> int | None:
    """Return the mode of a file; None for a missing file and for a link, which has no mode of its own."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return None if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
