"""Reads facts about the git repository around a knowledge base. Nothing here changes a repository.

Facts in small files of `.git` are read from there; git answers the others. Without git, or without a
repository, every function returns a value.

Detects renamed files with git."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from duckkb.storage import clone_state, git_process
from duckkb.storage.git_process import answer, disable_filters, find_repository, read_bytes, read_ref, read_text, unseen
from duckkb.storage.layout import parse_part

_MAIN_BRANCHES = frozenset({"main", "master"})
_HEX = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SYMBOLIC_REF_DEPTH = 5
_IN_TABLES = "ref: refs/heads/.invalid"
"""The content of HEAD if refs are stored in tables."""
_SETTINGS = r"^core\.(autocrlf|eol|ignorecase|precomposeunicode|bare)$"


class RepositoryState(Struct, frozen=True):
    """The kind of repository. `readable`: git can read it, and HEAD's commit is available."""

    readable: bool
    shallow: bool = False
    linked: bool = False


def branch(root: Path) -> str:
    """Return the short name of the checked-out branch; a detached HEAD's commit id; empty without git."""
    repository = find_repository(root)
    if repository is None:
        return ""
    head = read_text(repository.git_dir / "HEAD")
    target = _ask_git(root, "symbolic-ref", "--quiet", "HEAD") if head == _IN_TABLES else head.removeprefix("ref: ")
    return target.removeprefix("refs/heads/") if target.startswith("refs/") else head_commit(root) or ""


def head_commit(root: Path) -> str | None:
    """Return HEAD's commit; None before the first commit, or without git."""
    repository = find_repository(root)
    value = "ref: HEAD" if repository else ""
    for _ in range(_SYMBOLIC_REF_DEPTH):
        if repository is None or not value.startswith("ref: "):
            break
        if value == _IN_TABLES:
            value = _ask_git(root, "rev-parse", "--quiet", "--verify", "--end-of-options", "HEAD^{commit}")
        else:
            value = read_ref(repository, value.removeprefix("ref: "))
    return value if _HEX.fullmatch(value) else None


def commit_time(root: Path, commit: str) -> int | None:
    """Return the time of a commit, in seconds since 1970; None if git does not know it."""
    seconds = _ask_git(root, "show", "-s", "--format=%ct", "--end-of-options", commit)
    return int(seconds) if seconds.isdecimal() else None


def is_readable_repository(root: Path) -> bool:
    """Return whether there is a repository that git can start to read without waiting forever, for example at a
    FIFO.
    """
    repository = find_repository(root)
    if repository is None:
        return False
    places = (repository.git_dir / "HEAD", repository.common_dir / "packed-refs")
    return all(place.is_file() or not os.path.lexists(place) for place in places)


def is_main_branch(root: Path) -> bool:
    """Return whether this is the branch that others start from: main, master, or origin/HEAD's branch. A folder
    without git has a single line of history, which counts as main.
    """
    name = branch(root)
    if find_repository(root) is None or name in _MAIN_BRANCHES:
        return True
    return bool(name) and name == default_branch(root)


def default_branch(root: Path) -> str:
    """Return origin/HEAD's branch; empty if unknown."""
    repository = find_repository(root)
    head = read_text(repository.common_dir / "refs/remotes/origin/HEAD") if repository else ""
    prefix = "ref: refs/remotes/origin/"
    return head.removeprefix(prefix) if head.startswith(prefix) else ""


def address_of_origin(root: Path) -> str:
    """Return the URL of the remote `origin`; empty if there is none, or no git."""
    return _ask_git(root, "config", "--get", "remote.origin.url").strip()


def operation_in_progress(root: Path) -> str | None:
    """Return git's operation in progress: `merge`, `rebase`, `am`, `cherry-pick`, `revert`, or None."""
    repository = find_repository(root)
    if repository is None:
        return None
    at = repository.git_dir
    # A stopped rebase leaves CHERRY_PICK_HEAD too, so it is checked first.
    if (at / "rebase-merge").is_dir():
        return "rebase"
    if (at / "rebase-apply").is_dir():
        return "am" if (at / "rebase-apply/applying").exists() else "rebase"
    for name, file in (("merge", "MERGE_HEAD"), ("cherry-pick", "CHERRY_PICK_HEAD"), ("revert", "REVERT_HEAD")):
        if (at / file).exists():
            return name
    # Between two of several picks there is no *_HEAD, only the list of remaining picks.
    return {"pick": "cherry-pick", "revert": "revert"}.get(read_text(at / "sequencer/todo").split(" ")[0])


def tracks_state(root: Path) -> bool:
    """Return whether git tracks `.duckkb` or anything in it: a hostile clone could bring a journal or a cache
    along.

    The bytes of the index answer this for nearly every repository. Git is asked only if they contain the name,
    or if the format shortens or moves names.
    """
    repository = find_repository(root)
    index = read_bytes(repository.index) if repository else None
    if repository is None or index is None:
        return False
    is_split = bool(_list_shared_indices(repository.git_dir))
    if clone_state.FOLDER.encode() not in index and index[4:8] != b"\0\0\0\x04" and not is_split:
        return False
    tracked_files = _list_files(root, repository.prefix + clone_state.FOLDER)
    if tracked_files is None:  # without git an unnecessary refusal is the safe answer
        return (repository.prefix + clone_state.FOLDER).encode() in index
    return bool(tracked_files)


