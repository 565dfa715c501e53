"""fmt, dedupe and compact: writes that mend files and change no record."""

from collections.abc import Sequence
from datetime import date, timedelta

from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.write import commit, patch_of, settled
from duckkb.errors import Refused
from duckkb.queries import Receipt
from duckkb.records import Change, Changeset
from duckkb.truth.files import render
from duckkb.truth.files.compact import compacted
from duckkb.truth.files.render import RenderedPart
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import git_changes, places


def fmt(base: Base, check_only: bool) -> Receipt:
    """Rewrite every part that is not canonical, sorted and complete; raises `errors.Unreadable` where one cannot be read."""
    if check_only:
        refuse_unreadable(base.tree)
        return _receipt(render.fmt_parts(base.tree))
    with settled(base):
        parts = render.fmt_parts(base.tree)
        commit(base, parts)
    return _receipt(parts)


def dedupe(base: Base, reassign: bool, dry_run: bool) -> Receipt:
    """Write each record that stands twice once, merged, at the place of its first line; with `reassign`, give the later
    of two records that share an id a free one."""
    with settled(base):
        mended = _doubled(base.tree) + (_reassigned(base.tree) if reassign else [])
        parts = render.render(base.tree, Changeset(tuple(mended)), render.Writer())
        said = patch_of(base, parts) if dry_run else ""
        if not dry_run:
            commit(base, parts)
    return _receipt(parts, dry_run, said)


def compact(base: Base, older_than: int, dry_run: bool) -> Receipt:
    """Join the small parts of days that lie at least `older_than` days back. Raises `errors.Refused` where a branch that is
    not merged has changed one of them: there every record would have to be looked for elsewhere."""
    with settled(base):
        today = date.fromisoformat(base.wiring.clock.now()[:10])
        days = timedelta(days=min(older_than, today.toordinal()) - 1)  # no calendar goes back beyond the year 1
        parts = compacted(base.tree, (today - days).isoformat().replace("-", ""), render.Writer())
        if parts and places.find_repository(base.root) is not None:
            _refuse_touched(git_changes.touched_elsewhere(base.root, [part.path for part in parts]))
        said = patch_of(base, parts) if dry_run else ""
        if not dry_run:
            commit(base, parts)
    return _receipt(parts, dry_run, said)


def _refuse_touched(found: Sequence[tuple[str, str]]) -> None:
    if found:
        path, branch = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise Refused(
            f"{branch.removeprefix('refs/').removeprefix('heads/')} has changed {path}{more}",
            suggestion="merge that branch first, or delete it",
        )


def _doubled(tree: Tree) -> list[Change]:
    """Rendering a record that stands in several lines leaves one: the record as it was read, merged."""
    rows = (tree.get(kind, identity) for kind in tree.ontology for identity in tree.duplicates(kind))
    return [Change(row.record, row.record) for row in rows if row is not None]


def _reassigned(tree: Tree) -> list[Change]:
    """In memory the later of two records with one id has a free one already; writing it keeps that."""
    changes = []
    for kind in tree.ontology:
        doubled = tree.duplicates(kind)
        for rows in tree.id_clashes(kind).values():
            known = (tree.get(kind, row.record.identity) for row in rows[1:] if row.record.identity not in doubled)
            changes += [Change(row.record, row.record) for row in known if row is not None]
    return changes


def _receipt(parts: Sequence[RenderedPart], dry_run: bool = False, patch: str = "") -> Receipt:
    return Receipt(files=tuple(part.path for part in parts), dry_run=dry_run, patch=patch)
