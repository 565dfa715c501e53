"""Reads a knowledge base at a revision: resolves names, compares trees and reads files. Also reads the history of
a folder: the commits that touched it, their changes, and their authors.

Paths are relative to the knowledge base. History covers a branch's ancestors, simplified to the commits that
explain the present folder: a commit precedes its parents, and a merge that took a single side leads only to
that side.
"""

import os
import posixpath
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duckkb.storage.git_process import (
    FETCH_ALL,
    Repository,
    disable_filters,
    output,
    read_text,
    repository_of,
    start_git,
    text,
)
from duckkb.storage.repository import head_commit
from duckkb.types.errors import StateError, Unavailable

if TYPE_CHECKING:
    from git.cmd import Git

WATCHED = ("data", "ontology", "config.yaml", ".gitattributes")
"""The compared paths of a base: truth and what shapes it."""
REGULAR = ("100644", "100755")
_RAW = ("--raw", "-z", "--no-renames", "--abbrev=64")
_Key = TypeVar("_Key", bound=Hashable)
_DEEPEN = (
    "`git fetch --deepen=100`, or `git fetch --unshallow` for all of it; in a workflow `fetch-depth: 0` at checkout"
)
_FIRST, _MOST = 32, 1_024  # commits that are examined at once: few, because the newest answer most queries


class Revision(Struct, frozen=True):
    """A name as given, and its meaning: `commit` (empty if it names a tree) and `tree`, both in hex."""

    name: str
    commit: str
    tree: str

    @property
    def short(self) -> str:
        return (self.commit or self.tree)[:12]


class TreeEntry(Struct, frozen=True):
    """A file in a tree or in the index: `mode` in octal, as git writes it, and the id of its blob."""

    mode: str
    blob: str


class Touched(Struct, frozen=True):
    """A file that differs between two trees; None on a side without it. `unmerged` says that the index holds
    several versions of it, and so no new one.
    """

    path: str
    old: TreeEntry | None
    new: TreeEntry | None
    unmerged: bool = False


def revision(root: Path, name: str) -> Revision:
    """Resolve a name; raises `errors.StateError` (E_REVISION) if git does not know it here."""
    return revisions(root, name)[0]


def revisions(root: Path, *names: str) -> list[Revision]:
    """Resolve names in a single git process. It reads them as lines, so that no name can be an option. Raises
    `errors.StateError` (E_REVISION) for the first name that git does not know here.
    """
    sound = [name for name in names if name and "\0" not in name and "\n" not in name]
    queries = "".join(f"{name}^{{commit}}\n{name}^{{tree}}\n" for name in sound)
    answers = iter(
        output(root, ["cat-file", "--batch-check"], stdin=os.fsencode(queries)).splitlines() if sound else ()
    )
    results = []
    for name in names:
        commit, tree = (_parse_object(next(answers, b"")) for _ in range(2)) if name in sound else ("", "")
        if not tree:
            raise _build_unknown_error(root, name) if head_commit(root) else _build_empty_error(name)
        results.append(Revision(name, commit, tree))
    return results


def _parse_object(line: bytes) -> str:
    """Return the id in `ID TYPE SIZE`; empty for an unknown name."""
    words = line.split(b" ")
    return words[0].decode() if len(words) == 3 and words[1] in (b"commit", b"tree") else ""


def _build_empty_error(name: str) -> StateError:
    message = f"git knows no revision {name!r} here: nothing is committed on this branch yet"
    return StateError(message, code="E_REVISION", suggestion="`git add` and `git commit` the files")


_OF_COMMITS = re.compile(r"^[0-9a-f]{6,40}$|[~^@{]|\d{4}-\d\d|yesterday|today|now|ago|last")
"""Names that are no branch: a commit, one before another, or a time."""


def _build_unknown_error(root: Path, name: str) -> StateError:
    if repository_of(root).is_shallow:
        message = f"git knows no revision {name!r} here: this clone is shallow, and has the newest history alone"
        return StateError(message, code="E_REVISION", suggestion=_DEEPEN)
    hint = "git log --oneline -n 10" if _OF_COMMITS.search(name) else "git branch -a"
    return StateError(f"git knows no revision {name!r} here", code="E_REVISION", suggestion=hint)


def head(root: Path) -> Revision:
    """Return HEAD's revision; the empty tree before the first commit."""
    try:
        return revision(root, "HEAD")
    except StateError:
        if not text(root, ["symbolic-ref", "--quiet", "HEAD"]):
            raise
    return Revision("HEAD", "", empty_tree(root))


