"""The fields of a record that are printed: the default form, or those that --fields names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duckkb.actions.registry.record_lines import OF_RECORDS, FieldChoice, Line, Projection, format_lines
from duckkb.cli import formats
from duckkb.cli.options import choose_format
from duckkb.cli.out import tell

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


def list_known_columns(asked: FieldChoice | None) -> tuple[str, ...]:
    """Return the columns that are known without a record."""
    return asked.paths if asked and not asked.are_more else ()


def project(
    kb: "KnowledgeBase",
    lines: Sequence[tuple[Line, Line]],
    asked: FieldChoice | None,
    *,
    of: str = "",
    own: Sequence[str] = OF_RECORDS,
) -> list[dict[str, Any]]:
    """Return records as they are printed, from pairs (whole, default form) `of` a type, or of `all`.

    A notice names given vectors that the default form left out, where the type is named. Raises `errors.UsageError`.
    """
    from duckkb.actions.registry.projecting import project as projected

    vector_names = kb.given_vectors(of) if of else {}
    identity = kb.identity_fields(of or lines[0][0]["_type"]) if asked and lines else {}
    projection = Projection(asked, own, vector_names, choose_format() in formats.ROWS, identity)
    records, notices = projected(lines, projection, kb.field_names)
    tell(notices)
    return records


def project_listed(
    kb: "KnowledgeBase",
    records: Sequence[Line],
    choice: FieldChoice | None,
    *,
    full: bool,
    of: str,
    own_fields: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the records of a page or walk as they are printed. Raises `errors.UsageError`."""
    return project(kb, format_lines(records, kb.document_types(of), full=full), choice, of=of, own=own_fields)
