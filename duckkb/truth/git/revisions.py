"""What git holds of a knowledge base at a revision: which commit a name means, which files differ, and their bytes.

Git is run as processes of its own, with the hardening of `history`; GitPython, which would take a tenth of a second to
import, is left out of a path on which people wait. Paths are relative to the knowledge base.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from duckkb.errors import StateError, Unavailable
from duckkb.truth.git.history import SECONDS, Repository, find_repository, hardening, head_commit
from duckkb.values import dataclass

WATCHED = ("data", "ontology", "config.yaml", ".gitattributes")
"""What of a base is compared: truth and what shapes it."""
REGULAR = ("100644", "100755")
FETCH_ALL = "git fetch --refetch --filter=blob:limit=1g"
"""Brings what a partial clone has left behind; a plain `git fetch` brings nothing."""
_DEEPEN = (
    "`git fetch --deepen=100`, or `git fetch --unshallow` for all of it; in a workflow `fetch-depth: 0` at checkout"
)


@dataclass(frozen=True, slots=True)
class Revision:
    """A name as it was given, and what it means: `commit` (empty where it names a tree) and `tree`, both in hex."""

    name: str
    commit: str
    tree: str

    @property
    def short(self) -> str:
        return (self.commit or self.tree)[:12]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a tree or in the index: `mode` in octal, as git writes it, and the id of its blob."""

    mode: str
    blob: str


@dataclass(frozen=True, slots=True)
class Touched:
    """A file that differs between two trees; None where a side has none. `unmerged` says that the index holds several
    versions of it, and so no new one."""

    path: str
    old: Entry | None
    new: Entry | None
    unmerged: bool = False


def revision(root: Path, name: str) -> Revision:
    """What a name means; raises `errors.StateError` (E_REVISION) for one that git does not know here."""
    return revisions(root, name)[0]


def revisions(root: Path, *names: str) -> list[Revision]:
    """What names mean, asked of one process. They are lines that it reads, so that none can be an option. Raises
    `errors.StateError` (E_REVISION) for the first that git does not know here."""
    sound = [name for name in names if name and "\0" not in name and "\n" not in name]
    asked = "".join(f"{name}^{{commit}}\n{name}^{{tree}}\n" for name in sound)
    told = iter(run(root, ["cat-file", "--batch-check"], stdin=os.fsencode(asked)).splitlines() if sound else ())
    found = []
    for name in names:
        commit, tree = (_object(next(told, b"")) for _ in range(2)) if name in sound else ("", "")
        if not tree:
            raise _unknown(root, name) if head_commit(root) else _nothing_yet(name)
        found.append(Revision(name, commit, tree))
    return found


def _object(told: bytes) -> str:
    """The id in `ID TYPE SIZE`; empty for the name of nothing."""
    words = told.split(b" ")
    return words[0].decode() if len(words) == 3 and words[1] in (b"commit", b"tree") else ""


def _nothing_yet(name: str) -> StateError:
    said = f"git knows no revision {name!r} here: nothing is committed on this branch yet"
    return StateError(said, code="E_REVISION", suggestion="`git add` and `git commit` what is there")


def _unknown(root: Path, name: str) -> StateError:
    if _is_shallow(root):
        said = f"git knows no revision {name!r} here: this clone is shallow, and has the newest history alone"
        return StateError(said, code="E_REVISION", suggestion=_DEEPEN)
    known = "`git log --oneline` and `git branch -a` list what there is"
    return StateError(f"git knows no revision {name!r} here", code="E_REVISION", suggestion=known)


def _is_shallow(root: Path) -> bool:
    return (repository_of(root).common_dir / "shallow").exists()


def head(root: Path) -> Revision:
    """What HEAD is: the empty tree where nothing was committed yet."""
    try:
        return revision(root, "HEAD")
    except StateError:
        if _asked(root, ["symbolic-ref", "--quiet", "HEAD"]) is None:
            raise
    return Revision("HEAD", "", run(root, ["hash-object", "-t", "tree", "--stdin"]).decode().strip())


def merge_base(root: Path, one: Revision, other: Revision) -> Revision:
    """The commit in which two histories part; raises `errors.StateError` (E_REVISION) where they never met."""
    said = None
    if one.commit and other.commit:
        said = _asked(root, ["merge-base", "--end-of-options", one.commit, other.commit])
    if not said:
        raise StateError(
            f"{one.name} and {other.name} have no commit in common here",
            code="E_REVISION",
            suggestion=_DEEPEN
            if _is_shallow(root)
            else f"compare the two as they are: `duckkb diff {one.name}..{other.name}`",
        )
    return revision(root, said.decode().strip())


def between(root: Path, old: Revision, new: Revision) -> list[Touched]:
    """The watched files in which two trees differ, by path."""
    return _raw(root, ["diff-tree", "-r", "--raw", "-z", "--no-renames", "--abbrev=64", old.tree, new.tree])