def empty_tree(root: Path) -> str:
    """Return the id of the empty tree, in hex."""
    return output(root, ["hash-object", "-t", "tree", "--stdin"]).decode().strip()


def merge_base(root: Path, one: Revision, other: Revision) -> Revision:
    """Return the commit at which two histories part; raises `errors.StateError` (E_REVISION) if they have none."""
    both = one.commit and other.commit
    ancestor = text(root, ["merge-base", "--end-of-options", one.commit, other.commit]) if both else ""
    if not ancestor:
        raise StateError(
            f"{one.name} and {other.name} have no commit in common here",
            code="E_REVISION",
            suggestion=_DEEPEN
            if repository_of(root).is_shallow
            else f"compare the two directly: `duckkb diff {one.name}..{other.name}`",
        )
    return revision(root, ancestor)


def commits_between(root: Path, old: Revision, new: Revision) -> int:
    """Count the commits in the history of `new` that `old` does not have."""
    return int(output(root, ["rev-list", "--count", f"{old.commit}..{new.commit}", "--"]) or 0)


def compare_trees(root: Path, old: Revision, new: Revision, places: Sequence[str] = WATCHED) -> list[Touched]:
    """Return the files under some places that differ between two trees, by path."""
    return _compare_raw(root, places, "diff-tree", "-r", old.tree, new.tree)


def compare_index(root: Path, old: Revision, places: Sequence[str] = WATCHED) -> list[Touched]:
    """Return the files under some places that differ between the index and a tree, by path."""
    return _compare_raw(root, places, "diff-index", "--cached", old.tree)


def iter_touched_files(root: Path, old: str, against: str | None) -> Iterator[Touched]:
    """Yield the files of the whole repository that differ between a commit and another commit, the `index`, or
    (None) the present files; paths start at the root of the repository. A blob of zeros stands for the content
    of the file.
    """
    commands = {"index": ["diff-index", "--cached"], None: ["diff-index"]}
    command = commands.get(against, ["diff-tree", "-r"])
    repository = replace(repository_of(root), prefix="")
    ends = [old, against] if against not in commands and against else [old]
    report = output(root, [*command, *_RAW, *ends, "--"], settings=disable_filters(root))
    return parse_raw_changes(repository, report.split(b"\0"))


def attributes(root: Path, paths: Sequence[str], at: str | None) -> dict[str, dict[str, str]]:
    """Return git's attributes of paths of the base, at a commit, in the `index` or (None) for the present files."""
    repository = repository_of(root)
    queries = "".join(f"{repository.prefix}{path}\0" for path in paths)
    command = ["check-attr", *(["--cached"] if at else []), "-z", "-a", "--stdin"]
    with TemporaryDirectory(prefix="duckkb-index-") as folder:
        index = Path(folder, "index") if at not in (None, "index") else None
        if index is not None and at is not None:
            output(root, ["read-tree", at], index=index)
        report = output(root, command, stdin=os.fsencode(queries), index=index)
    values_by_path: dict[str, dict[str, str]] = {path: {} for path in paths}
    pieces = [os.fsdecode(piece) for piece in report.split(b"\0")]
    for path, name, value in zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=False):
        values_by_path[path.removeprefix(repository.prefix)][name] = value
    return values_by_path


def entries(root: Path, at: Revision, places: Sequence[str] = WATCHED) -> dict[str, TreeEntry]:
    """Return the files of a tree under some places, by path."""
    tree_lines = output(
        root, ["ls-tree", "-r", "-z", "--full-tree", at.tree, *place_paths(repository_of(root), places)]
    )
    return {path: TreeEntry(mode, blob) for mode, _, blob, path in iter_listed_words(root, tree_lines)}


def index_entries(root: Path, places: Sequence[str] = WATCHED) -> dict[str, TreeEntry]:
    """Return the files of the index under some places, by path, without files in conflict."""
    index_lines = output(root, ["ls-files", "-s", "-z", "--", *place_paths(repository_of(root), places)])
    return {
        path: TreeEntry(mode, blob) for mode, blob, stage, path in iter_listed_words(root, index_lines) if stage == "0"
    }


def iter_listed_words(root: Path, listed: bytes) -> Iterator[list[str]]:
    """Yield the words of each NUL-terminated line of `ls-tree` or `ls-files -s`, the path last."""
    repository = repository_of(root)
    for line in listed.split(b"\0"):
        if line:
            head, _, name = line.partition(b"\t")
            yield [*head.decode().split(" "), _strip_prefix(repository, name)]


