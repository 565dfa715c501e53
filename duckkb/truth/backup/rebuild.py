"""Restores a backup: builds everything in a folder beside the target, which then takes the target's name in a
single step.

A backup is untrusted data: none of its paths leads out of the folder or to files of git or duckkb, nothing is
written through a link, and git receives only history.
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
    """Restore the whole backup into an empty folder, durably.

    Raises `errors.StateError` (E_BACKUP, E_SYMLINK, E_NOT_REGULAR) for content that no backup may hold,
    `errors.Unavailable` (E_IO) if there is no room, OSError.
    """
    try:
        _fill(archive, folder)
    except Unavailable as error:
        if error.code != "E_GIT" or isinstance(error, run.NoGit):
            raise
        raise make_damage_error(error.message) from error
    if not (folder / archive.manifest.base).is_dir():
        raise make_damage_error(f"it lacks the folder {archive.manifest.base} of its base")
    _sync(folder)


def _fill(archive: Archive, folder: Path) -> None:
    manifest = archive.manifest
    if manifest.checkout:
        history = archive.pieces(BUNDLE, manifest.bundle) if manifest.bundle else None
        bundle.unbundle(folder, manifest.checkout, history)
    if repository.tracks_state(folder / manifest.base):
        raise make_damage_error(f"its history contains {state.FOLDER}/, which must stay local")
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
    """Make a folder and all its content durable."""
    if hasattr(os, "sync"):
        os.sync()  # syncs everything at once; syncing each file afterwards mainly reports errors
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        atomic_write.fsync_folder(Path(place))


@contextmanager
def make_folder_beside(target: Path) -> Iterator[Path]:
    """Create an empty folder beside a target, named after it; remove it at the end unless it was renamed."""
    folder = target.with_name(f".{target.name}.restoring-{os.urandom(4).hex()}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, target: Path, aside: Path, base: Path, timeout: float) -> bool:
    """Give a folder the name of the target; move the existing target, unless it is an empty folder, to `aside`.
    Returns whether it was moved. Waits for writers of the `base` there. If the system can exchange names, the
    target always exists; otherwise it is missing for a moment while the old folder is at `aside`.
    """
    is_new = not os.path.lexists(target) or not any(target.iterdir())
    if is_new:
        folder.rename(target)
    else:
        with lock.exclusive(base, timeout) if (base / "config.yaml").is_file() else nullcontext():
            folder.rename(aside)  # the old folder never has the name of the new one
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
    """Exchange the names of two folders, which Linux does in a single step on most file systems; return whether
    that worked.
    """
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and not rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _EXCHANGE)
