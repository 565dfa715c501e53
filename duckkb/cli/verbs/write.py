"""The verbs put, delete, rename and import: all or nothing, with one receipt line."""

import json
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.options import read_front_options, wants_json
from duckkb.cli.verb import base_verb, end, open_named_base, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from duckkb.app import KnowledgeBase
    from duckkb.errors import InvalidRecord
    from duckkb.queries import ImportSummary, Notice, Receipt

_UNREAD = frozenset({"E_JSON", "E_UTF8", "E_NUMBER", "E_DUP_KEY", "E_TOO_LARGE", "E_DEPTH", "E_BOM"})
_SHOWN = 20
"""How many lines of its patch a dry run shows on a terminal."""


@verb("put", action="put")
@options.type_name
@click.argument("json_text", metavar="[JSON]", required=False)
@parameters("merge")
@click.option("--batch", is_flag=True, help="Keep the good lines where others are bad; the receipt counts both.")
@parameters("if_match", "dry_run", "embed")
def put_command(type_name: str, json_text: str | None, *, batch: bool, if_match: str | None, **how: bool) -> None:
    """One JSON object is an argument, else JSONL comes on stdin (also with -).

    With --batch each bad line is reported, the others are stored in one write, and the exit code is 1. Fields that duckkb
    prints are ignored when they come back, but __id must match: duckkb get T X | jq -c '.title="new"' | duckkb put T
    """
    if options.split_record_name(type_name):
        raise click.UsageError(f"put takes a TYPE; the record names its identity itself, unlike {type_name!r}")
    data = out.read_argument_or_stdin(json_text, "give the object as an argument, or JSONL on stdin")
    if batch and if_match is not None:
        raise click.UsageError("--if-match names one version; in a batch put _etag into each line")
    with open_named_base() as kb:
        if batch:
            receipt = kb.put_batch(type_name, data, **how)
            _print_batch_receipt(receipt, kb.notices)
            if receipt.errors and wants_json():
                raise _make_batch_error(receipt)
            end(1 if receipt.errors else 0)
        single = json_text not in (None, "-")
        print_receipt(kb.put_json(type_name, data, single=single, if_match=if_match, **how), kb.notices)


@base_verb("delete", tells=False, action="delete")
@options.record_type
@click.argument("identities", metavar="IDENTITY...", nargs=-1, required=True)
@parameters("cascade", "allow_shrink", "if_match", "dry_run")
def delete_command(kb: "KnowledgeBase", type_name: str, identities: tuple[str, ...], **how: Any) -> None:
    """A node that edges touch needs --cascade."""
    print_receipt(kb.delete(type_name, *identities, **how), kb.notices)


@base_verb("rename", tells=False, action="rename")
@options.record_type
@click.argument("old")
@click.argument("new")
@parameters("dry_run")
def rename_command(kb: "KnowledgeBase", type_name: str, old: str, new: str, *, dry_run: bool) -> None:
    print_receipt(kb.rename(type_name, old, new, dry_run=dry_run), kb.notices)


@base_verb("import", tells=False)
@options.type_name
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.PathName())
@click.option("--id", "id_fields", metavar="FIELD[,FIELD]", help="The fields that make the identity; joined by -.")
@click.option(
    "--map",
    "maps",
    metavar="TARGET=SOURCE",
    multiple=True,
    help="Take field TARGET from SOURCE, which may be a.b for a nested one; repeatable.",
)
@click.option(
    "--type-of",
    "types",
    metavar="FIELD=TYPE",
    multiple=True,
    help="Of a column: text, integer, number, boolean, date, timestamp or json; else as its cells are. Repeatable.",
)
@click.option(
    "--records", metavar="A.B", help="Where in a JSON document the array of records is; . is the document itself."
)
@click.option("--encoding", metavar="NAME", default="", help="Of files that are not UTF-8 and have no mark.")
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
    """All of them or none; - stands for stdin. A JSON document holds an array of records.

    \b
    duckkb import faq faq.csv
    duckkb import customers customers.csv --id customer_id --dry-run
    duckkb import tickets tickets.json --records tickets --id ticket.key

    A TYPE that is not there becomes a collection (policy knowledge-base) in the same write, unless its name is nearly that of
    another; the receipt says so. A file's form follows from its name, else from its first bytes. Columns of CSV become numbers and booleans where each cell
    says one exactly; 007 stays text, and an empty cell is no field. Every bad line is reported. A record without id gets one
    made of its contents, the same each time, unless a column is evidently the id. An edge has `from` and `to`. The files are never changed. A dry run also says on
    stderr the types of columns and the first records."""
    identity_fields = [] if id_fields is None else [name.strip() for name in id_fields.split(",")]
    if not all(identity_fields):
        raise click.UsageError(f"--id takes FIELD[,FIELD], not {id_fields!r}")
    with printed.progress_when_slow(f"importing {', '.join(files)}: nothing is stored before all of it is"):
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
        printed.note(printed.brief(f"Invalid {subject} at {where}: {'; '.join(messages)}"))
    counts = {"inserted": receipt.inserted, "updated": receipt.updated, "unchanged": receipt.unchanged}
    line = {**counts, "errors": len(receipt.errors)}
    if receipt.dry_run:
        _print_trial(receipt, line)
    else:
        out.emit({**line, **_read_proposal()})
    out.tell((*notices, *receipt.notices))


def _make_batch_error(receipt: "Receipt") -> "InvalidRecord":
    from duckkb.errors import InvalidRecord

    findings = tuple(finding for findings in receipt.errors for finding in findings)
    message = f"{len(receipt.errors)} of the lines given cannot be stored; the others are"
    return InvalidRecord(message, suggestion="mend those lines and put them again", findings=findings, exit_code=1)


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
    from duckkb.actions.registry.record_lines import receipt_line

    if receipt.dry_run:
        _print_trial(receipt, receipt_line(receipt, named=False))
    else:
        out.emit({**receipt_line(receipt, named=named), **_read_proposal()})
    out.tell((*notices, *receipt.notices))


def _print_trial(receipt: "Receipt", line: "Mapping[str, Any]") -> None:
    """What a dry run would write: the patch, of which a terminal shows the first lines; with --json the receipt `line`, with the first changes."""
    if wants_json():
        from duckkb.actions.registry.record_lines import describe_changes

        first = {"first": list(receipt.imported.first)} if receipt.imported else {}
        out.emit({**line, "dry_run": True, **describe_changes(receipt.changes), **first})
        return
    out.patch(receipt, lines=_SHOWN if printed.is_on_terminal() else None)
    for text in _describe_import(receipt.imported) if receipt.imported else ():
        printed.note(text)
    counts = ("inserted", "updated", "deleted", "unchanged", "errors")
    total = ", ".join(f"{line[name]} {name}" for name in counts if name in line)
    in_short = "; --json says it in short" if receipt.patch.count("\n") > _SHOWN else ""
    printed.note(f"dry run: {total}{in_short}")


def _describe_import(summary: "ImportSummary") -> "Iterator[str]":
    """Yield what an import would write: the types of columns and the first records."""
    if summary.types:
        yield "types: " + ", ".join(f"{name} {type}" for name, type in summary.types.items())
    for fields in summary.first:
        yield printed.brief("record: " + json.dumps(fields, ensure_ascii=False))
    if summary.generated_ids:
        yield f"ids: {summary.generated_ids:,} made of the records' contents"


def _read_proposal() -> "Mapping[str, Any]":
    """Return what `duckkb propose` adds to a receipt."""
    describe_proposal: Callable[[], Mapping[str, Any]] | None = read_front_options().get("proposed")
    return describe_proposal() if describe_proposal else {}
