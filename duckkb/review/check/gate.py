"""The files outside of records and ontology that a gate rests on: the workflows and hooks that run duckkb, and what
.gitattributes has git do to the base's files. Paths are relative to the base, as those of all findings."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from duckkb.errors import Finding
from duckkb.review.check.guards import finding
from duckkb.review.diff.comparison import Comparison
from duckkb.truth.git import revisions, run
from duckkb.truth.git.revisions import Revision, Touched

_ATTRIBUTES = ".gitattributes"
_HOOKS = (".pre-commit-config.yaml", ".gitlab-ci.yml")
_WORKFLOWS = re.compile(r"\.(?:github|gitea|forgejo)/workflows/[^/]+\.ya?ml")
_CACHE = "data/indices/"
# A pin may move; the rest of a line is what it does.
_PIN = re.compile(r"@[0-9a-f]{7,64}\b|==[0-9][\w.]*|(?:^|\s)#.*$")
_COUNTED = frozenset(
    ("text", "eol", "diff", "merge", "filter", "working-tree-encoding", "ident", "linguist-generated", "binary")
)
_WANTED = frozenset((("text", "set"), ("eol", "lf"), ("merge", "duckkb"), ("diff", "duckkb")))


def of_files(compared: Comparison) -> Iterator[Finding]:
    """What the change takes away. Raises `errors.Unavailable` (E_GIT)."""
    root, base = compared.root, compared.versions.base.commit
    against = {"worktree": None, "index": "index"}.get(compared.range.against, compared.versions.head.commit)
    touched = list(revisions.touched_anywhere(root, base, against))
    yield from _jobs(root, [one for one in touched if _WORKFLOWS.fullmatch(one.path) or one.path in _HOOKS])
    names = [one.path for one in touched if posixpath.basename(one.path) == _ATTRIBUTES]
    if names:
        place = posixpath.relpath(names[0], revisions.prefix(root) or ".")
        yield from (finding(said, place, 0, name) for name, said in _attributes(root, base, against))


def _jobs(root: Path, touched: Iterable[Touched]) -> Iterator[Finding]:
    top = run.repository_of(root)
    for one in touched:
        old, new = (_text(root, top.work_tree, one, side) for side in (one.old, one.new))
        if old is None or "duckkb" not in old or old == new:
            continue
        path = posixpath.relpath(one.path, top.prefix or ".")
        if new is None:
            yield finding("a job that runs duckkb is gone", path, 0, "")
            continue
        before, after = _steps(old), _steps(new)
        if [line for _, line in before] != [line for _, line in after]:
            counts = Counter(line for _, line in after)
            gone = next((line for _, line in before if not counts[line]), "")
            had = Counter(line for _, line in before)
            came = next(((number, line) for number, line in after if not had[line]), (0, ""))
            said = (
                f"no longer says `{gone}`" if gone else f"says `{came[1]}`" if came[1] else "says it in another order"
            )
            yield finding(f"a job that runs duckkb {said}", path, came[0], "")


def _text(root: Path, top: Path, one: Touched, side: revisions.TreeEntry | None) -> str | None:
    """None where there is no such file on this side; an id of zeros stands for the file as it is."""
    if side is None or side.mode not in revisions.REGULAR:
        return None
    if int(side.blob, 16):
        return revisions.blobs(root, [side.blob])[side.blob].decode("utf-8", "replace")
    try:
        return (top / one.path).read_text("utf-8", "replace") if not (top / one.path).is_symlink() else None
    except OSError:
        return None


def _steps(text: str) -> list[tuple[int, str]]:
    """The lines that do something, with their numbers, without pins and comments."""
    lines = ((number, _PIN.sub("", line).strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line]


def _attributes(root: Path, base: str, against: str | None) -> Iterator[tuple[str, str]]:
    """What git would do otherwise to files that both sides have, by attribute, with how many and the first of them."""
    paths = sorted(revisions.entries(root, Revision("", base, base)))
    paths = [path for path in paths if not path.startswith(_CACHE)]
    before, after = (revisions.attributes(root, paths, at) for at in (base, against))
    found: dict[tuple[str, str, str], list[str]] = {}
    for path in paths:
        for name in sorted({*before[path], *after[path]} & _COUNTED):
            old, new = before[path].get(name, "unspecified"), after[path].get(name, "unspecified")
            if old != new and (name, new) not in _WANTED:
                found.setdefault((name, old, new), []).append(path)
    for (name, old, new), touched in found.items():
        many = f" and {len(touched) - 1:,} more" if len(touched) > 1 else ""
        yield name, f"git's attribute {name} of {touched[0]}{many} was {old}, is {new}"
