"""The files of the team's cache: where they lie, how their bytes are read, which rows they should hold, and their
problems.

The cache is `data/indices/search_cache.parquet`, or from 8 MB on the segments in `data/indices/search_cache/`.
Each segment is named after its kind and the hash of its bytes; a night's change adds a small segment. The files
come from whoever made the clone and are untrusted. Listing them checks both ends of each; each is read into the
store once.

Shards of vectors: many machines compute them, each for a range of the keys, and each writes a file.

`shard-I-of-K-PLAN.parquet` is a file in the format of the team's cache (`cache_format`): equal vectors give
equal bytes. PLAN is the beginning of a digest over K and the keys of all vectors of the base. A key follows
from a model and a text, so the digest is the same on every machine with the same commit, ontology and models,
and differs otherwise.

Until a shard is complete, `shard-I-of-K-PLAN.partial` holds its rows. The file is flat and only grows: each row
follows its key, content hash, size and checksum, and each batch is made durable. Rows that a kill tore off or
that a disk changed are made again. The holder of its lock makes the shard; the kernel releases the lock when
that process dies."""

import os
import re
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BufferedReader
from pathlib import Path

from msgspec import Struct

from duckkb import locks
from duckkb.atomic_write import NO_FOLLOW
from duckkb.index.cache_database import (
    KINDS,
    Batch,
    CacheRow,
    CacheStore,
    Damaged,
    Kind,
    Known,
    checksums,
    digest,
    stamp_of,
)
from duckkb.storage import clone_state
from duckkb.store.cache_dirs import Unusable
from duckkb.types.errors import Finding, Unavailable, UsageError

TEAM_FILE = "data/indices/search_cache.parquet"
TEAM_FOLDER = "data/indices/search_cache"
LARGEST = 512 * 1024 * 1024
"""The most bytes of a cache file; duckkb writes none near it."""
SINGLE_LIMIT = 8 * 1024 * 1024
"""Bytes from which on a folder of segments replaces the single file; also the most bytes of the rows in a new
segment.
"""

_SMALL = 1024 * 1024
_MANY_SMALL = 16
_DEAD_SHARE = 0.25
_SEGMENT = re.compile(r"(tokens|vector)-[0-9a-f]{16}\.parquet")
_HEAD = 64
_FORGED = "its rows differ from recomputed ones, so none of it is used"
_WHO = "find out who changed it, then `duckkb index build`"


class TeamFile(Struct, frozen=True):
    """A file that should be a cache: its path relative to the base."""

    root: Path
    path: str

    @property
    def stamp(self) -> tuple[int, ...]:
        """Return size, times in ns, inode and device, which change with the file; empty if it is missing."""
        try:
            return stamp_of((self.root / self.path).lstat())
        except OSError:
            return ()

    @contextmanager
    def open_file(self) -> Iterator[BufferedReader]:
        """Open the file for reading. Raises `Damaged` for a link or another kind of entry, FileNotFoundError if it
        is missing.
        """
        target = self.root / self.path
        if any(folder.is_symlink() for folder in target.parents if self.root in folder.parents):
            raise Damaged("it is behind a link", "replace the link by the folder")
        try:
            number = os.open(target, os.O_RDONLY | NO_FOLLOW)
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise Damaged(f"it cannot be opened ({problem.strerror})") from problem
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            os.close(number)
            raise Damaged("it is no regular file, or too large", "remove it, then `duckkb index build`")
        with os.fdopen(number, "rb") as file:
            yield file

    def sniff(self) -> None:
        """Check only both ends, which reveals pointers, conflict markers and most torn files; raises as `opened`
        does.
        """
        with self.open_file() as file:
            head = file.read(_HEAD)
            file.seek(-min(4, len(head)), os.SEEK_END)
            _refuse(head, file.read())

    def require_matching_hash(self, file_hash: str) -> None:
        """Raise `Damaged` for a segment whose name does not match the hash of its bytes."""
        match = _SEGMENT.fullmatch(self.path.rsplit("/", 1)[-1])
        if match and not self.path.endswith(_name(match[1], file_hash)):
            raise Damaged("its content does not match its name")

    def finding(self, message: str, remedy: str, code: str = "W_CACHE") -> Finding:
        return Finding(code, message, self.path, remedy=remedy)


