"""How the files of a folder came to be: the commits that touched it, what each of them changed, and who made it.

History is what git tells of a branch's ancestors, simplified to the commits that explain the folder as it is: a commit
stands before its parents, and a merge that took one side whole leads to that side alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb.truth.git import revisions, run
from duckkb.truth.git.places import read_text
from duckkb.truth.git.revisions import Revision, Touched
from duckkb.values import dataclass

if TYPE_CHECKING:
    from git.cmd import Git

_FIRST, _MOST = 32, 1_024  # commits that are looked into at once: few, as the newest ones answer most questions


@dataclass(frozen=True, slots=True)
class CommitStep:
    """A commit, and for each of its parents (in hex; those that touched the folder) the files that differ from it."""

    commit: str
    parents: tuple[str, ...]
    touched: tuple[tuple[Touched, ...], ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Who made a commit and when: ISO 8601 with the author's own offset, empty for a date before 1970, for which git prints
    `%aI` as it was asked; and the first line of the message."""

    commit: str
    author: str
    email: str
    date: str
    summary: str


def steps(root: Path, at: Revision, folder: str) -> Iterator[CommitStep]:
    """The commits that touched a folder (relative to the base), the newest first, each before its parents."""
    if not at.commit:
        return
    place = revisions.prefix(root) + folder
    told = run.output(root, ["rev-list", "--parents", "--topo-order", "--end-of-options", at.commit, "--", place])
    lines = [line.split() for line in told.decode().splitlines()]
    size, start = _FIRST, 0
    while start < len(lines):
        some = [(line[0], tuple(line[1:])) for line in lines[start : start + size]]
        pairs = [(commit, parent) for commit, parents in some for parent in parents]
        found = iter(_differences(root, pairs, place))
        for commit, parents in some:
            yield CommitStep(commit, parents, tuple(next(found) for _ in parents))
        start, size = start + size, min(2 * size, _MOST)


def signatures(root: Path, commits: Iterable[str]) -> dict[str, Signature]:
    """Who made these commits, by their ids in hex."""
    wanted = list(dict.fromkeys(commits))
    if not wanted:
        return {}
    form = "--format=%H%x00%an%x00%ae%x00%aI%x00%s%x00"
    told = run.output(
        root,
        ["log", "--no-walk=unsorted", "--no-show-signature", "--no-notes", "--no-color", "--stdin", form],
        stdin="".join(f"{commit}\n" for commit in wanted).encode(),
    )
    pieces = [piece.decode(errors="replace") for piece in told.split(b"\0")]
    rows = [pieces[at : at + 5] for at in range(0, len(pieces) - 1, 5)]
    return {
        commit.strip(): Signature(commit.strip(), author, email, date.removeprefix("%aI"), summary)
        for commit, author, email, date, summary in rows
    }


def boundary(root: Path) -> frozenset[str]:
    """The commits of a shallow clone whose parents are not here: what they seem to bring may be older."""
    return frozenset(read_text(run.repository_of(root).common_dir / "shallow").split())


class Blobs:
    """Files' bytes by their ids, from one process that stays: use it in a `with` block. The last few are kept, as the old
    side of a commit is the new side of its parent."""

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
        """Raises `errors.Unavailable` (E_GIT) for one that is not here."""
        if self._process is None:
            self._process = run.started(self._root, ["cat-file", "--batch"])
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
            raise revisions.lacking(blob)
        return data


def _differences(root: Path, pairs: Sequence[tuple[str, str]], place: str) -> list[tuple[Touched, ...]]:
    """For each (commit, parent) the files in which they differ."""
    if not pairs:
        return []
    told = run.output(
        root,
        ["diff-tree", "--stdin", "--always", "-r", "--raw", "-z", "--no-renames", "--abbrev=64", "--", place],
        stdin="".join(f"{commit} {parent}\n" for commit, parent in pairs).encode(),
    )
    repository = run.repository_of(root)
    groups: list[list[bytes]] = []
    for piece in told.split(b"\0"):
        if len(piece) in (40, 64) and not piece.startswith(b":") and _is_head(groups):
            groups.append([])
        elif piece:
            groups[-1].append(piece)
    return [tuple(revisions.touched(repository, group)) for group in groups]


def _is_head(groups: list[list[bytes]]) -> bool:
    """Whether a commit's id may come next: not where a path must, which could look like one."""
    return not groups or len(groups[-1]) % 2 == 0
