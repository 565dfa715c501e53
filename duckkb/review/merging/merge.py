"""`duckkb merge`: git merges, then parts merged by records replace what git made of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine.boot import refuse_tracked_state
from duckkb.errors import Refused, StateError
from duckkb.review.merging import sides as versions
from duckkb.review.merging import work
from duckkb.review.merging.conflicts import OpenConflict, open_in
from duckkb.review.merging.sides import MergedTrees, Sides, merge_sides
from duckkb.review.merging.work import refuse_fast_forward, refuse_loss, refuse_unsaved
from duckkb.settings import Shrink
from duckkb.truth.commit import protocol
from duckkb.truth.git import absent, begun_merge, git_changes, repository, revisions
from duckkb.truth.merge.merge_rules import RulesByTable

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
    absent.refuse_sparse_paths(root)
    theirs = _commit(root, name)
    with protocol.lock_for_writing(root, options.timeout):
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
    with protocol.lock_for_writing(root, options.timeout):
        if repository.operation_in_progress(root) != "merge":
            raise Refused("the merge was concluded or taken back meanwhile", suggestion="git status")
        git_changes.conclude(root, options.message)
        return replace(outcome, action="merged", commit=_commit(root, "HEAD"))


def abort(root: Path, timeout: float) -> Outcome:
    """Restore the state before the merge. Raises `errors.Refused` where none is under way."""
    refuse_tracked_state(root)
    with protocol.lock_for_writing(root, timeout):
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
    with begun_merge.note_merge(root, _commit(root, name)):
        git_changes.begin_merge(root, name, options.message)
    put(root, merged_trees, sides)
    return changed_paths


def put(root: Path, merged: MergedTrees, sides: Sides) -> None:
    """Replace what git made of the parts by the merged parts, in files and index."""
    work.write(root, merged.parts, {path: work.read_part_on_disk(root, path) for path in merged.parts})
    conflict_paths = {record_conflict.path for _, record_conflict in merged.conflicts} | {
        path for path, is_clean in merged.by_lines.items() if not is_clean
    }
    work.stage(root, {path: data for path, data in merged.parts.items() if path not in conflict_paths})
    work.mark(root, sorted(conflict_paths), sides)
    git_changes.refresh(root)


def _advance_head(root: Path, head: str, theirs: str) -> Outcome:
    with begun_merge.note_merge(root, theirs):
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
    begun_merge.refuse_begun_merge(root)
    under_way = repository.operation_in_progress(root)
    if under_way:
        raise Refused(
            f"a {under_way} is already in progress",
            code="E_MERGE_IN_PROGRESS",
            suggestion=f"`duckkb resolve`, then conclude it; or `git {under_way} --abort`",
        )
