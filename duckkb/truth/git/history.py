"""Facts about the git repository around a knowledge base. Nothing here changes a repository.

What a small file in `.git` tells is read from there; objects and diffs are asked of git, through GitPython, hardened so
that neither the repository's configuration nor a value from data can make git run a command, reach a host or write.
Without git, or without a repository, every question has an answer.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from duckkb import errors
from duckkb.truth import state
from duckkb.values import dataclass

SECONDS = 60.0
_MAIN_BRANCHES = frozenset({"main", "master"})
_HEX = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PART = re.compile(r"data/(?:nodes|edges)/[^/]+/[0-9]{8}/part_[0-9]{3,}\.jsonl")
_SYMBOLIC_REF_DEPTH = 5
# Nothing of that name is there, or something that is no file: git would not read it either.
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL}
)
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

# A repository's own settings count for less than these.
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.symlinks": "false",
    "core.pager": "cat",
    "core.quotePath": "true",
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # a partial clone would fetch a missing object by a command that its configuration names
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "GIT_CONFIG_PARAMETERS": "",  # what `git -c` hands down to a hook would win over the settings above
    # A path of ours is no pattern, whatever the caller's environment says.
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_GLOB_PATHSPECS": "0",
    "GIT_NOGLOB_PATHSPECS": "0",
    "GIT_ICASE_PATHSPECS": "0",
    "LC_ALL": "C",
}
# For a repository that we make ourselves: nobody's taste in diffs counts.
_OWN = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
    "GIT_DIFF_OPTS": "",
    "GIT_NAMESPACE": "",
}


@dataclass(frozen=True, slots=True)
class Repository:
    """Where git keeps things: `git_dir` is the worktree's own, `common_dir` holds refs and objects; `prefix` is the path
    of the knowledge base inside the work tree, with a final `/`, or empty."""

    work_tree: Path
    git_dir: Path
    common_dir: Path
    prefix: str


def find_repository(root: Path) -> Repository | None:
    """The repository whose work tree holds `root`, which may be a subfolder of it."""
    here = Path(os.path.realpath(root))
    for folder in (here, *here.parents):
        git_dir = _git_dir_of(folder)
        if git_dir is not None:
            prefix = here.relative_to(folder).as_posix()
            return Repository(folder, git_dir, _common_dir_of(git_dir), "" if prefix == "." else prefix + "/")
    return None


def branch(root: Path) -> str:
    """The short name of the branch that is checked out; a detached HEAD's commit id; empty without git."""
    repository = find_repository(root)
    if repository is None:
        return ""
    head = _read(repository.git_dir / "HEAD")
    target = head.removeprefix("ref: ") if head.startswith("ref: ") else ""
    if target == "refs/heads/.invalid":  # refs are kept in tables, where HEAD is a stand-in
        target = _text(run(root, ["symbolic-ref", "--quiet", "HEAD"]))
    return target.removeprefix("refs/heads/") if target else head_commit(root) or ""


def head_commit(root: Path) -> str | None:
    """The commit that HEAD names; None before the first one, or without git."""
    repository = find_repository(root)
    if repository is None:
        return None
    name = "HEAD"
    for _ in range(_SYMBOLIC_REF_DEPTH):
        value = _read_ref(repository, name)
        if not value.startswith("ref: "):
            return value if _HEX.fullmatch(value) else None
        name = value.removeprefix("ref: ")
        if name == "refs/heads/.invalid":
            return _text(run(root, ["rev-parse", "--quiet", "--verify", "--end-of-options", "HEAD^{commit}"])) or None
    return None


def can_be_asked(root: Path) -> bool:
    """Whether there is a repository, and git would not wait for ever where it begins to read it: at a FIFO, say."""
    repository = find_repository(root)
    if repository is None:
        return False
    places = (repository.git_dir / "HEAD", repository.common_dir / "packed-refs")
    return all(place.is_file() or not os.path.lexists(place) for place in places)


def is_main_branch(root: Path) -> bool:
    """Whether this is the branch that others start from: main, master, or what origin/HEAD names. A folder without git
    has but one line of history, which counts as main."""
    name = branch(root)
    repository = find_repository(root)
    if repository is None or name in _MAIN_BRANCHES:
        return True
    return bool(name) and name == default_branch(root)


def default_branch(root: Path) -> str:
    """The branch that origin/HEAD names; empty where that is not known."""
    repository = find_repository(root)
    head = _read(repository.common_dir / "refs/remotes/origin/HEAD") if repository else ""
    prefix = "ref: refs/remotes/origin/"
    return head.removeprefix(prefix) if head.startswith(prefix) else ""


