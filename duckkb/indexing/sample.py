"""Trust in cache files from elsewhere: which files this machine made or has checked, and how a sample is drawn.

A checksum does not stop a forger. Rows of a file that this machine did not make count for nothing until a random sample
of them has been recomputed. What passed is remembered by the hash of the file, outside the clone.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Any

from duckkb.indexing.cache_files import KINDS, Kind, replacing

SAMPLE = 32
"""Rows of a file to recompute before the rest is believed."""

_REMEMBERED = 4096


def draw(keys: Collection[bytes], count: int = SAMPLE) -> list[bytes]:
    """Keys that a forger cannot foresee; all of them where there are no more than `count`."""
    return SystemRandom().sample(sorted(keys), min(count, len(keys)))


class Trust:
    """The hashes of cache files whose rows, of a kind, may be used; kept in `state_home/caches.json`, if it is given."""

    def __init__(self, state_home: Path | None) -> None:
        self._path = memory_path(state_home) if state_home else None
        self._known = _load(self._path)

    def knows(self, file_hash: str, kind: Kind) -> bool:
        return kind in self._known.get(file_hash, ())

    def remember(self, file_hash: str, kinds: Collection[Kind]) -> None:
        """Trust these kinds of rows of a file from now on. Where it cannot be written down it holds for this process."""
        known = _load(self._path) | self._known
        known[file_hash] = sorted({*known.pop(file_hash, ()), *kinds})
        self._known = dict(list(known.items())[-_REMEMBERED:])
        if self._path:
            with suppress(OSError):
                _write(self._path, self._known)

    def forget(self, start: str) -> None:
        """Trust no file any more whose hash begins like this."""
        gone = [name for name in _load(self._path) | self._known if name.startswith(start)]
        if not gone:
            return
        self._known = {name: kinds for name, kinds in (_load(self._path) | self._known).items() if name not in gone}
        if self._path:
            with suppress(OSError):
                _write(self._path, self._known)


def memory_path(state_home: Path) -> Path:
    """Where this machine remembers which caches it made or checked, of all bases."""
    return state_home / "caches.json"


def is_memory_damaged(state_home: Path) -> bool:
    """Whether that file is there but says nothing that can be used; harmless but for one more sample."""
    try:
        stored: Any = json.loads(memory_path(state_home).read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError):
        return True
    return not (isinstance(stored, dict) and isinstance(stored.get("files"), dict))


def _load(path: Path | None) -> dict[str, list[str]]:
    """What is remembered; nothing where the file is missing or not what we wrote, which costs a new sample only."""
    try:
        stored: Any = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    files = stored.get("files") if isinstance(stored, dict) else None
    if not isinstance(files, dict):
        return {}
    return {name: [kind for kind in KINDS if kind in kinds] for name, kinds in files.items() if isinstance(kinds, list)}


def _write(path: Path, known: Mapping[str, list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(json.dumps({"format": 1, "files": known}).encode())
