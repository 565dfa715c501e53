"""Where the rows of a cache file lie in it, so that a few of them can be read without the rest.

Made from a file that was read and checked whole (`placing`), named after its hash, and kept in the user's state folder:
what lay in a clone could point to other rows. A row that is read through it is held against its own checksum; for many,
the file's bytes are held against its hash once, and the places against theirs. Where anything does not fit, the file is
read whole (`Misplaced`).

Layout, little-endian: magic, counts, a hash over the file's hash, the keys, the pages and the fingerprints, a hash over
all columns; a row each, by key: key, content hash, checksum, number of fingerprint, page, offset of the payload in the
page, its length; a page each: offset in the file, bytes there, bytes after decompression, codec; fingerprints as JSON.
"""

import json
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from duckkb.indexing.cache_files import Kind, replacing

FOLDER = "places"
PLAIN, ZSTD = 0, 6
"""Codecs, as Parquet numbers them."""

_MAGIC = b"duckkbP2"
_HEAD = struct.Struct("<8sQQQ16s16s")
_PAGE = struct.Struct("<QIIII")
_WIDTHS = (16, 16, 8, 2, 4, 4, 4)
_KEY, _CONTENT, _SUM, _NAME, _PAGE_OF, _AT, _LENGTH = range(len(_WIDTHS))
_MOST_FILES = 1024
_SINGLY = 32  # rows up to which looking for each costs less than loading numpy


class Misplaced(Exception):
    """What should lie at a place does not."""


