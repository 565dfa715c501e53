"""The two versions that are compared: which they are, which files differ, and the bytes of these on either side."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from duckkb.codes import CODES
from duckkb.errors import Finding, UsageError
from duckkb.review.diff.model import Label, Versions
from duckkb.truth import layout
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Revision, Touched, TreeEntry
from duckkb.values import dataclass

Against = Literal["commit", "index", "worktree"]
_UNMERGED = "E_MERGE_IN_PROGRESS"
_LINK = "120000"
_SUBMODULE = "160000"


@dataclass(frozen=True, slots=True)
class Range:
    """What to compare: the name of the base, and what with: a commit (`head`), the index, or the working tree. With
    `since_parting` the base is the commit in which the two part; index and working tree part where HEAD does."""

    base: str
    against: Against = "worktree"
    head: str = ""
    since_parting: bool = False


def parse_range(text: str | None, *, staged: bool = False, worktree: bool = False) -> Range:
    """`BASE`, `BASE..HEAD` or `BASE...HEAD` as git reads them; HEAD where nothing is given. Raises `errors.UsageError`.

    >>> parse_range("main...topic")
    Range(base='main', against='commit', head='topic', since_parting=True)
    """
    found = re.fullmatch(r"(.*?)(\.\.\.?)(.*)", text or "", re.DOTALL)
    if text == "" or (found and (".." in found[3] or found[3].startswith("."))):
        raise UsageError(
            f"{text!r} is no range: it names no revision, or more than two",
            suggestion="give BASE, BASE..HEAD or BASE...HEAD; nothing at all stands for HEAD",
        )
    if staged and worktree:
        raise UsageError("--staged and --worktree contradict each other; give one of them")
    if found and (staged or worktree):
        raise UsageError(
            f"{text} names two commits, which leaves nothing for --{'staged' if staged else 'worktree'}",
            suggestion="give one revision, or leave the option out",
        )
    if found:
        return Range(found[1] or "HEAD", "commit", found[3] or "HEAD", found[2] == "...")
    return Range(text or "HEAD", "index" if staged else "worktree")


def read(root: Path, wanted: Range) -> Versions:
    """The files that differ, with their bytes; raises `errors.StateError` (E_REVISION, E_GIT) and `errors.Unavailable`."""
    base, head = _ends(root, wanted)
    match wanted.against:
        case "commit":
            touched = revisions.between(root, base, head)
            return _stored(root, touched, _label(wanted.base, base), _label(wanted.head, head))
        case "index":
            return _stored(root, revisions.staged(root, base), _label(wanted.base, base), Label("the index"))
        case _:
            return _with_worktree(root, base, wanted.base)


def _ends(root: Path, wanted: Range) -> tuple[Revision, Revision]:
    """The base and what it is compared with; HEAD for index and working tree."""
    head = wanted.head or "HEAD"
    if wanted.base == head == "HEAD":
        known = revisions.head(root)
        return known, known
    if wanted.against != "commit" and not wanted.since_parting:
        known = revisions.revision(root, wanted.base)
        return known, known
    base, other = revisions.revisions(root, wanted.base, head)
    return (revisions.merge_base(root, base, other) if wanted.since_parting else base), other


def _label(name: str, found: Revision) -> Label:
    return Label(name, found.commit or found.tree)


def _stored(root: Path, touched: Iterable[Touched], base: Label, head: Label) -> Versions:
    """Both sides lie in git."""
    everything = [one for one in touched if one.old != one.new or one.unmerged]
    touched = [one for one in everything if not one.unmerged]
    old = {one.path: blob for one in touched if (blob := _blob(one.old))}
    new = {one.path: blob for one in touched if (blob := _blob(one.new))}
    content = revisions.blobs(root, [*old.values(), *new.values()])
    findings = [finding for one in touched for finding in _no_file(one.path, one.new)]
    said, remedy = "is in conflict: the index has several versions of it, and was not compared", CODES[_UNMERGED].remedy
    findings += [Finding(_UNMERGED, said, one.path, remedy=remedy) for one in everything if one.unmerged]
    return Versions(
        base,
        head,
        {path: content[blob] for path, blob in old.items()},
        {path: content[blob] for path, blob in new.items()},
        tuple(findings),
        tuple(one.path for one in touched),
    )


def _with_worktree(root: Path, base: Revision, name: str) -> Versions:
    """The new side lies in files, whatever git knows of them."""
    staged = {one.path: one.old for one in revisions.staged(root, base)}
    paths = sorted({*staged, *revisions.unsaved(root)})
    unknown = [path for path in paths if path not in staged]
    if unknown:
        staged |= revisions.entries(root, base, unknown if len(unknown) < 200 else revisions.WATCHED)
    before = {path: blob for path in paths if (blob := _blob(staged.get(path)))}
    content = revisions.blobs(root, before.values())
    old = {path: content[blob] for path, blob in before.items()}
    new: dict[str, bytes] = {}
    findings: list[Finding] = []
    for path in paths:
        try:
            new[path], _ = layout.read_regular(root / path)
        except FileNotFoundError:
            continue
        except OSError as error:
            code = "E_SYMLINK" if (root / path).is_symlink() else "E_NOT_REGULAR"
            findings.append(Finding(code, f"not a regular file: {error.strerror}", path, remedy=CODES[code].remedy))
    differing = [path for path in paths if old.get(path) != new.get(path)]
    return Versions(
        _label(name, base),
        Label("the working tree"),
        {path: old[path] for path in differing if path in old},
        {path: new[path] for path in differing if path in new},
        tuple(findings),
        tuple(differing),
    )


def _blob(entry: TreeEntry | None) -> str:
    """The id of a regular file's bytes, empty for anything else."""
    return entry.blob if entry is not None and entry.mode in revisions.REGULAR else ""


def _no_file(path: str, entry: TreeEntry | None) -> Iterable[Finding]:
    if entry is not None and not _blob(entry):
        code = "E_SYMLINK" if entry.mode == _LINK else "E_NOT_REGULAR"
        what = {_LINK: "a link", _SUBMODULE: "a submodule"}.get(entry.mode, f"an entry of mode {entry.mode}")
        yield Finding(code, f"{what}, where only files belong", path, remedy=CODES[code].remedy)