def team_files(root: Path) -> list[TeamFile]:
    """List the team's file, if it exists in any form, and the team's segments by name."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in (root / TEAM_FOLDER).iterdir() if _SEGMENT.fullmatch(entry.name))
    single = [TeamFile(root, TEAM_FILE)] if os.path.lexists(root / TEAM_FILE) else []
    return [*single, *(TeamFile(root, f"{TEAM_FOLDER}/{name}") for name in names)]


def segment_name(kind: Kind, data: bytes) -> str:
    return _name(kind, digest(data))


def _name(kind: str, file_hash: str) -> str:
    return f"{kind}-{file_hash[:16]}.parquet"


def _refuse(head: bytes, tail: bytes) -> None:
    if head.startswith(b"version https://git-lfs"):
        raise Damaged("it is a Git LFS pointer, not its content", "git lfs pull")
    if head.startswith(b"<<<<<<<"):
        raise Damaged("it holds git's conflict markers", "git checkout --ours FILE, then `duckkb index build`")
    if not head.startswith(b"PAR1") or tail != b"PAR1":
        raise Damaged("it is torn or not Parquet")


class TeamReader:
    """A reader that knows the team's files, their problems, and their numbers in the store. `listed` names the
    files of a folder to read instead of those of a base.
    """

    def __init__(self, root: Path, store: CacheStore, listed: "Callable[[Path], list[TeamFile]]" = team_files) -> None:
        self._root, self._store, self._files = root, store, listed
        self._sound: list[TeamFile] | None = None
        self._numbers: dict[TeamFile, int] | None = None
        self._findings: list[Finding] = []
        self.imperfect: set[TeamFile] = set()
        """Those with rows that were left out."""
        self.is_ignored = False
        """Nothing of what others made is used meanwhile: neither these files nor what was adopted."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the problems of the files examined so far."""
        self._list_sound_files()
        return tuple(dict.fromkeys(self._findings))

    def look_again(self) -> None:
        """Read the files as they are now."""
        self._sound = self._numbers = None

    def numbers(self) -> dict[TeamFile, int]:
        """Return the readable files by their numbers in the store; the store counts them as present from now on."""
        if self.is_ignored:
            self._store.present = ()
            return {}
        if self._numbers is None:
            try:
                self._numbers = self._number_files()
            except Unusable:
                self._store.go_on_in_memory()
                self._numbers = self._number_files()
            self._store.present = (*self._numbers.values(), *self._store.list_adopted_files(self._root))
        return self._numbers

    def drop(self, file: TeamFile) -> None:
        """Stop using a file, now and whenever it is opened again."""
        with suppress(OSError, Damaged), file.open_file() as stream:
            forged_hash = self._store.hash_of(stream, self._root / file.path)
            try:
                self._store.settle(forged_hash, "forged", None)
            except Unusable:
                self._store.go_on_in_memory()
                self._store.settle(forged_hash, "forged", None)
        self.look_again()
        self.numbers()  # records the state of the file

    def trust(self, file_hash: str) -> None:
        """Trust a file that was made here, without checking a sample."""
        status = self._store.find_file(file_hash)
        if status is None or status.state != "read":
            with suppress(Unusable):
                self._store.settle(file_hash, "made", None)

    def _list_sound_files(self) -> list[TeamFile]:
        if self._sound is None:
            self._findings, self.imperfect = [], set()
            self._sound = [file for file in self._files(self._root) if self._is_sound(file)]
        return self._sound

    def _is_sound(self, file: TeamFile) -> bool:
        try:
            file.sniff()
        except FileNotFoundError:
            return False
        except Damaged as problem:
            self._findings.append(file.finding(str(problem), problem.remedy))
            return False
        return True

    def _number_files(self) -> dict[TeamFile, int]:
        file_numbers = {}
        for file in self._list_sound_files():
            try:
                status = self._find_file(file)
            except FileNotFoundError:
                continue
            except Damaged as problem:
                self._findings.append(file.finding(str(problem), problem.remedy))
                continue
            if status.state == "forged":
                self._findings.append(file.finding(_FORGED, _WHO, "W_CACHE_UNTRUSTED"))
                continue
            for reason, count in sorted(status.said.items()):
                self._findings.append(file.finding(f"{count} rows were left out: {reason}", "duckkb index build"))
                self.imperfect.add(file)
            file_numbers[file] = status.id
        return file_numbers

    def _find_file(self, file: TeamFile) -> Known:
        """Return the store's record of a file; read the file if necessary. Raises `Damaged`, FileNotFoundError,
        `Unusable`.
        """
        with file.open_file() as stream:
            name = self._store.hash_of(stream, self._root / file.path)
            file.require_matching_hash(name)
            status = self._store.find_file(name)
            if status is None or status.state in ("begun", "made"):
                return self._read(stream, name, is_made_here=status is not None and status.state == "made")
        if status.state == "damaged":
            raise Damaged(*status.said)
        return status

    def _read(self, stream: BufferedReader, name: str, *, is_made_here: bool) -> Known:
        number, left_out = self._store.begin(name), Counter[str]()
        try:
            for batch in self._batches(stream, name, is_made_here=is_made_here):
                left_out += batch.left_out
                self._store.add(batch.kind, batch.rows, number, vouched=is_made_here)
        except Damaged as problem:
            self._store.settle(name, "damaged", [str(problem), problem.remedy])
            raise
        except OSError as problem:  # no process or no memory: try another time
            raise Damaged(f"it cannot be read now ({problem.strerror})") from problem
        return Known(self._store.settle(name, "read", left_out), "read", left_out)

    def _batches(self, stream: BufferedReader, name: str, *, is_made_here: bool) -> Iterator[Batch]:
        """Yield the batches of a file; a separate process reads it unless this machine wrote it."""
        if not is_made_here:
            from duckkb.index.parquet_worker import read

            yield from read(stream, name)
            return
        from duckkb.index.cache_parquet import decode

        stream.seek(0)
        data = stream.read()
        if digest(data) != name:
            raise Damaged("it changed while it was read")
        yield from decode(data)


