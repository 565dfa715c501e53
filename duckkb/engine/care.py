"""fmt, dedupe and compact: writes that repair files and change no record."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta

from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.write import commit, patch_of, writable
from duckkb.errors import Refused
from duckkb.queries import Receipt
from duckkb.records import Change, Changeset
from duckkb.truth.files import render
from duckkb.truth.files.render import RenderedPart
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import git_changes, run


def fmt(base: Base, *, check: bool = False) -> Receipt:
    """Rewrite every part that is not canonical, sorted and complete; raises `errors.Unreadable` where one cannot
    be read.
    """
    if check:
        refuse_unreadable(base.tree)
        return Receipt(files=tuple(part.path for part in render.fmt_parts(base.tree)))
    return _mend_parts(base, lambda: render.fmt_parts(base.tree))


def dedupe(base: Base, *, reassign: bool = False, dry_run: bool = False) -> Receipt:
    """Merge the lines of each duplicated record into one, at the place of its first line.

    With `reassign`, the later of two records that share an id gets a free id.
    """

    def mend_parts() -> list[RenderedPart]:
        changes = _merge_duplicates(base.tree) + (_reassign_ids(base.tree) if reassign else [])
        return render.render(base.tree, Changeset(tuple(changes)), render.Writer())

    return _mend_parts(base, mend_parts, dry_run)


def compact(base: Base, older_than: int, dry_run: bool) -> Receipt:
    """Join the small parts of days at least `older_than` days back.

    Raises `errors.Refused` where an unmerged branch has changed one of them: its records would have to be
    searched for elsewhere.
    """

    def join_parts() -> list[RenderedPart]:
        today = date.fromisoformat(base.wiring.clock.now()[:10])
        days = timedelta(days=min(older_than, today.toordinal()) - 1)  # dates begin at the year 1
        parts = render.compact_parts(base.tree, (today - days).isoformat().replace("-", ""), render.Writer())
        if parts and run.find_repository(base.root) is not None:
            _refuse_branch_changes(git_changes.find_changes_on_branches(base.root, [part.path for part in parts]))
        return parts

    return _mend_parts(base, join_parts, dry_run)


def _mend_parts(base: Base, mend: Callable[[], list[RenderedPart]], dry_run: bool = False) -> Receipt:
    """Write the parts that `mend` renders, under the exclusive lock."""
    with writable(base):
        parts = mend()
        patch = patch_of(base, parts) if dry_run else ""
        if not dry_run:
            commit(base, parts)
    return Receipt(files=tuple(part.path for part in parts), dry_run=dry_run, patch=patch)


def _refuse_branch_changes(conflicts: Sequence[tuple[str, str]]) -> None:
    if conflicts:
        path, branch = conflicts[0]
        more = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise Refused(
            f"{branch.removeprefix('refs/').removeprefix('heads/')} has changed {path}{more}",
            suggestion="merge that branch first, or delete it",
        )


def _merge_duplicates(tree: Tree) -> list[Change]:
    """Return a change for each record that stands in several lines.

    Rendering such a record leaves one line: the merged record, as it was read.
    """
    rows = (tree.get(kind, identity) for kind in tree.ontology for identity in tree.duplicates(kind))
    return [Change(row.record, row.record) for row in rows if row is not None]


def _reassign_ids(tree: Tree) -> list[Change]:
    """Return a change for each record whose id another record has.

    In memory the later of the two has a free id already; writing the record keeps that id.
    """
    changes = []
    for kind in tree.ontology:
        duplicates = tree.duplicates(kind)
        for rows in tree.id_clashes(kind).values():
            later_rows = (
                tree.get(kind, row.record.identity) for row in rows[1:] if row.record.identity not in duplicates
            )
            changes += [Change(row.record, row.record) for row in later_rows if row is not None]
    return changes
