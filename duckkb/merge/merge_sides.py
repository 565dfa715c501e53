"""The three versions of a merge: the blobs of the parts in the base, in ours and in theirs; and their merge.

They are merged table by table, over all files in which the versions differ.

Tables that one side of a merge renamed, such as a renamed collection: the other side's records follow.

Renames are found by the ids of records, or by the definition of the type where the table has no records on a side."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from duckkb.ontology.ontology_files import load
from duckkb.ontology.yaml_source import read_yaml
from duckkb.review.compared_versions import CONFIGURATION, is_configuration
from duckkb.storage import git_changes, git_process, revisions
from duckkb.storage.field_merge import MergeRules
from duckkb.storage.git_changes import Index
from duckkb.storage.layout import parse_part, part_path
from duckkb.storage.merge_rules import Key, RulesByTable
from duckkb.storage.revisions import Revision
from duckkb.storage.table_merge import RecordConflict, TableMerge, Unmergeable, merge_table, table_of

Tree = Mapping[str, str]
"""The ids of blobs by path: of parts, and of the files that define their types."""
Trees = tuple[Tree, Tree, Tree]
"""The trees of the base, of ours and of theirs."""
ReadBlobs = Callable[[Iterable[str]], Iterable[bytes]]

_ID = re.compile(rb'^\{"__id":([0-9]+)[,}]', re.MULTILINE)
_LEAST_SHARE = 0.5  # of a table's records, or of its type's definition, as git has it of a file's content
_SECTIONS = ("nodes", "edges", "collections")
_PLACES = ("table", "label")


class AlignedTrees(Struct, frozen=True):
    """Three trees with one name for each table, and the former names of renamed tables."""

    trees: Trees
    former: Mapping[Key, Key] = {}


def align(trees: Trees, read: ReadBlobs) -> AlignedTrees:
    """Give each table one name in all three trees: the name that a side gave it; ours, where both renamed it.

    A table keeps its name where the new one belongs to another table of the other side.
    """
    base, ours, theirs = trees
    by_us, by_them = _find_renames(base, ours, read), _find_renames(base, theirs, read)
    if not (by_us or by_them):
        return AlignedTrees(trees)
    names = {}
    for old, new in {**by_them, **by_us}.items():
        other_tree, other_renames = (theirs, by_them) if old in by_us else (ours, by_us)
        if other_renames.get(old) == new or new not in _group_paths(other_tree):
            names[old] = new
    again = {by_them[old]: new for old, new in names.items() if old in by_them}
    aligned_trees = (_move_parts(base, names), _move_parts(ours, names), _move_parts(theirs, names | again))
    return AlignedTrees(aligned_trees, {new: old for old, new in names.items()})


def _find_renames(base: Tree, side: Tree, read: ReadBlobs) -> dict[Key, Key]:
    """Return the new names of tables of the base that a side lacks.

    They are found by the ids of their records in new tables, and by their types where the base or the side has
    no records.
    """
    before, after = _group_paths(base), _group_paths(side)
    removed_keys, new = before.keys() - after.keys(), after.keys() - before.keys()
    renames = _match_records(
        base, side, {key: before[key] for key in removed_keys}, {key: after[key] for key in new}, read
    )
    for old, key in _match_types(base, side, read).items():
        if old not in after and (old not in before or key not in after):
            renames.setdefault(old, key)
    targets = Counter(renames.values())
    return {old: new for old, new in renames.items() if targets[new] == 1}  # parts of joined tables would collide


def _match_records(
    base: Tree, side: Tree, removed_tables: Mapping[Key, list[str]], new: Mapping[Key, list[str]], read: ReadBlobs
) -> dict[Key, Key]:
    if not (removed_tables and new):
        return {}
    tables: dict[bytes, Key] = {}
    for key in sorted(new):
        tables |= dict.fromkeys(_read_ids(side, new[key], read), key)
    renames: dict[Key, Key] = {}
    for key in sorted(removed_tables):
        ids = _read_ids(base, removed_tables[key], read)
        places = Counter(
            tables[record_id] for record_id in ids if record_id in tables and tables[record_id][0] == key[0]
        )
        for table, count in places.most_common(1):
            if count >= _LEAST_SHARE * len(ids):
                renames[key] = table
    return renames


def _match_types(base: Tree, side: Tree, read: ReadBlobs) -> dict[Key, Key]:
    """Return the new tables of types that a side defines with another table, or under another name.

    A type under another name is the new type with the most similar definition, if no other is as similar.
    """
    files, side_files = ({path: tree[path] for path in tree if is_configuration(path)} for tree in (base, side))
    if files == side_files:
        return {}
    before, after = _load_definitions(files, read), _load_definitions(side_files, read)
    renames = {}
    for old in before.keys() - after.keys():
        name, lines = before[old]
        shares = {}
        for key in (key for key in after.keys() - before.keys() if key[0] == old[0]):
            is_same = after[key][0] == name
            shares[key] = 2.0 if is_same else SequenceMatcher(None, lines, after[key][1], autojunk=False).ratio()
        most = max(shares.values(), default=0.0)
        likest = [key for key, share in shares.items() if share == most]
        if most >= _LEAST_SHARE and len(likest) == 1:
            renames[old] = likest[0]
    return renames


def _load_definitions(files: Tree, read: ReadBlobs) -> dict[Key, tuple[str, list[str]]]:
    """Return the name of each table's type, and the lines of its definition without the table.

    Faults of these files are reported where they are loaded.
    """
    contents = read(files.values())
    documents = [read_yaml(data, path) for path, data in zip(files, contents, strict=True)]
    sections = [
        section for document in documents for name in _SECTIONS if isinstance(section := document.value.get(name), dict)
    ]
    declarations = {
        name: values for section in sections for name, values in section.items() if isinstance(values, dict)
    }
    definitions: dict[Key, tuple[str, list[str]]] = {}
    for kind in load(documents)[0]:
        values = {key: value for key, value in declarations.get(kind.name, {}).items() if key not in _PLACES}
        definitions[kind.kind, kind.table] = kind.name, json.dumps(values, indent=1, sort_keys=True).splitlines()
    return definitions


def _group_paths(tree: Tree) -> dict[Key, list[str]]:
    tables: defaultdict[Key, list[str]] = defaultdict(list)
    for path in tree:
        if (key := table_of(path)) is not None:
            tables[key].append(path)
    return tables


def _read_ids(tree: Tree, paths: Iterable[str], read: ReadBlobs) -> set[bytes]:
    return {record_id for data in read(tree[path] for path in paths) for record_id in _ID.findall(data)}


def _move_parts(tree: Tree, names: Mapping[Key, Key]) -> Tree:
    moved_tree = {}
    for path, blob in tree.items():
        address = parse_part(path)
        if address and (name := names.get((address.kind, address.table))):
            path = part_path(address.kind, name[1], address.day, address.number)
        moved_tree[path] = blob
    return moved_tree


class Contents:
    """The bytes of blobs: read from git once, or made here and stored nowhere else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._held: dict[str, bytes] = {}

    def read(self, ids: Iterable[str]) -> None:
        """Read several blobs at once."""
        missing = {name for name in ids if name not in self._held}
        self._held |= revisions.blobs(self.root, sorted(missing))

    def all_of(self, ids: Iterable[str]) -> list[bytes]:
        """Return the bytes of several blobs."""
        names = [*ids]
        self.read(names)
        return [self._held[name] for name in names]

    def get(self, one: str | None) -> bytes | None:
        if one is None:
            return None
        self.read([one])
        return self._held[one]

    def add(self, data: bytes) -> str:
        """Add bytes that git does not have; return their id."""
        name = f"made-{sha256(data).hexdigest()}"
        self._held[name] = data
        return name