class Standing(Struct, frozen=True):
    """A segment of the team that may be kept: its bytes and its keys."""

    path: str
    kind: Kind
    data: bytes
    keys: Collection[bytes]


def team_layout(rows: Mapping[Kind, Sequence[CacheRow]], standing: Iterable[Standing]) -> dict[str, bytes]:
    """Return path -> bytes of every file of the team's cache, depending only on the arguments.

    A single file holds exactly these rows. A segment stays unchanged if at most a quarter of it is dead, so
    that a night's change does not rewrite the rest; the next rewrite removes its dead rows.
    """
    if not any(rows.values()):
        return {}
    from duckkb.index.cache_parquet import encode

    if _count_raw_bytes(rows) < 8 * SINGLE_LIMIT:
        single = encode(rows["tokens"], rows["vector"])
        if len(single) < SINGLE_LIMIT:
            return {TEAM_FILE: single}
    files: dict[str, bytes] = {}
    for kind in KINDS:
        files |= _build_segments(kind, rows[kind], [segment for segment in standing if segment.kind == kind])
    return files


def _build_segments(kind: Kind, rows: Sequence[CacheRow], standing: Sequence[Standing]) -> dict[str, bytes]:
    survivors = _select_segments({row[0] for row in rows}, standing)
    from duckkb.index.cache_parquet import encode

    covered_keys = {key for segment in survivors for key in segment.keys}
    files = {segment.path: segment.data for segment in survivors}
    for batch in _batches([row for row in rows if row[0] not in covered_keys]):
        data = encode(batch, ()) if kind == "tokens" else encode((), batch)
        files[f"{TEAM_FOLDER}/{segment_name(kind, data)}"] = data
    return files


def _select_segments(live: set[bytes], standing: Sequence[Standing]) -> list[Standing]:
    survivors = [
        segment for segment in standing if len(live & set(segment.keys)) >= (1 - _DEAD_SHARE) * len(segment.keys)
    ]
    small = [segment for segment in survivors if len(segment.data) < _SMALL]
    return [segment for segment in survivors if segment not in small] if len(small) >= _MANY_SMALL else survivors


def _batches(rows: Iterable[CacheRow]) -> Iterator[list[CacheRow]]:
    """Yield rows in the order of their keys, in batches that the payload limit bounds."""
    batch: list[CacheRow] = []
    size = 0
    for row in sorted(rows, key=lambda row: row[0]):
        batch.append(row)
        size += len(row[3])
        if size >= SINGLE_LIMIT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _count_raw_bytes(rows: Mapping[Kind, Sequence[CacheRow]]) -> int:
    return sum(len(row[3]) for kind in KINDS for row in rows[kind])


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
        from duckkb.index.parquet_worker import read

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
        from duckkb.index.cache_parquet import encode

        clone_state.write_atomic(self.path, encode((), rows))


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
        raise clone_state.refusal(f"{file.partial} cannot be opened", error) from error
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
        raise clone_state.refusal(f"{file.partial} cannot be written", error) from error
    finally:
        os.close(descriptor)
