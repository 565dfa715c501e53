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
    data = out.read_argument_or_stdin(json_text, "give an object as an argument, or JSONL on stdin")
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
    with printed.progress_when_slow(f"importing {', '.join(files)}: all records are stored at once, at the end"):
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
    from duckkb.actions.registry.record_lines import receipt_line

    if receipt.dry_run:
        _print_trial(receipt, receipt_line(receipt, named=False))
    else:
        is_generated = any(notice.code == "W_GENERATED_ID" for notice in (*notices, *receipt.notices))
        has_room = wants_json() or is_generated or len(receipt.identities) <= _MOST_NAMED
        out.emit({**receipt_line(receipt, named=named and has_room), **_read_proposal()})
    out.tell((*notices, *receipt.notices))


def _print_trial(receipt: "Receipt", line: "Mapping[str, Any]") -> None:
    """Print what a dry run would write: the receipt `line` with the first changes, or with --format patch the patch.

    A terminal shows the first lines of the patch, unless a format is asked for.
    """
    form = options.choose_format("")
    if form == "patch":
        out.patch(receipt)
    elif form == "" and printed.is_on_terminal():
        out.patch(receipt, lines=_SHOWN)
    else:
        from duckkb.actions.registry.record_lines import describe_changes

        out.only_json("a dry run")
        first = {"first": list(receipt.imported.first)} if receipt.imported else {}
        out.emit({**line, "dry_run": True, **describe_changes(receipt.changes), **first})
    if wants_json():
        return
    for text in _describe_import(receipt.imported) if receipt.imported else ():
        printed.note(text)
    counts = ("inserted", "updated", "deleted", "unchanged", "errors")
    total = ", ".join(f"{line[name]} {name}" for name in counts if name in line)
    printed.note(f"dry run: {total}{'' if form == 'patch' else '; --format patch prints the lines'}")


def _describe_import(summary: "ImportSummary") -> "Iterator[str]":
    """Yield what an import would write: the types of columns and the first records."""
    if summary.types:
        yield "types: " + ", ".join(f"{name} {type}" for name, type in summary.types.items())
    for fields in summary.first:
        yield printed.brief("record: " + json.dumps(fields, ensure_ascii=False))
    if summary.generated_ids:
        yield f"ids: {summary.generated_ids:,} derived from the records' contents"


def _read_proposal() -> "Mapping[str, Any]":
    """Return what `duckkb propose` adds to a receipt."""
    describe_proposal: Callable[[], Mapping[str, Any]] | None = read_front_options().get("proposed")
    return describe_proposal() if describe_proposal else {}
