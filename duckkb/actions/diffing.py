"""Comparing two versions of a base, which may be broken, so without opening it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb import config
from duckkb.actions import comparing
from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.review.diff.configuration import Described, Files
from duckkb.review.diff.model import Diff, Numbers
from duckkb.review.diff.sides import parse_range
from duckkb.truth.files.line import Limits

if TYPE_CHECKING:
    from duckkb.errors import Finding
    from duckkb.review.check.findings import CheckReport


def diff(unopened: Unopened, wanted: comparing.DiffRequest) -> Diff:
    """As `app.diff`."""
    root = unopened.root
    return comparing.diff(root, wanted, configuration_files(root), unopened.matching)


def numbers(root: Path, range: str | None = None, *, staged: bool = False, worktree: bool = False) -> Numbers:
    """The difference in numbers, for a fraction of the time: no value is compared, and its findings are those of lines that
    cannot be read as they should. Raises as `diff` does."""
    wanted = parse_range(range, staged=staged, worktree=worktree)
    return comparing.numbers(root, wanted, configuration_files(root))


def check_change(
    unopened: Unopened,
    since: str | None,
    *,
    staged: bool,
    allow_weaker: bool = False,
    allow_shrink: bool = False,
) -> "CheckReport":
    """The findings that a change brings, or that are about its records: of the working tree (`staged`: the index) since it
    parted from a revision, or of a range BASE..HEAD or BASE...HEAD. Raises as `diff` does."""
    from duckkb.review.check.findings import CheckReport, in_order

    range = parse_range(since, staged=staged)
    if range.against != "commit" and since is not None:
        range = replace(range, since_parting=True)
    root = unopened.root
    found = comparing.diff(
        root,
        comparing.DiffRequest(range, whole=True, allow_weaker=allow_weaker, allow_shrink=allow_shrink),
        configuration_files(root),
    )
    more = _by_vector(unopened, found) if range.against == "worktree" else ()
    merged = () if staged else _merged(root, range.head or "HEAD", found)
    return CheckReport(in_order([*found.findings, *more, *merged]), len(found.changes), found.prefix)


def _merged(root: Path, head: str, found: Diff) -> "Sequence[Finding]":
    """What git made otherwise than a merge by records would, where the newest commit of the change is a merge, pick or
    revert."""
    from duckkb.actions.merging import rules_at
    from duckkb.review.merging import verify
    from duckkb.truth.git import revisions

    commit = revisions.revision(root, head).commit
    return verify.findings(root, rules_at(root), commit) if commit and commit != found.base.commit else ()


def _by_vector(unopened: Unopened, found: Diff) -> "tuple[Finding, ...]":
    """New records that mean what others mean, as far as vectors are cached; nothing while truth itself is in doubt."""
    if any(one.is_error for one in found.findings) or not any(one.op == "insert" for one in found.changes):
        return ()
    from duckkb.review.check.near_duplicates import near_by_vector

    with unopened.opened(OpenOptions(lenient=True)) as base:
        return tuple(near_by_vector(base, found))


def configuration_files(root: Path) -> Files:
    """How the configuration of a base is read as it was in another version."""
    env = config.around(root)

    def load(instead: Mapping[str, bytes | None]) -> Described:
        loaded = config.load(root, env, instead)
        limits = Limits(loaded.settings.max_record_bytes, loaded.settings.max_depth)
        return Described(loaded.ontology, limits, loaded.documents, loaded.settings.shrink)

    return Files(lambda: config.paths(root), load)
