"""Commits on a branch that is checked out nowhere, made by git's plumbing: working tree, index and HEAD stay as they are.

The last line of such a commit's message is a mark, a digest over who made it (a clone's id), the branch, its parent and its
tree. So a branch can be told from one that somebody else has made or added to, rewritten or amended, wherever it was pushed
to and fetched from meanwhile.
"""

import unicodedata
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from duckkb.errors import Conflict, Refused, UsageError
from duckkb.truth.git import revisions, run
from duckkb.truth.git.revisions import Revision
from duckkb.values import dataclass

_DURABLE = {"core.fsync": "all"}
_COMMIT = _DURABLE | {"i18n.commitEncoding": "UTF-8"}
_FILE = "100644"
_MARK = "Duckkb-Proposal: "


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch by its name, and the commit that it is at, None where it does not exist yet."""

    name: str
    tip: Revision | None

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"


def branch(root: Path, name: str) -> Branch:
    """A branch that may be written; raises `errors.UsageError` for what is no name of one, `errors.Refused` for one that is
    checked out, here or in another work tree, or that another branch's name leaves no room for."""
    if name in ("", "HEAD") or run.text(root, ["check-ref-format", "--branch", name]) != name:
        raise UsageError(f"{name!r} cannot name a branch", suggestion="leave --branch out, and one is made up")
    ref = f"refs/heads/{name}"
    used = run.text(root, ["for-each-ref", "--format=%(worktreepath)%(HEAD)", ref])
    here = run.text(root, ["symbolic-ref", "--quiet", "HEAD"])
    if used.strip() or here == ref:
        raise Refused(
            f"branch {name} is checked out, and its files would not follow",
            suggestion="propose on another branch: --branch NAME",
        )
    _refuse_in_the_way(root, name)
    return Branch(name, _known(root, ref))


def _refuse_in_the_way(root: Path, name: str) -> None:
    """Git keeps branches as files and folders: where `a` is one, `a/b` cannot be, nor the other way round; and where file
    names have no case, `A` is `a`."""
    for other in run.text(root, ["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]).splitlines():
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            said = f"there is a branch {other}, beside which git can have none named {name}"
        elif other != name and _folded(other) == _folded(name):
            said = f"there is a branch {other}, which differs from {name} in case alone"
        else:
            continue
        raise Refused(said, suggestion="propose on another branch: --branch NAME")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def pushed(root: Path, remote: str, name: str) -> Revision | None:
    """Where a branch was at a remote when that was last fetched from or pushed to; None for none."""
    return _known(root, f"refs/remotes/{remote}/{name}")


def _known(root: Path, ref: str) -> Revision | None:
    known = run.text(root, ["rev-parse", "--quiet", "--verify", "--end-of-options", ref])
    return revisions.revision(root, ref) if known else None


def is_made_by(root: Path, writer: str, name: str, tip: Revision) -> bool:
    """Whether `commit` made the tip of a branch as it is, for this writer."""
    told = run.text(root, ["log", "-1", "--format=%P%n%B", tip.commit, "--"])
    parent, _, message = told.partition("\n")
    return message.rstrip("\n").rpartition("\n")[2] == _MARK + _marked(writer, name, parent, tip.tree)


def _marked(writer: str, name: str, parent: str, tree: str) -> str:
    return sha256("\0".join((writer, name, parent, tree)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def contains(root: Path, newer: Revision, older: Revision) -> bool:
    """Whether one commit is the other or an ancestor of it."""
    return run.answer(root, ["merge-base", "--is-ancestor", older.commit, newer.commit]).code == 0


def commit(
    root: Path, target: Branch, parent: Revision, files: Mapping[str, bytes | None], message: str, writer: str
) -> str:
    """Put a commit of `parent` with these files instead (None: gone) on a branch, with the mark of `writer`; returns its id
    in hex.

    Raises `errors.Conflict` (E_STALE) where the branch is not where it was, `errors.Unavailable` (E_GIT) where git fails, as
    without a name to commit by.
    """
    prefix = revisions.prefix(root)
    with TemporaryDirectory(prefix="duckkb-index-") as folder:
        index = Path(folder) / "index"
        run.output(root, ["read-tree", parent.commit], index=index)
        lines = [_index_line(root, parent, prefix + path, data) for path, data in sorted(files.items())]
        run.output(root, ["update-index", "-z", "--index-info"], stdin=b"".join(lines), index=index)
        tree = run.output(root, ["write-tree"], index=index, settings=_DURABLE).decode().strip()
    mark = _MARK + _marked(writer, target.name, parent.commit, tree)
    message = f"{message.rstrip()}\n\n{mark}\n"
    made = run.output(
        root, ["commit-tree", "--no-gpg-sign", "-p", parent.commit, tree], stdin=message.encode(), settings=_COMMIT
    )
    new = made.decode().strip()
    old = target.tip.commit if target.tip else "0" * len(new)
    if run.answer(root, ["update-ref", "-m", "duckkb propose", target.ref, new, old]).code:
        raise Conflict(
            f"branch {target.name} moved meanwhile; nothing was proposed",
            code="E_STALE",
            suggestion="propose it again",
        )
    return new


def _index_line(root: Path, parent: Revision, path: str, data: bytes | None) -> bytes:
    if data is None:
        return b"0 " + b"0" * len(parent.commit) + b"\t" + path.encode() + b"\0"
    blob = run.output(root, ["hash-object", "-w", "--stdin"], stdin=data, settings=_DURABLE).strip()
    return _FILE.encode() + b" " + blob + b"\t" + path.encode() + b"\0"