class MergedTrees(Struct, frozen=True):
    """The merged parts in which the versions differ, and the records in conflict by table.

    None stands for a part that is deleted, or that has the new name of its table. Parts with a line that is no
    record were merged by lines, with whether that left markers.
    """

    parts: Mapping[str, bytes | None] = {}
    conflicts: tuple[tuple[Key, RecordConflict], ...] = ()
    by_lines: Mapping[str, bool] = {}


class Sides(Struct, frozen=True):
    """Three versions of the parts; `contents` has the bytes of their blobs.

    `older`: where several bases were merged into one, these and theirs, as git makes another base of them.
    `aligned` has the versions with one name for each table.
    """

    base: Tree
    ours: Tree
    theirs: Tree
    contents: Contents
    older: tuple[Tree, ...] = ()
    aligned: AlignedTrees | None = None

    @property
    def stored(self) -> Trees:
        return self.base, self.ours, self.theirs

    @property
    def trees(self) -> Trees:
        """The trees to merge: a part of a renamed table has its new path in all of them."""
        return self.aligned.trees if self.aligned else self.stored

    def rules(self, rules: RulesByTable) -> RulesByTable:
        """Return the rules, with those of renamed tables under their new names too."""
        return rules.rename_tables(self.aligned.former) if self.aligned else rules

    def read_versions(self, path: str) -> list[bytes | None]:
        """Return a part in the base, in ours and in theirs."""
        return [self.contents.get(tree.get(path)) for tree in self.trees]

    def is_gits(self, path: str, held: bytes | None, table: MergeRules) -> bool:
        """Return whether a part is what git makes of its versions without asking: one of them, or a merge of them."""
        versions = (self.contents.get(tree.get(path)) for tree in (*self.trees, *self.stored, *self.older))
        return held in versions or self.is_merged(path, held, table)

    def is_merged(self, path: str, held: bytes | None, table: MergeRules) -> bool:
        """Return whether a part is the merge of its versions by lines, or by the driver, which sees one part."""
        _, ours, theirs = self.read_versions(path)
        bases = {self.contents.get(side.get(path)) for side in (self.trees[0], *self.older)}
        return any(
            normalize_empty(held) in merge_by_driver_rules(path, [base, ours, theirs], table)
            or git_changes.merge_lines(base or b"", ours or b"", theirs or b"", self.contents.root) == (held, True)
            for base in bases
        )


