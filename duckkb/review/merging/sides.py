"""Which three versions are being merged: the blobs of the parts in the base, in ours and in theirs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from duckkb.review.merging.trees import Contents, Tree, merge_trees
from duckkb.truth.git import git_changes, places, revisions
from duckkb.truth.git.git_changes import Index
from duckkb.truth.git.revisions import Revision
from duckkb.truth.merge.merge_rules import RulesByTable, TableRules
from duckkb.truth.merge.table_merge import Unmergeable, merge_table
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class Sides:
    """Three versions of the parts; `contents` gives the bytes of their blobs. `older`: where several bases were merged into
    one, these and theirs, as git makes another base of them."""

    base: Tree
    ours: Tree
    theirs: Tree
    contents: Contents
    older: tuple[Tree, ...] = ()

    def is_gits(self, path: str, held: bytes | None, table: TableRules) -> bool:
        """Whether a part is what git makes of its versions without asking: one of them, or a merge of them."""
        trees = (self.base, self.ours, self.theirs, *self.older)
        return any(held == self.contents.of(side.get(path)) for side in trees) or self.is_merged(path, held, table)

    def is_merged(self, path: str, held: bytes | None, table: TableRules) -> bool:
        """Whether a part is the merge of its versions by lines, or by the driver, which sees one part."""
        ours, theirs = (self.contents.of(side.get(path)) for side in (self.ours, self.theirs))
        bases = {self.contents.of(side.get(path)) for side in (self.base, *self.older)}
        return any(
            (held or None) == alone(path, (base, ours, theirs), table)
            or git_changes.merge_lines(base or b"", ours or b"", theirs or b"", self.contents.root) == (held, True)
            for base in bases
        )


def alone(path: str, versions: Sequence[bytes | None], table: TableRules) -> bytes | None:
    """The merge by records of one part, as the driver sees it; None where that is nothing, or cannot be."""
    base, ours, theirs = ({path: data} if data is not None else {} for data in versions)
    try:
        return merge_table(base, ours, theirs, table).parts.get(path)
    except Unmergeable:
        return None


def of_commits(root: Path, ours: str, theirs: str, rules: RulesByTable) -> Sides:
    """Two commits and their merge base; where they have several, these merged, as git does it."""
    contents = Contents(root)
    bases = git_changes.merge_bases(root, ours, theirs)
    base = _joined(root, bases, contents, rules)
    older: list[Tree] = [tree(root, one) for one in bases] if len(bases) > 1 else []
    for number, one in enumerate(bases[1:], 1):
        older += [tree(root, before) for before in git_changes.merge_bases(root, one, *bases[:number])]
    if older:
        older.append({})
    return Sides(base, tree(root, ours), tree(root, theirs), contents, tuple(older))


def tree(root: Path, commit: str) -> Tree:
    """The parts of a commit, by path; `commit` is an id, or a name of git's own."""
    found = revisions.entries(root, Revision(commit, commit, commit), git_changes.PARTS)
    return {path: one.blob for path, one in found.items() if one.mode in revisions.REGULAR}


def under_way(root: Path, index: Index, rules: RulesByTable) -> Sides | None:
    """What git is in the middle of merging, whether for a merge, a pick, a revert, a rebase or a stash; None where that
    cannot be told for sure, and only the index says what is merged."""
    heads = _heads(root)
    if (theirs := heads.get("MERGE_HEAD")) is not None:
        return of_commits(root, "HEAD", theirs, rules) if "\n" not in theirs else None
    contents = Contents(root)
    for base, commit in _pairs(root, heads):
        found = Sides(tree(root, base), tree(root, "HEAD"), tree(root, commit), contents)
        if _agree(found, index):
            return found
    return None


def staged(root: Path, index: Index) -> Sides:
    """The versions that the index holds of the paths in conflict, and nothing else."""
    trees = [
        {path: stages[number].blob for path, stages in index.unmerged.items() if number in stages}
        for number in (1, 2, 3)
    ]
    return Sides(trees[0], trees[1], trees[2], Contents(root))


def _joined(root: Path, bases: list[str], contents: Contents, rules: RulesByTable) -> Tree:
    """One tree out of several merge bases: merged one by one, each pair by their own; what conflicts stays as it was there."""
    if not bases:
        return {}
    found: Tree = tree(root, bases[0])
    for number, other in enumerate(bases[1:], 1):
        older = _joined(root, git_changes.merge_bases(root, other, *bases[:number]), contents, rules)
        theirs = tree(root, other)
        merged = merge_trees(older, found, theirs, contents, rules, is_base=True)
        paths = {**found, **theirs}
        kept = {path: found.get(path) or theirs[path] for path in paths if path not in merged.parts}
        made = {path: contents.add(data) for path, data in merged.parts.items() if data is not None}
        found = {**kept, **made}
    return found


def _heads(root: Path) -> Mapping[str, str]:
    """What git's files say is being merged into HEAD."""
    repository = places.find_repository(root)
    found = {}
    for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"):
        path = repository.git_dir / name if repository else root / name
        if repository and path.is_file():
            found[name] = path.read_text("ascii", "replace").strip()
    return found


def _pairs(root: Path, heads: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Base and theirs, as they may be."""
    for name in ("CHERRY_PICK_HEAD", "REBASE_HEAD"):
        if name in heads:
            yield from ((parent, heads[name]) for parent in git_changes.parents(root, heads[name]))
    if "REVERT_HEAD" in heads:
        yield from ((heads["REVERT_HEAD"], parent) for parent in git_changes.parents(root, heads["REVERT_HEAD"]))
    if not heads and (stash := git_changes.parents(root, "refs/stash")):
        yield stash[0], "refs/stash"


def _agree(sides: Sides, index: Index) -> bool:
    """Whether the index holds these versions of what conflicts."""
    trees = {1: sides.base, 2: sides.ours, 3: sides.theirs}
    return bool(index.unmerged) and all(
        trees[number].get(path) == (stages[number].blob if number in stages else None)
        for path, stages in index.unmerged.items()
        for number in trees
    )
