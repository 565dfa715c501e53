"""Which fields of a record are printed: the default form, or what --fields names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.actions.registry.record_lines import OF_RECORDS, FieldChoice, Line, Projection
from duckkb.cli import formats
from duckkb.cli.options import chosen_format
from duckkb.cli.out import tell

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


def _parsed(ctx: click.Context, param: click.Parameter, value: str | None) -> FieldChoice | None:
    """`A,B`, or `+A,B`; a name with a comma stands in double quotes."""
    if value is None:
        return None
    import csv

    from duckkb.actions.registry.projecting import choose_fields
    from duckkb.errors import UsageError

    try:
        return choose_fields(next(csv.reader([value.lstrip()], skipinitialspace=True), []))
    except UsageError as problem:
        raise click.BadParameter(problem.message, ctx, param) from None


def known_columns(asked: FieldChoice | None) -> tuple[str, ...]:
    """The columns that are known without a record."""
    return asked.paths if asked and not asked.are_more else ()


fields_option = click.option(
    "--fields",
    "asked",
    callback=_parsed,
    metavar="NAMES",
    help="Print these fields and what names the record: author,meta.source; or +_chunk, beside what is printed anyway.",
)


full_option = click.option("--full", is_flag=True)


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

    given = kb.given_vectors(of) if of else {}
    identity = kb.identity_fields(of or lines[0][0]["_type"]) if asked and lines else {}
    wanted = Projection(asked, own, given, chosen_format() in formats.ROWS, identity)
    shown, notices = projected(lines, wanted, kb.field_names)
    tell(notices)
    return shown
