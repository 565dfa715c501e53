"""Which three versions are being merged: the blobs of the parts in the base, in ours and in theirs; and these as one, table by
table, over all files in which the versions differ."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from duckkb.truth.git import git_changes, revisions, run
from duckkb.truth.git.git_changes import Index
from duckkb.truth.git.revisions import Revision
from duckkb.truth.merge.field_merge import MergeRules
from duckkb.truth.merge.merge_rules import Key, RulesByTable
from duckkb.truth.merge.table_merge import RecordConflict, TableMerge, Unmergeable, merge_table, table_of
from duckkb.values import dataclass, field

Tree = Mapping[str, str]
"""The ids of blobs by path."""


class Contents:
    """The bytes of blobs, read from git once, and of blobs that were made here and are nowhere else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._held: dict[str, bytes] = {}

    def read(self, ids: Iterable[str]) -> None:
        """Read several at once."""
        missing = {one for one in ids if one not in self._held}
        self._held |= revisions.blobs(self.root, sorted(missing))

    def of(self, one: str | None) -> bytes | None:
        if one is None:
            return None
        self.read([one])
        return self._held[one]

    def add(self, data: bytes) -> str:
        """An id for bytes that git does not have."""
        name = f"made-{sha256(data).hexdigest()}"
        self._held[name] = data
        return name


@dataclass(frozen=True, slots=True)
class MergedTrees:
    """The parts in which the versions differ, merged (None: gone); the records in conflict by table; and the parts that
    were merged as lines because a line of them is no record, with whether that left markers."""

    parts: Mapping[str, bytes | None] = field(default_factory=dict)
    conflicts: tuple[tuple[Key, RecordConflict], ...] = ()
    by_lines: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sides:
    """Three versions of the parts; `contents` gives the bytes of their blobs. `older`: where several bases were merged into
    one, these and theirs, as git makes another base of them."""

    base: Tree
    ours: Tree
    theirs: Tree
    contents: Contents
    older: tuple[Tree, ...] = ()

    @property
    def trees(self) -> tuple[Tree, Tree, Tree]:
        return self.base, self.ours, self.theirs

    def of(self, path: str) -> list[bytes | None]:
        """A part in the base, in ours and in theirs."""
        return [self.contents.of(tree.get(path)) for tree in self.trees]

    def is_gits(self, path: str, held: bytes | None, table: MergeRules) -> bool:
        """Whether a part is what git makes of its versions without asking: one of them, or a merge of them."""
        known = (self.contents.of(tree.get(path)) for tree in (*self.trees, *self.older))
        return held in known or self.is_merged(path, held, table)

    def is_merged(self, path: str, held: bytes | None, table: MergeRules) -> bool:
        """Whether a part is the merge of its versions by lines, or by the driver, which sees one part."""
        _, ours, theirs = self.of(path)
        bases = {self.contents.of(side.get(path)) for side in (self.base, *self.older)}
        return any(
            holding(held) == alone(path, [base, ours, theirs], table)
            or git_changes.merge_lines(base or b"", ours or b"", theirs or b"", self.contents.root) == (held, True)
            for base in bases
        )


def merge_sides(sides: Sides, rules: RulesByTable, *, is_base: bool = False) -> MergedTrees:
    """Merge three versions; paths that all have alike are left out. With `is_base` as `merge_table` does."""
    parts: dict[str, bytes | None] = {}
    conflicts: list[tuple[Key, RecordConflict]] = []
    by_lines: dict[str, bool] = {}
    for key, paths in sorted(_differing(sides).items()):
        sides.contents.read(blob for tree in sides.trees for path in paths if (blob := tree.get(path)))
        whole = {path: sides.of(path) for path in paths}
        versions = [{path: data for path in paths if (data := whole[path][n]) is not None} for n in range(3)]
        merged = _merge(versions, rules.of(key), is_base, by_lines)
        parts |= merged.parts
        conflicts += [(key, one) for one in merged.conflicts]
    for path in by_lines:
        parts[path], by_lines[path] = _as_lines(path, sides)
    return MergedTrees(parts, tuple(conflicts), by_lines)


def _differing(sides: Sides) -> dict[Key, list[str]]:
    """The parts that the versions do not have alike, by table."""
    tables: defaultdict[Key, list[str]] = defaultdict(list)
    for path in sorted({path for tree in sides.trees for path in tree}):
        key = table_of(path)
        if key is not None and len({tree.get(path) for tree in sides.trees}) > 1:
            tables[key].append(path)
    return tables


def _merge(versions: list[dict[str, bytes]], table: MergeRules, is_base: bool, by_lines: dict[str, bool]) -> TableMerge:
    """The keyed merge; parts that it cannot read are taken out and noted."""
    while True:
        try:
            return merge_table(versions[0], versions[1], versions[2], table, is_base=is_base)
        except Unmergeable as error:
            by_lines[error.path] = True
            for files in versions:
                files.pop(error.path, None)


def _as_lines(path: str, sides: Sides) -> tuple[bytes | None, bool]:
    """The merge of lines; a part that one side deleted and the other changed stays, and counts as unresolved."""
    base, ours, theirs = sides.of(path)
    if ours == theirs or theirs == base:
        return ours, True
    if ours == base:
        return theirs, True
    if ours is None or theirs is None:
        return ours if ours is not None else theirs, False
    return git_changes.merge_lines(base or b"", ours, theirs, sides.contents.root)


def holding(held: bytes | None) -> bytes | None:
    """What a part holds; None where that is nothing, as a driver leaves it that cannot remove the file."""
    return None if held is None or not held.strip() else held


def alone(path: str, versions: Iterable[bytes | None], table: MergeRules) -> bytes | None:
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
        merged = merge_sides(Sides(older, found, theirs, contents), rules, is_base=True)
        paths = {**found, **theirs}
        kept = {path: found.get(path) or theirs[path] for path in paths if path not in merged.parts}
        made = {path: contents.add(data) for path, data in merged.parts.items() if data is not None}
        found = {**kept, **made}
    return found


def _heads(root: Path) -> Mapping[str, str]:
    """What git's files say is being merged into HEAD."""
    repository = run.find_repository(root)
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
    return bool(index.unmerged) and all(
        tree.get(path) == (stages[number].blob if number in stages else None)
        for path, stages in index.unmerged.items()
        for number, tree in enumerate(sides.trees, 1)
    )
