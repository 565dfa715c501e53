"""The only way to run git: GitPython starts it, hardened so that neither a repository's configuration nor a value
from data can make git run a command, reach a host or write.

`answer` returns git's output for any exit code, `output` raises if git fails, `text` is empty then,
`stream_output` has no time limit. Git runs at the top of the work tree: paths start there. A repository is
located by reading its files; GitPython, which takes a tenth of a second to import, is loaded when git is first
called.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from duckkb.atomic_write import open_without_blocking
from duckkb.storage import clone_state
from duckkb.types.errors import StateError, Unavailable

if TYPE_CHECKING:
    from git.cmd import Git

SECONDS = 60.0
_PIECE = 1 << 20
FETCH_ALL = "git fetch --refetch --filter=blob:limit=1g"
"""Fetches everything that a partial clone has left behind; a plain `git fetch` fetches nothing."""
_REFRESH = "GIT_PYTHON_REFRESH"
_INDEX = "GIT_INDEX_FILE"
_loading = Lock()
"""GitPython's modules import each other in circles: two threads that load it at once would both fail."""
_LOOK = "`git status` and `git fsck` say more"

# These override the repository's own settings.
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
    "GIT_CONFIG_PARAMETERS": "",  # settings that `git -c` passes to a hook would override those above
    # Our paths are never patterns, whatever the caller's environment says.
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_GLOB_PATHSPECS": "0",
    "GIT_NOGLOB_PATHSPECS": "0",
    "GIT_ICASE_PATHSPECS": "0",
    "LC_ALL": "C",
    "DUCKKB_ENCRYPTION_KEY": "",  # hooks and filters are foreign commands
    "DUCKKB_ENCRYPTION_KEY_FILE": "",
}
# The file is missing or not a regular file: git would not read it either.
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL}
)


class Repository(Struct, frozen=True):
    """The places of a repository: `git_dir` is the worktree's own, `common_dir` holds refs and objects; `prefix`
    is the path of the knowledge base inside the work tree, with a final `/`, or empty.
    """

    work_tree: Path
    git_dir: Path
    common_dir: Path
    prefix: str

    @property
    def is_shallow(self) -> bool:
        """Return whether this clone has only the newest history."""
        return (self.common_dir / "shallow").exists()

    @property
    def index(self) -> Path:
        """Return the index file that git names to a hook: `commit -a` and `commit PATH` create their own beside
        `index`.

        Only a regular file of this work tree's own git folder counts, so that the environment cannot name
        another repository's.
        """
        default_index = self.git_dir / "index"
        env_path = os.environ.get(_INDEX)
        if not env_path:
            return default_index
        index = Path(os.path.realpath(self.work_tree / env_path))
        holder = next((folder for folder in index.parents if os.path.lexists(folder / "HEAD")), None)
        is_ours = holder is not None and holder == Path(os.path.realpath(self.git_dir))
        return index if is_ours and index.is_file() else default_index


def find_repository(root: Path) -> Repository | None:
    """Find the repository whose work tree holds `root`, which may be a subfolder of it."""
    here = Path(os.path.realpath(root))
    for folder in (here, *here.parents):
        git_dir = _find_git_dir(folder)
        if git_dir is not None:
            prefix = here.relative_to(folder).as_posix()
            return Repository(folder, git_dir, _find_common_dir(git_dir), "" if prefix == "." else prefix + "/")
    return None


def read_ref(repository: Repository, name: str) -> str:
    """Return the content of a ref, a commit or `ref: NAME`; empty if git's files have none."""
    if ".." in name.split("/"):
        return ""
    for folder in (repository.git_dir, repository.common_dir):
        value = read_text(folder / name)
        if value:
            return value
    for line in read_text(repository.common_dir / "packed-refs").splitlines():
        commit, _, ref_name = line.partition(" ")
        if ref_name == name:
            return commit
    return ""


def read_text(path: Path) -> str:
    """Read a small file without its final newline; empty if it is missing."""
    return (read_bytes(path) or b"").decode(errors="replace").rstrip("\n")


