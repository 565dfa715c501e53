"""`duckkb merge`: git merges, then parts merged by records replace what git made of them.

Writes merged parts to files and git's index, and checks how many records a merge deletes.

The caller holds the exclusive lock. The limit for deletions is that of every write."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine.boot import refuse_tracked_state
from duckkb.engine.integrity import refuse_mass_deletion
from duckkb.merge import merge_sides as versions
from duckkb.merge.merge_conflicts import OpenConflict, open_in
from duckkb.merge.merge_sides import Contents, MergedTrees, Sides, Tree, merge_sides, tree
from duckkb.storage import commit_protocol, git_changes, git_facts, journal, repository, revisions
from duckkb.storage.merge_rules import Block, Key, RulesByTable
from duckkb.storage.revisions import TreeEntry
from duckkb.storage.table_merge import identity_of, table_of
from duckkb.types.errors import Refused, StateError
from duckkb.types.settings import Shrink

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
        commit_protocol.FileChange(path, None if (old := before[path]) is None else journal.digest(old), data)
        for path, data in sorted(parts.items())
        if data != before[path]
    ]
    if changes:
        commit_protocol.commit(root, changes)


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


Action = Literal["up-to-date", "fast-forward", "merged", "stopped", "aborted"]


class MergeOptions(Struct, frozen=True):
    """The options of a merge.

    `fast_forward`: only, never, or where it can be done (None). `commit` concludes a merge without conflict;
    `timeout` is how long to wait for the lock, in seconds; `shrink` limits how many records may be deleted
    (None: no limit).
    """

    fast_forward: Literal["only", "never"] | None = None
    commit: bool = True
    message: str | None = None
    timeout: float = 60.0
    shrink: Shrink | None = None


class Outcome(Struct, frozen=True):
    """The result of a merge.

    It has the commit of HEAD afterwards, the records in conflict, the other paths in conflict (from the top of
    the work tree), and the parts that changed.
    """

    action: Action
    commit: str
    conflicts: tuple[OpenConflict, ...] = ()
    others: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def can_conclude(self) -> bool:
        """Return whether the merge is uncommitted and has no conflict."""
        return self.action == "stopped" and not (self.conflicts or self.others)


def merge(root: Path, name: str, read_rules: Callable[[], RulesByTable], options: MergeOptions) -> Outcome:
    """Merge a revision into what is checked out; `conclude` commits it.

    `read_rules` reads the rules of the present files. Raises `errors.StateError` (E_REVISION,
    E_MERGE_IN_PROGRESS) and `errors.Refused` (E_SHRINK too) before anything has begun, `errors.Unavailable`
    (E_GIT, E_LOCKED).
    """
    rules = read_rules()
    refuse_tracked_state(root)
    git_facts.refuse_sparse_paths(root)
    theirs = _commit(root, name)
    with commit_protocol.lock_for_writing(root, options.timeout):
        _refuse_under_way(root)
        head = _commit(root, "HEAD")
        bases = git_changes.merge_bases(root, head, theirs)
        if theirs in bases:
            return Outcome("up-to-date", head)
        if head in bases and options.fast_forward != "never":
            refuse_fast_forward(root, head, theirs, rules, options.shrink)
            return _advance_head(root, head, theirs)
        if options.fast_forward == "only":
            raise Refused(
                f"HEAD cannot fast-forward to {name}",
                suggestion=f"duckkb merge {name}",
            )
        if not bases:
            raise StateError(
                f"{name} and HEAD have no commit in common here", code="E_REVISION", suggestion="git fetch --unshallow"
            )
        sides = versions.read_commit_sides(root, head, theirs, rules)
        merged_trees = merge_sides(sides, rules)
        changed_paths = _join(root, name, merged_trees, sides, rules, options)
        # Conflicts get the names of the merged types: theirs may have renamed one.
        new_rules = sides.rules(read_rules()) if merged_trees.conflicts else rules
        conflicts = [
            open_conflict
            for key, record_conflict in merged_trees.conflicts
            for open_conflict in open_in(record_conflict.block, new_rules.get_rules(key), record_conflict.path)
        ]
        other_paths = git_changes.read_index(root).others
        other_paths += tuple(path for path, is_clean in merged_trees.by_lines.items() if not is_clean)
        return Outcome("stopped", head, tuple(conflicts), other_paths, tuple(sorted(changed_paths)))


def conclude(root: Path, outcome: Outcome, options: MergeOptions) -> Outcome:
    """Commit a merge without conflicts.

    Raises `errors.Refused` where somebody has committed or aborted it meanwhile.
    """
    with commit_protocol.lock_for_writing(root, options.timeout):
        if repository.operation_in_progress(root) != "merge":
            raise Refused("the merge was concluded or taken back meanwhile", suggestion="git status")
        git_changes.conclude(root, options.message)
        return replace(outcome, action="merged", commit=_commit(root, "HEAD"))


def abort(root: Path, timeout: float) -> Outcome:
    """Restore the state before the merge. Raises `errors.Refused` where none is under way."""
    refuse_tracked_state(root)
    with commit_protocol.lock_for_writing(root, timeout):
        if repository.operation_in_progress(root) != "merge":
            raise Refused("no merge is under way", suggestion="git status")
        git_changes.abort_merge(root)
        return Outcome("aborted", _commit(root, "HEAD"))


def _join(
    root: Path, name: str, merged_trees: MergedTrees, sides: Sides, rules: RulesByTable, options: MergeOptions
) -> set[str]:
    """Begin git's merge, and replace its parts with the merged ones; return the paths of those that changed."""
    changed_paths = {
        path for path, data in merged_trees.parts.items() if data != sides.contents.get(sides.ours.get(path))
    }
    refuse_loss(sides.ours, merged_trees.parts, sides.contents, rules, options.shrink)
    changed_parts = {path: merged_trees.parts[path] for path in changed_paths}
    refuse_unsaved(root, sides.ours, changed_parts, sides.contents, rules)
    with git_changes.note_merge(root, _commit(root, name)):
        git_changes.begin_merge(root, name, options.message)
    put(root, merged_trees, sides)
    return changed_paths


