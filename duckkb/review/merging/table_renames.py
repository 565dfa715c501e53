"""Tables that one side of a merge renamed, such as a renamed collection: the other side's records follow.

Renames are found by the ids of records, or by the definition of the type where the table has no records on a side.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher

from msgspec import Struct

from duckkb.ontology.load import load
from duckkb.ontology.source import read_yaml
from duckkb.review.diff.versions import is_configuration
from duckkb.truth.layout import parse_part, part_path
from duckkb.truth.merge.merge_rules import Key
from duckkb.truth.merge.table_merge import table_of

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
