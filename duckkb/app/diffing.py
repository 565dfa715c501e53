"""Comparing two versions of a base, which may be broken, so without opening it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb import config
from duckkb.actions import comparing
from duckkb.engine.ends import end_ids
from duckkb.id_set import IdSet
from duckkb.ontology.model import RecordType
from duckkb.ports import Row
from duckkb.review.diff.configuration import Described, Files
from duckkb.review.diff.model import Diff, Numbers
from duckkb.review.diff.sides import parse_range
from duckkb.truth.files.line import Limits
from duckkb.truth.files.tree import Tree

if TYPE_CHECKING:
    from duckkb.errors import Finding
    from duckkb.review.check.findings import CheckReport


def diff(
    path: "str | Path | None" = None,
    range: str | None = None,
    *,
    staged: bool = False,
    worktree: bool = False,
    only: Sequence[str] = (),
    ignore: Sequence[str] = (),
    whole: bool = False,
    allow_weaker: bool = False,
    allow_shrink: bool = False,
    where: str = "",
) -> Diff:
    """What became of each record between two versions: `range` is BASE (HEAD where none is given) against the working
    tree, or against the index where `staged`; BASE..HEAD; or BASE...HEAD, from the commit in which the two part. `only`
    names types and records (`TYPE`, `TYPE:IDENTITY`), `ignore` fields that do not count, `where` is a filter that a record
    satisfies in one of the versions, as `find` takes it. The findings are those that the
    touched files tell; with `whole` all those that the change brings, for which more is read. Rules by which changes are
    judged that are gone or weaker are errors (E_GUARD), with `allow_weaker` warnings. A deletion of more records than
    `limits` in the base's config.yaml let go is an error (E_SHRINK) unless `allow_shrink`, and a warning then.

    Raises `errors.UsageError`, `errors.StateError` (E_NO_KB, E_REVISION, E_GIT, E_UNKNOWN_TYPE), `errors.Unavailable`,
    `errors.OntologyError`, `errors.FilterError`.
    """
    ends = parse_range(range, staged=staged, worktree=worktree)
    wanted = comparing.DiffRequest(ends, tuple(only), tuple(ignore), whole, allow_weaker, allow_shrink, where)
    root = _root(path)
    return comparing.diff(root, wanted, configuration_files(root), _matching)


def numbers(
    path: "str | Path | None" = None, range: str | None = None, *, staged: bool = False, worktree: bool = False
) -> Numbers:
    """The difference in numbers, for a fraction of the time: no value is compared, and its findings are those of lines that
    cannot be read as they should. Raises as `diff` does."""
    root = _root(path)
    wanted = parse_range(range, staged=staged, worktree=worktree)
    return comparing.numbers(root, wanted, configuration_files(root))


def check_change(
    path: "str | Path | None",
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
    root = _root(path)
    found = comparing.diff(
        root,
        comparing.DiffRequest(range, whole=True, allow_weaker=allow_weaker, allow_shrink=allow_shrink),
        configuration_files(root),
    )
    more = _by_vector(root, found) if range.against == "worktree" else ()
    merged = () if staged else _merged(root, range.head or "HEAD", found)
    return CheckReport(in_order([*found.findings, *more, *merged]), len(found.changes), found.prefix)


def _matching(tree: Tree, kind: RecordType, where: str) -> IdSet:
    """The ids of a type's records that satisfy a filter."""
    from duckkb.app.wiring import filters
    from duckkb.lanes.memory_rows import MemoryRows

    rows, none = MemoryRows(Row(record) for record in tree.records(kind)), MemoryRows()
    sql = filters(tree.ontology, partial(end_ids, tree), lambda other: rows if other is kind else none, where)
    try:
        return sql.where(kind, where)
    finally:
        sql.close()


def _merged(root: Path, head: str, found: Diff) -> "Sequence[Finding]":
    """What git made otherwise than a merge by records would, where the newest commit of the change is a merge, pick or
    revert."""
    from duckkb.actions.merging import verify
    from duckkb.app.merging import rules_at
    from duckkb.truth.git import revisions

    commit = revisions.revision(root, head).commit
    return verify.findings(root, rules_at(root), commit) if commit and commit != found.base.commit else ()


def _by_vector(root: Path, found: Diff) -> "tuple[Finding, ...]":
    """New records that mean what others mean, as far as vectors are cached; nothing while truth itself is in doubt."""
    if any(one.is_error for one in found.findings) or not any(one.op == "insert" for one in found.changes):
        return ()
    from duckkb.app.wiring import Choice, wire
    from duckkb.engine.boot import boot
    from duckkb.review.check.near_duplicates import near_by_vector

    base = boot(wire(root, Choice(lenient=True))[1])
    try:
        return tuple(near_by_vector(base, found))
    finally:
        base.close()


def _root(path: "str | Path | None") -> Path:
    return config.find_root(Path.cwd(), str(path) if path is not None else None, config.environment())


def configuration_files(root: Path) -> Files:
    """How the configuration of a base is read as it was in another version."""
    env = config.around(root)

    def load(instead: Mapping[str, bytes | None]) -> Described:
        loaded = config.load(root, env, instead)
        limits = Limits(loaded.settings.max_record_bytes, loaded.settings.max_depth)
        return Described(loaded.ontology, limits, loaded.documents, loaded.settings.shrink)

    return Files(lambda: config.paths(root), load)
