"""The verbs check, fmt, dedupe, recover and backup: maintenance of truth, and its backups."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import click

from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.options import choose_format, lock_timeout, read_front_options
from duckkb.cli.verb import base_verb, end, group, open_named_base, prepare_unopened, report_missing_verdict, verb
from duckkb.review.reports.formats import CHECK

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.review.check.findings import CheckReport


@verb("check", formats=tuple(CHECK), action="check")
@parameters("since")
@click.option("--staged", is_flag=True, help="Only what the staged change brings.")
@options.fail_on
@options.allow_shrink
@options.allow_weaker
def check_command(since: str | None, fail_on: Literal["error", "warning"], **given: bool) -> None:
    """It is about bytes, JSON, order, schema, identities, ids, edges, days and sizes. Exit 1 on errors (or on warnings with --fail-on warning).
    With --since or --staged only what the change brings or touches, and findings on the change itself: mass deletions, an
    error unless --allow-shrink; rules by which changes are judged that are gone or weaker (E_GUARD); mass edits, renames, what
    nobody sees, near duplicates. The default is --format text: lines for people, those that say the same of many records as
    one, with a count and the first places; --format jsonl has each finding by itself, json both.
    """
    from duckkb import app

    with report_missing_verdict():
        report = app.check(read_front_options().get("kb"), lock_timeout=lock_timeout(), since=since, **given)
    form = choose_format("text")
    if form in CHECK:
        for line in CHECK[form].lines(report.findings, report.prefix):
            printed.result(printed.one_line(line) if form == "text" else line)
    else:
        _print_findings(report, form, fail_on)
    if form != "json":
        noun = "changed record" if since is not None or given["staged"] else "record"
        counts = ((report.records, noun), (report.errors, "error"), (report.warnings, "warning"))
        printed.note(", ".join(f"{count} {label}{'' if count == 1 else 's'}" for count, label in counts))
    if report.errors or (fail_on == "warning" and report.warnings):
        end()


def _print_findings(report: "CheckReport", form: str, fail_on: str) -> None:
    from duckkb.actions.registry.record_lines import finding_line, report_object
    from duckkb.review.reports.findings import summarize_groups

    # A Markdown table is a report for people on a forge.
    is_page = form == "md"
    if form == "json":
        out.emit(report_object(report, fail_on))
    else:
        findings = (
            [finding.prefix_path(report.prefix) for finding in summarize_groups(report.findings, report.prefix)]
            if is_page
            else report.findings
        )
        out.lines(map(finding_line, findings))


@verb("fmt")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if a file would change.")
def fmt_command(check_only: bool) -> None:
    """Those that are not canonical or not sorted; hand-written lines are completed. Prints a `file` a line."""
    with report_missing_verdict() if check_only else nullcontext(), open_named_base() as kb:
        receipt = kb.fmt(check=check_only)
        out.files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        out.tell(receipt.notices)
        if check_only and receipt.files:
            end()


@base_verb("dedupe", tells=False)
@click.option("--reassign", is_flag=True, help="Give the later of two records with one __id a free id.")
@options.dry_run
def dedupe_command(kb: "KnowledgeBase", reassign: bool, dry_run: bool) -> None:
    """Field by field; where both changed a field the later __updated_at wins."""
    receipt = kb.dedupe(reassign=reassign, dry_run=dry_run)
    if dry_run:
        out.patch(receipt)
    else:
        out.files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        out.tell(receipt.notices)


@verb("recover")
@options.one_of(
    "action",
    (("--show",), "show", "Print what is left of an interrupted write; change nothing."),
    (("--forward",), "forward", "Finish it; a file in a third state is kept aside."),
    (("--abort",), "abort", "Undo it."),
)
def recover_command(action: Literal["show", "forward", "abort"] | None) -> None:
    """Every command does this by itself when it can; this is for when it cannot.

    A merge that was killed together with its git is taken back: its files become what HEAD has, and `duckkb merge` can begin anew.
    """
    from duckkb.actions import folder

    out.emit(folder.recover(read_front_options().get("kb"), action=action, lock_timeout=lock_timeout()))


@group("backup")
def backup_command() -> None:
    """The file has its history, and what no commit has."""


@verb("create", group=backup_command)
@click.argument("file", required=False, type=options.PathName(written=True))
@options.force
def backup_create_command(file: str | None, *, force: bool) -> None:
    """Save the base, its repository's history and its documents in FILE.

    Without FILE it is NAME-TIME.duckkb.zip in the current folder, or, as that would be a new file of the repository, beside it
    when the current folder lies inside.

    All branches, tags and stashes, what is staged, and each file that HEAD does not have as it is: changed, deleted, and in the
    base's own folder new, but not what git ignores, unless it is truth or a document. Settings, hooks and remotes of git are not saved, nor what can be
    made anew. Prints one line; `left_out` names what else is missing, and why.
    """
    from duckkb.actions.backup.create import create

    line = create(prepare_unopened().root, file, force=force, lock_timeout=lock_timeout())
    out.emit(line)
    for entry in line["left_out"]:
        printed.note(f"left out: {entry}")


@verb("verify", group=backup_command)
@click.argument("file", type=options.PathName())
def backup_verify_command(file: str) -> None:
    """Say whether FILE is whole: its digest, each file, its history, and that its base loads. Exit 1 with what is wrong.

    It is restored to a temporary folder. `errors` and `warnings` are those that `check` finds in the base; they are no fault of
    the backup.
    """
    from duckkb import app

    out.emit(app.verify_backup(file))


@verb("restore", group=backup_command)
@click.argument("file", type=options.PathName())
@click.argument("folder", required=False, type=options.PathName(written=True))
@click.option(
    "--force", is_flag=True, help="Take the place of a folder that exists, which is kept as FOLDER.before-TIME."
)
def backup_restore_command(file: str, folder: str | None, *, force: bool) -> None:
    """Make FOLDER of a backup (the current folder gets one that is called as the one that was saved).

    A base in a part of a repository comes back with the repository. Nothing is at FOLDER before all of it is.
    """
    from duckkb import app

    line = app.restore_backup(file, folder, force=force, lock_timeout=lock_timeout())
    out.emit(line)
    if line["before"]:
        printed.note(f"what was there before is now {line['before']}")
    if line["repair"]:
        printed.note(f"work trees that are linked with it look for it under its old name: {line['repair']}")
    if line["commit"] or line["branch"]:
        printed.note("settings, hooks and remotes of git are in no backup: set what you need anew")
