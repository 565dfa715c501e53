"""put, delete, rename, import: everything or nothing, one receipt line."""

from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.options import chosen, wants_json
from duckkb.cli.verb import base_verb, end, opened, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from duckkb.app import KnowledgeBase
    from duckkb.errors import InvalidRecord
    from duckkb.queries import Notice, Receipt

_UNREAD = frozenset({"E_JSON", "E_UTF8", "E_NUMBER", "E_DUP_KEY", "E_TOO_LARGE", "E_DEPTH", "E_BOM"})
with_if_match = click.option("--if-match", metavar="ETAG")
_merge = click.option("--merge", is_flag=True)
with_no_embed = click.option(
    "--no-embed",
    "embed",
    is_flag=True,
    callback=lambda _ctx, _param, given: not given,
    help="Leave vectors to a later search or `index build`.",
)


@verb("put", action="put")
@options.type_name
@click.argument("json_text", metavar="[JSON]", required=False)
@_merge
@click.option("--batch", is_flag=True, help="Keep the good lines where others are bad; the receipt counts both.")
@with_if_match
@options.dry_run
@with_no_embed
def put_command(type_name: str, json_text: str | None, *, batch: bool, if_match: str | None, **how: bool) -> None:
    """Insert or replace records by identity: one JSON object as an argument, else JSONL on stdin (also with -).

    All or nothing, but for --batch: there each bad line is reported, the others are stored in one write, and the exit
    code is 1. Fields that duckkb prints are ignored when they come back, but __id must match and _etag is a precondition:
    duckkb get T X | jq -c '.title="new"' | duckkb put T
    """
    data = out.read_argument_or_stdin(json_text, "give the object as an argument, or JSONL on stdin")
    if batch and if_match is not None:
        raise click.UsageError("--if-match names one version; in a batch put _etag into each line")
    with opened() as kb:
        if batch:
            receipt = kb.put_batch(type_name, data, **how)
            _batch_receipt(receipt, kb.notices)
            if receipt.errors and wants_json():
                raise _not_stored(receipt)
            end(1 if receipt.errors else 0)
        single = json_text not in (None, "-")
        print_receipt(kb.put_json(type_name, data, single=single, if_match=if_match, **how), kb.notices)


@base_verb("delete", tells=False, action="delete")
@options.type_name
@click.argument("identities", metavar="IDENTITY...", nargs=-1, required=True)
@click.option("--cascade", is_flag=True)
@options.allow_shrink
@with_if_match
@options.dry_run
def delete_command(kb: "KnowledgeBase", type_name: str, identities: tuple[str, ...], **how: Any) -> None:
    """Delete records. A node that edges touch needs --cascade."""
    print_receipt(kb.delete(type_name, *identities, **how), kb.notices)


@base_verb("rename", tells=False)
@options.type_name
@click.argument("old")
@click.argument("new")
@options.dry_run
def rename_command(kb: "KnowledgeBase", type_name: str, old: str, new: str, *, dry_run: bool) -> None:
    """Give a record another identity. Its __id stays, and the edges that name it are rewritten in the same write."""
    print_receipt(kb.rename(type_name, old, new, dry_run=dry_run), kb.notices)


@base_verb("import", tells=False, action="put")
@options.type_name
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.PathName())
@click.option(
    "--map", "maps", metavar="TARGET=SOURCE", multiple=True, help="Take field TARGET from SOURCE; repeatable."
)
@_merge
@with_if_match
@options.dry_run
@with_no_embed
def import_command(
    kb: "KnowledgeBase", type_name: str, files: tuple[str, ...], *, maps: tuple[str, ...], **how: Any
) -> None:
    """Upsert the lines of JSONL files (- for stdin), all or nothing; every bad line is reported. An edge's line has
    `from` and `to`. The files are never changed."""
    print_receipt(kb.import_files(type_name, *files, map=_mapping(maps), **how), kb.notices, named=False)


def _batch_receipt(receipt: "Receipt", notices: "Sequence[Notice]") -> None:
    """One line of counts that add up to the lines read; on stderr a line for each record that was left out."""
    for findings in receipt.errors:
        first = findings[0]
        where = f"line {first.line}" if first.line else first.path
        what = "JSON" if first.code in _UNREAD else "record"
        said = (f"{one.field} {one.message}" if one.field.startswith("/") else one.message for one in findings)
        printed.note(printed.brief(f"Invalid {what} at {where}: {'; '.join(said)}"))
    if receipt.dry_run:
        printed.result(receipt.patch, end="")
    counts = {"inserted": receipt.inserted, "updated": receipt.updated, "unchanged": receipt.unchanged}
    line = {**counts, "errors": len(receipt.errors)}
    out.emit({**line, **_proposed()}) if not receipt.dry_run else printed.note(f"dry run: {line}")
    out.tell((*notices, *receipt.notices))


def _not_stored(receipt: "Receipt") -> "InvalidRecord":
    from duckkb.errors import InvalidRecord

    findings = tuple(finding for findings in receipt.errors for finding in findings)
    said = f"{len(receipt.errors)} of the lines given cannot be stored; the others are"
    return InvalidRecord(said, suggestion="mend those lines and put them again", findings=findings, exit_code=1)


def _mapping(maps: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in maps:
        target, equals, source = pair.partition("=")
        if not (target and equals and source):
            raise click.UsageError(f"--map takes TARGET=SOURCE, not {pair!r}")
        if target in found:
            raise click.UsageError(f"--map gives {target!r} twice")
        found[target] = source
    return found


def print_receipt(receipt: "Receipt", notices: "Sequence[Notice]", *, named: bool = True) -> None:
    """A dry run prints the patch alone; a write prints one receipt line."""
    from duckkb.actions.registry.record_lines import receipt_line

    if receipt.dry_run:
        out.patch(receipt)
        printed.note(
            f"dry run: {receipt.inserted} inserted, {receipt.updated} updated, {receipt.deleted} deleted, "
            f"{receipt.unchanged} unchanged"
        )
    else:
        out.emit({**receipt_line(receipt, named=named), **_proposed()})
    out.tell((*notices, *receipt.notices))


def _proposed() -> "Mapping[str, Any]":
    """What `duckkb propose` adds to a receipt."""
    found: Callable[[], Mapping[str, Any]] | None = chosen().get("proposed")
    return found() if found else {}