def read_bytes(path: Path, limit: int = -1) -> bytes | None:
    """Read a regular file, at most `limit` bytes of it if given; None if there is none. Never waits for a FIFO or
    reads a device: a foreign `.git` may hold either. Raises as `unseen` says if the machine, not the file, is
    the problem.
    """
    try:
        with open_without_blocking(path, follow=True) as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise unseen(path, error) from error


def unseen(path: Path, error: OSError) -> Unavailable:
    """Return the error (E_IO) for a file that may exist but cannot be seen now; it must not count as absent, or a
    guard would stand open.
    """
    return clone_state.refusal(f"git's {path.name} cannot be read", error)


def _find_git_dir(folder: Path) -> Path | None:
    """Return the git folder of a work tree: `.git`, or the target of the file `.git` in a linked work tree."""
    marker = folder / ".git"
    if marker.is_dir():
        return marker if (marker / "HEAD").exists() else None
    pointer = read_text(marker)
    if not pointer.startswith("gitdir: "):
        return None
    git_dir = folder / pointer.removeprefix("gitdir: ")
    return git_dir if (git_dir / "HEAD").exists() else None


def _find_common_dir(git_dir: Path) -> Path:
    pointer = read_text(git_dir / "commondir")
    return git_dir / pointer if pointer else git_dir


class NoGit(Unavailable):
    """Git is not installed."""

    def __init__(self) -> None:
        super().__init__("git is not installed, and this needs it", code="E_GIT", suggestion="install git")


class GitAnswer(Struct, frozen=True):
    """The result of a git command: its exit code, its output, and its error output."""

    code: int
    output: bytes
    error: str

    @property
    def reason(self) -> str:
        """Return why the command failed, on a single line."""
        lines = [line.strip().removeprefix("error: ").removeprefix("fatal: ") for line in self.error.splitlines()]
        return "; ".join([line for line in lines if line][:4]) or f"exit code {self.code}"

    def failure(self, what: str, suggestion: str = _LOOK) -> Unavailable:
        return Unavailable(f"git {what} failed: {self.reason}", code="E_GIT", suggestion=suggestion)


def repository_of(root: Path) -> Repository:
    """Find the repository as `find_repository` does; raises `errors.StateError` (E_GIT) if there is none."""
    repository = find_repository(root)
    if repository is None:
        raise StateError(
            f"{root} is not in a git repository, and this needs one",
            code="E_GIT",
            suggestion="`git init`, and commit the files",
        )
    return repository


def output(
    root: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    settings: Mapping[str, str] | None = None,
    index: Path | None = None,
) -> bytes:
    """Return git's output; raises `errors.Unavailable` (E_GIT) if git fails, and as `answer` does."""
    result = answer(root, arguments, stdin=stdin, settings=settings, index=index)
    _refuse_failure(root, arguments, result)
    return result.output


def text(root: Path, arguments: Sequence[str]) -> str:
    """Return git's output without the last line end; empty if it fails. Raises as `answer` does."""
    result = answer(root, arguments)
    return "" if result.code else result.output.decode(errors="surrogateescape").rstrip("\n")


def answer(
    root: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    settings: Mapping[str, str] | None = None,
    index: Path | None = None,
) -> GitAnswer:
    """Run git on the repository around `root` and return its whole result. `settings` are for this run; `index` is
    a file to use instead of the repository's own index. Pass values from data after `--end-of-options` or `--`,
    or in `stdin`.

    Raises `errors.StateError` (E_GIT) without a repository, `errors.Unavailable` (E_GIT) if git takes more than
    `SECONDS`, and its subclass `NoGit`.
    """
    from tempfile import TemporaryFile  # loaded with GitPython, when git is first called

    with TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        code, stdout, error = _run(root, arguments, settings, index, istream=source, with_extended_output=True)
    if code < 0 and error.startswith("Timeout: "):
        raise Unavailable(f"git {arguments[0]} took more than {SECONDS:g} s", code="E_GIT")
    return GitAnswer(code, stdout, error)


