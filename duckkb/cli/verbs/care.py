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
@click.option("--staged", is_flag=True, help="Report only findings of the staged change.")
@options.fail_on
@options.allow_shrink
@options.allow_weaker
def check_command(since: str | None, fail_on: Literal["error", "warning"], **given: bool) -> None:
    """Checks bytes, JSON, order, schemas, identities, ids, edges, days and sizes. Exit 1 on errors (or on warnings
    with --fail-on warning). With --since or --staged reports only records that the change touches, and the
    change itself: mass deletions (an error unless --allow-shrink), removed or weakened rules for changes
    (E_GUARD), mass edits, renames, invisible characters, near duplicates. The default is --format text: lines
    for people, where equal findings are one line with a count and the first places. --format jsonl has each
    finding, json both."""
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
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if any file would change.")
def fmt_command(check_only: bool) -> None:
    """Rewrites parts that are not canonical or not sorted, and completes hand-written lines. Prints each as a
    `file` line."""
    with report_missing_verdict() if check_only else nullcontext(), open_named_base() as kb:
        receipt = kb.fmt(check=check_only)
        out.files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        out.tell(receipt.notices)
        if check_only and receipt.files:
            end()


@base_verb("dedupe", tells=False)
@click.option("--reassign", is_flag=True, help="Give a free id to the later of two records with the same __id.")
@options.dry_run
def dedupe_command(kb: "KnowledgeBase", reassign: bool, dry_run: bool) -> None:
    """Joins them field by field; where both changed a field, the later __updated_at wins."""
    receipt = kb.dedupe(reassign=reassign, dry_run=dry_run)
    if dry_run:
        out.patch(receipt)
    else:
        out.files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        out.tell(receipt.notices)


@verb("recover")
@options.one_of(
    "action",
    (("--show",), "show", "Print the remains of an interrupted write; change nothing."),
    (("--forward",), "forward", "Finish the write; move a file in an unexpected state aside."),
    (("--abort",), "abort", "Undo it."),
)
def recover_command(action: Literal["show", "forward", "abort"] | None) -> None:
    """Commands recover by themselves where they can; use this where they cannot. A merge that was killed together
    with its git is undone: its files return to HEAD, and you can run `duckkb merge` again."""
    from duckkb.actions import folder

    out.emit(folder.recover(read_front_options().get("kb"), action=action, lock_timeout=lock_timeout()))


@group("backup")
def backup_command() -> None:
    """The backup contains the history and all uncommitted work."""


@verb("create", group=backup_command)
@click.argument("file", required=False, type=options.PathName(written=True))
@options.force
def backup_create_command(file: str | None, *, force: bool) -> None:
    """Save the base, its repository's history and its documents in FILE.

    The default FILE is NAME-TIME.duckkb.zip in the current folder; inside the repository it goes beside the
    repository.

    Saves all branches, tags and stashes, the index, and each file that differs from HEAD. New files are saved
    from the base's own folder; files that git ignores only if they are records or documents. Git settings,
    hooks and remotes are not saved, nor derived files. Prints one line; `left_out` names everything else that
    is missing, and why."""
    from duckkb.actions.backup.create import create

    line = create(prepare_unopened().root, file, force=force, lock_timeout=lock_timeout())
    out.emit(line)
    for entry in line["left_out"]:
        printed.note(f"left out: {entry}")


@verb("verify", group=backup_command)
@click.argument("file", type=options.PathName())
def backup_verify_command(file: str) -> None:
    """Verify FILE: its digest, each file, its history, and that its base loads. Exits 1 with the problems. The test
    restores it to a temporary folder. `errors` and `warnings` are what `check` finds in the base, not faults of
    the backup."""
    from duckkb import app

    out.emit(app.verify_backup(file))


@verb("restore", group=backup_command)
@click.argument("file", type=options.PathName())
@click.argument("folder", required=False, type=options.PathName(written=True))
@click.option("--force", is_flag=True, help="Replace an existing folder, which is kept as FOLDER.before-TIME.")
def backup_restore_command(file: str, folder: str | None, *, force: bool) -> None:
    """Restore a backup to FOLDER (by default a folder of the saved name in the current one). A base inside a larger
    repository is restored with that repository. FOLDER appears only when it is complete."""
    from duckkb import app

    line = app.restore_backup(file, folder, force=force, lock_timeout=lock_timeout())
    out.emit(line)
    if line["before"]:
        printed.note(f"the previous folder is now {line['before']}")
    if line["repair"]:
        printed.note(f"linked work trees still refer to its old name: {line['repair']}")
    if line["commit"] or line["branch"]:
        printed.note("backups do not contain git settings, hooks and remotes: set them up again")
