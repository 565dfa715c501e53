"""The format of a sealed file, and the key that opens it.

    duckkb-sealed-1 LF, 32 random bytes (the salt), frames

A frame is 1 MiB of the content (the last frame is shorter), encrypted by AES-256-GCM. Each file has its own
key, derived by HKDF from the user's key, the salt and the file's name. A frame is bound to the name, its number
and whether it is the last: a frame that was changed, moved, left out or taken from another file does not open.

Packs the files of a folder into a stream, and unpacks a stream into a folder. Each file is a head, bytes and a
time:

    4 bytes: the length of the head, 0 at the end
    the head, JSON: path and size
    the bytes, and 8 bytes: mtime in ns, 0 if the file changed while it was read

Derived state while a key is set: in the clear only in memory, on disk only sealed.

    HOME/bases, HOME/shared       marker files: no process without the key takes them for its folders
    HOME/sealed/key               a test value that detects a wrong key
    HOME/sealed/KEY               the state of a base: the files of its folder in a sealed file
    HOME/sealed/shared            the shared state, likewise
    MEMORY/duckkb-UID-HASH/       a plain cache folder on a file system in memory (tmpfs), which only swap writes out

All processes of a user with the same cache folder share the folder in memory. Each opens what nobody has opened
yet; the last to end seals the changes and removes the folder. If it was killed, the next process to start
removes the folder."""

import hmac
import json
import os
import re
import sqlite3
import stat
import time
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from hashlib import scrypt, sha256
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import TYPE_CHECKING

from duckkb import atomic_write, locks
from duckkb.atomic_write import NO_FOLLOW
from duckkb.storage import clone_state
from duckkb.store import cache_dirs, store_database
from duckkb.store.cache_dirs import BASES, MODELS, SHARED
from duckkb.types.errors import StateError, Unavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FRAME_BYTES = 1 << 20
SALT_BYTES = KEY_BYTES = 32
_MAGIC = b"duckkb-sealed-1\n"
_TAG_BYTES = 16
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_LEAST_CHARACTERS = 12
_SCRYPT_N, _SCRYPT_R = 1 << 17, 8


class BrokenSeal(Exception):
    """A sealed file differs from what was written under its name with this key."""


class SealKey:
    """The user's key: 32 bytes as hex or base64, or derived by scrypt from a passphrase and `salt`. Its repr
    reveals nothing.

    Raises `errors.StateError` (E_KEY) for a passphrase of less than 12 characters, and if the library is missing.
    """

    __slots__ = ("_secret",)

    def __init__(self, text: str, salt: bytes) -> None:
        if find_spec("cryptography") is None:
            message = "a key is set, and the library that seals with it is not installed"
            raise StateError(message, "E_KEY", "pip install 'duckkb[encryption]'")
        secret = _decode_key(text)
        if secret is None and len(text) < _LEAST_CHARACTERS:
            message = f"the key is neither 32 bytes as hex or base64 nor a passphrase of {_LEAST_CHARACTERS} characters or more"
            raise StateError(message, "E_KEY", "openssl rand -hex 32")
        self._secret = secret or scrypt(
            text.encode(), salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=1, maxmem=256 * _SCRYPT_N * _SCRYPT_R, dklen=KEY_BYTES
        )

    def derive_key(self, purpose: str, salt: bytes) -> bytes:
        """Derive 32 bytes from the key for a purpose."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), KEY_BYTES, salt, f"duckkb {purpose}".encode()).derive(self._secret)


def write(path: Path, pieces: Iterable[bytes], key: SealKey, name: str) -> None:
    """Seal a content under a name and replace the existing file: at every moment the old or the new file is there.
    Raises OSError.
    """
    atomic_write.replace_file(path, _seal_pieces(pieces, key, name), mode=0o600)


def read(path: Path, key: SealKey, name: str) -> Iterator[bytes]:
    """Yield the content frame by frame; discard all of it if `BrokenSeal` is raised at the end. Raises OSError."""
    from cryptography.exceptions import InvalidTag

    with path.open("rb") as file:
        magic, salt = file.read(len(_MAGIC)), file.read(SALT_BYTES)
        if magic != _MAGIC or len(salt) != SALT_BYTES:
            raise BrokenSeal
        cipher, number = _build_cipher(key, name, salt), 0
        frame = file.read(FRAME_BYTES + _TAG_BYTES)
        while True:
            following = file.read(FRAME_BYTES + _TAG_BYTES)
            try:
                yield cipher.decrypt(*_bind_frame(frame, name, number, is_last=not following))
            except (InvalidTag, ValueError):
                raise BrokenSeal from None
            if not following:
                return
            frame, number = following, number + 1


def _seal_pieces(pieces: Iterable[bytes], key: SealKey, name: str) -> Iterator[bytes]:
    salt, number, waiting = os.urandom(SALT_BYTES), 0, bytearray()
    cipher = _build_cipher(key, name, salt)
    yield _MAGIC + salt
    for piece in pieces:
        waiting += piece
        while len(waiting) > FRAME_BYTES:
            yield cipher.encrypt(*_bind_frame(bytes(waiting[:FRAME_BYTES]), name, number, is_last=False))
            del waiting[:FRAME_BYTES]
            number += 1
    yield cipher.encrypt(*_bind_frame(bytes(waiting), name, number, is_last=True))


def _build_cipher(key: SealKey, name: str, salt: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.derive_key(f"file {name}", salt))


def _bind_frame(frame: bytes, name: str, number: int, *, is_last: bool) -> tuple[bytes, bytes, bytes]:
    """Return the nonce, the frame, and the data that it is bound to. A number is a safe nonce, because no two
    files share a key.
    """
    return number.to_bytes(12), frame, b"\0".join((_MAGIC, name.encode(), b"%d" % number, b"%d" % is_last))


def _decode_key(text: str) -> bytes | None:
    """Decode 32 bytes from hex or base64; return None for a passphrase."""
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if _BASE64.fullmatch(text):
        with suppress(NoBase64, ValueError):
            secret = b64decode(text.rstrip("=") + "=", altchars=b"-_" if {"-", "_"} & {*text} else None)
            return secret if len(secret) == KEY_BYTES else None
    return None


_PIECE = 1 << 20
_LOG, _PASSING = "-wal", ("-shm", "-journal")
_DATABASE = ".sqlite"
_LOCK, _DRAFT = "lock", ".new"


def signature(folder: Path) -> str:
    """Return a signature of a folder's files that changes with every write; empty without files."""
    states = [
        (str(path.relative_to(folder)), status.st_size, status.st_mtime_ns) for path, status in _iter_files(folder)
    ]
    return sha256(repr(states).encode()).hexdigest() if states else ""


