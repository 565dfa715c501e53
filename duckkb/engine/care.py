"""fmt and dedupe: writes that mend files and change no record."""

from collections.abc import Sequence

from duckkb.engine import boot, guard
from duckkb.engine.base import Base
from duckkb.engine.write import commit, patch
from duckkb.queries import Receipt
from duckkb.truth import lock, render, shadow
from duckkb.truth.render import RenderedPart


def fmt(base: Base, check_only: bool) -> Receipt:
    """Rewrite every part that is not canonical, sorted and complete; raises `errors.Unreadable` where one cannot be read."""
    if check_only:
        guard.settle_reading(base)
        return _receipt(render.fmt_parts(base.tree))
    with lock.exclusive(base.root, base.wiring.lock_timeout):
        shadow.recover(base.root)
        boot.sync(base)
        guard.settle(base)
        parts = render.fmt_parts(base.tree)
        commit(base, parts)
    return _receipt(parts)


def dedupe(base: Base, reassign: bool, dry_run: bool) -> Receipt:
    """Write each record that stands twice once, merged, in the file that had it first; with `reassign`, give the later
    of two records that share an id a free one."""
    with lock.exclusive(base.root, base.wiring.lock_timeout):
        shadow.recover(base.root)
        boot.sync(base)
        guard.settle(base)
        parts = render.dedupe_parts(base.tree, reassign=reassign)
        said = patch(base.root, parts) if dry_run else ""
        if not dry_run:
            commit(base, parts)
    return _receipt(parts, dry_run, said)


def _receipt(parts: Sequence[RenderedPart], dry_run: bool = False, patch: str = "") -> Receipt:
    return Receipt(files=tuple(part.path for part in parts), dry_run=dry_run, patch=patch)
