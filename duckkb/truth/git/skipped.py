"""Files that git has and keeps out of the work tree, as a sparse checkout does, and files that it does not look at.

The first are truth that nobody sees here; of the second nobody would see a change in a commit.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from duckkb.errors import Finding, Refused, Unavailable
from duckkb.truth.git import repository, run

_PLACES = ("data/nodes", "data/edges", "data/FORMAT.json", "ontology", "config.yaml")
_MANY = 5
_SKIPPED, _BRING_BACK = 2, "git update-index --no-skip-worktree {0} && git checkout -- {0}"


def missing(root: Path) -> tuple[str, ...]:
    """The files of truth and configuration that lie in git's index and are left out of this checkout, by path.

    Costs a few bytes of the index where nothing is: an entry says that it is skipped from version 3 of the format on, which
    git writes where an entry needs it (and 4 where that is configured).
    """
    if max(repository.index_versions(root), default=0) <= _SKIPPED:
        return ()
    return tuple(path for tag, path in _listed(root) if tag in "Ss" and not os.path.lexists(root / path))


def refuse_missing(root: Path) -> None:
    """Raise `errors.Refused` (E_SPARSE) where a write could meet what is left out: a record would be stored twice."""
    paths = missing(root)
    if paths:
        raise Refused(said(paths) + "; nothing was written", code="E_SPARSE", suggestion=remedy(root, paths))


def findings(root: Path) -> Iterator[Finding]:
    """What is left out of this checkout, and what git does not look at."""
    left_out = missing(root)
    for path in left_out:
        yield Finding("E_SPARSE", "git left it out of this checkout", path, remedy=remedy(root, (path,)))
    for tag, path in _listed(root):
        if path in left_out or tag == "H":
            continue
        bit = "skip-worktree" if tag in "Ss" else "assume-unchanged"
        if tag in "Ss" or tag.islower():
            mend = f"git update-index --no-{bit} {shlex.quote(path)}"
            yield Finding(
                "W_UNWATCHED", f"git does not look at it ({bit}): no commit will have its changes", path, remedy=mend
            )


def said(paths: Sequence[str]) -> str:
    """What is left out, in words."""
    many = f"{paths[0]} and {len(paths) - 1} more files are" if len(paths) > 1 else f"{paths[0]} is"
    return f"{many} left out of this checkout"


def remedy(root: Path, paths: Sequence[str]) -> str:
    """The command that brings files back into the checkout."""
    if run.text(root, ["config", "--type=bool", "core.sparseCheckout"]) == "true":
        return _widened(root, paths)
    if len(paths) <= _MANY:
        return _BRING_BACK.format(" ".join(map(shlex.quote, paths)))
    listed = f"git ls-files -t -- {' '.join(_PLACES)} | sed -n 's/^S //p'"
    return f"{listed} | xargs sh -c '{_BRING_BACK.format(chr(34) + '$@' + chr(34))}' _"


def _widened(root: Path, paths: Sequence[str]) -> str:
    """The command that has a sparse checkout hold files: their folders in a cone, else the files, as a pattern that leaves a
    folder out is weaker than one that names what is in it."""
    found = run.repository_of(root)
    is_cone = run.text(root, ["config", "--type=bool", "core.sparseCheckoutCone"]) != "false"
    begin = f"git -C {shlex.quote(str(found.work_tree))} sparse-checkout"
    wanted = {path.partition("/")[0] for path in paths} if is_cone else {*paths}
    if len(wanted) > _MANY or (is_cone and not all("/" in path for path in paths)):
        return f"{begin} disable"
    mark = "" if is_cone else "/"
    return f"{begin} add {' '.join(shlex.quote(mark + found.prefix + one) for one in sorted(wanted))}"


def _listed(root: Path) -> list[tuple[str, str]]:
    """The files of the base in the index, each with git's letter for how it looks at them: `S` skipped, small where it takes
    them for unchanged. None where git cannot be asked."""
    if not repository.can_be_asked(root):
        return []
    try:
        prefix = run.repository_of(root).prefix
        told = run.answer(root, ["ls-files", "-v", "-z", "--", *(prefix + place for place in _PLACES)])
    except Unavailable:
        return []
    names = (os.fsdecode(one) for one in told.output.split(b"\0") if one)
    return [(name[0], name[2:].removeprefix(prefix)) for name in names]
