"""check, fmt, dedupe, recover: keeping truth in order."""

from typing import TYPE_CHECKING, Literal

import click

from duckkb.cli import printed
from duckkb.cli.common import base_options, base_options_and, chosen_format, emit, emit_lines, only_json, opened, tell

if TYPE_CHECKING:
    from duckkb.queries import Receipt


@click.command("check")
@click.option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@base_options_and("text")
@click.pass_context
def check_command(ctx: click.Context, fail_on: Literal["error", "warning"]) -> None:
    """Report everything that is wrong in data/: bytes, JSON, order, schema, identities, ids, edges, days, sizes.

    Every finding has a stable rule id, its place and a remedy. Exit 1 on errors (or on warnings with --fail-on warning).
    The one verb whose default is --format text: lines for people and for a pull request's log.
    """
    from dataclasses import asdict

    from duckkb import app

    chosen = ctx.ensure_object(dict)
    report = app.check(chosen.get("kb"), lock_timeout=chosen.get("lock_timeout", 60.0))
    form = chosen_format(ctx, "text")
    findings = [{key: value for key, value in asdict(one).items() if value} for one in report.findings]
    if form == "json":
        emit({"errors": report.errors, "warnings": report.warnings, "records": report.records, "findings": findings})
    else:
        if form == "text":
            for finding in report.findings:
                printed.result(printed.one_line(str(finding)))
        else:
            emit_lines(findings)
        printed.note(f"{report.records} records, {report.errors} errors, {report.warnings} warnings")
    if report.errors or (fail_on == "warning" and report.warnings):
        ctx.exit(1)


@click.command("fmt")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if a file would change.")
@base_options
@click.pass_context
def fmt_command(ctx: click.Context, check_only: bool) -> None:
    """Rewrite parts that are not canonical or not sorted, and complete hand-written lines. Prints a `file` a line."""
    with opened(ctx) as kb:
        receipt = kb.fmt(check=check_only)
        _files(ctx, receipt)
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
            only_json("a patch")
            printed.result(receipt.patch, end="")
        else:
            _files(ctx, receipt)


@click.command("recover")
@click.option("--show", "action", flag_value="show", help="Print what is left of an interrupted write; change nothing.")
@click.option("--forward", "action", flag_value="forward", help="Finish it; a file in a third state is kept aside.")
@click.option("--abort", "action", flag_value="abort", help="Undo it.")
@base_options
@click.pass_context
def recover_command(ctx: click.Context, action: Literal["show", "forward", "abort"] | None) -> None:
    """Finish a write that was interrupted. Every command does this by itself when it can; this is for when it cannot."""
    from duckkb import app

    chosen = ctx.ensure_object(dict)
    emit(app.recover(chosen.get("kb"), action=action, lock_timeout=chosen.get("lock_timeout", 60.0)))


def _files(ctx: click.Context, receipt: "Receipt") -> None:
    if chosen_format(ctx) == "json":
        emit({"files": list(receipt.files), "updated": receipt.updated, "deleted": receipt.deleted})
    else:
        emit_lines({"file": path} for path in receipt.files)
    tell(receipt.notices)
