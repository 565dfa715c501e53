"""Shards of vectors: many machines compute them, each for a range of the keys, and each writes a file.

`shard-I-of-K-PLAN.parquet` is a file in the format of the team's cache (`cache_format`): equal vectors give
equal bytes. PLAN is the beginning of a digest over K and the keys of all vectors of the base. A key follows
from a model and a text, so the digest is the same on every machine with the same commit, ontology and models,
and differs otherwise.

Until a shard is complete, `shard-I-of-K-PLAN.partial` holds its rows. The file is flat and only grows: each row
follows its key, content hash, size and checksum, and each batch is made durable. Rows that a kill tore off or
that a disk changed are made again. The holder of its lock makes the shard; the kernel releases the lock when
that process dies.
"""

import os
import re
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from duckkb import locks
from duckkb.errors import Unavailable, UsageError
from duckkb.indexing.cache_rows import CacheRow, Damaged, checksums
from duckkb.indexing.team_files import LARGEST, TeamFile
from duckkb.open_files import NO_FOLLOW
from duckkb.truth import state

MOST_SHARDS = 10_000
_NAME = re.compile(r"shard-([1-9]\d{0,4})-of-([1-9]\d{0,4})-([0-9a-f]{12})\.parquet")
_DIGITS = 12
_KEY_BYTES = 16
_BITS = 64
_ROW = struct.Struct("<16s16sI8s")
"""Key, content hash, bytes of the payload behind it, checksum."""
_MOST_BYTES = 4 * 16_384
_ROW_BYTES = 100
"""About the bytes of a row in a file besides its vector."""
_OPEN = os.O_RDWR | os.O_CREAT | NO_FOLLOW


class Shard(Struct, frozen=True):
    """A share of `of` shares, counted from 1."""

    of: int
    number: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, key: bytes) -> bool:
        """Return whether the vector of a key is in this share. Only the key decides: shares are ranges of the
        keys' first bits.
        """
        return number_of(key, self.of) == self.number


