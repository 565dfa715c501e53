"""The verbs get, list, schema and export: reading records as they are.

The verbs put, delete, rename and import: all or nothing, with one receipt line.

The verb propose: writes go onto a branch for review instead of into the files.

The verb table: search over tables of a PostgreSQL with pgvector, with or without a base for its models."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from duckkb.cli import options, output, terminal
from duckkb.cli import output as out
from duckkb.cli.command import base_verb, end, group, open_named_base, parameters, prepare_unopened, verb
from duckkb.cli.options import read_front_options, wants_json
from duckkb.cli.output import list_known_columns, project, project_listed
from duckkb.operations.record_lines import OF_LISTED
from duckkb.types.errors import NotFound, shell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duckkb.app import KnowledgeBase
    from duckkb.app.vector_tables import VectorTables
    from duckkb.operations.git_branches import Proposing
    from duckkb.operations.record_lines import FieldChoice
    from duckkb.review.history import Citation
    from duckkb.types.errors import InvalidRecord
    from duckkb.types.queries import ImportSummary, Notice, Receipt


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
    from duckkb.cli.search_commands import print_document

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
    from duckkb.review.history import parse

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
        terminal.note("no results")
    if page.next is not None:
        terminal.note(f"stopped at {len(page.records)} of {page.total}; continue with --after {page.next!r}")


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
            terminal.result(kb.ddl(type_name))
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
            terminal.note(f"{kb.export_file(type_name, file, force=force)} records to {file}")
        out.tell(kb.notices)


_UNREAD = frozenset({"E_JSON", "E_UTF8", "E_NUMBER", "E_DUP_KEY", "E_TOO_LARGE", "E_DEPTH", "E_BOM"})
_SHOWN = 20
"""The number of patch lines that a dry run shows on a terminal."""
_MOST_NAMED = 20
"""Receipts of more records name none of them; with --json they do."""
TRIAL_FORMATS = ("jsonl", "patch")
"""Formats of verbs that have a dry run; `patch` is that of the dry run alone."""


@verb("put", action="put", formats=TRIAL_FORMATS)
@options.type_name
@click.argument("json_text", metavar="[JSON]", required=False)
@parameters("merge")
@click.option(
    "--batch", is_flag=True, help="Store the valid lines even if others are invalid; the receipt counts both."
)
@parameters("if_match", "dry_run", "embed")
def put_command(type_name: str, json_text: str | None, *, batch: bool, if_match: str | None, **how: bool) -> None:
    """Give one JSON object as an argument, or JSONL on stdin (also with -). --batch reports each invalid line,
    stores the others in one write, and exits 1. Fields that duckkb adds to its output are ignored, but __id
    must match: duckkb get T X | jq -c '.title="new"' | duckkb put T

    The receipt of more than 20 records names them only with --json, or if duckkb made identities."""
    if options.split_record_name(type_name):
        raise click.UsageError(f"put takes a TYPE; give the identity inside the record, not as in {type_name!r}")
    data = output.read_argument_or_stdin(json_text, "give an object as an argument, or JSONL on stdin")
    if batch and if_match is not None:
        raise click.UsageError("--if-match names one version; in a batch, add _etag to each line")
    with open_named_base() as kb:
        if batch:
            receipt = kb.put_batch(type_name, data, **how)
            _print_batch_receipt(receipt, kb.notices)
            if receipt.errors and wants_json():
                raise _make_batch_error(receipt)
            end(1 if receipt.errors else 0)
        single = json_text not in (None, "-")
        print_receipt(kb.put_json(type_name, data, single=single, if_match=if_match, **how), kb.notices)


@base_verb("delete", tells=False, action="delete", formats=TRIAL_FORMATS)
@options.record_type
@click.argument("identities", metavar="IDENTITY...", nargs=-1, required=True)
@parameters("cascade", "allow_shrink", "if_match", "dry_run")
def delete_command(kb: "KnowledgeBase", type_name: str, identities: tuple[str, ...], **how: Any) -> None:
    """A node with edges needs --cascade."""
    print_receipt(kb.delete(type_name, *identities, **how), kb.notices)


@base_verb("rename", tells=False, action="rename", formats=TRIAL_FORMATS)
@options.record_type
@click.argument("old")
@click.argument("new")
@parameters("dry_run")
def rename_command(kb: "KnowledgeBase", type_name: str, old: str, new: str, *, dry_run: bool) -> None:
    print_receipt(kb.rename(type_name, old, new, dry_run=dry_run), kb.notices)


@base_verb("import", tells=False, formats=TRIAL_FORMATS)
@options.type_name
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.PathName())
@click.option("--id", "id_fields", metavar="FIELD[,FIELD]", help="Fields that form the identity, joined by -.")
@click.option(
    "--map",
    "maps",
    metavar="TARGET=SOURCE",
    multiple=True,
    help="Read field TARGET from SOURCE, which may be nested (a.b); repeatable.",
)
@click.option(
    "--type-of",
    "types",
    metavar="FIELD=TYPE",
    multiple=True,
    help="Type of a column: text, integer, number, boolean, date, timestamp or json. Default: inferred from its "
    "cells. Repeatable.",
)
@click.option(
    "--records", metavar="A.B", help="Path of the array of records in a JSON document; . is the document itself."
)
@click.option(
    "--encoding", metavar="NAME", default="", help="Encoding of files that are not UTF-8 and have no byte order mark."
)
@parameters("merge", "if_match", "dry_run", "embed", action="put")
def import_command(
    kb: "KnowledgeBase",
    type_name: str,
    files: tuple[str, ...],
    *,
    id_fields: str | None,
    maps: tuple[str, ...],
    types: tuple[str, ...],
    **how: Any,
) -> None:
    """Imports all records or none; - means stdin. A JSON document must contain an array of records.

    \b
    duckkb import faq faq.csv
    duckkb import customers customers.csv --id customer_id --dry-run
    duckkb import tickets tickets.json --records tickets --id ticket.key

    An unknown TYPE becomes a collection (policy knowledge-base) in the same write, unless its name is nearly
    that of another; the receipt reports it. The format follows from the file name, else from its first bytes.
    CSV columns become numbers or booleans if every cell is exactly one; 007 stays text, and an empty cell is
    left out. Every invalid line is reported. A record without id gets one derived from its contents, the same
    each time, unless a column is evidently the id. An edge has `from` and `to`. The files are never changed. A dry run also prints column types and
    the first records on stderr."""
    identity_fields = [] if id_fields is None else [name.strip() for name in id_fields.split(",")]
    if not all(identity_fields):
        raise click.UsageError(f"--id takes FIELD[,FIELD], not {id_fields!r}")
    with terminal.progress_when_slow(f"importing {', '.join(files)}: all records are stored at once, at the end"):
        receipt = kb.import_files(
            type_name,
            *files,
            id=identity_fields,
            map=_parse_pairs("--map", maps),
            types=_parse_pairs("--type-of", types),
            **how,
        )
    print_receipt(receipt, kb.notices, named=False)


def _print_batch_receipt(receipt: "Receipt", notices: "Sequence[Notice]") -> None:
    """Print counts that add up to the lines read, and on stderr a line for each omitted record."""
    for findings in receipt.errors:
        first = findings[0]
        where = f"line {first.line}" if first.line else first.path
        subject = "JSON" if first.code in _UNREAD else "record"
        messages = (
            f"{finding.field} {finding.message}" if finding.field.startswith("/") else finding.message
            for finding in findings
        )
        terminal.note(terminal.brief(f"Invalid {subject} at {where}: {'; '.join(messages)}"))
    counts = {"inserted": receipt.inserted, "updated": receipt.updated, "unchanged": receipt.unchanged}
    line = {**counts, "errors": len(receipt.errors)}
    if receipt.dry_run:
        _print_trial(receipt, line)
    else:
        output.emit({**line, **_read_proposal()})
    output.tell((*notices, *receipt.notices))


def _make_batch_error(receipt: "Receipt") -> "InvalidRecord":
    from duckkb.types.errors import InvalidRecord

    findings = tuple(finding for findings in receipt.errors for finding in findings)
    message = f"{len(receipt.errors)} of the lines cannot be stored; the others are stored"
    return InvalidRecord(message, suggestion="correct those lines and put them again", findings=findings, exit_code=1)


def _parse_pairs(option: str, pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse a repeated option of the form A=B."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            form = "TARGET=SOURCE" if option == "--map" else "FIELD=TYPE"
            raise click.UsageError(f"{option} takes {form}, not {pair!r}")
        if name in values:
            raise click.UsageError(f"{option} gives {name!r} twice")
        values[name] = value
    return values


def print_receipt(receipt: "Receipt", notices: "Sequence[Notice]", *, named: bool = True) -> None:
    """A dry run prints what would change; a write prints one receipt line."""
    from duckkb.operations.record_lines import receipt_line

    if receipt.dry_run:
        _print_trial(receipt, receipt_line(receipt, named=False))
    else:
        is_generated = any(notice.code == "W_GENERATED_ID" for notice in (*notices, *receipt.notices))
        has_room = wants_json() or is_generated or len(receipt.identities) <= _MOST_NAMED
        output.emit({**receipt_line(receipt, named=named and has_room), **_read_proposal()})
    output.tell((*notices, *receipt.notices))


def _print_trial(receipt: "Receipt", line: "Mapping[str, Any]") -> None:
    """Print what a dry run would write: the receipt `line` with the first changes, or with --format patch the patch.

    A terminal shows the first lines of the patch, unless a format is asked for.
    """
    form = options.choose_format("")
    if form == "patch":
        output.patch(receipt)
    elif form == "" and terminal.is_on_terminal():
        output.patch(receipt, lines=_SHOWN)
    else:
        from duckkb.operations.record_lines import describe_changes

        output.only_json("a dry run")
        first = {"first": list(receipt.imported.first)} if receipt.imported else {}
        output.emit({**line, "dry_run": True, **describe_changes(receipt.changes), **first})
    if wants_json():
        return
    for text in _describe_import(receipt.imported) if receipt.imported else ():
        terminal.note(text)
    counts = ("inserted", "updated", "deleted", "unchanged", "errors")
    total = ", ".join(f"{line[name]} {name}" for name in counts if name in line)
    terminal.note(f"dry run: {total}{'' if form == 'patch' else '; --format patch prints the lines'}")


def _describe_import(summary: "ImportSummary") -> "Iterator[str]":
    """Yield what an import would write: the types of columns and the first records."""
    if summary.types:
        yield "types: " + ", ".join(f"{name} {type}" for name, type in summary.types.items())
    for fields in summary.first:
        yield terminal.brief("record: " + json.dumps(fields, ensure_ascii=False))
    if summary.generated_ids:
        yield f"ids: {summary.generated_ids:,} derived from the records' contents"


def _read_proposal() -> "Mapping[str, Any]":
    """Return what `duckkb propose` adds to a receipt."""
    describe_proposal: Callable[[], Mapping[str, Any]] | None = read_front_options().get("proposed")
    return describe_proposal() if describe_proposal else {}


@group("propose")
@click.option("--branch", metavar="NAME", help="The branch to write. Default: a new one.")
@click.option("--continue", "goes_on", is_flag=True, help="Add to --branch, even if someone else made it.")
@click.option("--base", metavar="REF", help="Revision to start from. Default: the branch, else HEAD.")
@click.option("-m", "--message", metavar="TEXT", help="The commit's message.")
def propose_command(branch: str | None, goes_on: bool, base: str | None, message: str | None) -> None:
    """The changes become a commit on the branch. Files, index and HEAD do not change.

    \b
    duckkb propose put concept '{"id": "chunk", "summary": "..."}' --merge
    duckkb propose --branch fix-names delete concept old-name

    The commands have the same parameters as without `propose`, and read the committed base. The receipt has
    `branch`, `commit`, and the command and page that open a pull request. If DUCKKB_AGENT is set and the
    ontology has `review: required` on a type or `x-review` on a field, direct writes are refused; use
    `propose`."""
    if goes_on and branch is None:
        raise click.UsageError("--continue needs the --branch to continue")
    proposals: list[Proposing] = []

    def start_proposal() -> "Proposing":
        from duckkb.operations.git_branches import Proposing, Wish

        inner = click.get_current_context()
        title = f"{inner.info_name} {inner.params.get('type_name', '')}".strip()
        proposals.append(Proposing(prepare_unopened().root, Wish(title, branch, base, message or "", goes_on)))
        return proposals[0]

    read_front_options().update(proposing=start_proposal, proposed=lambda: _report_proposal(proposals[0]))


def _report_proposal(proposal: "Proposing") -> dict[str, Any]:
    result = proposal.proposed
    if not result.commit:
        terminal.note("nothing differs, so nothing was proposed")
    else:
        branch = shell_word(result.branch)
        terminal.note(f"next: {result.push or f'duckkb review HEAD...{branch}'}")
        terminal.note(f"then: open {result.url or 'a pull request'}" if result.push else f"then: duckkb merge {branch}")
    return result.line


for _verb in (put_command, import_command, delete_command, rename_command):
    propose_command.add_command(_verb)


_LARGEST = 1 << 20
_url = options.several(
    click.option("--url", required=True, metavar="URL", help="postgresql://USER@HOST/DATABASE; put the password in PGPASSWORD or ~/.pgpass."),
    click.option("--timeout", "timeout_s", type=options.Seconds(min=0.001, max=86_400), default=30.0, show_default=True, help="Time limit of a statement, in seconds."),
)  # fmt: skip
_rows = options.several(
    click.option("--top-k", type=int, default=10, show_default=True, help="Number of nearest rows, 1 to 1000."),
    click.option("--threshold", type=float, metavar="X", help="Omit rows with a smaller cosine, -1 to 1."),
    click.option("--vector-column", default="embedding", show_default=True, metavar="COLUMN"),
    click.option("--select", multiple=True, metavar="COLUMN", help="Print this column, instead of all. Repeatable."),
    click.option("--filter", "given", metavar="JSON", help='{"COLUMN": VALUE, null, [VALUES] or {"$gt", "$gte", "$lt", "$lte": VALUE}}, joined by AND.'),
    click.option("--no-parse-enum", "parse_enum", flag_value=False, type=bool, default=True, help="Print enums, and arrays of them, as the server writes them."),
    click.option("--approximate", is_flag=True, help="Use an approximate pgvector index (HNSW, IVFFlat); rows may be missing."),
)  # fmt: skip


@group("table")
def table_command() -> None:
    """Tables may have any schema. Nothing is written to the database."""


@contextmanager
def _open_tables(url: str, timeout_s: float) -> "Iterator[VectorTables]":
    from duckkb.app.vector_tables import connect

    with connect(url, kb=read_front_options().get("kb"), timeout_s=timeout_s) as tables:
        yield tables


@verb("show", group=table_command)
@click.argument("table", required=False)
@_url
def show_command(table: str | None, url: str, timeout_s: float) -> None:
    """Print the tables and views that have vectors, or the columns of one.

    \b
    duckkb table show --url postgresql://reader@127.0.0.1/shop
    duckkb table show --url postgresql://reader@127.0.0.1/shop 'sales."Old Items"'
    """
    with _open_tables(url, timeout_s) as tables:
        output.lines(tables.show(table), under="tables" if table is None else "columns")


@verb("query", group=table_command)
@click.argument("table")
@click.argument("text")
@_url
@_rows
@click.option("--final", type=int, default=5, show_default=True, help="Print at most this many rows, the best first.")
@click.option(
    "--no-rerank",
    "rerank",
    flag_value=False,
    type=bool,
    default=True,
    help="Do not use the configured reranker.",
)
@click.option(
    "--rerank-threshold",
    type=float,
    default=0.1,
    show_default=True,
    metavar="X",
    help="Omit rows with a smaller reranker score, 0 to 1.",
)
@click.option(
    "--text-column", default="query", show_default=True, metavar="COLUMN", help="Column that the reranker reads."
)
@click.option("--dimensions", type=int, metavar="N", help="Dimension to request from an endpoint, 1 to 1024.")
def query_command(table: str, text: str, url: str, timeout_s: float, **how: Any) -> None:
    """Print the rows nearest to a question, reranked if a reranker is configured.

    \b
    duckkb table query --url postgresql://reader@127.0.0.1/shop products "boots for rain" --select id --select title
    duckkb table query --url "$URL" products "boots" --filter '{"price": {"$lt": 100}, "kind": ["boot", "shoe"]}'

    Uses the models of the surrounding knowledge base, else the offline model. Each line is a row with
    embedding_score (the cosine) and, if reranked, rerank_score. Names are case-sensitive; put other names in
    double quotes: '"My Table"'. """  # fmt: skip
    with _open_tables(url, timeout_s) as tables:
        _print_rows(tables.query(text, table, **_read(how)), "use other words, or a lower --threshold")


@verb("search", group=table_command)
@click.argument("table")
@_url
@_rows
@click.option(
    "--vector",
    required=True,
    metavar="FILE|-",
    type=options.PathName(),
    help="A JSON array of numbers, or as `embed` prints it.",
)
def search_command(table: str, url: str, timeout_s: float, *, vector: str, **how: Any) -> None:
    """Print the rows nearest to a vector, as `table query` does, without a model.

    \b
    duckkb embed "boots for rain" | duckkb table search --url "$URL" products --vector -
    """
    with _open_tables(url, timeout_s) as tables:
        _print_rows(
            tables.vector_search(table, _load_vector(vector), **_read(how)), "loosen the --filter or the --threshold"
        )


def _print_rows(rows: "Sequence[dict[str, Any]]", remedy: str) -> None:
    if not rows:
        output.raise_no_results({"rows": []}, "no results", remedy)
    output.lines(rows, under="rows")


def _read(how: dict[str, Any]) -> dict[str, Any]:
    """Convert options to arguments of the library."""
    condition, columns = how.pop("given"), how.pop("select")
    return {**how, "select": list(columns) or None, "filter": None if condition is None else _parse_filter(condition)}


def _parse_filter(text: str) -> Any:
    from duckkb.storage.line import Limits, LineError, parse_json
    from duckkb.types.errors import FilterError

    try:
        return parse_json(text.encode("utf-8", "surrogateescape"), Limits())
    except LineError as error:
        message = f"the filter is not JSON: {error.findings[0].message}"
        raise FilterError(
            message, suggestion="""--filter '{"price": {"$lt": 100}}'""", findings=error.findings
        ) from error


def _load_vector(name: str) -> Any:
    from pathlib import Path

    from duckkb import config
    from duckkb.operations.embedding_models import read_vector
    from duckkb.storage import path_guard

    if name == "-":
        return read_vector(sys.stdin.buffer.read(_LARGEST))
    path = path_guard.regular(name, Path.cwd(), config.environment(), "a file with a vector")
    with path.open("rb") as file:
        return read_vector(file.read(_LARGEST))