def staged(root: Path, old: Revision) -> list[Touched]:
    """The watched files in which the index differs from a tree, by path."""
    return _raw(root, ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--abbrev=64", old.tree])


def touched_anywhere(root: Path, old: str, against: str | None) -> Iterator[Touched]:
    """The files of the whole repository in which a commit differs from another one, from the `index`, or (None) from the
    files as they are; paths from the root of the repository. A blob of zeros stands for what is in the file."""
    commands = {"index": ["diff-index", "--cached"], None: ["diff-index"]}
    command = commands.get(against, ["diff-tree", "-r"])
    repository = replace(repository_of(root), prefix="")
    ends = [old, against] if against not in commands and against else [old]
    options = ["--raw", "-z", "--no-renames", "--abbrev=64"]
    told = run(root, [*command, *options, *ends, "--"], at=repository.work_tree, more=_without_filters(root))
    return touched(repository, told.split(b"\0"))


def attributes(root: Path, paths: Sequence[str], at: str | None) -> dict[str, dict[str, str]]:
    """What git's attributes say of paths of the base, at a commit, in the `index` or (None) as the files are."""
    from tempfile import TemporaryDirectory

    repository = repository_of(root)
    asked = "".join(f"{repository.prefix}{path}\0" for path in paths)
    command = ["check-attr", *(["--cached"] if at else []), "-z", "-a", "--stdin"]
    with TemporaryDirectory(prefix="duckkb-index-") as folder:
        index = Path(folder, "index") if at not in (None, "index") else None
        if index is not None and at is not None:
            run(root, ["read-tree", at], index=index)
        told = run(root, command, stdin=os.fsencode(asked), at=repository.work_tree, index=index)
    found: dict[str, dict[str, str]] = {path: {} for path in paths}
    pieces = [os.fsdecode(piece) for piece in told.split(b"\0")]
    for path, name, value in zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=False):
        found[path.removeprefix(repository.prefix)][name] = value
    return found


def process(
    root: Path,
    arguments: Sequence[str],
    stdin: bytes = b"",
    at: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Git's whole answer, whatever its exit code; `more` are settings for this run. Raises as the other functions do."""
    return _process(root, arguments, stdin, at, more or {})


def without_filters(root: Path) -> dict[str, str]:
    """Settings that take the commands away which a repository would have its files go through."""
    return _without_filters(root)


def entries(root: Path, at: Revision, places: Sequence[str] = WATCHED) -> dict[str, Entry]:
    """The files of a tree under some places, by path."""
    repository = repository_of(root)
    wanted = [repository.prefix + place for place in places]
    listed = run(root, ["ls-tree", "-r", "-z", "--full-tree", at.tree, *wanted])
    found = {}
    for line in listed.split(b"\0"):
        if line:
            head, _, name = line.partition(b"\t")
            mode, _, blob = head.decode().split(" ")
            found[_path(repository, name)] = Entry(mode, blob)
    return found


def index_entries(root: Path, places: Sequence[str] = WATCHED) -> dict[str, Entry]:
    """The files of the index under some places, by path; those in conflict are left out."""
    repository = repository_of(root)
    wanted = [repository.prefix + place for place in places]
    listed = run(root, ["ls-files", "-s", "-z", "--full-name", "--", *wanted], at=repository.work_tree)
    found = {}
    for line in listed.split(b"\0"):
        head, _, name = line.partition(b"\t")
        if line and head.endswith(b" 0"):
            mode, blob, _ = head.decode().split(" ")
            found[_path(repository, name)] = Entry(mode, blob)
    return found


def unsaved(root: Path) -> list[str]:
    """The watched paths whose file may differ from the index: other times or sizes, gone, or never added (ignored ones
    too: truth is what lies there)."""
    repository = repository_of(root)
    wanted = [repository.prefix + place for place in WATCHED]
    quiet = _without_filters(root)
    changed = run(root, ["diff-files", "--name-only", "-z", "--", *wanted], at=repository.work_tree, more=quiet)
    others = run(root, ["ls-files", "--others", "-z", "--full-name", "--", *wanted], at=repository.work_tree)
    names = {*changed.split(b"\0"), *others.split(b"\0")} - {b""}
    return sorted(_path(repository, name) for name in names)


def blobs(root: Path, ids: Iterable[str]) -> dict[str, bytes]:
    """The bytes of blobs by their ids, by one process. Raises `errors.Unavailable` (E_GIT) for one that is not here."""
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    found: dict[str, bytes] = {}
    told = memoryview(run(root, ["cat-file", "--batch"], stdin="".join(f"{one}\n" for one in wanted).encode()))
    at = 0
    for one in wanted:
        end = at + bytes(told[at : at + 200]).index(b"\n")
        words = bytes(told[at:end]).split(b" ")
        if len(words) != 3 or words[1] != b"blob":
            raise lacking(one)
        at = end + 1 + int(words[2])
        found[one] = bytes(told[end + 1 : at])
        at += 1
    return found


def lacking(blob: str) -> Unavailable:
    """The error for an object that is not here."""
    return Unavailable(
        f"git does not have the object {blob} here",
        code="E_GIT",
        suggestion=f"`git fetch`; in a partial clone `{FETCH_ALL}`",
    )


def blob_id(data: bytes, like: str) -> str:
    """The id that git gives to bytes, in hex, by the digest of another id of the repository (SHA-1 or SHA-256)."""
    digest = hashlib.sha256() if len(like) == 64 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(data))
    digest.update(data)
    return digest.hexdigest()


