"""The folders for derived state: they lie in the user's cache folder, so that a clone cannot bring any along.

    bases/KEY/     the derived state of a base; KEY is made of the real path, the device and the inode of its folder
    shared/        tokens and vectors, shared by all bases, clones and worktrees of a user; `documents` holds the
                   texts of their files
    models/        the local model in executable form

All of it may be deleted at any time. A base that was moved or replaced has another key; `sweep` removes folders
whose base is gone.
"""

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from duckkb.storage import clone_state
from duckkb.storage.layout import read_regular
from duckkb.types.errors import StateError, Unavailable

BASES, SHARED, MODELS, DOCUMENTS = "bases", "shared", "models", "documents"
BESIDE_DATABASE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside an open database."""
_LABEL = "base.json"
_GONE = ".gone-"
_OURS = re.compile(rf"[0-9a-f]{{24}}-[0-9a-f]+-[0-9a-f]+|{re.escape(_GONE)}[0-9a-f]{{12}}")
"""Folders of bases, and leftovers of a removal. Nothing else is touched: `bases` may be a foreign folder."""
_UNUSED_NS = 7 * 86_400 * 1_000_000_000
"""How long a folder is kept after its base has gone: a disk may be mounted again, and another machine that shares
the folder may know the base.
"""


SAYS_SEALED = b"What is derived lies in `sealed` beside this file, and is read with DUCKKB_ENCRYPTION_KEY.\n"
"""The content of a file in place of a folder, so that no process without the key writes there."""


class Opener(Protocol):
    """Opens the sealed state of a base by its key, of each base for None, and the state of all bases. Removes what
    earlier versions left in the folder `root` of that base. `sealed` is the folder on disk.
    """

    sealed: Path

    def open(self, base: str | None, root: Path | None = None) -> None: ...


OPENERS: dict[Path, Opener] = {}
"""The openers by the folder that they open; empty while no key is set."""


class Unusable(Exception):
    """The existing state cannot be used, or none can be created; says why, as a clause without a full stop."""


class Place(Struct, frozen=True):
    """The folders of a base: `own` for its derived state, `shared` for what all bases share. Both may be missing
    before `make`.
    """

    home: Path
    root: str
    key: str

    @classmethod
    def locate(cls, cache_home: Path, root: Path) -> "Place":
        """Return the place of the base in a folder; open it if it is sealed. Raises OSError if the folder does not
        exist, `StateError` (E_KEY) if derived state is sealed and no key is set.
        """
        real = os.path.realpath(root)
        status = Path(real).stat()
        name = blake2b(os.fsencode(real), digest_size=12).hexdigest()
        place = cls(cache_home.expanduser(), real, f"{name}-{status.st_dev:x}-{status.st_ino:x}")
        if (opener := OPENERS.get(place.home)) is not None:
            opener.open(place.key, Path(real))
        else:
            require_unsealed(place.home / BASES)
        return place

    @property
    def own(self) -> Path:
        return self.home / BASES / self.key

    @property
    def shared(self) -> Path:
        return self.home / SHARED

    @property
    def sealed(self) -> Path | None:
        """Return the folder of the sealed state on disk; None while no key is set."""
        opener = OPENERS.get(self.home)
        return opener.sealed if opener is not None else None

    def make(self) -> None:
        """Create both folders, owned by the user and closed to others. Raises `Unusable`."""
        make_home(self.home)
        for folder in (self.home / BASES, self.shared):
            make_folder(folder)
        make_folder(self.own)
        label = self.own / _LABEL
        if not label.exists():  # a torn label would say that the base is gone
            with suppress(Unavailable):
                clone_state.write_atomic(label, json.dumps({"root": self.root}).encode(), durable=False)
            sweep(self.home)


class Kept(Struct, frozen=True):
    """A folder of a base: the base's path (None if unknown), whether that base still exists, and the last time in
    ns when a file was added or removed.
    """

    folder: Path
    root: str | None
    is_alive: bool
    used_ns: int

    def is_left_over(self, for_ns: int = _UNUSED_NS) -> bool:
        """Return whether the base is gone and the folder unused for `for_ns`, or whether a removal was
        interrupted.
        """
        if self.folder.name.startswith(_GONE):
            return True
        return not self.is_alive and self.used_ns <= time.time_ns() - for_ns


def open_all(home: Path) -> None:
    """Open the state of every base if it is sealed."""
    if (opener := OPENERS.get(home)) is not None:
        opener.open(None)


def make_home(home: Path) -> None:
    """Create the user's folder. A link of the user may lead to it; other users must not be able to change its
    content. Raises `Unusable`.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = home.stat()
    except OSError as error:
        raise Unusable(f"{home} cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise Unusable(f"{home} is not a folder")
    is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if os.name != "nt" and is_open:
        raise Unusable(f"{home} can be changed by everybody")


def make_folder(folder: Path) -> None:
    """Create a folder that is not a link, belongs to the user and is closed to others. Raises `Unusable`."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = refuse_foreign(folder)
        if os.name != "nt" and stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as error:
        raise Unusable(f"{folder} cannot be made: {error.strerror}") from error


def refuse_foreign(folder: Path) -> os.stat_result:
    """Return the status of a folder that belongs to the user; raises `Unusable` for anything else, `StateError`
    (E_KEY), OSError.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        require_unsealed(folder)
        raise Unusable(f"{folder} is a link or no folder")
    if not is_own(status):
        raise Unusable(f"{folder} belongs to another user")
    return status


def is_sealed(path: Path) -> bool:
    """Return whether a file at this path says that derived state is sealed."""
    with suppress(OSError):
        return read_regular(path)[0] == SAYS_SEALED
    return False


def require_unsealed(folder: Path) -> None:
    """Raise `StateError` (E_KEY) if the place of a folder says that its content is sealed."""
    if is_sealed(folder):
        message = f"derived files are encrypted in {folder.with_name('sealed')}, and no key is set"
        remedy = "set DUCKKB_ENCRYPTION_KEY, or `duckkb cleanup --sealed` drops it; it is made again from data/"
        raise StateError(message, "E_KEY", remedy)


def is_own(status: os.stat_result) -> bool:
    """Return whether a file belongs to the current user; on Windows the folders of a profile do."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def iter_kept_folders(home: Path) -> Iterator[Kept]:
    """Yield the folders of all bases of the user; nothing if there are none or they are unreadable."""
    folder = home.expanduser() / BASES
    if folder.is_symlink():
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and _OURS.fullmatch(entry.name):
                with suppress(OSError):
                    yield _describe_folder(Path(entry.path))


def sweep(home: Path) -> None:
    """Remove the folders of bases that have been gone for a while."""
    for entry in iter_kept_folders(home):
        if entry.is_left_over():
            remove(entry.folder)


def remove(folder: Path) -> None:
    """Remove a folder of derived state at once for all later readers; processes with open files keep them."""
    from shutil import rmtree  # which few processes need

    trash = folder.with_name(f"{_GONE}{os.urandom(6).hex()}")
    with suppress(OSError):
        folder.rename(trash)
        rmtree(trash, ignore_errors=True)


def room(home: Path, limit: int, going: int = 0) -> int:
    """Return the bytes that tokens and vectors may take if the whole folder may take `limit`: the bytes that bases
    and models leave, without bytes that are `going`, and always a quarter, because a model must recompute
    vectors. Files that SQLite has beside an open database do not count: an open base pushes no vectors out.
    """
    other_bytes = sum(size(home / name, is_lasting=True) for name in (BASES, MODELS)) - going
    return max(limit - other_bytes, limit // 4)


def size(folder: Path, *, is_lasting: bool = False) -> int:
    """Return the bytes of the files in a folder and below it, 0 if it does not exist; `is_lasting` leaves out the
    files that SQLite has beside an open database.
    """
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if is_lasting and name.endswith(BESIDE_DATABASE):
                continue
            with suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total


def _describe_folder(folder: Path) -> Kept:
    root: str | None = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        root = str(json.loads(read_regular(folder / _LABEL)[0])["root"])
    return Kept(folder, root, _is_alive(folder.name, root), folder.stat().st_mtime_ns)


def _is_alive(key: str, root: str | None) -> bool:
    if root is None or key.startswith(_GONE):
        return False
    try:
        status = Path(root).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it cannot be examined now, which proves nothing
        return True
    return key.endswith(f"-{status.st_dev:x}-{status.st_ino:x}")