def pack(folder: Path, *, is_alone: bool) -> Iterator[bytes]:
    """Pack the files of a folder. Unless this process `is_alone`, copy databases through SQLite. Raises OSError."""
    for path, _ in _iter_files(folder):
        if not is_alone and path.name.endswith(_DATABASE + _LOG):
            continue  # its content is in the copy
        with suppress(FileNotFoundError):  # others went on
            name = path.relative_to(folder).as_posix()
            yield from (
                _pack_database(path, name) if not is_alone and path.name.endswith(_DATABASE) else _pack_file(path, name)
            )
    yield bytes(4)


def unpack(pieces: Iterable[bytes], folder: Path) -> None:
    """Unpack a stream into a new folder. Raises OSError, `BrokenSeal`."""
    stream = _Stream(iter(pieces))
    folder.mkdir(mode=0o700, parents=True)
    while head := stream.read(int.from_bytes(stream.read(4))):
        name, size = json.loads(head)
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise BrokenSeal
        path = folder / inside
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("xb") as file:
            for piece in stream.pieces(size):
                file.write(piece)
        mtime_ns = int.from_bytes(stream.read(8))
        os.utime(path, ns=(mtime_ns, mtime_ns))


def _iter_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the label first and the databases last: a lane must never be newer than the store that it follows."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    for path in sorted(paths, key=lambda path: (_DATABASE in path.name, len(path.parts), path)):
        with suppress(FileNotFoundError):
            status = path.lstat()
            is_log = path.name.endswith(_LOG) and not status.st_size
            if stat.S_ISREG(status.st_mode) and not is_log and not path.name.endswith((_LOCK, _DRAFT, *_PASSING)):
                yield path, status