def index_versions(root: Path) -> set[int]:
    """Return the format versions of the files that form git's index; none without git."""
    repository = find_repository(root)
    if repository is None:
        return set()
    paths = repository.index, *_list_shared_indices(repository.git_dir)
    heads = [read_bytes(path, 8) for path in paths]
    return {int.from_bytes(head[4:8], "big") for head in heads if head}


def _list_shared_indices(git_dir: Path) -> list[Path]:
    """List the additional files of a split index."""
    try:
        return [path for path in git_dir.iterdir() if path.name.startswith("sharedindex.")]
    except OSError as error:
        raise unseen(git_dir, error) from error


def tracks(root: Path, folder: Path) -> bool:
    """Return whether git tracks anything below a folder of the work tree; True if git is unavailable."""
    repository = find_repository(root)
    return repository is None or _list_files(root, os.path.relpath(folder, repository.work_tree)) != b""


def was_committed(root: Path, path: str) -> bool:
    """Return whether a commit in HEAD's history has changed a path of the base; False without git or before the
    first commit.
    """
    repository = find_repository(root)
    place = f"{repository.prefix}{path}" if repository else path
    return head_commit(root) is not None and bool(_ask_git(root, "log", "-1", "--format=%H", "--", place))


def head_has_records(root: Path) -> bool:
    """Return whether HEAD's tree holds a part file of this base; False without git or before the first commit."""
    commit = head_commit(root)
    return commit is not None and _has_records(root, commit)


@lru_cache(maxsize=64)
def _has_records(root: Path, commit: str) -> bool:
    repository = find_repository(root)
    if repository is None:
        return False
    folders = [f"{repository.prefix}data/nodes/", f"{repository.prefix}data/edges/"]
    names = _ask_git(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", "--end-of-options", commit, *folders)
    return any(parse_part(name[len(repository.prefix) :]) for name in names.split("\0"))


def has_marker(root: Path) -> bool:
    """Return whether this folder or a folder above it has `.git`, in whatever state."""
    here = Path(os.path.realpath(root))
    return any(os.path.lexists(folder / ".git") for folder in (here, *here.parents))


def shape(root: Path) -> RepositoryState | None:
    """Return the state of the repository; None without any `.git`."""
    repository = find_repository(root)
    if repository is None:
        return RepositoryState(False) if has_marker(root) else None
    commit = head_commit(root)
    commands = [["rev-parse", "--git-dir"], *([["cat-file", "-e", f"{commit}^{{tree}}"]] if commit else [])]
    try:
        if any(git_process.answer(root, arguments).code for arguments in commands):
            return RepositoryState(False)
    except git_process.NoGit:
        return RepositoryState(False)
    return RepositoryState(True, repository.is_shallow, repository.git_dir != repository.common_dir)


def settings(root: Path) -> dict[str, str]:
    """Return git's settings that change files or their names, by lower-case key; of several values the last
    counts.
    """
    entries = _ask_git(root, "config", "-z", "--get-regexp", _SETTINGS)
    pairs = (entry.partition("\n") for entry in entries.split("\0") if entry)
    return {key.lower(): value.lower() for key, _, value in pairs}


def attributes(root: Path, path: str, names: Sequence[str] = ("text", "eol", "filter")) -> dict[str, str] | None:
    """Return git's attributes of a path of the base; None if git is unavailable."""
    repository = find_repository(root)
    report = _ask_git(root, "check-attr", "-z", *names, "--", f"{repository.prefix}{path}") if repository else ""
    fields = report.split("\0")
    return dict(zip(fields[1::3], fields[2::3], strict=False)) or None


def _list_files(root: Path, place: str) -> bytes | None:
    """Return the tracked files at a place in the work tree; None if git is unavailable."""
    try:
        result = git_process.answer(root, ["ls-files", "-z", "--end-of-options", place])
    except git_process.NoGit:
        return None
    return None if result.code else result.output


def _ask_git(root: Path, *arguments: str) -> str:
    """Return git's output; empty if it fails, and without git or a repository."""
    if find_repository(root) is None:
        return ""
    try:
        return git_process.text(root, arguments)
    except git_process.NoGit:
        return ""


def renames(root: Path, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> dict[str, str]:
    """Return the former path of each renamed file; `old` are the deleted files, `new` the added files, by path. At
    least half of the content must be the same (`git diff -M`). Raises `errors.Unavailable` (E_GIT).
    """
    if not (old and new):
        return {}
    paths = {}
    with TemporaryDirectory(prefix="duckkb-renames-") as folder:
        sides = [Path(folder, name) for name in ("old", "new")]
        for side, files in zip(sides, (old, new), strict=True):
            for number, path in enumerate(sorted(files)):
                place = side / f"{number:07}" / (path.rpartition("/")[2].strip(".") or "-")  # a tree may name `..`
                place.parent.mkdir(parents=True)
                place.write_bytes(files[path])
                paths[os.fsencode(place)] = path
        settings = {**disable_filters(root), "diff.renameLimit": "1000"}
        command = ["diff", "--no-index", "--no-ext-diff", "--name-status", "--diff-filter=R", "-M50%", "-z"]
        result = answer(root, [*command, *map(str, sides)], settings=settings)
    if result.code > 1:
        raise result.failure("diff")
    fields = result.output.split(b"\0")
    return {paths[name]: paths[was] for was, name in zip(fields[1::3], fields[2::3], strict=True)}
