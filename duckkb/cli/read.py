"""get, list, schema, export: reading records as they stand."""

import click

from duckkb.cli import printed
from duckkb.cli.common import base_options, emit, emit_lines, only_json, opened, tell, wants_json


@click.command("get")
@click.argument("type_name", metavar="TYPE")
@click.argument("identity")
@base_options
@click.pass_context
def get_command(ctx: click.Context, type_name: str, identity: str) -> None:
    """Print one record as a JSON line: its fields, __id, times, _type and _etag.

    A composite identity and an edge's identity are JSON arrays: duckkb get cites '["doc://a","doc://b"]'
    """
    with opened(ctx) as kb:
        emit(kb.get(type_name, identity))
        tell(kb.notices)


@click.command("list")
@click.argument("type_name", metavar="TYPE")
@click.option("-l", "--limit", type=int, default=100, show_default=True, help="How many records.")
@click.option("--after", metavar="IDENTITY", help="Start behind this identity.")
@base_options
@click.pass_context
def list_command(ctx: click.Context, type_name: str, limit: int, after: str | None) -> None:
    """Print records in the order of their identities, a page at a time."""
    with opened(ctx) as kb:
        page = kb.list(type_name, after=after, limit=limit)
        if wants_json(ctx):
            emit({"records": list(page.records), "total": page.total, "next": page.next})
        else:
            emit_lines(page.records)
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
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of stdout.")
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
