"""The verbs get, list, schema and export: reading records as they are."""

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from duckkb.actions.registry.record_lines import OF_LISTED
from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.lines import list_known_columns, project, project_listed
from duckkb.cli.verb import base_verb, open_named_base, verb
from duckkb.errors import NotFound

if TYPE_CHECKING:
    from duckkb.actions.registry.record_lines import FieldChoice
    from duckkb.app import KnowledgeBase
    from duckkb.review.provenance.citation import Citation


@verb("get", action="get")
@options.type_name
@click.argument("identity", required=False)
@parameters("fields", "first", "lines")
@click.option("--line-numbers", is_flag=True, help="For a document: print the line numbers of its file.")
@click.option("--full", is_flag=True, expose_value=False, help="Print the whole document, which is the default.")
@parameters("at")
@options.backend
def get_command(
    type_name: str,
    identity: str | None,
    *,
    fields: "FieldChoice | None",
    at: str | None,
    line_numbers: bool,
    **part: int | None,
) -> None:
    """Prints all fields with __id, times, _type and _etag, or the --fields given. A composite identity and an
    edge's identity are JSON arrays: duckkb get cites '["doc://a","doc://b"]'

    A citation replaces both arguments, and --at: duckkb get duckkb://concept/chunk@1f0c2a9 prints the record at
    that commit. With #field/0 at its end it adds that `_chunk`; `_since` shows later changes.

    \b
    One argument names a document, whose text is printed, or a record as TYPE/IDENTITY:
    duckkb get guide/install.md:40 -l 20
    duckkb get "#3fa9c1" --json
    """
    if identity is None and _print_named_document(type_name, at, line_numbers, **part):
        return
    if line_numbers or any(part.values()):
        raise click.UsageError("--from, -l and --line-numbers are for documents; name the document with one argument")
    citation = _parse_citation(type_name, identity, at)
    if identity is None and citation is None and (pair := options.split_record_name(type_name)):
        type_name, identity = pair
    with open_named_base(at=citation.at if citation else at, reads=True) as kb:
        record = kb.provenance.resolve_citation(citation) if citation else kb.get(type_name, identity or "")
        (line,) = project(kb, [(record, record)], fields)
        out.emit(line)
        out.tell(kb.notices)


def _print_named_document(text: str, at: str | None, numbered: bool, **part: int | None) -> bool:
    """Print a named document and return True; return False for a record (TYPE/IDENTITY or a citation)."""
    from duckkb.cli.verbs.search import print_document

    if text.startswith("duckkb://") and ("@" in text or "#" in text):
        return False
    with open_named_base(at=at, reads=True) as kb:
        if text.startswith("duckkb://") and not kb.is_of_documents(text):
            return False
        try:
            document = kb.get_document(text, **part)
        except NotFound:
            if not kb.names_record(text):
                raise
            return False
        print_document(document, numbered)
        out.tell(kb.notices)
    return True


def _parse_citation(type_name: str, identity: str | None, at: str | None) -> "Citation | None":
    if not type_name.startswith("duckkb:"):
        if identity is None and options.split_record_name(type_name) is None:
            raise click.UsageError("Missing argument 'IDENTITY'.")
        return None
    if identity is not None:
        raise click.UsageError("a citation already names the record; leave out IDENTITY")
    from duckkb.review.provenance.citation import parse

    citation = parse(type_name)
    if at is not None and citation.commit:
        raise click.UsageError("the citation already names a commit or a version; leave out --at")
    return replace(citation, commit=citation.commit or at)


@base_verb("list", tells=False, action="list")
@options.type_name
@parameters("where", "limit", "after", "fields", "full", "at")
@options.backend
def list_command(kb: "KnowledgeBase", type_name: str, *, fields: "FieldChoice | None", full: bool, **how: Any) -> None:
    """Prints one record per line, shortened as in `find`: without __id and times, with long texts cut (_partial
    names them; --full prints them whole). Vectors that callers gave appear only if --fields names them. `duckkb
    get TYPE IDENTITY` prints the whole record."""
    page = kb.list(type_name, **how)
    lines = project_listed(kb, page.records, fields, full=full, of=type_name, own_fields=OF_LISTED)
    out.lines(lines, list_known_columns(fields), under="records", total=page.total, next=page.next)
    out.tell([*kb.notices, *page.notices])
    if how["where"] and not page.total:
        printed.note("no results")
    if page.next is not None:
        printed.note(f"stopped at {len(page.records)} of {page.total}; continue with --after {page.next!r}")


@verb("schema")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--sql", is_flag=True, help="Print the derived table definitions instead of JSON Schema.")
@options.backend
@click.option(
    "--settings", is_flag=True, help="Print how the type is searched and stored: fields, policy, settings with origins."
)
def schema_command(type_name: str | None, sql: bool, settings: bool) -> None:
    """Prints one JSON line per type."""
    if settings and (sql or type_name is None):
        raise click.UsageError("--settings needs one TYPE, and no --sql")
    if sql or type_name is not None:
        out.only_json("a schema")
    with open_named_base(reads=True) as kb:
        if sql:
            printed.result(kb.ddl(type_name))
        elif type_name is not None:
            out.emit(kb.settings(type_name) if settings else kb.schema(type_name))
        else:
            out.lines(kb.types(), under="types")


@verb("export")
@options.type_name
@click.option(
    "-o", "--output", metavar="FILE", type=options.PathName(written=True), help="Write to this file instead of stdout."
)
@options.force
@options.backend
def export_command(type_name: str, output: str | None, force: bool) -> None:
    """Prints fields and times, in the order of identities; `import` reads them back.

    With -o the file is JSONL; another --format goes to stdout: duckkb export T --format csv > t.csv
    """
    file = None if output == "-" else output
    if file is not None:
        out.only_json("an export with -o")
    with open_named_base(reads=True) as kb:
        if file is None:
            out.lines(kb.export(type_name), under="records")
        else:
            printed.note(f"{kb.export_file(type_name, file, force=force)} records to {file}")
        out.tell(kb.notices)
