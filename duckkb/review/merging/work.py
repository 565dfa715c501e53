"""Writes merged parts to files and git's index, and checks how many records a merge deletes.

The caller holds the exclusive lock. The limit for deletions is that of every write.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from duckkb.errors import Refused
from duckkb.review.merging.sides import Contents, Sides, tree
from duckkb.review.merging.table_renames import Tree
from duckkb.rules.integrity import refuse_mass_deletion
from duckkb.settings import Shrink
from duckkb.truth.commit import journal, protocol
from duckkb.truth.git import git_changes, revisions
from duckkb.truth.git.revisions import TreeEntry
from duckkb.truth.merge.conflict import Block
from duckkb.truth.merge.merge_rules import Key, RulesByTable
from duckkb.truth.merge.table_merge import identity_of, table_of

_LINE = re.compile(rb'^\{(?:"__id":([0-9]+)[,}])?', re.MULTILINE)


def read_part_on_disk(root: Path, path: str) -> bytes | None:
    """Read a part from disk; None where there is none.

    Raises `errors.StateError` for anything but a regular file.
    """
    target = journal.read_target(root, path)
    return None if target is None else target[0]


def write(root: Path, parts: Mapping[str, bytes | None], before: Mapping[str, bytes | None]) -> None:
    """Replace files, all or none; `before` has the known content of each. Raises as `protocol.commit` does."""
    changes = [
        protocol.FileChange(path, None if (old := before[path]) is None else journal.digest(old), data)
        for path, data in sorted(parts.items())
        if data != before[path]
    ]
    if changes:
        protocol.commit(root, changes)


def stage(root: Path, parts: Mapping[str, bytes | None]) -> None:
    """Add files to the index as they are on disk, without conflict."""
    blob_ids = git_changes.store_files(root, [path for path, data in sorted(parts.items()) if data is not None])
    git_changes.put_index(root, {path: {0: blob_ids[path]} if path in blob_ids else {} for path in parts})


def mark(root: Path, paths: Iterable[str], sides: Sides) -> None:
    """Put the three versions of paths in conflict into the index, as git does."""
    entries = {}
    for path in paths:
        blobs = {number: tree.get(path) for number, tree in enumerate(sides.trees, 1)}
        entries[path] = {
            number: TreeEntry("100644", _store_blob(root, blob, sides.contents))
            for number, blob in blobs.items()
            if blob
        }
    git_changes.put_index(root, entries)


def _store_blob(root: Path, blob: str, contents: Contents) -> str:
    """Return a blob's id in the repository; store the merge of several bases, which was made here."""
    if not blob.startswith("made-"):
        return blob
    return git_changes.store_bytes(root, contents.get(blob) or b"")


def refuse_loss(
    ours: Tree, after: Mapping[str, bytes | None], contents: Contents, rules: RulesByTable, limit: Shrink | None
) -> None:
    """Raise `errors.Refused` (E_SHRINK) where too many of our records are in no part of `after`.

    `after` has, by path, all parts that differ from ours. A limit of None allows everything.
    """
    if limit is None:
        return
    contents.read(blob for path in after if (blob := ours.get(path)))
    had: defaultdict[Key, list[bytes]] = defaultdict(list)
    for path in after:
        if (key := table_of(path)) is not None:
            had[key] += _parse_ids(contents.get(ours.get(path)))
    has = Counter(record_id for data in after.values() for record_id in _parse_ids(data))
    # A hand-written line has no __id until `fmt` gives it one, so a new line may be that record.
    unnamed_count = has[b""] + len(has.keys() - {record_id for some in had.values() for record_id in some})
    lost_counts = {
        key: len({*some} - has.keys() - {b""}) + max(0, some.count(b"") - unnamed_count) for key, some in had.items()
    }
    many = {key: count for key, count in lost_counts.items() if count > limit.records}
    refuse_mass_deletion(
        {rules.get_rules(key).name: (count, _total(key, ours, contents)) for key, count in many.items()}, limit
    )


def refuse_fast_forward(root: Path, head: str, theirs: str, rules: RulesByTable, limit: Shrink | None) -> None:
    """Raise as `refuse_loss` and `refuse_unsaved` do, for a commit that replaces another as it is."""
    contents, ours, new = Contents(root), tree(root, head), tree(root, theirs)
    different = [path for path in {**ours, **new} if table_of(path) is not None and ours.get(path) != new.get(path)]
    contents.read(blob for path in different if (blob := new.get(path)))
    parts = {path: contents.get(new.get(path)) for path in different}
    refuse_loss(ours, parts, contents, rules, limit)
    refuse_unsaved(root, ours, parts, contents, rules)


def refuse_unsaved(
    root: Path, ours: Tree, after: Mapping[str, bytes | None], contents: Contents, rules: RulesByTable
) -> None:
    """Raise `errors.Refused` where a merge meets what is not committed: it would overwrite a part, or double a record.

    `after` has, by path, all parts that the merge changes.
    """
    staged_paths = {file.path for file in revisions.compare_index(root, revisions.revision(root, "HEAD"))}
    contents.read(blob for path in after if (blob := ours.get(path)))
    ids = {record_id for data in after.values() for record_id in _parse_ids(data)} - {b""}
    overwritten_paths, names = [], []
    for path in sorted(staged_paths | {*revisions.list_unsaved(root)}):
        if path in after:
            is_new = path in staged_paths or read_part_on_disk(root, path) != contents.get(ours.get(path))
            overwritten_paths += [path] if is_new else []
        elif key := table_of(path):
            table, data = rules.get_rules(key), read_part_on_disk(root, path) or b""
            lines = [line for line in data.splitlines() if {*_parse_ids(line)} & ids]
            names += [f"{table.name} {identity_of(Block(None, line, line), table)}" for line in lines]
    for some, verb in ((overwritten_paths, "would overwrite changes"), (names, "brings records")):
        if some:
            listing = ", ".join(some[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
            message = f"the merge {verb} that are here and not committed: {listing}; commit or stash them first"
            raise Refused(message, suggestion="git add -A && git commit -m 'records of mine'")


def _parse_ids(data: bytes | None) -> list[bytes]:
    """Return the records of a part by `__id`, empty where a line has none yet."""
    return [match[1] or b"" for match in _LINE.finditer(data or b"")]


def _total(key: Key, ours: Tree, contents: Contents) -> int:
    paths = [path for path in ours if table_of(path) == key]
    contents.read(ours[path] for path in paths)
    return sum((contents.get(ours[path]) or b"").count(b"\n") for path in paths)
