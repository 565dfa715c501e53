"""Tables that one side of a merge renamed, as a collection that has another name: the other side's records go where theirs went."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from duckkb.truth.layout import parse_part, part_path
from duckkb.truth.merge.merge_rules import Key
from duckkb.truth.merge.table_merge import table_of
from duckkb.values import dataclass, field

Tree = Mapping[str, str]
"""The ids of blobs by path."""
Trees = tuple[Tree, Tree, Tree]
"""Those of the base, of ours and of theirs."""
ReadBlobs = Callable[[Iterable[str]], Iterable[bytes]]

_ID = re.compile(rb'^\{"__id":([0-9]+)[,}]', re.MULTILINE)
_LEAST_SHARE = 0.5  # of a table's records, as git has it of a file's content


@dataclass(frozen=True, slots=True)
class AlignedTrees:
    """Three trees in which each table has one name, and the former name of each that was renamed."""

    trees: Trees
    former: Mapping[Key, Key] = field(default_factory=dict)


def align(trees: Trees, read: ReadBlobs) -> AlignedTrees:
    """Give a table in all three trees the name that a side gave it: ours, where both renamed it. One whose new name another
    table of the other side has stays as it is."""
    base, ours, theirs = trees
    by_us, by_them = _renames(base, ours, read), _renames(base, theirs, read)
    if not (by_us or by_them):
        return AlignedTrees(trees)
    names = {}
    for old, new in {**by_them, **by_us}.items():
        other, others = (theirs, by_them) if old in by_us else (ours, by_us)
        if others.get(old) == new or new not in _paths_by_table(other):
            names[old] = new
    again = {by_them[old]: new for old, new in names.items() if old in by_them}
    moved = (_moved(base, names), _moved(ours, names), _moved(theirs, names | again))
    return AlignedTrees(moved, {new: old for old, new in names.items()})


def _renames(base: Tree, side: Tree, read: ReadBlobs) -> dict[Key, Key]:
    """The new names of tables of the base that a side has no part of, by the ids of their records in its new tables."""
    before, after = _paths_by_table(base), _paths_by_table(side)
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    if not (gone and new):
        return {}
    tables: dict[bytes, Key] = {}
    for key in sorted(new):
        tables |= dict.fromkeys(_ids(side, after[key], read), key)
    renames: dict[Key, Key] = {}
    for key in sorted(gone):
        ids = _ids(base, before[key], read)
        places = Counter(tables[one] for one in ids if one in tables and tables[one][0] == key[0])
        for table, count in places.most_common(1):
            if count >= _LEAST_SHARE * len(ids):
                renames[key] = table
    targets = Counter(renames.values())
    return {old: new for old, new in renames.items() if targets[new] == 1}  # of joined tables parts would collide


def _paths_by_table(tree: Tree) -> dict[Key, list[str]]:
    tables: defaultdict[Key, list[str]] = defaultdict(list)
    for path in tree:
        if (key := table_of(path)) is not None:
            tables[key].append(path)
    return tables


def _ids(tree: Tree, paths: Iterable[str], read: ReadBlobs) -> set[bytes]:
    return {one for data in read(tree[path] for path in paths) for one in _ID.findall(data)}


def _moved(tree: Tree, names: Mapping[Key, Key]) -> Tree:
    moved = {}
    for path, blob in tree.items():
        address = parse_part(path)
        if address and (name := names.get((address.kind, address.table))):
            path = part_path(address.kind, name[1], address.day, address.number)
        moved[path] = blob
    return moved
