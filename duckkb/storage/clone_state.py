"""The local state of a clone in `.duckkb/`. All of it can be thrown away, except a sealed journal under `txn/`."""

import contextlib
import errno
import os
import re
import stat
import uuid
from pathlib import Path

from duckkb import atomic_write
from duckkb.atomic_write import NO_FOLLOW
from duckkb.storage.layout import DATA, read_regular
from duckkb.types import errors

FOLDER = ".duckkb"
LOCK, JOB, WATCH = "lock", "job", "watch"
"""The lock files of readers and writers, of an index job, and of a process that watches folders."""
TURN = "turn"
"""The lock file of processes that wait for the lock."""
TXN = "txn"
"""The folder of the write in progress; empty at rest."""
MERGE = "merge.json"
"""Identity fields and merge rules per table, for merges that cannot read the ontology."""
VECTORS = "vectors.json"
"""The base that the vector actions use, if it is another base."""
RESCUED = "rescued"
"""The folder where `recover --forward` and `--abort` put files that stood in their way."""

PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM})
"""Errors that prove nothing about a file that cannot be opened: it may exist."""
_NOT_PERMITTED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_WRONG_PATH = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG})
MOUNTS = Path("/proc/self/mountinfo")
_OVER_A_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "vboxsf", "virtiofs"}
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def folder_of(root: Path) -> Path:
    return root / FOLDER


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def ensure(root: Path) -> Path:
    """Create `.duckkb/` with a `.gitignore` of its own, and return it.

    Raises `errors.Unavailable`: `E_READ_ONLY` if it may not be created or is a link, `E_IO` if the disk fails.
    """
    folder = folder_of(root)
    ignore = folder / ".gitignore"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            atomic_write.fsync_folder(root)  # a journal in a folder that a power cut removes would seal nothing
        if not is_folder(folder):
            raise errors.Unavailable(
                f"{FOLDER} is a link or not a folder; local state must be a regular folder.",
                code="E_READ_ONLY",
                suggestion=f"Remove {FOLDER}; duckkb makes the folder itself.",
            )
        # Written in place, without a temporary file that a crash could leave: a torn file is empty and is written
        # again.
        _write_ignore(ignore)
    except OSError as error:
        raise refusal(f"{FOLDER} cannot be made", error) from error
    return folder


def refuse_unwritable(root: Path) -> None:
    """Raise `errors.Unavailable` (E_READ_ONLY, E_IO) if a base cannot take a write."""
    for folder in (root, root / DATA, ensure(root)):
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise refusal(f"{folder} cannot be written", PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _write_ignore(path: Path) -> None:
    """Write only into a regular file: a foreign folder may hold a link or a FIFO there."""
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"{path.name} is not a regular file", str(path))
        if status.st_size:
            return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | NO_FOLLOW, 0o644), "wb") as file:
        file.write(b"*\n")


def clone_id(root: Path) -> str:
    """Return the UUID of this clone, created at the first request. Concurrent processes get the same UUID.

    Raises `errors.Unavailable` as `ensure` does.
    """
    path = ensure(root) / "clone_id"
    stored_id = _read_clone_id(path)
    if stored_id is not None:
        return stored_id
    fresh = str(uuid.uuid4())
    try:
        atomic_write.create_file(path, fresh.encode())
        if _read_clone_id(path) is None:  # torn or edited: no process can rely on it
            write_atomic(path, fresh.encode())
    except OSError as error:
        raise refusal(f"{FOLDER}/clone_id cannot be written", error) from error
    return _read_clone_id(path) or fresh


def _read_clone_id(path: Path) -> str | None:
    try:
        return str(uuid.UUID(read_regular(path)[0].decode("ascii").strip()))
    except (OSError, ValueError):
        return None


def remember_emptying(root: Path, commit: str | None) -> None:
    """Record that a write deleted the last record while HEAD was this commit, so that `data/` does not count as
    missing.
    """
    write_atomic(ensure(root) / "emptied", f"{commit or ''}\n".encode())


def forget_emptying(root: Path) -> None:
    """Delete that note: there are records again, or there always were."""
    with contextlib.suppress(OSError):
        (folder_of(root) / "emptied").unlink()


def is_emptied(root: Path, commit: str | None) -> bool:
    """Return whether the base was emptied on purpose, and HEAD has not moved since."""
    try:
        return (folder_of(root) / "emptied").read_text("utf-8") == f"{commit or ''}\n"
    except (OSError, ValueError):
        return False


def sweep(root: Path) -> None:
    """Remove drafts in local state whose writers died; the caller holds the exclusive lock, so that no new drafts
    appear.
    """
    with contextlib.suppress(OSError):
        for draft in folder_of(root).glob(atomic_write.DRAFTS):
            draft.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace a file as `atomic_write.replace_file` does.

    Raises `errors.Unavailable` (`E_READ_ONLY`, `E_IO`); the old file stays unchanged then.
    """
    try:
        atomic_write.replace_file(path, data, mode=mode, durable=durable)
    except OSError as error:
        raise refusal(f"{path.name} cannot be written", error) from error


def refusal(what: str, error: OSError) -> errors.Unavailable:
    """Return the error for a failed disk or file system: `E_READ_ONLY` for missing rights, else `E_IO`."""
    code = "E_READ_ONLY" if error.errno in _NOT_PERMITTED else "E_IO"
    remedy = "Write from a checkout that you own." if code == "E_READ_ONLY" else remedy_of(error, "repair the disk")
    return errors.Unavailable(f"{what}: {error.strerror or error}.", code=code, suggestion=remedy)


def remedy_of(error: OSError, mending: str) -> str:
    """Return what to do after a failure of a disk or file system: use another path if the path itself is wrong,
    because freed space does not turn a file into a folder; otherwise `mending`.
    """
    if error.errno in _WRONG_PATH:
        return "Give another path, or move the file or folder in the way."
    return f"Free space or {mending}, then repeat."


def file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds `path`, such as `ext4`; empty if unknown. `mounts` is the text
    of mountinfo.
    """
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape") if mounts is None else mounts
    except OSError:
        return ""
    place = path.resolve()
    type_name, depth = "", -1
    for line in lines.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if len(fields) < 5:
            continue
        point = Path(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4]))
        # Of two mounts on the same point the later hides the earlier.
        if place.is_relative_to(point) and len(point.parts) >= depth:
            type_name, depth = kind, len(point.parts)
    return type_name


def is_remote(kind: str) -> bool:
    """Return whether a file system of this type may be shared between machines, where a kernel's lock may exclude
    nobody.

    >>> is_remote("nfs4"), is_remote("fuse.sshfs"), is_remote("fuseblk"), is_remote("ext4")
    (True, True, False, False)
    """
    return kind in _OVER_A_NETWORK or kind == "fuse" or kind.startswith("fuse.")
