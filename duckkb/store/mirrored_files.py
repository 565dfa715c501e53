"""The files of a lane of a type, and a small file (the meta) that names the state of the rows they mirror. The
content list lies beside the meta, under a name that is a digest of its bytes.

The meta is written last and atomically, so what it says exists: data files are on disk before it. Data files
grow at their end or get a new name. A generation is a folder of data files that were built together. A lane is
rebuilt if anything disagrees: another key, a missing file, a file touched since, a damaged meta. Readers hold
the lock shared while they open, writers hold it exclusively; nobody holds it while searching.

The content list of a lane: the digest of each part of its type, and the id and etag of each row. Comparing two
lists gives the changed rows, regardless of which list is newer.

State that mirrors the rows of a type: in files, or in memory.

`RowMirror._bring` is the only rule: the state follows the rows that differ, whether they are older or newer. It
is rebuilt if they are too many, or if the state has another format or is damaged."""

import errno
import json
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb import atomic_write, locks
from duckkb.atomic_write import NO_FOLLOW
from duckkb.ports import Rows, TypeState
from duckkb.types.queries import Lane
from duckkb.types.records import identity_key

_ROW = 16  # bytes: the id, then the etag
_ID = 8


class PartInventory(Struct, frozen=True):
    """A part: its digest and its rows."""

    digest: str
    rows: bytes

    @classmethod
    def from_rows(cls, digest: str, rows: Iterable[tuple[int, bytes]]) -> "PartInventory":
        """Pack ids and etags."""
        return cls(digest, b"".join([id.to_bytes(_ID, "little", signed=True) + etag for id, etag in rows]))


class Inventory(Struct, frozen=True):
    """The parts by path."""

    parts: Mapping[str, PartInventory]

    @classmethod
    def from_state(cls, state: TypeState, before: "Inventory | None" = None) -> "Inventory":
        """Build the list of a type's present content; reuse unchanged parts of `before` without reading them."""
        parts = before.parts if before is not None else {}
        same = {path: part for path, part in parts.items() if state.digests.get(path) == part.digest}
        return cls(
            {
                path: same.get(path) or PartInventory.from_rows(name, state.read(path))
                for path, name in state.digests.items()
            }
        )

    @classmethod
    def load(cls, data: bytes) -> "Inventory":
        """Parse the output of `dump`; raises ValueError, KeyError and TypeError for anything else."""
        head, _, rows = data.partition(b"\n")
        parts, end = {}, 0
        for path, (digest, size) in json.loads(head).items():
            start, end = end, end + size
            parts[path] = PartInventory(digest, rows[start:end])
        return cls(parts)

    def dump(self) -> bytes:
        """Return all of it as bytes."""
        head = {path: (part.digest, len(part.rows)) for path, part in self.parts.items()}
        return b"\n".join([json.dumps(head).encode(), b"".join([part.rows for part in self.parts.values()])])

    def difference(self, contents: "Inventory") -> frozenset[int]:
        """Return the ids of the rows that are missing or different in either list."""
        rows = self._select_rows_beside(contents) ^ contents._select_rows_beside(self)
        return frozenset(int.from_bytes(row[:_ID], "little", signed=True) for row in rows)

    def _select_rows_beside(self, contents: "Inventory") -> set[bytes]:
        """Select the rows of the parts that the other list lacks or has in another version."""
        parts = [
            part for path, part in self.parts.items() if path not in contents.parts or contents.parts[path] != part
        ]
        return {part.rows[at : at + _ROW] for part in parts for at in range(0, len(part.rows), _ROW)}


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


