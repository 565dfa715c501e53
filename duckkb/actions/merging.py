"""merge, resolve, git: bringing two histories of records together."""

from duckkb.review.merging import install, verify
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
    "install",
    "merge",
    "read_answers",
    "resolve",
    "verify",
]

VIOLATIONS = (
    "E_DUP_IDENTITY",
    "E_DUP_ID",
    "E_DANGLING_EDGE",
    "E_AMBIGUOUS_END",
    "E_CARDINALITY",
    "E_SCHEMA",
)
"""What a merge without conflict may break all the same: rules about several records, or about several fields."""
