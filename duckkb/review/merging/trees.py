"""Three versions of all parts as one: table by table, over all files in which the versions differ."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from duckkb.truth.git import git_changes, revisions
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


def merge_trees(
    base: Tree, ours: Tree, theirs: Tree, contents: Contents, rules: RulesByTable, *, is_base: bool = False
) -> MergedTrees:
    """Merge the parts of two trees and their base; paths that all have alike are left out."""
    tables: defaultdict[Key, list[str]] = defaultdict(list)
    for path in sorted({*base, *ours, *theirs}):
        key = table_of(path)
        if key is not None and not base.get(path) == ours.get(path) == theirs.get(path):
            tables[key].append(path)
    parts: dict[str, bytes | None] = {}
    conflicts: list[tuple[Key, RecordConflict]] = []
    by_lines: dict[str, bool] = {}
    for key, paths in sorted(tables.items()):
        contents.read(one for side in (base, ours, theirs) for path in paths if (one := side.get(path)))
        versions = [
            {path: data for path in paths if (data := contents.of(side.get(path))) is not None}
            for side in (base, ours, theirs)
        ]
        merged = _merge(versions, key, rules, is_base, by_lines)
        parts |= merged.parts
        conflicts += [(key, one) for one in merged.conflicts]
    for path in by_lines:
        parts[path], by_lines[path] = _as_lines(path, (base, ours, theirs), contents)
    return MergedTrees(parts, tuple(conflicts), by_lines)


def _merge(
    versions: list[dict[str, bytes]], key: Key, rules: RulesByTable, is_base: bool, by_lines: dict[str, bool]
) -> TableMerge:
    """The keyed merge; parts that it cannot read are taken out and noted."""
    while True:
        try:
            return merge_table(versions[0], versions[1], versions[2], rules.of(key), is_base=is_base)
        except Unmergeable as error:
            by_lines[error.path] = True
            for files in versions:
                files.pop(error.path, None)


def _as_lines(path: str, trees: tuple[Tree, Tree, Tree], contents: Contents) -> tuple[bytes | None, bool]:
    """The merge of lines; a part that one side deleted and the other changed stays, and counts as unresolved."""
    base, ours, theirs = (contents.of(side.get(path)) for side in trees)
    if ours == theirs or theirs == base:
        return ours, True
    if ours == base:
        return theirs, True
    if ours is None or theirs is None:
        return ours if ours is not None else theirs, False
    return git_changes.merge_lines(base or b"", ours, theirs, contents.root)
