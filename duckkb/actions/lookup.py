"""The action get: a record or a document, by any name for it. Readers of documents and git are imported on demand."""

from typing import Any

from duckkb.actions.reading import get
from duckkb.actions.resolve import GivenIdentity
from duckkb.engine.base import Base
from duckkb.errors import UsageError


def record_or_document(
    base: Base,
    type: str | None = None,
    identity: GivenIdentity | None = None,
    *,
    citation: str | None = None,
    document: str | None = None,
    first: int | None = None,
    lines: int | None = None,
) -> dict[str, Any]:
    """Return a record by type and identity or by citation, or a document. Raises as their own functions do."""
    if citation is not None and (type, identity, document, first, lines) == (None,) * 5:
        from duckkb.actions.tracing import resolve_citation  # rarely needed, and it imports git's readers
        from duckkb.review.provenance.citation import parse

        return resolve_citation(base, parse(citation))
    if (
        citation is None
        and document is None
        and type is not None
        and identity is not None
        and first is None
        and lines is None
    ):
        return get(base, type, identity)
    if citation is None and document is not None and type is None and identity is None:
        from duckkb.actions.documents.reading import get_document  # imports the readers of folders

        return get_document(base, document, first=first, lines=lines)
    raise UsageError(
        "give type and identity, or a citation, or a document with optional first and lines",
        code="E_ARGUMENT",
        suggestion='{"type": TYPE, "identity": IDENTITY}, {"citation": URI}, or {"document": "guide/install.md"}',
    )