class RowMirror(ABC):
    """A state that mirrors `rows`, which it reads and never changes; their `state` says what is mirrored, and
    where files may lie. `_refresh`, with which every query begins, computes it on demand.

    Threads may query concurrently: one of them, in its `turn`, updates the state, and each then takes an
    immutable snapshot. An update replaces the snapshot.
    """

    name: ClassVar[str]
    lane: ClassVar[Lane | None]

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._stale: set[int] = set()
        self._meta: LaneMeta | None = None
        self._contents: Inventory | None = None  # the content list of a state in memory; for files it is on disk
        self._has_no_files = False
        self.turn = RLock()

    @property
    @abstractmethod
    def _material(self) -> str:
        """Return what shapes the state besides the rows: formats, libraries, settings."""

    @abstractmethod
    def _build(self, folder: Path | None) -> State:
        """Build the state anew, into an empty folder if given."""

    @abstractmethod
    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        """Apply the changed records to the open state; return None if rebuilding is better."""

    @abstractmethod
    def _open(self, folder: Path, state: State) -> None:
        """Open the files that `_build` or `_follow` left in a folder; raises OSError or ValueError if they are
        damaged.
        """

    def _suits(self) -> bool:
        """Return whether the open state has what the next query needs."""
        return True

    @property
    def rows(self) -> Rows:
        """Return the mirrored rows."""
        return self._rows

    def _identity(self, record_id: int) -> Any:
        """Return the key that orders records with the same score."""
        return identity_key(self._rows.identity(record_id))

    def reread(self, ids: Iterable[int]) -> None:
        """Mark unchanged records to be read again."""
        with self.turn:
            if self._meta is not None:
                self._stale.update(ids)

    def forget(self) -> None:
        """Forget the open state."""
        with self.turn:
            self._meta = None

    def drop(self) -> None:
        """Forget the open state and remove its damaged files; this process works without them."""
        with self.turn:
            files = self._find_files(self._rows.state)
            self.forget()
            self._has_no_files = True
        if files is not None:
            files.discard()

    def glance(self) -> bool:
        """Open the files if they are current and nothing must be computed; return whether the state is open."""
        with self.turn, suppress(OSError, ValueError):
            rows_state = self._rows.state
            files = self._find_files(rows_state)
            return files is not None and (self._is_at(rows_state) or self._open_under_lock(files, rows_state))
        return False

    def _refresh(self) -> None:
        """Make the state mirror the present rows."""
        with self.turn:
            self._mirror()

    def _mirror(self) -> None:
        rows_state = self._rows.state
        if self._is_at(rows_state):
            return
        files = self._find_files(rows_state)
        if files is not None:
            try:
                if self._meta is not None or not self._open_under_lock(files, rows_state):
                    self._bring(rows_state, files)
                return
            except (OSError, ValueError):  # the disk is full or read-only: work in memory
                self._meta, self._has_no_files = None, True
        self._bring(rows_state, None)

    def _bring(self, rows_state: TypeState, files: LaneFiles | None) -> None:
        """Bring the state to `rows_state`: open files that another process wrote meanwhile, else apply changes,
        else rebuild.
        """
        with files.hold_lock(alone=True) if files else nullcontext():
            meta = files.read() if files else self._meta
            if files and self._open_if_current(files, meta, rows_state):
                return
            before = self._contents if files is None else files.read_contents(meta) if meta else None
            contents = Inventory.from_state(rows_state, before)
            state = self._follow_changes(contents, before, files, meta)
            self._meta = None
            if state is not None and meta is not None:
                self._seal(LaneMeta(rows_state.digest, meta.generation, state), contents, files, meta)
            else:
                with files.create_generation() if files else nullcontext("") as generation:
                    state = self._build(files.place(generation) if files else None)
                    self._seal(LaneMeta(rows_state.digest, generation, state), contents, files, meta)
        self._stale.clear()

    def _follow_changes(
        self, contents: Inventory, before: Inventory | None, files: LaneFiles | None, meta: LaneMeta | None
    ) -> State | None:
        """Apply the rows that differ and return the new state; None if it must be rebuilt."""
        if meta is None or before is None or bool(meta.generation) != (files is not None):
            return None
        if not (self._is_open(files, meta) and self._suits()):
            return None
        self._meta = None  # a partly applied change is invalid
        with suppress(OSError, ValueError):  # damage that opening did not reveal raises here
            changed_ids = contents.difference(before) | self._stale
            return self._follow(files.place(meta.generation) if files else None, changed_ids)
        return None

    def _seal(self, meta: LaneMeta, contents: Inventory, files: LaneFiles | None, before: LaneMeta | None) -> None:
        """Record what is mirrored now, in the files if there are any."""
        self._meta, self._contents = (files.seal(meta, contents, before), None) if files else (meta, contents)

    def _is_at(self, rows_state: TypeState) -> bool:
        """Return whether the open state is current."""
        return self._is_current(self._meta, rows_state) and self._suits()

    def _is_current(self, meta: LaneMeta | None, rows_state: TypeState) -> bool:
        return meta is not None and meta.digest == rows_state.digest and not self._stale

    def _open_under_lock(self, files: LaneFiles, rows_state: TypeState) -> bool:
        with files.hold_lock(alone=False):
            return self._open_if_current(files, files.read(), rows_state)

    def _open_if_current(self, files: LaneFiles, meta: LaneMeta | None, rows_state: TypeState) -> bool:
        """Open the files if they are current; return whether that was done."""
        if meta is None or not self._is_current(meta, rows_state):
            return False
        return self._is_open(files, meta) and self._suits()

    def _is_open(self, files: LaneFiles | None, meta: LaneMeta) -> bool:
        if files and meta != self._meta:
            self._meta = None
            try:
                self._open(files.place(meta.generation), meta.state)
            except (OSError, ValueError, KeyError, TypeError):
                return False
            self._meta = meta
        return self._meta is not None

    def _find_files(self, rows_state: TypeState) -> LaneFiles | None:
        """Return the files on disk; None if the state is kept in memory."""
        if rows_state.folder is None or self._has_no_files:
            return None
        return LaneFiles(rows_state.folder / self.name, f"{rows_state.key(self.lane)} {self._material}")
