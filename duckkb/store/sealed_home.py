"""Derived state while a key is set: in the clear only in memory, on disk only sealed.

    HOME/bases, HOME/shared       marker files: no process without the key takes them for its folders
    HOME/sealed/key               a test value that detects a wrong key
    HOME/sealed/KEY               the state of a base: the files of its folder in a sealed file
    HOME/sealed/shared            the shared state, likewise
    MEMORY/duckkb-UID-HASH/       a plain cache folder on a file system in memory (tmpfs), which only swap writes out

All processes of a user with the same cache folder share the folder in memory. Each opens what nobody has opened
yet; the last to end seals the changes and removes the folder. If it was killed, the next process to start
removes the folder.
"""

import hmac
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

from duckkb import atomic_write, locks
from duckkb.errors import StateError, Unavailable
from duckkb.open_files import NO_FOLLOW
from duckkb.store import database, packed, place, sealed_file
from duckkb.store.place import BASES, MODELS, SHARED
from duckkb.store.sealed_file import SALT_BYTES, BrokenSeal, SealKey
from duckkb.truth import state

SEALED, _KEY = "sealed", "key"
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
CHECKPOINT_S = 300.0
"""Seconds after which a running process seals what it derived meanwhile."""
_DROP = "`duckkb cleanup --sealed` drops the encrypted files, which are rebuilt from data/"
_EARLIER = ("cache", "snapshot")
_WAIT_S = 60.0


