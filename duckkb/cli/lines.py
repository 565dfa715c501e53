"""Which fields of a record are printed: the default form, or what --fields names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duckkb.actions.registry.record_lines import OF_RECORDS, FieldChoice, Line, Projection, listed_lines
from duckkb.cli import formats
from duckkb.cli.options import choose_format
from duckkb.cli.out import tell

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


def list_known_columns(asked: FieldChoice | None) -> tuple[str, ...]:
    """The columns that are known without a record."""
    return asked.paths if asked and not asked.are_more else ()


def project(
    kb: "KnowledgeBase",
    lines: Sequence[tuple[Line, Line]],
    asked: FieldChoice | None,
    *,
    of: str = "",
    own: Sequence[str] = OF_RECORDS,
) -> list[dict[str, Any]]:
    """Lines `of` a type, or of `all`, as they are printed, of (whole, default form); a notice says what the default form left
    out: vectors that callers gave, where the type is named. Raises `errors.UsageError`."""
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
    """Records of a page or of a walk as they are printed. Raises `errors.UsageError`."""
    return project(kb, listed_lines(records, kb.document_types(of), full=full), choice, of=of, own=own_fields)
