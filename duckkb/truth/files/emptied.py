"""A file that held something and holds nothing now: cut off, which is not what anybody means by deleting records.

duckkb removes a part with its last record, so a part without one is not its work. Only git's driver leaves one, where a
merge takes the last record: a driver cannot remove a file.
"""

from pathlib import Path

from duckkb.errors import Finding
from duckkb.truth.git import repository, revisions, run


def finding(root: Path, path: str) -> Finding | None:
    """What is wrong with a part in which no record stands; None where a merge that is committed left it so."""
    source = _held_at(root, path)
    if source is None:
        return None
    said = "no record is in it: it was cut off" + (f"; {source} has what it held" if source else "")
    remedy = f"`git checkout {source} -- {path}`" if source else "restore it from a copy"
    return Finding("E_EMPTY_PART", said, path, remedy=f"{remedy}, or `rm {path}` if all its records are to go")


def is_held_at_head(root: Path, path: str) -> bool:
    """Whether a file of the base holds something at HEAD."""
    return bool((_content(root, "HEAD", path) or "").strip())


def _held_at(root: Path, path: str) -> str | None:
    """The revision with what a part held, empty where none is known; None where a committed merge left it without."""
    at_head = _content(root, "HEAD", path)
    if at_head is None or at_head.strip():
        return "" if at_head is None else "HEAD"
    told = run.text(root, ["log", "-1", "--format=%H %P", "HEAD", "--", revisions.prefix(root) + path]).split()
    if len(told) != 2:  # a commit with one parent
        return None
    return f"{told[0][:12]}^" if (_content(root, told[1], path) or "").strip() else None


def _content(root: Path, revision: str, path: str) -> str | None:
    """A file at a revision; None where that has none, or git cannot be asked."""
    if not repository.can_be_asked(root) or repository.head_commit(root) is None:
        return None
    try:
        found = run.answer(root, ["cat-file", "blob", f"{revision}:{revisions.prefix(root)}{path}"])
    except run.NoGit:
        return None
    return None if found.code else found.output.decode(errors="replace")
