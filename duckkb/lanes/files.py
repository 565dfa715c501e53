"""The files of a lane of a type, and a small file (the meta) that names the state of the rows they mirror. The
content list lies beside the meta, under a name that is a digest of its bytes.

The meta is written last and atomically, so what it says exists: data files are on disk before it. Data files
grow at their end or get a new name. A generation is a folder of data files that were built together. A lane is
rebuilt if anything disagrees: another key, a missing file, a file touched since, a damaged meta. Readers hold
the lock shared while they open, writers hold it exclusively; nobody holds it while searching.
"""

import errno
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb import atomic_write, locks
from duckkb.lanes.inventory import Inventory
from duckkb.open_files import NO_FOLLOW

State = dict[str, Any]
"""What a lane needs to open its files; JSON. `files` has the names of the data files."""

_FORMAT = 4
_META, _LOCK = "meta.json", "lock"
_WAIT = 60.0  # seconds to wait for another process that builds

FileStamp = tuple[int, int]
"""Size and mtime in ns."""


class LaneMeta(Struct, frozen=True):
    """The record of what a lane mirrors: the digest of a type's rows, the generation, the stamps of its files, and
    the name of its content list.
    """

    digest: str
    generation: str
    state: State
    stamps: Mapping[str, FileStamp] = {}
    held: str = ""


class LaneFiles:
    """The folder of a lane. `material` names everything that shapes its content except the rows."""

    def __init__(self, folder: Path, material: str) -> None:
        self._folder = folder
        self._names = {"format": _FORMAT, "material": material}

    @contextmanager
    def hold_lock(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock, exclusively if `alone`; raises OSError if no lock file can exist, or after a minute. In a
        folder that nobody can write, reading needs no lock.
        """
        descriptor = self._lock_file(alone)
        if descriptor is None:
            yield
            return
        try:
            if not locks.wait_for_lock(descriptor, exclusive=alone, deadline=time.monotonic() + _WAIT):
                raise TimeoutError("another process has held the lock for too long")
            yield
        finally:
            os.close(descriptor)  # which gives the lock back

    def read(self) -> LaneMeta | None:
        """Read the meta; None if it is missing or unusable. The caller holds the lock."""
        try:
            if not stat.S_ISREG((self._folder / _META).lstat().st_mode):
                return None  # a link, or a FIFO that would block its reader
            seal, _, body = (self._folder / _META).read_bytes().partition(b"\n")
            if seal.decode("ascii", "replace") != _seal(body):
                return None
            contents = json.loads(body)
            if any(contents[name] != value for name, value in self._names.items()):
                return None
            stamps = {name: (size, mtime) for name, (size, mtime) in contents["stamps"].items()}
            meta = LaneMeta(contents["digest"], contents["generation"], contents["state"], stamps, contents["held"])
            return meta if _is_intact(self.place(meta.generation), stamps) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read_contents(self, meta: LaneMeta) -> Inventory | None:
        """Read what the lane holds; None if that is impossible."""
        try:
            data = (self._folder / meta.held).read_bytes()
            return Inventory.load(data) if meta.held == _name_contents(data) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def place(self, generation: str) -> Path:
        """Return the folder of a generation's data files."""
        return self._folder / generation

    @contextmanager
    def create_generation(self) -> Iterator[str]:
        """Begin a generation with an empty folder; remove the folder if filling or sealing it fails."""
        generation = f"g{os.urandom(6).hex()}"
        try:
            self.place(generation).mkdir(parents=True)
            yield generation
        except BaseException:
            _remove(self.place(generation))
            raise

    def seal(self, meta: LaneMeta, contents: Inventory | None = None, before: LaneMeta | None = None) -> LaneMeta:
        """Record what a generation mirrors and holds, once its files are written. The caller holds the lock
        exclusively; `before` is the previous meta. Other generations are removed; processes that have them open
        keep them.
        """
        generation, state = meta.generation, meta.state
        previous_stamps = before.stamps if before is not None and before.generation == generation else {}
        place = self.place(generation)
        stamps = {name: _sync_stamp(place / name, previous_stamps.get(name)) for name in state["files"]}
        data = contents.dump() if contents is not None else b""
        meta = replace(meta, stamps=stamps, held=_name_contents(data))
        atomic_write.replace_file(self._folder / meta.held, data, durable=False)
        body = json.dumps(self._names | asdict(meta))
        meta_bytes = f"{_seal(body.encode())}\n{body}".encode()
        atomic_write.replace_file(self._folder / _META, meta_bytes, durable=False)
        self._remove_generations(generation, meta.held)
        return meta

    def discard(self) -> None:
        """Remove all files of the lane."""
        with suppress(OSError), self.hold_lock(alone=True):
            (self._folder / _META).unlink(missing_ok=True)
            self._remove_generations()

    def _remove_generations(self, *names: str) -> None:
        for path in self._folder.iterdir():
            if path.name not in (_META, _LOCK, *names):
                _remove(path)

    def _lock_file(self, alone: bool) -> int | None:
        for folder in (self._folder.parent, self._folder):
            if folder.is_symlink():  # its content would not be ours to remove
                raise NotADirectoryError(errno.ENOTDIR, "a link in the place of a folder", str(folder))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o644)
        except PermissionError:
            if alone:
                raise
        except OSError:
            if alone or os.access(self._folder, os.W_OK):
                raise
        return None


def _is_intact(folder: Path, stamps: Mapping[str, FileStamp]) -> bool:
    """Return whether the files are unchanged and regular; a library may wait forever for another kind of entry."""
    with os.scandir(folder) as entries:
        is_plain = all(entry.is_file(follow_symlinks=False) for entry in entries)
    stamps_by_path = {folder / name: stamp for name, stamp in stamps.items()}
    return is_plain and all(
        _stamp(path.lstat()) == stamp and os.access(path, os.R_OK) for path, stamp in stamps_by_path.items()
    )


def _sync_stamp(path: Path, previous_stamp: FileStamp | None) -> FileStamp:
    """Make a file durable and return its stamp: a power cut must not leave a meta without its file."""
    with path.open("rb") as file:
        stamp = _stamp(os.fstat(file.fileno()))
        if stamp != previous_stamp:
            os.fsync(file.fileno())
        return stamp


def _stamp(status: os.stat_result) -> FileStamp:
    return status.st_size, status.st_mtime_ns


def _remove(path: Path) -> None:
    """Remove a file or a folder, as far as possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            from shutil import rmtree

            rmtree(path)
        else:
            path.unlink()


def _name_contents(data: bytes) -> str:
    return f"held-{_seal(data)}"


def _seal(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()
