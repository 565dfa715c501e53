"""Where the repository around a knowledge base lies, and what its small files say. No git is run, and nothing is changed."""

import errno
import os
import stat
from pathlib import Path

from duckkb.errors import Unavailable
from duckkb.truth import state
from duckkb.values import dataclass

# Nothing of that name is there, or something that is no file: git would not read it either.
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL}
)
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Repository:
    """Where git keeps things: `git_dir` is the worktree's own, `common_dir` holds refs and objects; `prefix` is the path
    of the knowledge base inside the work tree, with a final `/`, or empty."""

    work_tree: Path
    git_dir: Path
    common_dir: Path
    prefix: str

    @property
    def is_shallow(self) -> bool:
        """Whether this clone has the newest history alone."""
        return (self.common_dir / "shallow").exists()


def find_repository(root: Path) -> Repository | None:
    """The repository whose work tree holds `root`, which may be a subfolder of it."""
    here = Path(os.path.realpath(root))
    for folder in (here, *here.parents):
        git_dir = _git_dir_of(folder)
        if git_dir is not None:
            prefix = here.relative_to(folder).as_posix()
            return Repository(folder, git_dir, _common_dir_of(git_dir), "" if prefix == "." else prefix + "/")
    return None


def read_ref(repository: Repository, name: str) -> str:
    """What a ref holds, a commit or `ref: NAME`; empty where there is none in git's files."""
    if ".." in name.split("/"):
        return ""
    for folder in (repository.git_dir, repository.common_dir):
        value = read_text(folder / name)
        if value:
            return value
    for line in read_text(repository.common_dir / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return commit
    return ""


def read_text(path: Path) -> str:
    """A small file's text without the final newline; empty where there is none."""
    return (read_bytes(path) or b"").decode(errors="replace").rstrip("\n")


def read_bytes(path: Path, limit: int = -1) -> bytes | None:
    """A regular file's content, at most `limit` bytes of it where that is given; None where there is none. Waits for no FIFO
    and reads no device: a `.git` that was not made here may hold either. Raises as `unseen` says where the machine, not the
    file, is in the way."""
    try:
        with os.fdopen(os.open(path, _OPEN), "rb") as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise unseen(path, error) from error


def unseen(path: Path, error: OSError) -> Unavailable:
    """What may well be there and cannot be seen now must not count as absent, or a guard would stand open (E_IO)."""
    return state.refusal(f"git's {path.name} cannot be read", error)


def _git_dir_of(folder: Path) -> Path | None:
    """The git folder of a work tree: `.git`, or where the file `.git` of a linked work tree points."""
    marker = folder / ".git"
    if marker.is_dir():
        return marker if (marker / "HEAD").exists() else None
    pointer = read_text(marker)
    if not pointer.startswith("gitdir: "):
        return None
    git_dir = folder / pointer.removeprefix("gitdir: ")
    return git_dir if (git_dir / "HEAD").exists() else None


def _common_dir_of(git_dir: Path) -> Path:
    pointer = read_text(git_dir / "commondir")
    return git_dir / pointer if pointer else git_dir