def operation_in_progress(root: Path) -> str | None:
    """What git is in the middle of: `merge`, `rebase`, `am`, `cherry-pick`, `revert`, or None."""
    repository = find_repository(root)
    if repository is None:
        return None
    at = repository.git_dir
    # A rebase that stopped leaves CHERRY_PICK_HEAD too, so it is asked for first.
    if (at / "rebase-merge").is_dir():
        return "rebase"
    if (at / "rebase-apply").is_dir():
        return "am" if (at / "rebase-apply/applying").exists() else "rebase"
    for name, file in (("merge", "MERGE_HEAD"), ("cherry-pick", "CHERRY_PICK_HEAD"), ("revert", "REVERT_HEAD")):
        if (at / file).exists():
            return name
    # Between two of several picks there is no *_HEAD, only what is left to do.
    return {"pick": "cherry-pick", "revert": "revert"}.get(_read(at / "sequencer/todo").split(" ")[0])


def tracks_state(root: Path) -> bool:
    """Whether git tracks `.duckkb` or anything in it, as a hostile clone would to bring a journal or a cache along.

    The index's bytes answer for nearly every repository; git is asked only where the name occurs in them, or where the
    format shortens or moves names.
    """
    repository = find_repository(root)
    index = _bytes(repository.git_dir / "index") if repository else None
    if repository is None or index is None:
        return False
    try:
        is_split = any(repository.git_dir.glob("sharedindex.*"))
    except OSError as error:
        raise _unseen(repository.git_dir, error) from error
    if state.FOLDER.encode() not in index and index[4:8] != b"\0\0\0\x04" and not is_split:
        return False
    listed = run(root, ["ls-files", "-z", "--end-of-options", state.FOLDER])
    if listed is None:  # no git to ask: better one refusal too many
        return (repository.prefix + state.FOLDER).encode() in index
    return bool(listed)


def index_versions(root: Path) -> set[int]:
    """The numbers of the format of the files that make git's index; none without git."""
    repository = find_repository(root)
    if repository is None:
        return set()
    heads = [_bytes(path, 8) for path in (repository.git_dir / "index", *repository.git_dir.glob("sharedindex.*"))]
    return {int.from_bytes(head[4:8], "big") for head in heads if head}


def tracks(root: Path, folder: Path) -> bool:
    """Whether git tracks anything below a folder of the work tree; True where git cannot be asked."""
    place = os.path.relpath(folder, os.path.realpath(root))
    return run(root, ["ls-files", "-z", "--end-of-options", place]) != b""


def head_has_records(root: Path) -> bool:
    """Whether HEAD's tree holds a part file of this base; False without git or before the first commit."""
    repository, commit = find_repository(root), head_commit(root)
    if repository is None or commit is None:
        return False
    folders = [f"{repository.prefix}data/nodes/", f"{repository.prefix}data/edges/"]
    listed = run(root, ["ls-tree", "-r", "-z", "--name-only", "--full-tree", "--end-of-options", commit, *folders])
    start = len(repository.prefix.encode())
    names = (name[start:].decode(errors="replace") for name in (listed or b"").split(b"\0"))
    return any(_PART.fullmatch(name) for name in names)


def read_at_head(root: Path, path: str) -> bytes | None:
    """The content at HEAD of a path relative to `root`; None where HEAD has no such file, or without git."""
    repository, commit = find_repository(root), head_commit(root)
    if repository is None or commit is None or ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
        return None
    return run(root, ["cat-file", "--end-of-options", "blob", f"{commit}:{repository.prefix}{PurePosixPath(path)}"])


def run(root: Path, arguments: Sequence[str], *, stdin: bytes = b"", own: Path | None = None) -> bytes | None:
    """What `git ARGUMENTS` prints, run in `root` with the hardening of this module; None where git is missing or fails.

    Values that come from data must stand after `--end-of-options`. `own` is the git folder of a repository that we made
    ourselves. Raises `errors.Unavailable` where git takes more than `SECONDS`.
    """
    try:
        from git.cmd import Git
        from git.exc import GitCommandError, GitCommandNotFound
    except ImportError:  # GitPython refuses to load where there is no git
        return None
    repository = None if own else find_repository(root)
    places = [f"--git-dir={own}"] if own else []
    if repository is not None:
        places = [f"--git-dir={repository.git_dir}", f"--work-tree={repository.work_tree}"]
    command = [Git.GIT_PYTHON_GIT_EXECUTABLE or "git", "--no-pager", *places, *arguments]
    from tempfile import TemporaryFile

    try:
        with TemporaryFile() as source:
            source.write(stdin)
            source.seek(0)
            output = Git(str(root)).execute(
                command,
                istream=source,
                env=hardening(own) | ({"GIT_INDEX_FILE": str(repository.git_dir / "index")} if repository else {}),
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                kill_after_timeout=SECONDS,
            )
    except GitCommandNotFound:
        return None
    except GitCommandError as error:
        if "Timeout" in str(error.stderr):
            raise errors.Unavailable(f"git {arguments[0]} took more than {SECONDS:g} s.") from error
        return None
    return output if isinstance(output, bytes) else None


