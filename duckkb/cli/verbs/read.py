"""get, list, schema, export: reading records as they stand."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from duckkb.cli import printed
from duckkb.cli.common import PathName, at_option, base_options, emit, emit_lines, only_json, opened, tell, wants_json
from duckkb.cli.projection import OF_RECORDS, Fields, Shape, fields_option, project, shape

if TYPE_CHECKING:
    from duckkb.review.provenance.citation import Citation


@click.command("get")
@click.argument("type_name", metavar="TYPE")
@click.argument("identity", required=False)
@fields_option
@at_option
@base_options
@click.pass_context
def get_command(
    ctx: click.Context, type_name: str, identity: str | None, *, asked: Fields | None, at: str | None
) -> None:
    """Print one record as a JSON line: all of its fields, __id, times, _type and _etag; or those that --fields names.

    A composite identity and an edge's identity are JSON arrays: duckkb get cites '["doc://a","doc://b"]'

    A citation stands for both arguments, and for --at: duckkb get duckkb://concept/chunk@1f0c2a9 prints the record as it
    was at that commit, with the `_chunk` that a #field/0 at its end names.
    """
    cited = _cited(type_name, identity, at)
    with opened(ctx, at=cited.commit if cited else at) as kb:
        record = kb.provenance.cited(cited) if cited else kb.get(type_name, identity)
        (line,) = project(kb, Shape(asked, OF_RECORDS, {}), [(record, record)])
        emit(line)
        tell(kb.notices)


def _cited(type_name: str, identity: str | None, at: str | None) -> "Citation | None":
    if not type_name.startswith("duckkb:"):
        if identity is None:
            raise click.UsageError("Missing argument 'IDENTITY'.")
        return None
    if identity is not None:
        raise click.UsageError("a citation names the record already; leave IDENTITY out")
    from duckkb import app

    found = app.parse_citation(type_name)
    if at is not None and found.commit:
        raise click.UsageError("the citation names a commit already; leave --at out")
    return replace(found, commit=found.commit or at)


@click.command("list")
@click.argument("type_name", metavar="TYPE")
@click.option("-l", "--limit", type=int, default=100, show_default=True, help="How many records.")
@click.option("--after", metavar="IDENTITY", help="Start behind this identity.")
@fields_option
@at_option
@base_options
@click.pass_context
def list_command(
    ctx: click.Context, type_name: str, limit: int, after: str | None, *, asked: Fields | None, at: str | None
) -> None:
    """Print records in the order of their identities, a page at a time. Vectors that callers gave are printed only where
    --fields names them."""
    with opened(ctx, at=at) as kb:
        page = kb.list(type_name, after=after, limit=limit)
        wanted = shape(kb, type_name, asked)
        lines = project(kb, wanted, [(record, record) for record in page.records])
        if wants_json(ctx):
            emit({"records": lines, "total": page.total, "next": page.next})
        else:
            emit_lines(lines, wanted.columns)
        tell(kb.notices)
        if page.next is not None:
            printed.note(f"stopped at {len(page.records)} of {page.total}; go on with --after {page.next!r}")


@click.command("schema")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--sql", is_flag=True, help="The derived table definitions instead of JSON Schema.")
@base_options
@click.pass_context
def schema_command(ctx: click.Context, type_name: str | None, sql: bool) -> None:
    """Print the types, a JSON line each, or the JSON Schema of one type."""
    if sql or type_name is not None:
        only_json("a schema")
    with opened(ctx) as kb:
        if sql:
            printed.result(kb.ddl(type_name))
        elif type_name is not None:
            emit(kb.schema(type_name))
        elif wants_json(ctx):
            emit({"types": list(kb.types())})
        else:
            emit_lines(kb.types())


@click.command("export")
@click.argument("type_name", metavar="TYPE")
@click.option(
    "-o", "--output", metavar="FILE", type=PathName(written=True), help="Write to this file instead of stdout."
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@base_options
@click.pass_context
def export_command(ctx: click.Context, type_name: str, output: str | None, force: bool) -> None:
    """Print every record of a type as JSONL that `import` takes back: fields and times, in the order of identities.

    With -o the file is JSONL; another --format goes to stdout: duckkb export T --format csv > t.csv
    """
    to_file = output is not None and output != "-"
    if to_file:
        only_json("an export with -o")
    with opened(ctx) as kb:
        if output is None or not to_file:
            if wants_json(ctx):
                emit({"records": list(kb.export(type_name))})
            else:
                emit_lines(kb.export(type_name))
        else:
            count = kb.export_file(type_name, output, force=force)
            printed.note(f"{count} records to {output}")
        tell(kb.notices)