def merge_sides(sides: Sides, rules: RulesByTable, *, is_base: bool = False) -> MergedTrees:
    """Merge three versions; paths that are stored alike in all of them are left out.

    `is_base` as in `merge_table`.
    """
    parts: dict[str, bytes | None] = {}
    conflicts: list[tuple[Key, RecordConflict]] = []
    by_lines: dict[str, bool] = {}
    rules = sides.rules(rules)
    for key, paths in sorted(_group_differing_parts(sides).items()):
        sides.contents.read(blob for tree in sides.trees for path in paths if (blob := tree.get(path)))
        whole = {path: sides.read_versions(path) for path in paths}
        versions = [{path: data for path in paths if (data := whole[path][n]) is not None} for n in range(3)]
        table_merge = _merge(versions, rules.get_rules(key), is_base, by_lines)
        parts |= table_merge.parts
        conflicts += [(key, record_conflict) for record_conflict in table_merge.conflicts]
    for path in by_lines:
        parts[path], by_lines[path] = _merge_lines(path, sides)
    former_paths = {path for tree in sides.stored for path in tree} - {path for tree in sides.trees for path in tree}
    parts |= dict.fromkeys(former_paths)
    return MergedTrees(parts, tuple(conflicts), by_lines)


def _group_differing_parts(sides: Sides) -> dict[Key, list[str]]:
    """Return the parts that differ between the versions, by table."""
    tables: defaultdict[Key, list[str]] = defaultdict(list)
    for path in sorted({path for tree in sides.trees for path in tree}):
        key = table_of(path)
        if key is not None and any(
            len({tree.get(path) for tree in trees}) > 1 for trees in (sides.trees, sides.stored)
        ):
            tables[key].append(path)
    return tables


def _merge(versions: list[dict[str, bytes]], table: MergeRules, is_base: bool, by_lines: dict[str, bool]) -> TableMerge:
    """Merge the versions of a table by key; take out and note the parts that cannot be read."""
    while True:
        try:
            return merge_table(versions[0], versions[1], versions[2], table, is_base=is_base)
        except Unmergeable as error:
            by_lines[error.path] = True
            for files in versions:
                files.pop(error.path, None)


def _merge_lines(path: str, sides: Sides) -> tuple[bytes | None, bool]:
    """Merge a part by lines; a part that one side deleted and the other changed stays, and counts as unresolved."""
    base, ours, theirs = sides.read_versions(path)
    if ours == theirs or theirs == base:
        return ours, True
    if ours == base:
        return theirs, True
    if ours is None or theirs is None:
        return ours if ours is not None else theirs, False
    return git_changes.merge_lines(base or b"", ours, theirs, sides.contents.root)


def normalize_empty(held: bytes | None) -> bytes | None:
    """Return the content of a part; None for an empty file, which a driver leaves that cannot remove it."""
    return None if held is None or not held.strip() else held


def merge_by_driver_rules(path: str, versions: Iterable[bytes | None], table: MergeRules) -> list[bytes | None]:
    """Return what git's driver may have made of one part: by its table's rules, and by none.

    A merge that brings the table's name has no rules yet. None stands for no records, and for what it cannot merge.
    """
    base, ours, theirs = ({path: data} if data is not None else {} for data in versions)
    outcomes = []
    for rules in (table, MergeRules(granularity="record", known=False)):
        try:
            outcomes.append(merge_table(base, ours, theirs, rules).parts.get(path))
        except Unmergeable:
            outcomes.append(None)
    return outcomes


