"""A backup back into files: all of it in a folder beside the one that is wanted, which then takes its name in one step.

What comes from a backup is data from elsewhere: no path of it leads out of the folder or to what git or duckkb keep, nothing
is written through a link, and git gets history alone.
"""

import ctypes
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from duckkb import atomic_write
from duckkb.errors import Unavailable
from duckkb.truth import state
from duckkb.truth.backup.archive import BUNDLE, Archive, SavedFile, entry_name, make_damage_error
from duckkb.truth.backup.gather import leads_out
from duckkb.truth.commit import journal, lock
from duckkb.truth.git import bundle, repository, run

_AT_FDCWD, _EXCHANGE = -100, 2


def rebuild(archive: Archive, folder: Path) -> None:
    """Make everything that a backup holds in an empty folder, and make it durable.

    Raises `errors.StateError` (E_BACKUP, E_SYMLINK, E_NOT_REGULAR) for what no backup may hold, `errors.Unavailable` (E_IO)
    where there is no room, OSError.
    """
    try:
        _fill(archive, folder)
    except Unavailable as error:
        if error.code != "E_GIT" or isinstance(error, run.NoGit):
            raise
        raise make_damage_error(error.message) from error
    if not (folder / archive.manifest.base).is_dir():
        raise make_damage_error(f"it holds no folder {archive.manifest.base}, where its base should lie")
    _sync(folder)


def _fill(archive: Archive, folder: Path) -> None:
    manifest = archive.manifest
    if manifest.checkout:
        history = archive.pieces(BUNDLE, manifest.bundle) if manifest.bundle else None
        bundle.unbundle(folder, manifest.checkout, history)
    if repository.tracks_state(folder / manifest.base):
        raise make_damage_error(f"its history holds {state.FOLDER}/, which must be local")
    for path in manifest.deleted:
        _remove(folder, path)
    for saved_file in manifest.files:
        _put(archive, folder, saved_file)
    if out := [entry.path for entry in manifest.files if stat.S_ISLNK(entry.mode) and leads_out(folder, entry.path)]:
        raise make_damage_error(f"{out[0]} is a link that leads out of it")
    if manifest.checkout and (manifest.checkout.commit or manifest.checkout.index):
        bundle.stage(folder, manifest.checkout)


def _remove(folder: Path, path: str) -> None:
    journal.check_parents(folder, path)
    (folder / path).unlink(missing_ok=True)
    for parent in reversed(journal.parents_of(path)):
        with suppress(OSError):  # there is more in it
            (folder / parent).rmdir()


def _put(archive: Archive, folder: Path, saved_file: SavedFile) -> None:
    journal.check_parents(folder, saved_file.path)
    target, pieces = folder / saved_file.path, archive.pieces(entry_name(saved_file.path), saved_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if stat.S_ISLNK(saved_file.mode):
        target.symlink_to(os.fsdecode(b"".join(pieces)))
    else:
        atomic_write.write_new(target, pieces, mode=stat.S_IMODE(saved_file.mode) & 0o777, durable=False)


def _sync(folder: Path) -> None:
    """Have a folder with all that is in it survive a power cut."""
    if hasattr(os, "sync"):
        os.sync()  # all at once, after which each by itself has little to do but to tell an error
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        atomic_write.fsync_folder(Path(place))


@contextmanager
def make_folder_beside(target: Path) -> Iterator[Path]:
    """An empty folder beside a target that says what it is; gone at the end unless it took another name."""
    folder = target.with_name(f".{target.name}.restoring-{os.urandom(4).hex()}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, target: Path, aside: Path, base: Path, timeout: float) -> bool:
    """Give a folder the name of the target; what is there, and is not an empty folder, is then called `aside`. Returns whether
    it was. Waits for whoever writes to the `base` there. At every moment the target is the one or the other where the system
    can exchange names; elsewhere it is missing for a moment, in which the old one stands as `aside`."""
    is_new = not os.path.lexists(target) or not any(target.iterdir())
    if is_new:
        folder.rename(target)
    else:
        with lock.exclusive(base, timeout) if (base / "config.yaml").is_file() else nullcontext():
            folder.rename(aside)  # so that what is old never stands under a name that says otherwise
            if not _swap_names(aside, target):
                aside.rename(folder)
                target.rename(aside)
                try:
                    folder.rename(target)
                except OSError:
                    aside.rename(target)
                    raise
    atomic_write.fsync_folder(target.parent)
    return not is_new


def _swap_names(source: Path, target: Path) -> bool:
    """Whether two folders have exchanged their names, which Linux does in one step on most file systems."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and not rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _EXCHANGE)
