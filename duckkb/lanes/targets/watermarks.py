"""Errors that all targets share: about a publication, and about what would follow it."""

from duckkb.errors import Conflict, StateError, shell_word
from duckkb.ports import Watermark


def make_unpublished_error(name: str, url: str) -> StateError:
    """Return the error for a query if nothing is published; `url` is the whole address."""
    return StateError(
        f"nothing is published at {name}", code="E_NOT_PUBLISHED", suggestion=f"duckkb publish --to {shell_word(url)}"
    )


def make_behind_error(name: str, expected: Watermark | None, found: Watermark | None) -> Conflict:
    """Return the error for a delta that does not follow the present publication."""
    is_there = f"{found.commit[:12]} is published at {name}" if found else f"nothing is published at {name}"
    expectation = f"not {expected.commit[:12]}, on which this follows" if expected else "where nothing was before"
    if expected and found and expected.commit == found.commit:
        expectation = "made ready in another way (another ontology, tokenizer or model)"
    return Conflict(
        f"{is_there}, {expectation}: another publisher was faster",
        code="E_BEHIND",
        suggestion="publish again: it continues from the current state",
    )