class Places:
    """The places of one file, mapped; nothing of them is read before it is needed."""

    def __init__(self, file_hash: str, kind: Kind, data: "mmap.mmap | bytes") -> None:
        self._kind, self._data = kind, data
        magic, self.count, self._page_count, names, digest, self._columns_digest = _HEAD.unpack_from(data)
        self._starts = [_HEAD.size]
        for width in _WIDTHS:
            self._starts.append(self._starts[-1] + width * self.count)
        self._pages = self._starts[-1]
        end = self._pages + _PAGE.size * self._page_count
        if magic != _MAGIC or len(data) != end + names:
            raise Misplaced
        if digest != _digest(
            file_hash.encode(), data[self._starts[_KEY] : self._starts[_CONTENT]], data[self._pages :]
        ):
            raise Misplaced
        self._names: list[str] = json.loads(data[end:])

    @classmethod
    def open(cls, state_home: Path, file_hash: str, kind: Kind) -> "Places | None":
        """Those of a file by its hash; None where there are none that can be used."""
        with (
            suppress(OSError, ValueError, struct.error, Misplaced),
            _path(state_home, file_hash, kind).open("rb") as file,
        ):
            return cls(file_hash, kind, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return None

    @cached_property
    def is_plain(self) -> bool:
        """Whether the payloads lie in the file as they are."""
        codecs = (_PAGE.unpack_from(self._data, self._pages + _PAGE.size * page)[3] for page in range(self._page_count))
        return all(codec == PLAIN for codec in codecs)

    @cached_property
    def is_true(self) -> bool:
        """Whether all places are those that were written."""
        return bool(_digest(self._data[self._starts[0] : self._pages]) == self._columns_digest)

    def rows(self, keys: Sequence[bytes]) -> list[int | None]:
        """The place of each key among all keys in order; None for those that are not there."""
        if len(keys) <= _SINGLY or not self.count:
            return [self.row(key) for key in keys]
        import numpy as np

        width = _WIDTHS[_KEY]
        known = np.frombuffer(self._data, f"S{width}", self.count, self._starts[_KEY])
        wanted = np.frombuffer(b"".join(keys), f"S{width}")
        at = np.minimum(np.searchsorted(known, wanted), self.count - 1)
        there = known[at] == wanted
        return [row if is_there else None for row, is_there in zip(at.tolist(), there.tolist(), strict=True)]

    def row(self, key: bytes) -> int | None:
        """The place of a key among all keys in order."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._cell(_KEY, middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < self.count and self._cell(_KEY, low) == key else None

    def length(self, row: int) -> int:
        """Bytes of a row's payload."""
        return self._number(_LENGTH, row)

    def payloads(self, file: IO[bytes], rows: Sequence[int]) -> list[bytes]:
        """The payload of each row as it is stored, from the file open to read; raises `Misplaced`."""
        if len(rows) > _SINGLY and self.is_plain:
            return self._many(file, rows)
        pages: dict[int, bytes] = {}
        return [self._payload(file, row, pages) for row in rows]

    def _payload(self, file: IO[bytes], row: int, unpacked: dict[int, bytes]) -> bytes:
        page, at, length = (self._number(column, row) for column in (_PAGE_OF, _AT, _LENGTH))
        try:
            start, packed, size, codec, _ = _PAGE.unpack_from(self._data, self._pages + _PAGE.size * page)
            name = self._names[self._number(_NAME, row)]
            if codec == PLAIN:
                payload = _read_at(file, start + at, length)
            else:
                if page not in unpacked:
                    file.seek(start)
                    unpacked[page] = unpack(file.read(packed), size, codec)
                payload = unpacked[page][at : at + length]
        except (OSError, ValueError, IndexError, struct.error) as problem:
            raise Misplaced from problem
        head = f"{self._kind}\0{name}\0".encode()
        whole = b"".join((head, self._cell(_KEY, row), self._cell(_CONTENT, row), payload))
        if blake2b(whole, digest_size=8).digest() != self._cell(_SUM, row):
            raise Misplaced
        return payload

    def within(self, content: memoryview, rows: Sequence[int]) -> list[memoryview]:
        """As `payloads`, out of the bytes of a file that surely is the one that `is_plain` and whose places are these
        (`is_true`): nothing is looked at again."""
        return [content[start : start + size] for start, size in self._extents(rows)]

    def _extents(self, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Where the payload of each row begins in the file, and its length."""
        import numpy as np

        at = np.array(rows, np.int64)
        pages = np.frombuffer(self._data, "<u8", 3 * self._page_count, self._pages).reshape(-1, 3)[:, 0]
        page, offset, length = (
            np.frombuffer(self._data, f"<u{_WIDTHS[column]}", self.count, self._starts[column])[at]
            for column in (_PAGE_OF, _AT, _LENGTH)
        )
        return zip((pages[page] + offset).tolist(), length.tolist(), strict=True)

    def _many(self, file: IO[bytes], rows: Sequence[int]) -> list[bytes]:
        """As `payloads`, of rows that lie in the file as they are."""
        import numpy as np

        names = np.frombuffer(self._data, f"<u{_WIDTHS[_NAME]}", self.count, self._starts[_NAME])[np.array(rows)]
        heads, found = [f"{self._kind}\0{one}\0".encode() for one in self._names], []
        try:
            for row, number, (start, size) in zip(rows, names.tolist(), self._extents(rows), strict=True):
                payload = _read_at(file, start, size)
                whole = b"".join((heads[number], self._cell(_KEY, row), self._cell(_CONTENT, row), payload))
                if blake2b(whole, digest_size=8).digest() != self._cell(_SUM, row):
                    raise Misplaced
                found.append(payload)
        except (OSError, ValueError, IndexError, OverflowError) as problem:
            raise Misplaced from problem
        return found

    def _cell(self, column: int, row: int) -> bytes:
        start = self._starts[column] + _WIDTHS[column] * row
        return self._data[start : start + _WIDTHS[column]]

    def _number(self, column: int, row: int) -> int:
        return int.from_bytes(self._cell(column, row), "little")


def _read_at(file: IO[bytes], start: int, size: int) -> bytes:
    """Bytes of a file that is open to read; without the buffer, which reads more than that."""
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, start)
    file.seek(start)
    return file.read(size)


def unpack(data: bytes, size: int, codec: int) -> bytes:
    """The bytes of a page. Raises ValueError."""
    if codec == PLAIN:
        return data
    if codec != ZSTD:
        raise ValueError("a codec that caches do not use")
    import pyarrow as pa

    try:
        return bytes(pa.decompress(data, decompressed_size=size, codec="zstd", asbytes=True))
    except (pa.ArrowException, OSError) as problem:
        raise ValueError("a page that cannot be unpacked") from problem


def store(
    state_home: Path, file_hash: str, kind: Kind, columns: Sequence[bytes], tail: tuple[list[Any], list[str]]
) -> None:
    """Keep the places of a file: the columns of its rows by key, its pages and its fingerprints. Raises OSError."""
    pages, names = b"".join(_PAGE.pack(*page, 0) for page in tail[0]), json.dumps(tail[1]).encode()
    head = _HEAD.pack(
        _MAGIC,
        len(columns[_KEY]) // _WIDTHS[_KEY],
        len(tail[0]),
        len(names),
        _digest(file_hash.encode(), columns[_KEY], pages + names),
        _digest(*columns),
    )
    path = _path(state_home, file_hash, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.writelines([head, *columns, pages, names])
    _prune(path.parent)


def _path(state_home: Path, file_hash: str, kind: Kind) -> Path:
    return state_home / FOLDER / f"{kind}-{file_hash}"


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=16).digest()


def _prune(folder: Path) -> None:
    """Of very many the oldest go: they belong to files that were merged or clones that are gone, and can be made again."""
    with suppress(OSError):
        files = [path for path in folder.iterdir() if path.is_file()]
        if len(files) > _MOST_FILES:
            for path in sorted(files, key=lambda path: path.stat().st_mtime)[: -_MOST_FILES // 2]:
                path.unlink(missing_ok=True)