def read_commit_sides(root: Path, ours: str, theirs: str, rules: RulesByTable) -> Sides:
    """Read two commits and their merge base; several bases are merged, as git does it."""
    contents = Contents(root)
    bases = git_changes.merge_bases(root, ours, theirs)
    base = _join_bases(root, bases, contents, rules)
    older: list[Tree] = [tree(root, commit) for commit in bases] if len(bases) > 1 else []
    for number, commit in enumerate(bases[1:], 1):
        older += [tree(root, before) for before in git_changes.merge_bases(root, commit, *bases[:number])]
    if older:
        older.append({})
    return read_tree_sides((base, tree(root, ours), tree(root, theirs)), contents, tuple(older))


def read_tree_sides(trees: Trees, contents: Contents, older: tuple[Tree, ...] = ()) -> Sides:
    """Return three trees as sides, with one name for each table."""
    return Sides(*trees, contents, older, align(trees, contents.all_of))


def tree(root: Path, commit: str) -> Tree:
    """Return the parts of a commit and the files that define their types, by path.

    `commit` is an id, or a name of git's own.
    """
    entries = revisions.entries(root, Revision(commit, commit, commit), (*git_changes.PARTS, *CONFIGURATION))
    return {path: entry.blob for path, entry in entries.items() if entry.mode in revisions.REGULAR}


def read_sides_under_way(root: Path, index: Index, rules: RulesByTable) -> Sides | None:
    """Read what git is merging: for a merge, a pick, a revert, a rebase or a stash.

    None where that is uncertain, and only the index says what is merged.
    """
    heads = _read_heads(root)
    if (theirs := heads.get("MERGE_HEAD")) is not None:
        return read_commit_sides(root, "HEAD", theirs, rules) if "\n" not in theirs else None
    contents = Contents(root)
    for base, commit in _iter_pairs(root, heads):
        sides = read_tree_sides((tree(root, base), tree(root, "HEAD"), tree(root, commit)), contents)
        if _has_same_versions(sides, index):
            return sides
    return None


def read_staged_sides(root: Path, index: Index) -> Sides:
    """Read the index's versions of the paths in conflict, and nothing else."""
    trees = [
        {path: stages[number].blob for path, stages in index.unmerged.items() if number in stages}
        for number in (1, 2, 3)
    ]
    return Sides(trees[0], trees[1], trees[2], Contents(root))


def _join_bases(root: Path, bases: list[str], contents: Contents, rules: RulesByTable) -> Tree:
    """Merge several merge bases into one tree, each pair by their own base; conflicts stay as they were there."""
    if not bases:
        return {}
    joined_tree: Tree = tree(root, bases[0])
    for number, commit in enumerate(bases[1:], 1):
        older = _join_bases(root, git_changes.merge_bases(root, commit, *bases[:number]), contents, rules)
        theirs = tree(root, commit)
        merged_trees = merge_sides(read_tree_sides((older, joined_tree, theirs), contents), rules, is_base=True)
        paths = {**joined_tree, **theirs}
        kept_blobs = {path: joined_tree.get(path) or theirs[path] for path in paths if path not in merged_trees.parts}
        merged_blobs = {path: contents.add(data) for path, data in merged_trees.parts.items() if data is not None}
        joined_tree = {**kept_blobs, **merged_blobs}
    return joined_tree


def _read_heads(root: Path) -> Mapping[str, str]:
    """Return what is being merged into HEAD, by git's own files."""
    repository = git_process.find_repository(root)
    heads = {}
    for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"):
        path = repository.git_dir / name if repository else root / name
        if repository and path.is_file():
            heads[name] = path.read_text("ascii", "replace").strip()
    return heads


def _iter_pairs(root: Path, heads: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the possible pairs of base and theirs."""
    for name in ("CHERRY_PICK_HEAD", "REBASE_HEAD"):
        if name in heads:
            yield from ((parent, heads[name]) for parent in git_changes.parents(root, heads[name]))
    if "REVERT_HEAD" in heads:
        yield from ((heads["REVERT_HEAD"], parent) for parent in git_changes.parents(root, heads["REVERT_HEAD"]))
    if not heads and (stash := git_changes.parents(root, "refs/stash")):
        yield stash[0], "refs/stash"


def _has_same_versions(sides: Sides, index: Index) -> bool:
    """Return whether the index has these versions of the conflicts, even if git missed a table's rename."""
    return bool(index.unmerged) and all(
        [stages[number].blob if number in stages else None for number in (1, 2, 3)]
        in [[tree.get(path) for tree in trees] for trees in (sides.trees, sides.stored)]
        for path, stages in index.unmerged.items()
    )
