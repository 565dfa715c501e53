"""Lists the branches of a repository, remote branches included, with commits that HEAD does not have."""

import re
from pathlib import Path

from msgspec import Struct

from duckkb.errors import StateError
from duckkb.truth.git import revisions
from duckkb.truth.git.git_changes import MARK
from duckkb.truth.git.revisions import Revision
from duckkb.truth.git.run import text

_FIELDS = ("refname", "symref", "objectname", "authorname", "committerdate:iso-strict", "contents:subject", "contents")
_FORMAT = "".join(f"%({name})%00" for name in _FIELDS)
_PLACES = ("refs/heads/", "refs/remotes/")
_IMPOSSIBLE = re.compile("[\x00-\x20\x7f\ud800-\udfff]")  # neither git names nor arguments may contain these


class BranchTip(Struct, frozen=True):
    """A branch by its name in git's commands (`topic`, `origin/topic`), and its last commit: the id in hex, the
    author, the time (ISO 8601), its first line, and whether `propose` made it.
    """

    name: str
    commit: str
    author: str
    date: str
    subject: str
    is_proposal: bool


def ahead(root: Path) -> list[BranchTip]:
    """List the branches with commits that HEAD does not have, newest first. Skips remote branches that equal a
    local branch. Raises `errors.StateError` (E_GIT), `errors.Unavailable`.
    """
    if not text(root, ["rev-parse", "--quiet", "--verify", "HEAD"]):
        return []
    report = text(root, ["for-each-ref", "--sort=-committerdate", "--no-merged=HEAD", f"--format={_FORMAT}", *_PLACES])
    fields = report.split("\0")
    rows = zip(*(fields[at :: len(_FIELDS)] for at in range(len(_FIELDS))), strict=False)
    entries = [(row[0].lstrip("\n"), *row[1:]) for row in rows if not row[1]]
    here = {commit for name, _, commit, *_ in entries if name.startswith(_PLACES[0])}
    tips = []
    for name, _, commit, author, date, subject, message in entries:
        if name.startswith(_PLACES[0]) or commit not in here:
            is_proposal = message.rstrip("\n").rpartition("\n")[2].startswith(MARK)
            short = name.removeprefix(_PLACES[0]).removeprefix(_PLACES[1])
            tips.append(BranchTip(short, commit, author, date, subject, is_proposal))
    return tips


def is_pushed(root: Path, commit: str) -> bool:
    """Return whether a remote branch has a commit, as far as this clone knows."""
    return bool(
        text(root, ["for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)", "refs/remotes"])
    )


def resolve_branch(root: Path, name: str) -> Revision:
    """Return the commit of the branch with this name; never a tag, a commit or a stash. Raises `errors.StateError`
    (E_REVISION).
    """
    for place in () if _IMPOSSIBLE.search(name) else _PLACES:
        ref = f"{place}{name}"
        if text(root, ["show-ref", "--verify", "--hash", ref]):
            tip = revisions.revision(root, ref)
            commit_id = text(root, ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"])
            return Revision(name if commit_id == tip.commit else ref, tip.commit, tip.tree)
    hint = "`git branch -a` lists the branches"
    raise StateError(f"no branch {name!r} here", code="E_REVISION", suggestion=hint)
