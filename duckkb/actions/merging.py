"""merge, resolve, git: bringing two histories of records together."""

from collections.abc import Iterator, Sequence

from duckkb.errors import Finding
from duckkb.review.merging import install, verify
from duckkb.review.merging.broken import broken
from duckkb.review.merging.conflicts import Answer, Choice, OpenConflict, Side, read_answers
from duckkb.review.merging.install import Fact
from duckkb.review.merging.merge import Options as MergeOptions
from duckkb.review.merging.merge import Outcome, abort, merge
from duckkb.review.merging.resolve import Options as ResolveOptions
from duckkb.review.merging.resolve import Resolved, resolve

__all__ = [
    "Answer",
    "Choice",
    "Fact",
    "MergeOptions",
    "OpenConflict",
    "Outcome",
    "ResolveOptions",
    "Resolved",
    "Side",
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
    from duckkb.review.merging.html import page

    return page.render(left, violations)
