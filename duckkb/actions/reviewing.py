"""The action review: the difference of a change, judged as a whole, with its impact; either may be missing."""

import sys
from collections.abc import Callable, Iterable, Iterator

from duckkb import config
from duckkb.actions.diffing import DiffRequest, diff, links_of
from duckkb.actions.folder import Unopened
from duckkb.actions.impact import ImpactOptions, impact, refuse_limits
from duckkb.errors import DuckkbError, UsageError
from duckkb.review.diff.model import Diff, DiffOptions
from duckkb.review.diff.versions import parse_range
from duckkb.review.impact.impact import ImpactReport
from duckkb.review.reports.formats import REVIEW
from duckkb.review.verdict import Review
from duckkb.truth.commit import outside
from duckkb.truth.git import revisions


def review(unopened: Unopened, range: str | None, options: ImpactOptions, *, allow_shrink: bool = False) -> Review:
    """Judge a change: `BASE` (HEAD by default) against the working tree, `BASE..HEAD` or `BASE...HEAD`.

    `options` are those of the impact; its `allow_weaker`, and `allow_shrink`, are as for `diff`. Raises
    `errors.UsageError` for an invalid range or limit; other failures of a part are recorded in the review.
    """
    refuse_limits(options)
    request = DiffRequest(parse_range(range), whole=True, allow_weaker=options.allow_weaker, allow_shrink=allow_shrink)
    comparison: Diff | DuckkbError
    try:
        comparison = diff(unopened, request)
    except DuckkbError as problem:
        _refuse_usage(problem)
        comparison = problem
    report: ImpactReport | DuckkbError
    try:
        report = impact(unopened, range, options)
    except DuckkbError as problem:
        _refuse_usage(problem)
        report = problem
    return Review(comparison, report, revisions.prefix(unopened.root))


def lines(
    unopened: Unopened,
    review: Review,
    form: str,
    budget: int | None = None,
    again: Callable[[str], str] = "duckkb diff {}".format,
) -> Iterator[str]:
    """Yield the review in one of the formats of `REVIEW`, in at most `budget` bytes.

    `again` makes the command that continues.
    """
    comparison, links = review.diff, None
    if isinstance(comparison, Diff):
        links = links_of(unopened.root, comparison.base.commit, comparison.head.commit)
    most = budget or REVIEW[form].budget or sys.maxsize
    return REVIEW[form].lines(review, DiffOptions(budget=most, again=again, links=links))


def refuse_places(unopened: Unopened, files: Iterable[str]) -> None:
    """Raise `errors.UsageError` (E_PATH) where `save` would refuse to write."""
    for file in files:
        outside.writable(file, unopened.root, config.read_environment(unopened.root))


def save(unopened: Unopened, named: str, pieces: Iterable[str], *, force: bool) -> None:
    """Write pieces of a report to a file. Raises `errors.UsageError` (E_PATH)."""
    root = unopened.root
    outside.write(named, (f"{piece}\n".encode() for piece in pieces), root, config.read_environment(root), force=force)


def _refuse_usage(problem: DuckkbError) -> None:
    if type(problem) is UsageError:
        raise problem
