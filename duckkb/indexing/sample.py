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
        self._path = state_home / "caches.json" if state_home else None
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


def _load(path: Path | None) -> dict[str, list[str]]:
    """What is remembered; nothing where the file is missing or not what we wrote, which costs a new sample only."""
    try:
        stored: Any = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError):
        return {}
    files = stored.get("files") if isinstance(stored, dict) else None
    if not isinstance(files, dict):
        return {}
    return {name: [kind for kind in KINDS if kind in kinds] for name, kinds in files.items() if isinstance(kinds, list)}


def _write(path: Path, known: Mapping[str, list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(json.dumps({"format": 1, "files": known}).encode())