def diff_text(changes: Iterable[tuple[str, bytes | None, bytes | None]]) -> str:
    """The unified patch from old to new contents (None: no such file), as `git diff --no-renames` shows it.

    git makes it from a repository in a temporary folder; where there is no git, `patch` does, whose hunks may be cut
    differently but apply alike. Bytes that are not UTF-8 show as U+FFFD.
    """
    wanted = sorted((path, old, new) for path, old, new in changes if old != new)
    if not wanted:
        return ""
    from duckkb.truth.git import patch

    text = _diff_by_git(wanted)
    return patch.unified(wanted) if text is None else text.decode(errors="replace")


def _diff_by_git(changes: Sequence[tuple[str, bytes | None, bytes | None]]) -> bytes | None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="duckkb-diff-") as folder:
        place, own = Path(folder), Path(folder) / "objects.git"
        if run(place, ["init", "--quiet", "--bare", "--template=", str(own)], own=own) is None:
            return None
        stream = _import_stream("old", [(path, old) for path, old, _ in changes])
        stream += _import_stream("new", [(path, new) for path, _, new in changes])
        if run(place, ["fast-import", "--quiet"], stdin=stream, own=own) is None:
            return None
        shown = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "refs/heads/old", "refs/heads/new"]
        return run(place, ["diff", *shown], own=own)


def _import_stream(name: str, files: Iterable[tuple[str, bytes | None]]) -> bytes:
    """A commit of exactly these files, as `git fast-import` reads it."""
    from duckkb.truth.git.patch import quoted

    parts = [f"commit refs/heads/{name}\ncommitter duckkb <> 0 +0000\ndata 0\n".encode()]
    for path, data in files:
        if data is not None:
            parts += [f"M 100644 inline {quoted(path)}\ndata {len(data)}\n".encode(), data, b"\n"]
    return b"".join(parts)


def hardening(own: Path | None = None) -> dict[str, str]:
    """The variables that keep a repository's settings and the caller's environment from deciding what git does."""
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for index, (key, value) in enumerate(_SETTINGS.items()):
        settings |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return _ENVIRONMENT | settings | (_OWN | {"GIT_OBJECT_DIRECTORY": str(own / "objects")} if own else {})


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace").strip()


def _git_dir_of(folder: Path) -> Path | None:
    """The git folder of a work tree: `.git`, or where the file `.git` of a linked work tree points."""
    marker = folder / ".git"
    if marker.is_dir():
        return marker if (marker / "HEAD").exists() else None
    pointer = _read(marker)
    if not pointer.startswith("gitdir: "):
        return None
    git_dir = folder / pointer.removeprefix("gitdir: ")
    return git_dir if (git_dir / "HEAD").exists() else None


def _common_dir_of(git_dir: Path) -> Path:
    pointer = _read(git_dir / "commondir")
    return git_dir / pointer if pointer else git_dir


def _read_ref(repository: Repository, name: str) -> str:
    if ".." in name.split("/"):
        return ""
    for folder in (repository.git_dir, repository.common_dir):
        value = _read(folder / name)
        if value:
            return value
    for line in _read(repository.common_dir / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return commit
    return ""


def _read(path: Path) -> str:
    """A small file's text without the final newline; empty where there is none."""
    return (_bytes(path) or b"").decode(errors="replace").rstrip("\n")


def _bytes(path: Path, limit: int = -1) -> bytes | None:
    """A regular file's content, at most `limit` bytes of it where that is given; None where there is none. Waits for no FIFO and reads no device: a `.git` that was not
    made here may hold either. Raises `errors.Unavailable` (E_IO) where the machine, not the file, is in the way."""
    try:
        with os.fdopen(os.open(path, _OPEN), "rb") as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _unseen(path, error) from error


def _unseen(path: Path, error: OSError) -> errors.Unavailable:
    """What may well be there and cannot be seen now must not count as absent: a guard would stand open."""
    return state.refusal(f"git's {path.name} cannot be read", error)
