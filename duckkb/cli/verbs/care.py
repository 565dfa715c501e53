"""check, fmt, dedupe, recover: keeping truth in order."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import click

from duckkb.cli import printed
from duckkb.cli.common import (
    allow_shrink,
    allow_weaker_option,
    base_options,
    base_options_and,
    chosen_format,
    emit,
    emit_files,
    emit_lines,
    emit_patch,
    judging,
    lock_timeout,
    one_of,
    opened,
    tell,
)
from duckkb.review.reports.formats import CHECK

if TYPE_CHECKING:
    from duckkb.review.check.findings import CheckReport


@click.command("check")
@click.option("--since", metavar="REVISION", help="Only what came since HEAD and REVISION parted (or BASE...HEAD).")
@click.option("--staged", is_flag=True, help="Only what the staged change brings.")
@click.option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@allow_shrink
@allow_weaker_option
@base_options_and(*CHECK)
@click.pass_context
def check_command(
    ctx: click.Context, /, since: str | None, fail_on: Literal["error", "warning"], **given: bool
) -> None:
    """Report everything that is wrong in data/: bytes, JSON, order, schema, identities, ids, edges, days, sizes.

    Every finding has a stable rule id, its place and a remedy. Exit 1 on errors (or on warnings with --fail-on warning).
    With --since or --staged only what the change brings or touches, and findings on the change itself: mass deletions, an
    error unless --allow-shrink; rules by which changes are judged that are gone or weaker (E_GUARD); mass edits, renames, what
    nobody sees, near duplicates. The default is --format text: lines for people, those that say the same of many records as
    one, with a count and the first places; --format jsonl has each finding by itself, json both.
    """
    from duckkb import app

    with judging(ctx):
        report = app.check(ctx.ensure_object(dict).get("kb"), lock_timeout=lock_timeout(ctx), since=since, **given)
    form = chosen_format(ctx, "text")
    if form in CHECK:
        for line in CHECK[form].lines(report.findings, report.prefix):
            printed.result(printed.one_line(line) if form == "text" else line)
    else:
        _print_findings(report, form, fail_on)
    if form != "json":
        noun = "changed record" if since is not None or given["staged"] else "record"
        counts = ((report.records, noun), (report.errors, "error"), (report.warnings, "warning"))
        printed.note(", ".join(f"{count} {one}{'' if count == 1 else 's'}" for count, one in counts))
    if report.errors or (fail_on == "warning" and report.warnings):
        ctx.exit(1)


def _print_findings(report: "CheckReport", form: str, fail_on: str) -> None:
    from dataclasses import asdict

    from duckkb.review.reports.findings import as_objects, of_findings, told

    # A table in Markdown is read as a report is: on a forge, by people.
    is_page = form == "md"
    listed = [one.rooted(report.prefix) for one in told(report.findings, report.prefix)] if is_page else report.findings
    findings = [{key: value for key, value in asdict(one).items() if value} for one in listed]
    if form == "json":
        ended = of_findings(report.errors, report.warnings, fail_on=fail_on)
        counts = {"errors": report.errors, "warnings": report.warnings, "records": report.records}
        emit({"outcome": ended, **counts, "findings": findings, "groups": as_objects(report.findings)})
    else:
        emit_lines(findings)


@click.command("fmt")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if a file would change.")
@base_options
@click.pass_context
def fmt_command(ctx: click.Context, check_only: bool) -> None:
    """Rewrite parts that are not canonical or not sorted, and complete hand-written lines. Prints a `file` a line."""
    with judging(ctx) if check_only else nullcontext(), opened(ctx) as kb:
        receipt = kb.fmt(check=check_only)
        emit_files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        tell(receipt.notices)
        if check_only and receipt.files:
            ctx.exit(1)


@click.command("dedupe")
@click.option("--reassign", is_flag=True, help="Give the later of two records with one __id a free id.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print the patch that git would show.")
@base_options
@click.pass_context
def dedupe_command(ctx: click.Context, reassign: bool, dry_run: bool) -> None:
    """Join records that stand twice, field by field; where both changed a field the later __updated_at wins."""
    with opened(ctx) as kb:
        receipt = kb.dedupe(reassign=reassign, dry_run=dry_run)
        if dry_run:
            emit_patch(receipt)
        else:
            emit_files(receipt, updated=receipt.updated, deleted=receipt.deleted)
            tell(receipt.notices)


@click.command("recover")
@one_of(
    "action",
    (("--show",), "show", "Print what is left of an interrupted write; change nothing."),
    (("--forward",), "forward", "Finish it; a file in a third state is kept aside."),
    (("--abort",), "abort", "Undo it."),
)
@base_options
@click.pass_context
def recover_command(ctx: click.Context, action: Literal["show", "forward", "abort"] | None) -> None:
    """Finish a write that was interrupted. Every command does this by itself when it can; this is for when it cannot."""
    from duckkb import app

    emit(app.recover(ctx.ensure_object(dict).get("kb"), action=action, lock_timeout=lock_timeout(ctx)))