class SealedHome:
    """The derived state of a user's cache folder `disk`, opened in a folder of `memory` (a tmpfs). Messages about
    it are added to `told`. Raises `errors.StateError` (E_KEY) if the existing state was sealed with another
    key, `errors.Unavailable` (E_IO).
    """

    def __init__(self, disk: Path, memory: Path, key: str, told: list[str]) -> None:
        self.sealed = disk / SEALED
        user = getattr(os, "geteuid", int)()
        name = sha256(os.fsencode(os.path.realpath(disk))).hexdigest()[:16]
        self.folder = memory / f"duckkb-{user}-{name}"
        self._told, self._known, self._known_key = told, set[str](), b""
        self._disk, self._pid, self._alive = disk, os.getpid(), -1
        self._checked_at = time.monotonic()
        try:
            place.make_home(disk)
            place.make_folder(self.sealed)
            with self._turn():
                self._key = self._open_key(key)
                self._enter()
                self._take_plain()
        except (OSError, place.Unusable) as error:
            message = f"derived state cannot be sealed in {self.sealed}: {error}"
            raise Unavailable(message, "E_IO", "set DUCKKB_CACHE_HOME to a folder of yours outside the base") from error
        place.OPENERS[self.home] = self
        database.AFTER_WRITING.append(self.checkpoint)

    @property
    def home(self) -> Path:
        """Return the folder in place of the user's cache folder."""
        return self.folder / "home"

    @property
    def temporary(self) -> Path:
        """Return the folder for temporary files."""
        return self.folder / "tmp"

    def open(self, base: str | None, root: Path | None = None) -> None:
        """Open the shared state and the state of the base with this key, or of each base for None. Remove what
        earlier versions left in the clear in the base's folder `root`. Raises `errors.Unavailable` (E_IO) if
        memory has no room.
        """
        units = {SHARED, *(self._list_units() if base is None else [base])}
        try:
            with self._turn() if units - self._known else nullcontext():
                for unit in sorted(units - self._known):
                    if not self._note(unit).exists():
                        self._open(unit)
                    self._known.add(unit)
                    if root is not None and unit == base:
                        self._drop_earlier(root)
        except OSError as error:
            message = f"derived state cannot be opened in {self.folder}: {error.strerror or error}"
            raise Unavailable(message, "E_IO", f"df {self.folder.parent}") from error

    def checkpoint(self) -> None:
        """Seal the changes unless that was done in the last minutes; other processes continue meanwhile."""
        if time.monotonic() - self._checked_at > CHECKPOINT_S and os.getpid() == self._pid:
            with suppress(OSError), self._turn():
                self._seal_all(is_alone=False)

    def end(self) -> str:
        """Leave the folder; the last process seals the changes and removes it. Returns why that failed, empty on
        success.
        """
        if self._alive < 0 or os.getpid() != self._pid:
            return ""
        with suppress(ValueError):
            database.AFTER_WRITING.remove(self.checkpoint)
        place.OPENERS.pop(self.home, None)
        try:
            with self._turn():
                descriptor, self._alive = self._alive, -1
                try:
                    if locks.try_lock(descriptor, exclusive=True):
                        try:
                            self._seal_all(is_alone=True)
                        finally:
                            self._remove_all()
                finally:
                    os.close(descriptor)
        except OSError as error:
            why = error.strerror or error
            return f"derived files could not be encrypted in {self.sealed}, and are rebuilt: {why}"
        return ""

    def _remove_all(self) -> None:
        rmtree(self.folder, ignore_errors=True)
        for name in ("alive", "turn"):
            self._lock_path(name).unlink(missing_ok=True)

    def _enter(self) -> None:
        """Register as a user of the folder; remove what killed processes left there."""
        self._alive = self._lock_file("alive")
        if locks.try_lock(self._alive, exclusive=True):
            rmtree(self.folder, ignore_errors=True)
            for draft in self.sealed.glob(atomic_write.DRAFTS):
                draft.unlink(missing_ok=True)
        if not locks.try_lock(self._alive, exclusive=False):
            raise OSError(f"{self.folder} is locked by another process")
        place.make_folder(self.folder)
        (self._disk / MODELS).mkdir(exist_ok=True)
        for folder in (self.home, self.temporary, self.folder / "notes", self.home / BASES):
            folder.mkdir(exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            (self.home / MODELS).symlink_to(self._disk / MODELS)

    def _open_key(self, text: str) -> SealKey:
        path = self.sealed / _KEY
        if not path.exists():
            if self._list_units():
                raise StateError(f"{path} is missing, without which nothing there opens", "E_KEY", _DROP)
            salt = os.urandom(SALT_BYTES)
            check = SealKey(text, salt).derive_key("check", salt)
            state.write_atomic(path, json.dumps({"salt": salt.hex(), "check": check.hex()}).encode())
        try:
            self._known_key = path.read_bytes()
            parameters = json.loads(self._known_key)
            salt, check = bytes.fromhex(parameters["salt"]), bytes.fromhex(parameters["check"])
        except (ValueError, TypeError, KeyError):
            raise StateError(f"{path} is damaged, so no key can be verified", "E_KEY", _DROP) from None
        key = SealKey(text, salt)
        if not hmac.compare_digest(key.derive_key("check", salt), check):
            message = f"the key is not the one that derived state in {self.sealed} was sealed with; nothing was changed"
            raise StateError(message, "E_KEY", f"set the right key, or {_DROP}")
        return key

    def _take_plain(self) -> None:
        """Seal the clear content of the user's cache folder and remove it."""
        unit_folders = [
            (SHARED, self._disk / SHARED),
            *((entry.folder.name, entry.folder) for entry in place.iter_kept_folders(self._disk)),
        ]
        unit_folders = [(unit, folder) for unit, folder in unit_folders if folder.is_dir()]
        for unit, folder in unit_folders:
            if not unit.startswith("."):
                sealed_file.write(self.sealed / unit, packed.pack(folder, is_alone=False), self._key, unit)
            place.remove(folder)
        for leftover in self._disk.glob(".gone-*"):
            rmtree(leftover)
        for name in (BASES, SHARED):
            plain = self._disk / name
            if plain.is_dir() and not plain.is_symlink():
                plain.rmdir()
            if not os.path.lexists(plain):
                atomic_write.write_new(plain, place.SAYS_SEALED, mode=0o600)
            elif not place.is_sealed(plain):
                raise place.Unusable(f"{plain} is not a folder made by duckkb")
        if unit_folders:
            message = f"what was derived before lay in {self._disk} in the clear; it was sealed and removed there"
            self._told.append(f"{message} (free space of a disk may still hold it)")

    def _open(self, unit: str) -> None:
        folder, file = self._resolve_folder(unit), self.sealed / unit
        rmtree(folder, ignore_errors=True)  # left by a process that was killed while it opened this
        try:
            if file.exists():
                mtime_ns = file.stat().st_mtime_ns
                packed.unpack(sealed_file.read(file, self._key, unit), folder)
                os.utime(folder, ns=(mtime_ns, mtime_ns))
        except BrokenSeal:
            rmtree(folder, ignore_errors=True)
            file.unlink()
            self._told.append(f"{file} was damaged and is dropped; its contents are rebuilt from data/")
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        self._note(unit).write_text(packed.signature(folder))

    def _drop_earlier(self, root: Path) -> None:
        local = state.folder_of(root)
        for folder in (local / name for name in _EARLIER if state.is_folder(local)):
            if state.is_folder(folder):
                rmtree(folder)
                self._told.append(f"{folder}, which an earlier version left in the clear, was removed")

    def _seal_all(self, *, is_alone: bool) -> None:
        if not self._is_key_in_place():  # the sealed state was dropped, and another key may have been set
            return
        for note in sorted((self.folder / "notes").iterdir()):
            unit, folder = note.name, self._resolve_folder(note.name)
            now = packed.signature(folder)
            if now == note.read_text():
                continue
            if now:
                sealed_file.write(self.sealed / unit, packed.pack(folder, is_alone=is_alone), self._key, unit)
            else:
                (self.sealed / unit).unlink(missing_ok=True)
            note.write_text(now)
        self._checked_at = time.monotonic()

    def _is_key_in_place(self) -> bool:
        try:
            return (self.sealed / _KEY).read_bytes() == self._known_key
        except FileNotFoundError:
            return False

    def _list_units(self) -> list[str]:
        names = sorted(path.name for path in self.sealed.iterdir())
        return [name for name in names if name not in (_KEY, SHARED) and not name.startswith(".")]

    def _resolve_folder(self, unit: str) -> Path:
        return self.home / SHARED if unit == SHARED else self.home / BASES / unit

    def _note(self, unit: str) -> Path:
        return self.folder / "notes" / unit

    def _lock_path(self, name: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{name}")

    def _lock_file(self, name: str) -> int:
        path = self._lock_path(name)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_FOLLOW, 0o600)
        if not place.is_own(os.fstat(descriptor)):  # anybody may create files there
            os.close(descriptor)
            raise PermissionError(f"{path} belongs to another user")
        return descriptor

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one process at a time open or seal. Raises OSError."""
        path, deadline = self._lock_path("turn"), time.monotonic() + _WAIT_S
        descriptor = locks.open_and_lock(path, lambda: self._lock_file("turn"), deadline)
        if descriptor is None:
            raise TimeoutError("another process has been opening or sealing for a minute")
        try:
            yield
        finally:
            os.close(descriptor)


def find_memory_folder(folders: list[Path], kind_of: Callable[[Path], str] = state.file_system) -> Path:
    """Return the first of these folders that lies in memory. Raises `errors.Unavailable` (E_KEY)."""
    for folder in folders:
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) and kind_of(folder) in IN_MEMORY:
            return folder
    candidates = " and ".join(str(folder) for folder in folders)
    message = f"a key is set, but neither of {candidates} is a writable tmpfs for unencrypted files"
    raise Unavailable(message, "E_KEY", "mount a tmpfs at /dev/shm, or unset the key and encrypt the disk")


def drop(disk: Path) -> tuple[list[str], int]:
    """Remove the sealed state in a user's cache folder, whatever its key; return the paths and their bytes. Raises
    OSError.
    """
    paths = [
        path for path in (disk / SEALED, disk / BASES, disk / SHARED) if place.is_sealed(path) or path.name == SEALED
    ]
    paths = [path for path in paths if os.path.lexists(path)]
    count = place.size(disk / SEALED)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            rmtree(path)
        else:
            path.unlink()
    return [str(path) for path in paths], count