def list_unsaved(root: Path, places: Sequence[str] = WATCHED) -> list[str]:
    """List the paths under some places whose file may differ from the index: other times or sizes, deleted, or
    never added. Ignored files count too: truth is what the work tree holds.
    """
    repository = repository_of(root)
    git_paths = place_paths(repository, places)
    changed_names = output(root, ["diff-files", "--name-only", "-z", "--", *git_paths], settings=disable_filters(root))
    other_names = output(root, ["ls-files", "--others", "-z", "--", *git_paths])
    names = {*changed_names.split(b"\0"), *other_names.split(b"\0")} - {b""}
    return sorted(_strip_prefix(repository, name) for name in names)


def blobs(root: Path, ids: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of blobs by their ids, from a single process. Raises `errors.Unavailable` (E_GIT) for a
    missing blob.
    """
    blob_ids = list(dict.fromkeys(ids))
    if not blob_ids:
        return {}
    blob_data: dict[str, bytes] = {}
    batch = memoryview(
        output(root, ["cat-file", "--batch"], stdin="".join(f"{blob_id}\n" for blob_id in blob_ids).encode())
    )
    at = 0
    for blob_id in blob_ids:
        end = at + bytes(batch[at : at + 200]).index(b"\n")
        words = bytes(batch[at:end]).split(b" ")
        if len(words) != 3 or words[1] != b"blob":
            raise make_missing_object_error(blob_id)
        at = end + 1 + int(words[2])
        blob_data[blob_id] = bytes(batch[end + 1 : at])
        at += 1
    return blob_data


def contents(root: Path, entries: Mapping[_Key, TreeEntry | None]) -> dict[_Key, bytes]:
    """Return the bytes of the entries that are regular files, by their keys. Raises as `blobs` does."""
    files = {key: entry.blob for key, entry in entries.items() if entry is not None and entry.mode in REGULAR}
    content = blobs(root, files.values())
    return {key: content[blob] for key, blob in files.items()}


def make_missing_object_error(blob: str) -> Unavailable:
    """Return the error for a missing object."""
    return Unavailable(
        f"git does not have the object {blob} here",
        code="E_GIT",
        suggestion=f"`git fetch`; in a partial clone `{FETCH_ALL}`",
    )


def lines(root: Path, at: Revision, folder: str) -> int:
    """Count the lines in the files of a folder, at a revision."""
    blob_ids = [entry.blob for entry in entries(root, at, (folder,)).values() if entry.mode in REGULAR]
    content = blobs(root, blob_ids)
    return sum(content[blob].count(b"\n") for blob in blob_ids)


def prefix(root: Path) -> str:
    """Return the folder of the base inside its repository, with a final `/`; empty if the two are the same."""
    return repository_of(root).prefix


def parse_raw_changes(repository: Repository, told: Iterable[bytes]) -> Iterator[Touched]:
    """Parse git's raw diff output: `:100644 100644 OLD NEW M`, then a path, again and again."""
    pieces = iter(told)
    for head in pieces:
        if head:
            old_mode, new_mode, old, new, status = head.decode().removeprefix(":").split(" ")
            sides = _build_entry(old_mode, old), _build_entry(new_mode, new)
            yield Touched(_strip_prefix(repository, next(pieces)), *sides, status == "U")


def _compare_raw(root: Path, places: Sequence[str], *command: str) -> list[Touched]:
    repository = repository_of(root)
    report = output(root, [command[0], *_RAW, *command[1:], "--", *place_paths(repository, places)])
    return sorted(parse_raw_changes(repository, report.split(b"\0")), key=lambda change: change.path)


def place_paths(repository: Repository, places: Iterable[str]) -> list[str]:
    """Convert paths relative to the base to git's, from the top of the repository."""
    return [
        posixpath.normpath(repository.prefix + place) if place.startswith("../") else repository.prefix + place
        for place in places
    ]


def _build_entry(mode: str, blob: str) -> TreeEntry | None:
    return TreeEntry(mode, blob) if int(mode, 8) else None


def _strip_prefix(repository: Repository, name: bytes) -> str:
    """Return a path relative to the base, `../NAME` for a path above it."""
    path = os.fsdecode(name)
    if not path.startswith(repository.prefix):
        return posixpath.relpath(path, repository.prefix)
    return path.removeprefix(repository.prefix)


class CommitStep(Struct, frozen=True):
    """A commit, and for each of its parents (in hex; those that touched the places) the files that differ from it."""

    commit: str
    parents: tuple[str, ...]
    touched: tuple[tuple[Touched, ...], ...]


class Signature(Struct, frozen=True):
    """The author and time of a commit, and the first line of its message. The time is ISO 8601 with the author's
    own offset; it is empty for a date before 1970, for which git prints `%aI` verbatim.
    """

    commit: str
    author: str
    email: str
    date: str
    summary: str


def steps(root: Path, at: Revision, places: Sequence[str]) -> Iterator[CommitStep]:
    """Yield the commits that touched some places (relative to the base), newest first, each before its parents."""
    if not at.commit:
        return
    git_paths = place_paths(repository_of(root), places)
    report = output(root, ["rev-list", "--parents", "--topo-order", "--end-of-options", at.commit, "--", *git_paths])
    lines = [line.split() for line in report.decode().splitlines()]
    size, start = _FIRST, 0
    while start < len(lines):
        some = [(line[0], tuple(line[1:])) for line in lines[start : start + size]]
        pairs = [(commit, parent) for commit, parents in some for parent in parents]
        differences = iter(_compare_commits(root, pairs, git_paths))
        for commit, parents in some:
            yield CommitStep(commit, parents, tuple(next(differences) for _ in parents))
        start, size = start + size, min(2 * size, _MOST)


def signatures(root: Path, commits: Iterable[str]) -> dict[str, Signature]:
    """Return the signatures of these commits, by their ids in hex."""
    commit_ids = list(dict.fromkeys(commits))
    if not commit_ids:
        return {}
    form = "--format=%H%x00%an%x00%ae%x00%aI%x00%s%x00"
    report = output(
        root,
        ["log", "--no-walk=unsorted", "--no-show-signature", "--no-notes", "--no-color", "--stdin", form],
        stdin="".join(f"{commit}\n" for commit in commit_ids).encode(),
    )
    pieces = [piece.decode(errors="replace") for piece in report.split(b"\0")]
    rows = [pieces[at : at + 5] for at in range(0, len(pieces) - 1, 5)]
    return {
        commit.strip(): Signature(commit.strip(), author, email, date.removeprefix("%aI"), summary)
        for commit, author, email, date, summary in rows
    }


def boundary(root: Path) -> frozenset[str]:
    """Return the commits of a shallow clone whose parents are missing: their seemingly new content may be older."""
    return frozenset(read_text(repository_of(root).common_dir / "shallow").split())


class Blobs:
    """A reader of blobs by id through a single long-lived process: use it in a `with` block. It caches the last
    few, because the old side of a commit is the new side of its parent.
    """

    _KEPT = 64

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: Git.AutoInterrupt | None = None
        self.read = lru_cache(self._KEPT)(self._read)

    def __enter__(self) -> "Blobs":
        return self

    def __exit__(self, *reason: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _read(self, blob: str) -> bytes:
        """Read a blob. Raises `errors.Unavailable` (E_GIT) if it is missing."""
        if self._process is None:
            self._process = start_git(self._root, ["cat-file", "--batch"])
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None and sink is not None, "both are pipes"
        try:
            sink.write(f"{blob}\n".encode())
            sink.flush()
            words = source.readline().split()
            data: bytes | None = source.read(int(words[2]) + 1)[:-1] if len(words) == 3 else None
        except (OSError, ValueError):
            data = None
        if data is None:
            raise make_missing_object_error(blob)
        return data


def _compare_commits(root: Path, pairs: Sequence[tuple[str, str]], places: Sequence[str]) -> list[tuple[Touched, ...]]:
    """Return the differing files of each pair (commit, parent)."""
    if not pairs:
        return []
    report = output(
        root,
        ["diff-tree", "--stdin", "--always", "-r", "--raw", "-z", "--no-renames", "--abbrev=64", "--", *places],
        stdin="".join(f"{commit} {parent}\n" for commit, parent in pairs).encode(),
    )
    repository = repository_of(root)
    groups: list[list[bytes]] = []
    for piece in report.split(b"\0"):
        if len(piece) in (40, 64) and not piece.startswith(b":") and _is_head(groups):
            groups.append([])
        elif piece:
            groups[-1].append(piece)
    return [tuple(parse_raw_changes(repository, group)) for group in groups]


def _is_head(groups: list[list[bytes]]) -> bool:
    """Return whether a commit's id may come next; where a path must come, its text could look like an id."""
    return not groups or len(groups[-1]) % 2 == 0