def put(root: Path, merged: MergedTrees, sides: Sides) -> None:
    """Replace what git made of the parts by the merged parts, in files and index."""
    write(root, merged.parts, {path: read_part_on_disk(root, path) for path in merged.parts})
    conflict_paths = {record_conflict.path for _, record_conflict in merged.conflicts} | {
        path for path, is_clean in merged.by_lines.items() if not is_clean
    }
    stage(root, {path: data for path, data in merged.parts.items() if path not in conflict_paths})
    mark(root, sorted(conflict_paths), sides)
    git_changes.refresh(root)


def _advance_head(root: Path, head: str, theirs: str) -> Outcome:
    with git_changes.note_merge(root, theirs):
        git_changes.fast_forward(root, theirs)
    touched_files = revisions.compare_trees(root, revisions.revision(root, head), revisions.revision(root, theirs))
    return Outcome(
        "fast-forward", theirs, files=tuple(file.path for file in touched_files if file.path.startswith("data/"))
    )


def _commit(root: Path, name: str) -> str:
    revision = revisions.revision(root, name)
    if not revision.commit:
        raise StateError(f"{name} names no commit", code="E_REVISION", suggestion="git branch -a")
    return revision.commit


def _refuse_under_way(root: Path) -> None:
    git_changes.refuse_begun_merge(root)
    under_way = repository.operation_in_progress(root)
    if under_way:
        raise Refused(
            f"a {under_way} is already in progress",
            code="E_MERGE_IN_PROGRESS",
            suggestion=f"`duckkb resolve`, then conclude it; or `git {under_way} --abort`",
        )
