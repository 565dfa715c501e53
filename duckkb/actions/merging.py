"""merge, resolve, git: bringing two histories of records together."""

from collections.abc import Iterator, Sequence

from duckkb.errors import Finding
from duckkb.review.merging import install, verify
from duckkb.review.merging.broken import broken
from duckkb.review.merging.conflicts import ConflictAnswer, OpenConflict, Side, SideChoice, read_answers
from duckkb.review.merging.install import Fact
from duckkb.review.merging.merge import MergeOptions, Outcome, abort, merge
from duckkb.review.merging.resolve import Resolved, ResolveOptions, resolve

__all__ = [
    "ConflictAnswer",
    "Fact",
    "MergeOptions",
    "OpenConflict",
    "Outcome",
    "ResolveOptions",
    "Resolved",
    "Side",
    "SideChoice",
    "abort",
    "broken",
    "install",
    "merge",
    "page",
    "read_answers",
    "resolve",
    "verify",
]


def page(left: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    """The HTML page on which conflicts are settled, piece by piece."""
    from duckkb.review.merging import page

    return page.render(left, violations)