def number_of(key: bytes, of: int) -> int:
    """Return which of `of` shares has a key."""
    return (int.from_bytes(key[: _BITS // 8], "big") * of >> _BITS) + 1


def shard(text: str) -> Shard:
    """Parse `I/K` as a share; raises `errors.UsageError`."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of <= MOST_SHARDS:
        message = f"{text} names no shard: I/K, with I from 1 to K, and K at most {MOST_SHARDS:,}"
        raise UsageError(message, suggestion="duckkb index build --shard 1/4 --out DIR")
    return Shard(of, number)


def plan_digest(keys: bytes, of: int) -> tuple[str, list[int]]:
    """Return a name for the shares of these keys, and how many distinct keys each share has. `keys` are 16 bytes
    each, concatenated, in any order, with repetitions.
    """
    import numpy as np

    halves = np.frombuffer(keys, ">u8").reshape(-1, 2).astype(np.uint64)
    halves = halves[np.lexsort((halves[:, 1], halves[:, 0]))]
    is_new = np.ones(len(halves), bool)
    is_new[1:] = (halves[1:] != halves[:-1]).any(axis=1)
    halves = halves[is_new]
    plan_hash = sha256(f"duckkb shards 1\0{of}\0".encode())
    plan_hash.update(halves.astype(">u8").tobytes())
    bounds = np.array([-(-(at << _BITS) // of) for at in range(of)], np.uint64)
    counts = np.diff([*np.searchsorted(halves[:, 0], bounds).tolist(), len(halves)])
    return plan_hash.hexdigest()[:_DIGITS], counts.tolist()


class ShardFile(Struct, frozen=True):
    """The file of a shard of a plan in a folder."""

    folder: Path
    shard: Shard
    plan: str

    @property
    def name(self) -> str:
        return f"shard-{self.shard.number}-of-{self.shard.of}-{self.plan}.parquet"

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def partial(self) -> Path:
        """Return the path of the unfinished shard."""
        return self.path.with_suffix(".partial")

    def has(self, keys: Collection[bytes]) -> bool:
        """Return whether the file exists, is valid, and has a row for each of these keys. A separate process reads
        it.
        """
        from duckkb.indexing.foreign import read

        stored_keys: set[bytes] = set()
        try:
            with TeamFile(self.folder, self.name).open_file() as stream:
                stream.seek(0)
                name = sha256(stream.read()).hexdigest()
                for batch in read(stream, name):
                    if batch.left_out:
                        return False
                    stored_keys.update(row[0] for row in batch.rows)
        except (Damaged, OSError):
            return False
        return stored_keys.issuperset(keys)

    def write(self, rows: Iterable[CacheRow]) -> None:
        """Write the file atomically. Raises `errors.Unavailable` (E_IO, E_READ_ONLY)."""
        from duckkb.indexing.cache_format import encode

        state.write_atomic(self.path, encode((), rows))


def shard_files(folder: Path) -> list[ShardFile]:
    """List the shards in a folder, by plan and number. Raises OSError."""
    matches = [(match, folder) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    files = [ShardFile(folder, Shard(int(match[2]), int(match[1])), match[3]) for match, folder in matches]
    return sorted(files, key=lambda file: (file.plan, file.shard.of, file.shard.number))


def refuse_too_large(of: int, texts: int, dimension: int) -> None:
    """Raise `errors.UsageError` if a shard of so many texts would make a file that is too large to be read."""
    size = texts * (4 * dimension + _ROW_BYTES)
    if size > LARGEST:
        message = f"a shard of {texts:,} texts would take {size:,} bytes, and a file may take {LARGEST:,}"
        raise UsageError(message, suggestion=f"duckkb index plan --shards {of * (size // LARGEST + 1)}")


class Partial:
    """An unfinished shard: `rows` by key."""

    def __init__(self, descriptor: int, fingerprints: Mapping[bytes, str]) -> None:
        self._file = os.fdopen(descriptor, "r+b", closefd=False)
        self.rows: dict[bytes, CacheRow] = {}
        end = self._read(fingerprints)
        self._file.seek(end)
        self._file.truncate()

    def add(self, rows: Collection[CacheRow]) -> None:
        """Append rows durably. Raises OSError."""
        for row, checksum in zip(rows, checksums("vector", rows), strict=True):
            self._file.write(_ROW.pack(row[0], row[1], len(row[3]), checksum) + row[3])
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows |= {row[0]: row for row in rows}

    def _read(self, fingerprints: Mapping[bytes, str]) -> int:
        """Read the rows whose checksum holds; return where the last whole row ends."""
        end = 0
        while len(head := self._file.read(_ROW.size)) == _ROW.size:
            key, content, size, checksum = _ROW.unpack(head)
            payload = self._file.read(size) if size <= _MOST_BYTES else b""
            if not payload or len(payload) < size:
                break
            end += _ROW.size + size
            row = (key, content, fingerprints.get(key, ""), payload)
            if row[2] and checksums("vector", [row]) == [checksum]:
                self.rows[key] = row
        return end


@contextmanager
def open_partial_shard(file: ShardFile, fingerprints: Mapping[bytes, str], wait: float) -> Iterator[Partial]:
    """Open an unfinished shard for one process at a time; wait at most `wait` seconds for another. `fingerprints`
    name the model of each key. Deletes the unfinished file if the shard itself exists at the end.

    Raises `errors.Unavailable`: E_LOCKED while another process makes it, E_IO or E_READ_ONLY if the folder is
    unsuitable.
    """
    try:
        file.folder.mkdir(parents=True, exist_ok=True)
        descriptor = locks.open_and_lock(
            file.partial, lambda: os.open(file.partial, _OPEN, 0o644), time.monotonic() + wait
        )
    except OSError as error:
        raise state.refusal(f"{file.partial} cannot be opened", error) from error
    if descriptor is None:
        message = f"another process makes shard {file.shard} in {file.folder}"
        raise Unavailable(message, code="E_LOCKED", suggestion="take another shard, or wait for it with --wait")
    try:
        for draft in file.folder.glob(f".{file.name}.*.tmp"):  # left by a writer that was killed
            draft.unlink(missing_ok=True)
        yield Partial(descriptor, fingerprints)
        if file.path.exists():
            with suppress(OSError):  # Windows cannot remove an open file
                file.partial.unlink()
    except OSError as error:
        raise state.refusal(f"{file.partial} cannot be written", error) from error
    finally:
        os.close(descriptor)
