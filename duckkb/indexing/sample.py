"""Trust in cache files from elsewhere: which files this machine made or has checked, and how a sample is drawn.

A checksum does not stop a forger. Rows of a file that this machine did not make count for nothing until a random sample
of them has been recomputed, and it speaks only for the rows among which it was drawn: a file may be honest about one type
and lie about another, or about texts that a later commit brings. What passed is remembered by the hash of the file,
outside the clone.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from duckkb.indexing.cache_files import KINDS, Kind, replacing

SAMPLE = 32
"""Rows of a file to recompute before the rest is believed."""

_REMEMBERED = 4096
_FORMAT = 2

Note = bool | str
"""Of a file's rows of one kind: all may be used, none ever, or those whose bits are set (see `_packed`)."""


def draw(keys: Collection[bytes], count: int = SAMPLE) -> list[bytes]:
    """Keys that a forger cannot foresee; all of them where there are no more than `count`."""
    from random import SystemRandom

    return SystemRandom().sample(sorted(keys), min(count, len(keys)))


class Trust:
    """Which rows of which cache files may be used, by the files' hashes; kept in `state_home/caches.json`, if it is given."""

    def __init__(self, state_home: Path | None) -> None:
        self._path = memory_path(state_home) if state_home else None
        self._known = _load(self._path)

    def knows(self, file_hash: str, kind: Kind) -> bool:
        """Whether all of them may be used."""
        return self._known.get(file_hash, {}).get(kind) is True

    def look_again(self) -> None:
        """Take in what other processes have noted since this was made."""
        self._known = _load(self._path) | self._known

    def distrusts(self, file_hash: str) -> bool:
        """Whether rows of it were found to be forged."""
        return False in self._known.get(file_hash, {}).values()

    def vouched(self, file_hash: str, kind: Kind, keys: Collection[bytes]) -> set[bytes]:
        """Those of a file's keys whose rows may be used. `keys` are all of them."""
        note = self._known.get(file_hash, {}).get(kind)
        return _unpacked(note, keys) if isinstance(note, str) else set()

    def usable(self, file_hash: str, kind: Kind, count: int) -> Callable[[int], bool]:
        """Whether the row of a key may be used, by the key's place among all of the file's keys in order; `count` of them."""
        note = self._known.get(file_hash, {}).get(kind)
        if isinstance(note, str):
            bits = _bits(note, count)
            return lambda place: bool(bits and bits[place // 8] >> place % 8 & 1)
        return lambda place: note is True

    def remember(self, file_hash: str, kinds: Collection[Kind]) -> None:
        """Trust these kinds of rows of a file from now on. Where it cannot be written down it holds for this process."""
        self._note(file_hash, dict.fromkeys(kinds, True))

    def vouch(self, file_hash: str, kind: Kind, keys: Collection[bytes], vouched: Collection[bytes]) -> None:
        """Trust these rows of a file from now on; `keys` are all of its keys."""
        self._note(file_hash, {kind: len(vouched) == len(keys) or _packed(vouched, keys)})

    def distrust(self, file_hash: str) -> None:
        """Use no row of a file any more."""
        self._note(file_hash, dict.fromkeys(KINDS, False))

    def _note(self, file_hash: str, notes: Mapping[Kind, Note]) -> None:
        known = _load(self._path) | self._known
        known[file_hash] = known.pop(file_hash, {}) | dict(notes)
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


def _packed(chosen: Collection[bytes], keys: Collection[bytes]) -> str:
    """One bit for each of the keys in their order, set for those chosen."""
    import zlib
    from base64 import b64encode

    whole = bytearray(len(keys) // 8 + 1)
    for place, key in enumerate(sorted(keys)):
        whole[place // 8] |= (key in chosen) << place % 8
    return f"{len(keys)}:{b64encode(zlib.compress(whole)).decode()}"


def _unpacked(note: str, keys: Collection[bytes]) -> set[bytes]:
    """The keys whose bits are set."""
    bits = _bits(note, len(keys))
    return {key for place, key in enumerate(sorted(keys)) if bits[place // 8] >> place % 8 & 1} if bits else set()


def _bits(note: str, count: int) -> bytes:
    """A note unpacked; nothing where it is not one of ours about as many keys."""
    import zlib
    from base64 import b64decode

    said, _, text = note.partition(":")
    unpacking = zlib.decompressobj()
    try:
        whole = unpacking.decompress(b64decode(text, validate=True), count // 8 + 1)
    except (ValueError, zlib.error):
        return b""
    return whole if said == str(count) and len(whole) == count // 8 + 1 else b""


def _load(path: Path | None) -> dict[str, dict[Kind, Note]]:
    """What is remembered; nothing where the file is missing or not what we wrote, which costs a new sample only."""
    try:
        stored: Any = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    files = stored.get("files") if isinstance(stored, dict) and stored.get("format") == _FORMAT else None
    if not isinstance(files, dict):
        return {}
    return {
        name: {kind: notes[kind] for kind in KINDS if isinstance(notes.get(kind), (bool, str))}
        for name, notes in files.items()
        if isinstance(notes, dict)
    }


def _write(path: Path, known: Mapping[str, Mapping[Kind, Note]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(json.dumps({"format": _FORMAT, "files": known}).encode())
