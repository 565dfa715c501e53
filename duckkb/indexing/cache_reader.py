"""Reads cache files: one kind of row of a file whole, or a few rows by their places."""

import mmap
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from duckkb.indexing.cache_files import CacheFile, Damaged, Kind, digest, digest_of
from duckkb.indexing.places import Misplaced, Places
from duckkb.indexing.sample import Trust
from duckkb.indexing.seen import Seen
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.indexing.cache_format import Segment

_MAPPED = 256 * 1024 * 1024
_AROUND = 64 * 1024
"""Bytes of files that may count to this process, and what reading one row adds: the system maps what lies around it too."""
FEW = 256
"""Rows up to which reading them one by one costs less than reading the file."""


@dataclass(frozen=True)
class _Found:
    """Keys in a file that is open to read: the file's hash, the place of each key, None where the file has none, and whether
    its row may be used."""

    name: str
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
        self._contents: dict[str, mmap.mmap] = {}
        self._touched = 0  # bytes of them, about, since they were let go
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
        """Write down what was learnt of the files that were read, and let go of them. Only here: to look changes nothing."""
        self._contents.clear()
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
            if len(wanted) <= FEW and found.name not in self._contents:
                stored: Sequence[bytes | memoryview] = found.places.payloads(found.file, wanted)
            else:
                stored = found.places.within(self._content(found), wanted)
            payloads = iter(_payloads(kind, stored))
            given = [next(payloads) if may else None for may in found.usable]
        self._ease(len(wanted))
        return given

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
                yield _Found(name, places, opened, rows, [row is not None and may(row) for row in rows])
        except Damaged as problem:
            raise Misplaced from problem

    def _content(self, found: _Found) -> memoryview:
        """The bytes of a file, mapped until `keep`, and surely those that its hash names, with places that are true. Raises
        `Misplaced`."""
        if found.name not in self._contents:
            try:
                mapped = mmap.mmap(found.file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as problem:
                raise Misplaced from problem
            if not found.places.is_true or sha256(mapped).hexdigest() != found.name:
                raise Misplaced
            self._contents[found.name] = mapped
            self._touched += len(mapped)
        return memoryview(self._contents[found.name])

    def _ease(self, rows: int) -> None:
        """What was read of large files is not kept in this process: the system has it, and gives it again."""
        self._touched += _AROUND * rows
        is_large = sum(map(len, self._contents.values())) > _MAPPED
        if self._touched > _MAPPED and is_large and hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._contents.values():
                mapped.madvise(mmap.MADV_DONTNEED)
            self._touched = 0

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


def _payloads(kind: Kind, stored: Sequence[bytes | memoryview]) -> Sequence[Any]:
    if kind == "tokens":
        try:
            return [str(payload, "utf-8") for payload in stored]
        except UnicodeDecodeError as problem:
            raise Misplaced from problem
    if len(stored) <= FEW and sys.byteorder == "little":
        return [memoryview(payload).cast("f") for payload in stored]
    import numpy as np

    if len(set(map(len, stored))) == 1:  # nearly always: one array of all of them is made faster than many
        rows = np.frombuffer(b"".join(stored), "<f4").reshape(len(stored), -1)
        return list(rows.astype(np.float32, copy=False))
    return [np.frombuffer(payload, "<f4").astype(np.float32) for payload in stored]
