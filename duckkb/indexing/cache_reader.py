"""Reads cache files: one kind of row of a file whole, or a few rows by their places."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from duckkb.indexing.cache_files import CacheFile, Damaged, Kind, digest, digest_of
from duckkb.indexing.places import Misplaced, Places
from duckkb.indexing.sample import Trust
from duckkb.indexing.seen import Seen
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.indexing.cache_format import Segment

FEW = 256
"""Rows up to which reading them one by one costs less than reading the file."""


@dataclass(frozen=True)
class _Found:
    """Keys in a file that is open to read: the place of each, None where the file has none, and whether its row may be
    used."""

    places: Places
    file: IO[bytes]
    rows: list[int | None]
    usable: list[bool]


class Reader:
    """Knows which files it has hashed before (`seen`) and where their rows lie (`places`), as far as `state_home` is given:
    both lie there, out of reach of whoever made the clone."""

    def __init__(self, trust: Trust, state_home: Path | None) -> None:
        self._trust, self._state_home = trust, state_home
        self._seen = Seen(state_home)
        self._places: dict[str, Places] = {}
        self._unplaced: list[tuple[CacheFile, Segment, str]] = []

    def whole(self, file: CacheFile, kind: Kind) -> "tuple[str, Segment]":
        """The hash of the file and its good rows of one kind. Raises `Damaged`, FileNotFoundError."""
        from duckkb.indexing.cache_format import decode

        with file.opened() as opened:
            read_ns, about = time.time_ns(), os.fstat(opened.fileno())
            data = file.checked(opened.read())
        name = self._seen.digest(file.place, about)
        if name is None:
            name = digest(data)
            self._seen.note(file.place, about, read_ns, name)
        file.refuse_misnamed(name)
        segment = decode(data, kind)
        self.place(file, segment, name)
        return name, segment

    def place(self, file: CacheFile, segment: "Segment", name: str) -> None:
        """Have few rows of a file found without the rest, once `keep` was called. `name` is the hash of its bytes."""
        if file.kind == segment.kind and self._state_home and not self._known_places(name, segment.kind):
            self._unplaced.append((file, segment, name))

    def keep(self) -> None:
        """Write down what was learnt of the files that were read. Only here: to look changes nothing."""
        with suppress(OSError):
            self._seen.keep()
        unplaced, self._unplaced = self._unplaced, []
        for file, segment, name in unplaced:
            from duckkb.indexing.placing import keep_places

            with suppress(OSError, Damaged):
                if self._state_home and digest(data := file.raw()) == name:
                    keep_places(data, segment, name, self._state_home)

    def some(self, file: CacheFile, kind: Kind, keys: Sequence[bytes], *, packed: bool) -> list[Any]:
        """The payload of each key whose row may be used; None for the others. Raises `Misplaced` where that cannot be said
        without reading the file whole, or it lies `packed` in pages and that is not wanted; FileNotFoundError where it is
        gone."""
        with self._found(file, kind, keys) as found:
            if not (packed or found.places.is_plain):
                raise Misplaced
            wanted = [row for row, may in zip(found.rows, found.usable, strict=True) if row is not None and may]
            stored = iter(found.places.payloads(found.file, wanted))
            return [_payload(kind, next(stored)) if may else None for may in found.usable]

    def sized(self, file: CacheFile, kind: Kind, keys: Sequence[bytes]) -> list[range | None]:
        """As `some`, with a range as long as each payload in its place; reads none."""
        width = 4 if kind == "vector" else 1
        with self._found(file, kind, keys) as found:
            return [
                range(found.places.length(row) // width) if row is not None and may else None
                for row, may in zip(found.rows, found.usable, strict=True)
            ]

    def may_use(self, file: CacheFile, kind: Kind, keys: Sequence[bytes]) -> bool:
        """Whether all rows of these keys that the file has may be used. Raises as `some` does."""
        with self._found(file, kind, keys) as found:
            return all(may for row, may in zip(found.rows, found.usable, strict=True) if row is not None)

    @contextmanager
    def _found(self, file: CacheFile, kind: Kind, keys: Sequence[bytes]) -> Iterator[_Found]:
        if file.kind != kind or self._state_home is None:
            raise Misplaced
        try:
            with file.opened() as opened:
                name = self._hash(file, opened)
                places = self._known_places(name, kind)
                if places is None or self._trust.distrusts(name):
                    raise Misplaced
                may = self._trust.usable(name, kind, places.count)
                rows = places.rows(keys)
                yield _Found(places, opened, rows, [row is not None and may(row) for row in rows])
        except Damaged as problem:
            raise Misplaced from problem

    def _hash(self, file: CacheFile, opened: IO[bytes]) -> str:
        """That of all its bytes, taken now where it is not known."""
        read_ns, about = time.time_ns(), os.fstat(opened.fileno())
        name = self._seen.digest(file.place, about)
        if name is None:
            name = digest_of(opened)
            self._seen.note(file.place, about, read_ns, name)
        file.refuse_misnamed(name)
        return name

    def _known_places(self, name: str, kind: Kind) -> Places | None:
        found = self._places.get(name)
        if found is None and self._state_home is not None:
            found = Places.open(self._state_home, name, kind)
            if found is not None:
                self._places[name] = found
        return found


def _payload(kind: Kind, stored: bytes) -> Any:
    if kind == "tokens":
        try:
            return stored.decode()
        except UnicodeDecodeError as problem:
            raise Misplaced from problem
    if sys.byteorder == "little":
        return memoryview(stored).cast("f")
    import numpy as np

    return np.frombuffer(stored, "<f4").astype(np.float32)