def _pack_file(path: Path, name: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        yield _encode_head(name, before.st_size)
        remaining_bytes = before.st_size
        while remaining_bytes and (piece := file.read(min(remaining_bytes, _PIECE))):
            remaining_bytes -= len(piece)
            yield piece
        yield bytes(remaining_bytes)
        after = os.fstat(file.fileno())
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        yield (before.st_mtime_ns if is_same else 0).to_bytes(8)


def _pack_database(path: Path, name: str) -> Iterator[bytes]:
    """Pack a single state of a database while others may write; leave out a damaged database."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            content = database.serialize()
    except sqlite3.Error:
        return
    yield _encode_head(name, len(content))
    yield from (content[start : start + _PIECE] for start in range(0, len(content), _PIECE))
    yield bytes(8)


def _encode_head(name: str, size: int) -> bytes:
    head = json.dumps([name, size]).encode()
    return len(head).to_bytes(4) + head


class _Stream:
    """A reader of byte counts over pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def pieces(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._left:
                following = next(self._pieces, None)
                if following is None:
                    raise BrokenSeal
                self._left = memoryview(following)
            piece, self._left = self._left[:size], self._left[size:]
            size -= len(piece)
            yield piece

    def read(self, size: int) -> bytes:
        return b"".join(self.pieces(size))


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
            cache_dirs.make_home(disk)
            cache_dirs.make_folder(self.sealed)
            with self._turn():
                self._key = self._open_key(key)
                self._enter()
                self._take_plain()
        except (OSError, cache_dirs.Unusable) as error:
            message = f"derived state cannot be sealed in {self.sealed}: {error}"
            raise Unavailable(message, "E_IO", "set DUCKKB_CACHE_HOME to a folder of yours outside the base") from error
        cache_dirs.OPENERS[self.home] = self
        store_database.AFTER_WRITING.append(self.checkpoint)

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
            store_database.AFTER_WRITING.remove(self.checkpoint)
        cache_dirs.OPENERS.pop(self.home, None)
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
        cache_dirs.make_folder(self.folder)
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
            clone_state.write_atomic(path, json.dumps({"salt": salt.hex(), "check": check.hex()}).encode())
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
            *((entry.folder.name, entry.folder) for entry in cache_dirs.iter_kept_folders(self._disk)),
        ]
        unit_folders = [(unit, folder) for unit, folder in unit_folders if folder.is_dir()]
        for unit, folder in unit_folders:
            if not unit.startswith("."):
                write(self.sealed / unit, pack(folder, is_alone=False), self._key, unit)
            cache_dirs.remove(folder)
        for leftover in self._disk.glob(".gone-*"):
            rmtree(leftover)
        for name in (BASES, SHARED):
            plain = self._disk / name
            if plain.is_dir() and not plain.is_symlink():
                plain.rmdir()
            if not os.path.lexists(plain):
                atomic_write.write_new(plain, cache_dirs.SAYS_SEALED, mode=0o600)
            elif not cache_dirs.is_sealed(plain):
                raise cache_dirs.Unusable(f"{plain} is not a folder made by duckkb")
        if unit_folders:
            message = f"what was derived before lay in {self._disk} in the clear; it was sealed and removed there"
            self._told.append(f"{message} (free space of a disk may still hold it)")

    def _open(self, unit: str) -> None:
        folder, file = self._resolve_folder(unit), self.sealed / unit
        rmtree(folder, ignore_errors=True)  # left by a process that was killed while it opened this
        try:
            if file.exists():
                mtime_ns = file.stat().st_mtime_ns
                unpack(read(file, self._key, unit), folder)
                os.utime(folder, ns=(mtime_ns, mtime_ns))
        except BrokenSeal:
            rmtree(folder, ignore_errors=True)
            file.unlink()
            self._told.append(f"{file} was damaged and is dropped; its contents are rebuilt from data/")
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        self._note(unit).write_text(signature(folder))

    def _drop_earlier(self, root: Path) -> None:
        local = clone_state.folder_of(root)
        for folder in (local / name for name in _EARLIER if clone_state.is_folder(local)):
            if clone_state.is_folder(folder):
                rmtree(folder)
                self._told.append(f"{folder}, which an earlier version left in the clear, was removed")

    def _seal_all(self, *, is_alone: bool) -> None:
        if not self._is_key_in_place():  # the sealed state was dropped, and another key may have been set
            return
        for note in sorted((self.folder / "notes").iterdir()):
            unit, folder = note.name, self._resolve_folder(note.name)
            now = signature(folder)
            if now == note.read_text():
                continue
            if now:
                write(self.sealed / unit, pack(folder, is_alone=is_alone), self._key, unit)
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
        if not cache_dirs.is_own(os.fstat(descriptor)):  # anybody may create files there
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


def find_memory_folder(folders: list[Path], kind_of: Callable[[Path], str] = clone_state.file_system) -> Path:
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
        path
        for path in (disk / SEALED, disk / BASES, disk / SHARED)
        if cache_dirs.is_sealed(path) or path.name == SEALED
    ]
    paths = [path for path in paths if os.path.lexists(path)]
    count = cache_dirs.size(disk / SEALED)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            rmtree(path)
        else:
            path.unlink()
    return [str(path) for path in paths], count
