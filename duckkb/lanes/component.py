"""One part of derived state on disk: data files, and a small file (the meta) that says what they mirror.

The meta is written last and at once, so what it says is there. Bytes beyond the sizes that it names do not exist: data
files grow at their end, or get a new name. A generation is a folder of data files that were built together. Whatever does
not agree - another store, a missing file, a damaged meta - is no component, and a new one is built. Readers hold the lock
while they open, whoever changes something holds it alone; nobody holds it while searching.
"""

import errno
import json
import os
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple

from duckkb.kernel_lock import try_lock
from duckkb.values import dataclass

State = dict[str, Any]
"""What the owner of a component has to know to open it; JSON. `files` has the names of the data files and their sizes."""

_FORMAT = 2
_META, _LOCK = "meta.json", "lock"
_UNSYNCED = 1 << 20  # bytes at the end of a file that are read at each opening, which costs less than fsync
_BLOCK = 1 << 22  # bytes that are read at once
_WAIT = 60.0  # seconds for another process that builds
_NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Note(NamedTuple):
    """What is known of a file: its size, how much of it is on the disk for sure, the CRC-32 of that part and of all of it;
    and when it was written last: mtime and ctime in ns, and the inode."""

    size: int
    synced: int
    synced_check: int
    check: int
    mtime: int
    ctime: int
    inode: int


@dataclass(frozen=True, slots=True)
class Meta:
    """What a component mirrors: a revision of a store; and the generation that does."""

    revision: int
    generation: str
    state: State
    notes: Mapping[str, Note]


class Component:
    """The folder of one component. `store` and `material` name all that shapes its content but the revision."""

    def __init__(self, folder: Path, store: str, material: str) -> None:
        self._folder = folder
        self._names = {"format": _FORMAT, "store": store, "material": material}

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock; raises OSError where there can be none, or after a minute. Where nobody can write, reading needs
        none."""
        descriptor = self._lock_file(alone)
        if descriptor is None:
            yield
            return
        try:
            _lock(descriptor, alone)
            yield
        finally:
            os.close(descriptor)  # which gives the lock back

    def read(self) -> Meta | None:
        """What is there, None where it is of no use. The caller holds the lock."""
        try:
            seal, _, body = _content(self._folder / _META).partition(b"\n")
            if seal.decode("ascii", "replace") != _seal(body):
                return None
            found = json.loads(body)
            if any(found[name] != value for name, value in self._names.items()):
                return None
            notes = {name: Note(*note) for name, note in found["notes"].items()}
            meta = Meta(found["revision"], found["generation"], found["state"], notes)
            return meta if _are_sound(self.place(meta.generation), notes) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def place(self, generation: str) -> Path:
        """The folder of a generation's data files."""
        return self._folder / generation

    @contextmanager
    def begun(self) -> Iterator[str]:
        """A new generation, with an empty folder, which goes again where what fills and seals it fails."""
        generation = f"g{os.urandom(6).hex()}"
        try:
            self.place(generation).mkdir(parents=True)
            yield generation
        except BaseException:
            _remove(self.place(generation))
            raise

    def seal(self, revision: int, generation: str, state: State, before: Meta | None) -> Meta:
        """Say that this generation, whose files are written, mirrors a revision. The caller holds the lock alone; `before`
        is what was there. Other generations are removed; who has them open keeps them."""
        known = before.notes if before is not None and before.generation == generation else {}
        place = self.place(generation)
        notes = {name: _noted(place / name, size, known.get(name)) for name, size in state["files"].items()}
        meta = Meta(revision, generation, state, notes)
        body = json.dumps(
            {**self._names, "revision": revision, "generation": generation, "state": state, "notes": notes}
        )
        _replace(self._folder / _META, f"{_seal(body.encode())}\n{body}".encode())
        self._sweep(generation)
        return meta

    def discard(self) -> None:
        """Remove everything that is there."""
        with suppress(OSError), self.held(alone=True):
            (self._folder / _META).unlink(missing_ok=True)
            self._sweep("")

    def _sweep(self, generation: str) -> None:
        for path in self._folder.iterdir():
            if path.name not in (_META, _LOCK, generation):
                _remove(path)

    def _lock_file(self, alone: bool) -> int | None:
        for folder in (self._folder.parent, self._folder):
            if folder.is_symlink():  # what is swept there would not be ours
                raise NotADirectoryError(errno.ENOTDIR, "a link, where a folder of our own should be", str(folder))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o644)
        except PermissionError:
            if alone:
                raise
        except OSError:
            if alone or os.access(self._folder, os.W_OK):
                raise
        return None


def _lock(descriptor: int, alone: bool) -> None:
    deadline, pause = time.monotonic() + _WAIT, 0.0005
    while not try_lock(descriptor, exclusive=alone):
        if time.monotonic() > deadline:
            raise TimeoutError("another process has held the lock for too long")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _noted(path: Path, size: int, known: Note | None) -> Note:
    """A file's note. What is not on the disk for sure may have been written anew; where it is long, it is made durable."""
    if known is None or known.size > size:
        known = Note(0, 0, 0, 0, 0, 0, 0)
    with path.open("rb") as file:
        check = _checksum(file, known.synced, size, known.synced_check)
        synced, synced_check = known.synced, known.synced_check
        if size - synced > _UNSYNCED:
            os.fsync(file.fileno())
            synced, synced_check = size, check
        return Note(size, synced, synced_check, check, *_times(os.fstat(file.fileno())))


def _are_sound(folder: Path, notes: Mapping[str, Note]) -> bool:
    """Whether all files have what was written; a library may wait for ever for other things that lie among them."""
    with os.scandir(folder) as entries:
        is_plain = all(entry.is_file(follow_symlinks=False) for entry in entries)
    return is_plain and all(_is_sound(folder / name, note) for name, note in notes.items())


def _is_sound(path: Path, note: Note) -> bool:
    """Whether a file has what was written. What is on the disk for sure is read only where somebody wrote to the file since;
    the rest may have been lost with the power."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size < note.size:
        return False
    start, check = note.synced, note.synced_check
    if _times(status) != (note.mtime, note.ctime, note.inode):
        start = check = 0
    if start == note.size:
        return True
    with path.open("rb") as file:
        return _checksum(file, start, note.size, check) == note.check


def _times(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _checksum(file: IO[bytes], start: int, end: int, check: int) -> int:
    """The CRC-32 of a file up to `end`, where `check` is that of what lies before `start`."""
    file.seek(start)
    while start < end and (data := file.read(min(_BLOCK, end - start))):
        check, start = zlib.crc32(data, check), start + len(data)
    return check


def _content(path: Path) -> bytes:
    """The bytes of a file of our own; a FIFO, whose reader would wait, gives none. Raises OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NO_FOLLOW), "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def _remove(path: Path) -> None:
    """Remove what may be a folder, as far as that can be done."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            from shutil import rmtree

            rmtree(path)
        else:
            path.unlink()


def _seal(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
