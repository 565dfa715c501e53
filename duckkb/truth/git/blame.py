"""Finds the commit of each line of a file with `git blame`."""

import re
from pathlib import Path

from duckkb.errors import StateError, Unavailable
from duckkb.truth.git import revisions
from duckkb.truth.git.repository import attributes, head_commit
from duckkb.truth.git.run import disable_filters, output

_LINE = re.compile(rb"^([0-9a-f]{40,64}) [0-9]+ [0-9]+", re.MULTILINE)  # the text of a line follows a tab
_HALF_ENDS = (b"\n\t\0\n", b"\n\t\0\0\0\n")
"""The last line as git sees it in a UTF-16 or UTF-32 text that ends with a line end."""


def line_commits(root: Path, path: str, commit: str = "") -> list[str | None]:
    """Return for each line of a file below `root` the commit, in hex, that introduced it; None for a line that is
    only in the working tree. Reads the file at `commit` if given, else as it is. Lines end with LF, as in git;
    empty for a file that git does not know.

    Raises `errors.StateError` (E_GIT) without a repository, and for a file that git would pass through a filter
    command; `errors.Unavailable` (E_GIT) if git fails.
    """
    place = revisions.prefix(root) + path
    command = ["blame", "--porcelain", "--no-textconv", *([commit] if commit else []), "--", place]
    filters = disable_filters(root)
    filter_name = (attributes(root, path, ("filter",)) or {}).get("filter", "") if filters and not commit else ""
    if {f"filter.{filter_name}.clean", f"filter.{filter_name}.process"} & filters.keys():
        message = f"{path} goes through the filter {filter_name} of git, a command that duckkb does not run"
        raise StateError(message, code="E_GIT", suggestion=f"`git blame` in {root}, or blame the fields")
    try:
        report = output(root, command, settings=filters)
    except Unavailable:
        head = revisions.head(root) if head_commit(root) else None
        if head and (revisions.entries(root, head, (path,)) or revisions.index_entries(root, (path,))):
            raise
        return []
    commits = [line.decode() if line.strip(b"0") else None for line in _LINE.findall(report)]
    return commits[:-1] if report.endswith(_HALF_ENDS) else commits