def start_git(root: Path, arguments: Sequence[str], settings: Mapping[str, str] | None = None) -> "Git.AutoInterrupt":
    """Start a long-lived git with pipes for its streams; raises as `answer` does."""
    from subprocess import PIPE

    process: Git.AutoInterrupt = _run(root, arguments, settings, istream=PIPE, as_process=True)
    return process


def stream_output(root: Path, arguments: Sequence[str], settings: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """Yield git's output piece by piece without a time limit, because repositories are of any size; raises as
    `output` does.
    """
    from threading import Thread

    process, error_output = start_git(root, arguments, settings), list[bytes]()
    git: Any = process.proc
    with git:
        stderr = Thread(target=lambda: error_output.append(git.stderr.read()))  # a full pipe would stop git
        stderr.start()
        try:
            while piece := git.stdout.read(_PIECE):
                yield piece
        except BaseException:
            git.kill()
            raise
        finally:
            stderr.join()
    _refuse_failure(root, arguments, GitAnswer(git.returncode, b"", os.fsdecode(error_output[0])))


def _refuse_failure(root: Path, arguments: Sequence[str], result: GitAnswer) -> None:
    if result.code:
        raise result.failure(arguments[0], FETCH_ALL if is_partial_clone(root) else _LOOK)


def version() -> tuple[int, ...] | None:
    """Return the version of git as numbers; None without git."""
    try:
        with _open_git_python() as git:
            return tuple(git().version_info[:3])
    except NoGit:
        return None


def is_partial_clone(root: Path) -> bool:
    """Return whether git leaves objects at a remote until they are needed; no command here fetches them."""
    return bool(text(root, ["config", "--get-regexp", r"^remote\..*\.promisor$"]))


def disable_filters(root: Path) -> dict[str, str]:
    """Return settings that disable the filter commands of a repository."""
    pattern = r"^filter\..*\.(clean|smudge|process|required)$"
    return {name: "false" if name.endswith(".required") else "" for name in setting_names(root, pattern)}


def setting_names(root: Path, wanted: str) -> list[str]:
    """Return the settings whose names match a pattern."""
    names = answer(root, ["config", "-z", "--name-only", "--get-regexp", wanted]).output
    return [name.decode(errors="surrogateescape") for name in names.split(b"\0") if name]


def make_hardened_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep a repository's settings and the caller's environment from controlling git."""
    variables = dict(_ENVIRONMENT)
    pairs = [*_SETTINGS.items(), *settings.items()]
    for number, (name, value) in enumerate(pairs):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables | {"GIT_CONFIG_COUNT": str(len(pairs))}


def _run(
    root: Path,
    arguments: Sequence[str],
    settings: Mapping[str, str] | None = None,
    index: Path | None = None,
    **options: Any,
) -> Any:
    """Run a command through GitPython and return its result; `options` select the type."""
    repository = repository_of(root)
    places = [f"--git-dir={repository.git_dir}", f"--work-tree={repository.work_tree}"]
    with _open_git_python() as git:
        return git(str(repository.work_tree)).execute(
            [git.GIT_PYTHON_GIT_EXECUTABLE or "git", "--no-pager", *places, *arguments],
            env=make_hardened_variables(settings or {}) | {_INDEX: str(index or repository.index)},
            shell=False,
            with_exceptions=False,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
            kill_after_timeout=None if sys.platform == "win32" else SECONDS,
            **options,
        )


def _load_git_python() -> None:
    """Import GitPython quietly: without git it would refuse to load and leave half of itself behind."""
    before = os.environ.get(_REFRESH)
    os.environ[_REFRESH] = "quiet"
    try:
        import_module("git")
    finally:
        if before is None:
            del os.environ[_REFRESH]
        else:
            os.environ[_REFRESH] = before


@contextmanager
def _open_git_python() -> "Iterator[type[Git]]":
    """Yield GitPython's command class; raises `NoGit` without git."""
    with _loading:
        if "git" not in sys.modules:
            _load_git_python()
    from git.cmd import Git
    from git.exc import GitCommandNotFound

    try:
        yield Git
    except GitCommandNotFound as error:
        raise NoGit from error
