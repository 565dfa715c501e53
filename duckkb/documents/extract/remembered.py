"""Remembers extracted texts by the digest of the file's content: one small file each, in the user's cache folder.

Each file names its extractor and carries its own digest. Files of another version and damaged files are
replaced. Nothing here is truth; a failure to write is ignored.
"""

import json
import os
import re
import stat
import time
from contextlib import suppress
from hashlib import blake2b, sha256
from pathlib import Path

from msgspec import Struct

from duckkb import atomic_write
from duckkb.documents.extract.result import FileText
from duckkb.open_files import open_without_blocking

_OURS = re.compile(r"\.?[0-9a-f]{64}-[a-z]+(?:\.[0-9a-f]{12}\.tmp)?")
_DIGEST = 16
_DAY = 86_400


class _Kept(Struct):
    folder: Path | None = None


_kept = _Kept()


def remember_in(folder: Path | None) -> None:
    """Set the folder where this process keeps extracted texts; None keeps none. The folder is created at its first
    use; its parent must exist.
    """
    _kept.folder = folder


def key(form: str, raw: bytes) -> str:
    return f"{sha256(raw).hexdigest()}-{form}"


def recall(name: str, by: str) -> FileText | None:
    """Return what `remember` stored under a key with the same extractor; None if there is nothing or it is
    damaged.
    """
    if _kept.folder is None:
        return None
    path = _kept.folder / name
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = _read(path)
        entry = json.loads(body)
        if entry["by"] == by:
            if path.stat().st_mtime < time.time() - _DAY:  # mark it as used, so that a cleanup removes others first
                os.utime(path)
            return FileText.from_plain(entry)
    return None


def remember(name: str, by: str, found: FileText) -> None:
    """Store a text atomically; do nothing if that fails."""
    folder = _kept.folder
    if folder is None:
        return
    body = json.dumps({"by": by, **found.plain()}, ensure_ascii=False).encode()
    with suppress(OSError, ValueError):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        _check_owner(folder)
        atomic_write.replace_file(folder / name, _digest(body) + body, mode=0o600, durable=False)


def surplus(folder: Path, most: int) -> list[tuple[Path, int]]:
    """List the least recently used files of such a folder with their bytes; without them the rest takes at most
    `most` bytes.
    """
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError), os.scandir(_check_owner(folder)) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and _OURS.fullmatch(entry.name):
                    files.append((status.st_mtime, status.st_size, Path(entry.path)))
    over = sum(size for _, size, _ in files) - most
    oldest: list[tuple[Path, int]] = []
    for _, size, path in sorted(files):
        if over <= 0:
            break
        oldest.append((path, size))
        over -= size
    return oldest


def _check_owner(folder: Path) -> Path:
    """Return the folder. Raises OSError if it is a link, is not a folder, or does not belong to the user."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        raise NotADirectoryError(folder)
    return folder


def _read(path: Path) -> bytes:
    with open_without_blocking(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(path)
        head, body = file.read(2 * _DIGEST), file.read()
    if head != _digest(body):
        raise ValueError(path)
    return body


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST).hexdigest().encode()
