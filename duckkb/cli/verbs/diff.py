"""The verb diff: changes of knowledge, record by record."""

import shlex
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from duckkb.actions.registry.record_lines import receipt_line
from duckkb.cli import options, out, printed
from duckkb.cli.commands import ActionCommand, parameters
from duckkb.cli.formats import FORMATS, ROWS, dumps
from duckkb.cli.options import choose_format, read_front_options
from duckkb.cli.verb import base_verb, end, prepare_unopened, report_missing_verdict, verb
from duckkb.review.reports.formats import DIFF, ROWS_BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from duckkb.app import KnowledgeBase
    from duckkb.review.diff.links import ForgeLinks
    from duckkb.review.diff.model import Diff, DiffOptions, Numbers, RecordChange

_ONLY, _GIVEN = "duckkb.only", "duckkb.given"
_AT_ONCE = 64
"""The number of pieces printed together; each print waits for the reader."""


class _WithNames(ActionCommand):
    """A command that takes the words behind `--` as names of types and records, whatever stands before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_ONLY] = tuple(args[at + 1 :])
            args = args[:at]
        ctx.meta[_GIVEN] = list(args)
        return super().parse_args(ctx, args)


@verb(
    "diff",
    formats=tuple(name for name in DIFF if name not in FORMATS),
    action="diff",
    cls=_WithNames,
    options_metavar="[OPTIONS]",
)
@click.argument("range", required=False, metavar="[BASE[..HEAD|...HEAD]] [-- TYPE[:IDENTITY]...]")
@click.option("--staged", is_flag=True, help="Compare with the index.")
@click.option("--worktree", is_flag=True, help="Compare with the current files (the default without a HEAD).")
@click.option("--stat", is_flag=True, help="Print only the numbers by type.")
@click.option("--full", is_flag=True, help="Print everything: all records, and long texts in full.")
@click.option(
    "-w", "--where", metavar="CONDITION", default="", help="Records that satisfy this filter in either version."
)
@parameters("ops", "ignore")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("--exit-code", is_flag=True, help="Exit 1 if anything changed.")
@click.option("--fail-on", type=click.Choice(["error", "warning"]), help="Exit 1 on findings of the change.")
@options.allow_shrink
@parameters(
    "budget",
    default=None,
    metavar="BYTES",
    help="Maximum output in bytes (1,000,000; markdown 60,000, html 100,000,000; patch and github have no limit).",
)
@parameters("after", metavar="CURSOR")
@options.allow_weaker
def diff_command(range: str | None, **given: Any) -> None:
    """Records are matched by __id, so moves between files are no change. BASE compares a commit with the current
    files, BASE..HEAD two commits, BASE...HEAD the merge base with HEAD. The default is HEAD. Names after --
    select types or records. The default is --format text. Records beyond the budget are counted, with the
    command that continues: in the last line of text, markdown and jsonl, in `next` of json, otherwise on
    stderr."""
    from duckkb import app

    only = click.get_current_context().meta.get(_ONLY, ())
    if not given["staged"]:
        note_undone(range, "diff")
    if given["stat"] and not (given["ignore"] or given["where"] or given["ops"] or given["fail_on"] or only):
        _print_numbers(range, given)
        return
    request = {
        name: given[name] for name in ("staged", "worktree", "ignore", "allow_weaker", "allow_shrink", "where", "ops")
    }
    form = choose_format("text")
    is_report = form in DIFF and DIFF[form].is_judged and not given["stat"]
    with report_missing_verdict():
        comparison = app.diff(
            read_front_options().get("kb"), range, only=only, whole=bool(given["fail_on"]) or is_report, **request
        )
    _print(comparison, given)
    findings = [finding for finding in comparison.findings if finding.is_error or given["fail_on"] == "warning"]
    if (given["exit_code"] and not comparison.is_empty) or (given["fail_on"] and findings):
        end()


def note_undone(range: str | None, verb: str) -> None:
    """Print on stderr where the versions of a comparison are the wrong way round."""
    from duckkb.actions.diffing import hint_of_undone

    with report_missing_verdict():
        message = hint_of_undone(prepare_unopened().root, range, verb)
    if message:
        printed.note(message)


@base_verb("apply", tells=False)
@click.argument("patch", metavar="PATCH|-", type=options.PathName())
@click.option("--reverse", is_flag=True, help="Reverse the patch, from its newer version to the older one.")
@click.option("--check", "check_only", is_flag=True, help="Write nothing; exit 1 if the patch does not apply.")
@options.dry_run
@options.allow_shrink
def apply_command(kb: "KnowledgeBase", patch: str, check_only: bool, dry_run: bool, **asked: bool) -> None:
    """The patch comes from `duckkb diff --format patch`, and its older version must match the stored records. If
    records differ, all of them are named and nothing is written (exit 1). Otherwise the files become those of
    the newer version, byte for byte. Prints one line with what was written."""
    data = sys.stdin.buffer.read() if patch == "-" else patch
    receipt = kb.apply_patch(data, dry_run=dry_run or check_only, **asked)
    if dry_run:
        out.patch(receipt)
    elif not check_only:
        out.emit(receipt_line(receipt, named=False))
    out.tell(receipt.notices)


def _print(comparison: "Diff", arguments: dict[str, Any]) -> None:
    from duckkb.review.diff.model import DiffOptions

    form = choose_format("text")
    if arguments["stat"]:
        _print_stat(form, comparison.numbers)
        return
    is_text = form == "text"
    color = is_text and _should_color(arguments["color"])
    diff_options = DiffOptions(
        arguments["full"],
        color,
        _choose_budget(form, arguments),
        arguments["fail_on"] or "error",
        arguments["after"],
        _make_next_command(),
    )
    if form in ROWS:
        _print_rows(comparison, diff_options)
        return
    diff_options = replace(diff_options, links=_find_links(comparison)) if DIFF[form].is_judged else diff_options
    pieces = DIFF[form].lines(comparison, diff_options)
    show = {"text": printed.print_drawing, "markdown": printed.comment}.get(form, printed.result)
    while some := list(islice(pieces, _AT_ONCE)):
        show("\n".join(some))


def _find_links(comparison: "Diff") -> "ForgeLinks | None":
    from duckkb.actions.diffing import links_of

    return links_of(prepare_unopened().root, comparison.base.commit, comparison.head.commit)


def _choose_budget(form: str, arguments: dict[str, Any]) -> int:
    budget = DIFF[form].budget if form in DIFF else ROWS_BUDGET
    if budget is None and (arguments["budget"] or arguments["after"]):
        raise click.UsageError(f"--format {form} is always complete; leave out --budget and --after")
    if arguments["budget"]:
        return int(arguments["budget"])
    return sys.maxsize if arguments["full"] or budget is None else budget


def _make_next_command() -> "Callable[[str], str]":
    """Return a function that makes this command line with other options in place of --after."""
    settings, meta = read_front_options(), click.get_current_context().meta
    arguments, only = meta[_GIVEN], meta.get(_ONLY)
    before = [
        word
        for name in ("kb", "format", "json")
        if settings.get(name) and not any(argument.startswith(f"--{name}") for argument in arguments)
        for word in ([f"--{name}"] if name == "json" else [f"--{name}", str(settings[name])])
    ]
    kept_words = [
        word
        for at, word in enumerate(arguments)
        if not word.startswith("--after") and arguments[at - 1 : at] != ["--after"]
    ]
    names = ["--", *only] if only else []
    return lambda more: shlex.join(["duckkb", *before, "diff", *kept_words, *more.split(" "), *names])


def _print_rows(comparison: "Diff", options: "DiffOptions") -> None:
    from duckkb.review.diff.page import EntryPage
    from duckkb.review.reports.budget import size

    page = EntryPage(comparison, options)
    page.tell_findings()
    rows = page.fit(page.changes, _make_row, lambda row: size(dumps(row)))
    out.lines(rows, ("op", "type", "identity", "was", "fields", "path", "line"))
    if page.left:
        printed.note(f"{page.left:,} more records: {page.next}")


def _print_numbers(range: str | None, arguments: dict[str, Any]) -> None:
    """Print --stat of everything, which reads no value of any record."""
    from duckkb.actions.diffing import numbers

    form = choose_format("text")
    _require_text(form)
    with report_missing_verdict():
        counts = numbers(prepare_unopened().root, range, staged=arguments["staged"], worktree=arguments["worktree"])
    _print_stat(form, counts)
    if arguments["exit_code"] and not counts.is_empty:
        end()


def _print_stat(form: str, counts: "Numbers") -> None:
    from duckkb.review.diff.text import iter_count_lines

    _require_text(form)
    printed.print_drawing("\n".join(iter_count_lines(counts)))


def _require_text(form: str) -> None:
    if form != "text":
        raise click.UsageError(f"--stat prints text; leave out --format {form} (json has the numbers in `summary`)")


def _should_color(choice: str) -> bool:
    from duckkb import config

    return choice == "always" or (choice == "auto" and printed.is_on_terminal() and config.wants_color())


def _make_row(change: "RecordChange") -> dict[str, Any]:
    """Return a record as a row of csv, md and table."""
    return {
        "op": change.op,
        "type": change.type,
        "identity": change.identity,
        "was": change.was,
        "fields": ", ".join(_list_paths(change)) if change.op in ("update", "rename") else None,
        "path": change.place.path,
        "line": change.place.line_no,
    }


def _list_paths(change: "RecordChange") -> "Iterable[str]":
    """Yield what differs of a record: fields, and the values inside them by path."""
    from duckkb.review.diff.values import leaves

    return dict.fromkeys(leaf.name for field in change.fields for leaf in leaves(field.name, field.before, field.after))
