"""Files that are there whole or not at all: written beside their place, then moved to it.

A killed process leaves a draft whose name matches `DRAFTS`. Nobody reads it; whoever sweeps the folder removes it.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from duckkb.open_files import NO_FOLLOW

DRAFTS = ".*.tmp"

_NEW: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW


def replace_file(path: Path, data: bytes | Iterable[bytes], *, mode: int | None = None, durable: bool = True) -> None:
    """Replace a file, or make it, so that it is the old or the new one at every moment.

    `durable`: it survives a power cut once this returns. `mode` None keeps the mode of the file that is there. Raises
    OSError, and what `data` raises; the old file is then as it was.
    """
    draft = draft_beside(path)
    with take_place(draft, path):
        write_new(draft, data, mode=_read_mode(path) if mode is None else mode, durable=durable)
    if durable:
        fsync_folder(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Make a file that survives a power cut; a file that is there already stays. Raises OSError."""
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
    """Return a new name beside a file, for what is to take its place."""
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
    """The mode of a file; None where there is none, and for a link, which has none of its own."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return None if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