def lines(root: Path, at: Revision, folder: str) -> int:
    """How many lines the files of a folder have, at a revision."""
    found = [entry.blob for entry in entries(root, at, (folder,)).values() if entry.mode in REGULAR]
    content = blobs(root, found)
    return sum(content[blob].count(b"\n") for blob in found)


def prefix(root: Path) -> str:
    """The folder of the base inside its repository, with a final `/`; empty where the two are one."""
    return repository_of(root).prefix


def _raw(root: Path, command: list[str]) -> list[Touched]:
    repository = repository_of(root)
    wanted = [repository.prefix + place for place in WATCHED]
    told = run(root, [*command, "--", *wanted], at=repository.work_tree)
    return sorted(touched(repository, told.split(b"\0")), key=lambda one: one.path)


def touched(repository: Repository, told: Iterable[bytes]) -> Iterator[Touched]:
    """What git tells in its raw form: `:100644 100644 OLD NEW M`, then a path, again and again."""
    pieces = iter(told)
    for head in pieces:
        if head:
            old_mode, new_mode, old, new, status = head.decode().removeprefix(":").split(" ")
            sides = _entry(old_mode, old), _entry(new_mode, new)
            yield Touched(_path(repository, next(pieces)), *sides, status == "U")


def _entry(mode: str, blob: str) -> Entry | None:
    return Entry(mode, blob) if int(mode, 8) else None


def _path(repository: Repository, name: bytes) -> str:
    return os.fsdecode(name).removeprefix(repository.prefix)


def repository_of(root: Path) -> Repository:
    found = find_repository(root)
    if found is None:
        raise StateError(
            f"{root} lies in no git repository, and this needs one",
            code="E_GIT",
            suggestion="`git init`, and commit what is there",
        )
    return found


def _without_filters(root: Path) -> dict[str, str]:
    """Settings that take the commands away that a repository would have files go through before they are compared."""
    told = _asked(
        root, ["config", "-z", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process|required)$"]
    )
    names = [name.decode(errors="surrogateescape") for name in (told or b"").split(b"\0") if name]
    return {name: "false" if name.endswith(".required") else "" for name in names}


def asked(root: Path, arguments: Sequence[str]) -> str | None:
    """What git prints, as a text without the last line end; None where it fails."""
    told = _asked(root, arguments)
    return None if told is None else told.decode(errors="surrogateescape").rstrip("\n")


def _asked(root: Path, arguments: Sequence[str]) -> bytes | None:
    """What git prints, None where it fails."""
    done = _process(root, arguments, b"", None, {})
    return done.stdout if done.returncode == 0 else None


def run(
    root: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    at: Path | None = None,
    more: Mapping[str, str] | None = None,
    index: Path | None = None,
) -> bytes:
    """What git prints; raises `errors.Unavailable` (E_GIT) where it fails. `more` are settings for this run, `index` is a
    file to use as the index instead of the repository's own."""
    done = _process(root, arguments, stdin, at, more or {}, index)
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").strip().splitlines()
    raise Unavailable(
        f"git {arguments[0]} failed: {said[0] if said else f'exit code {done.returncode}'}",
        code="E_GIT",
        suggestion=FETCH_ALL if is_partial_clone(root) else "`git status` and `git fsck` say more",
    )


def is_partial_clone(root: Path) -> bool:
    """Whether git leaves objects at a remote until they are asked for, which no command of ours does."""
    return _asked(root, ["config", "--get-regexp", r"^remote\..*\.promisor$"]) is not None


def _process(
    root: Path,
    arguments: Sequence[str],
    stdin: bytes,
    at: Path | None,
    more: Mapping[str, str],
    index: Path | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    command, env = _command(root, arguments, more, index)
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, cwd=at or root, env=env, timeout=SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise _no_git() from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"git {arguments[0]} took more than {SECONDS:g} s", code="E_GIT") from error


def started(root: Path, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    """A git that stays, with pipes for its stdin and stdout; raises `errors.Unavailable` (E_GIT)."""
    command, env = _command(root, arguments, {}, None)
    try:
        return subprocess.Popen(
            command, cwd=root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise _no_git() from error


def _command(
    root: Path, arguments: Sequence[str], more: Mapping[str, str], index: Path | None
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a hardened git; `more` are settings."""
    repository = repository_of(root)
    settings = hardening() | {"GIT_INDEX_FILE": str(index or repository.git_dir / "index")}
    count = int(settings["GIT_CONFIG_COUNT"])
    for number, (name, value) in enumerate(more.items(), count):
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    settings["GIT_CONFIG_COUNT"] = str(count + len(more))
    places = [f"--git-dir={repository.git_dir}", f"--work-tree={repository.work_tree}"]
    return ["git", "--no-pager", *places, *arguments], {**os.environ, **settings}


def _no_git() -> Unavailable:
    said = "git is not installed, and comparing revisions needs it"
    return Unavailable(said, code="E_GIT", suggestion="install git")
