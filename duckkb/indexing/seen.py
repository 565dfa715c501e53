"""Which files were hashed already: reading 150 MB to learn that they are still the same would cost each process a tenth
of a second and more. Kept in the user's state folder, never in the clone, as trust hangs on these hashes.

A file counts as the one that was hashed while size, mtime, ctime, inode and device are what they were, and only if it had
been left alone for two seconds before it was read: file systems keep times as coarse as that.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from duckkb.indexing.cache_files import replacing

_FORMAT = 1
_REMEMBERED = 2048
_GRANULARITY_NS = 2_000_000_000

Stamp = list[int]
"""Size, mtime and ctime in ns, inode, device."""


class Seen:
    """SHA-256 (hex) of files by path and stamp, kept in `state_home/seen.json`, if it is given."""

    def __init__(self, state_home: Path | None) -> None:
        self._path = state_home / "seen.json" if state_home else None
        self._known: dict[str, tuple[Stamp, str]] | None = None
        self._fresh: dict[str, tuple[Stamp, str]] = {}

    def digest(self, path: Path, about: os.stat_result) -> str | None:
        """That of a file, where it is surely known; `about` is of the file as it was opened."""
        stamp, digest = self._files.get(str(path.absolute()), ([], ""))
        return digest if stamp == _stamp(about) else None

    def note(self, path: Path, about: os.stat_result, read_ns: int, digest: str) -> None:
        """Take the digest of what was read from a file at `read_ns`; `about` was asked before it was read."""
        if max(about.st_mtime_ns, about.st_ctime_ns) > min(read_ns, time.time_ns()) - _GRANULARITY_NS:
            return
        self._fresh[str(path.absolute())] = self._files[str(path.absolute())] = _stamp(about), digest

    def keep(self) -> None:
        """Write down what was taken, beside what others wrote meanwhile. Raises OSError."""
        if self._path and self._fresh:
            known = {name: note for name, note in _load(self._path).items() if name not in self._fresh} | self._fresh
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as file:
                last = dict(list(known.items())[-_REMEMBERED:])
                file.write(json.dumps({"format": _FORMAT, "files": last}).encode())
        self._fresh = {}

    @property
    def _files(self) -> dict[str, tuple[Stamp, str]]:
        if self._known is None:
            self._known = _load(self._path)
        return self._known


def _stamp(about: os.stat_result) -> Stamp:
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev]


def _load(path: Path | None) -> dict[str, tuple[Stamp, str]]:
    """What is remembered; nothing where the file is missing or not what we wrote, which costs reading once more."""
    try:
        stored: Any = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    files = stored.get("files") if isinstance(stored, dict) and stored.get("format") == _FORMAT else None
    if not isinstance(files, dict):
        return {}
    return {name: (note[0], note[1]) for name, note in files.items() if _is_note(note)}


def _is_note(note: Any) -> bool:
    return isinstance(note, list) and len(note) == 2 and isinstance(note[0], list) and isinstance(note[1], str)
