"""The verb diff: changes of knowledge, record by record.

The verbs impact and why: what a change does to search, and why a record is not found.

The verb review: a change under one headline, for those who decide on it.

The verbs blame and log: where a record comes from."""

import shlex
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from duckkb.cli import options, output, terminal
from duckkb.cli.command import ActionCommand, base_verb, end, parameters, prepare_unopened, report_missing_verdict, verb
from duckkb.cli.options import choose_format, read_front_options
from duckkb.cli.record_formats import FORMATS, ROWS, dumps
from duckkb.operations.record_lines import blame_lines, log_line, receipt_line, signature_object
from duckkb.review.report_formats import DIFF, IMPACT, REVIEW, ROWS_BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from duckkb.app import KnowledgeBase
    from duckkb.operations.change_review import ImpactOptions
    from duckkb.review.diff_model import Diff, DiffOptions, Numbers, RecordChange
    from duckkb.review.history import LineOrigin
    from duckkb.review.impact_report import ImpactReport
    from duckkb.review.report_markup import ForgeLinks

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
    from duckkb.operations.version_diff import hint_of_undone

    with report_missing_verdict():
        message = hint_of_undone(prepare_unopened().root, range, verb)
    if message:
        terminal.note(message)


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
        output.patch(receipt)
    elif not check_only:
        output.emit(receipt_line(receipt, named=False))
    output.tell(receipt.notices)


def _print(comparison: "Diff", arguments: dict[str, Any]) -> None:
    from duckkb.review.diff_model import DiffOptions

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
    show = {"text": terminal.print_drawing, "markdown": terminal.comment}.get(form, terminal.result)
    while some := list(islice(pieces, _AT_ONCE)):
        show("\n".join(some))


def _find_links(comparison: "Diff") -> "ForgeLinks | None":
    from duckkb.operations.version_diff import links_of

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
    from duckkb.review.diff_report import EntryPage
    from duckkb.review.report_formats import size

    page = EntryPage(comparison, options)
    page.tell_findings()
    rows = page.fit(page.changes, _make_row, lambda row: size(dumps(row)))
    output.lines(rows, ("op", "type", "identity", "was", "fields", "path", "line"))
    if page.left:
        terminal.note(f"{page.left:,} more records: {page.next}")


def _print_numbers(range: str | None, arguments: dict[str, Any]) -> None:
    """Print --stat of everything, which reads no value of any record."""
    from duckkb.operations.version_diff import numbers

    form = choose_format("text")
    _require_text(form)
    with report_missing_verdict():
        counts = numbers(prepare_unopened().root, range, staged=arguments["staged"], worktree=arguments["worktree"])
    _print_stat(form, counts)
    if arguments["exit_code"] and not counts.is_empty:
        end()


def _print_stat(form: str, counts: "Numbers") -> None:
    from duckkb.review.diff_text import iter_count_lines

    _require_text(form)
    terminal.print_drawing("\n".join(iter_count_lines(counts)))


def _require_text(form: str) -> None:
    if form != "text":
        raise click.UsageError(f"--stat prints text; leave out --format {form} (json has the numbers in `summary`)")


def _should_color(choice: str) -> bool:
    from duckkb import config

    return choice == "always" or (choice == "auto" and terminal.is_on_terminal() and config.wants_color())


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
    from duckkb.review.record_changes import leaves

    return dict.fromkeys(leaf.name for field in change.fields for leaf in leaves(field.name, field.before, field.after))


@verb("impact", formats=tuple(IMPACT), action="impact")
@click.argument("range_text", metavar="[BASE[...HEAD]]", required=False)
@parameters("k")
@options.limits
@click.option(
    "--budget",
    type=click.IntRange(min=2_000),
    default=IMPACT["markdown"].budget,
    show_default=True,
    metavar="BYTES",
    help="Maximum bytes of a comment (--format markdown); omitted answers are counted.",
)
@options.allow_weaker
@click.option(
    "--model",
    "models",
    metavar="[OLD]...NEW",
    help="Compare two models (given as for `index migrate --to`) over the current records; OLD defaults to the "
    "configured one.",
)
def impact_command(
    range_text: str | None, *, k: int, limits: dict[str, float], budget: int, allow_weaker: bool, models: str | None
) -> None:
    """\b
    duckkb impact                                      HEAD against the working tree
    duckkb impact main...topic --fail-on ndcg=0.05 --fail-on lost=1
    duckkb impact main...HEAD --format markdown
    duckkb impact --model ...text-embedding-3-large --fail-on ndcg=0.02

    A question is `{question, type, mode?, where?, expected: {IDENTITY: grade}}` under `questions:`. Both sides
    are read from git, or from the working tree, and share the caches of vectors. --format json prints one
    object, jsonl one question per line."""
    from duckkb.operations.change_review import ImpactOptions
    from duckkb.review.impact_report import convert_report_to_object

    with report_missing_verdict():
        report = _report(
            range_text, models, ImpactOptions(k, limits, bool(read_front_options().get("lenient")), allow_weaker)
        )
    form = choose_format("text")
    if form in IMPACT:
        for line in IMPACT[form].lines(report, budget):
            (terminal.print_drawing if form == "text" else terminal.comment)(line)
    elif form == "json":
        output.emit(convert_report_to_object(report))
    else:
        output.lines(convert_report_to_object(report)["results"])
    if models is None:
        note_undone(range_text, "impact")
    for message in report.crossed:
        terminal.note(f"limit crossed: {message}")
    if report.crossed or (limits and report.errors):
        end()


def _report(range_text: str | None, models: str | None, options: "ImpactOptions") -> "ImpactReport":
    from duckkb.operations.change_review import impact
    from duckkb.operations.embedding_models import impact_of_models

    if models is None:
        return impact(prepare_unopened(), range_text, options)
    if range_text is not None:
        raise click.UsageError("--model compares models over the current records: leave out the revisions.")
    return impact_of_models(prepare_unopened(), models, options)


@base_verb("quality", action="quality")
@parameters("limit", "evaluate", "timeout", "at")
def quality_command(kb: "KnowledgeBase", **how: Any) -> Any:
    """\b
    duckkb quality
    duckkb quality --evaluate 20 --timeout 600

    `commits` are the evaluated commits of the history; --evaluate adds more, the newest first. Each commit
    answers today's questions with its own configuration, so later records are not found. Work that does not fit
    into the time is counted (`left`, `commits_left`), and the next call continues. Prints one object."""
    output.only_json("an account of quality")
    return kb.quality(**how)


@base_verb("why", formats=("text",), first_filter="where", action="why")
@options.record_type
@click.argument("identity")
@click.argument("query")
@options.mode
@parameters("where", "limit", "at")
def why_command(kb: "KnowledgeBase", type_name: str, identity: str, query: str, **how: Any) -> None:
    """\b
    duckkb why concept fsync "what happens when the power goes out"
    duckkb why concept fsync "power" -m -w "topic = 'storage'"

    Shows whether the filter or a -word removed the record, and which words of the question it has. Also its
    rank in each lane, chunks without a vector, and what the type's policy allows. Prints a page of text, or
    --json."""
    from duckkb.review.explanation import convert_why_to_object, iter_why_text

    explanation = kb.why(type_name, identity, query, **how)
    if choose_format("text") == "text":
        for line in iter_why_text(explanation):
            terminal.result(terminal.one_line(line))
    else:
        output.emit(convert_why_to_object(explanation))


@verb("review", formats=tuple(name for name in REVIEW if name not in FORMATS))
@click.argument("range_text", metavar="[BASE[..HEAD|...HEAD]]", required=False)
@options.limits
@parameters("k", action="impact")
@click.option(
    "--page", metavar="FILE", type=options.PathName(written=True), help="Also write the page (--format html)."
)
@click.option("--sarif", metavar="FILE", type=options.PathName(written=True), help="Also write the SARIF log.")
@click.option(
    "--budget",
    type=click.IntRange(min=4_000),
    metavar="BYTES",
    help="Maximum output in bytes (markdown 60,000, json 1,000,000; github and sarif have no limit).",
)
@options.force
@options.allow_shrink
@options.allow_weaker
def review_command(
    range_text: str | None,
    *,
    limits: dict[str, float],
    k: int,
    page: str | None,
    sarif: str | None,
    budget: int | None,
    force: bool,
    allow_shrink: bool,
    allow_weaker: bool,
) -> None:
    """Prints the comment for a pull request.

    \b
    duckkb review main...topic
    duckkb review main...HEAD --fail-on ndcg=0.05 --page knowledge.html --sarif duckkb.sarif

    Every format has all findings of `duckkb check --since`. The headline names the codes of errors and
    warnings, exceeded limits, checks that could not run, and parts that were not judged. Exit 1 unless it
    passed. The default is --format markdown; csv and table are not available."""
    from duckkb.operations.change_review import ImpactOptions, lines, refuse_places, review, save

    output.only_json("a review")
    around = prepare_unopened()
    refuse_places(around, filter(None, (page, sarif)))
    allowances = {"allow_weaker": allow_weaker, "allow_shrink": allow_shrink}
    with report_missing_verdict():
        impact_options = ImpactOptions(k, limits, bool(read_front_options().get("lenient")), allow_weaker)
        report = review(around, range_text, impact_options, allow_shrink=allow_shrink)
    for form, file in (("html", page), ("sarif", sarif)):
        if file is not None and not (form == "html" and "diff" in report.problems):
            save(around, file, lines(around, report, form), force=force)
    form = {"jsonl": "json"}.get(name := choose_format("markdown"), name)
    again = ["duckkb", "diff", *filter(None, [range_text]), "--format", "markdown"]
    again += [f"--{name.replace('_', '-')}" for name, has_allowance in allowances.items() if has_allowance]
    for piece in lines(around, report, form, budget, lambda more: shlex.join([*again, *more.split(" ")])):
        (terminal.comment if form == "markdown" else terminal.result)(piece)
    note_undone(range_text, "review")
    for name, problem in report.problems.items():
        terminal.note(f"{name} could not run: {problem.code}: {problem.message}")
    if "diff" in report.problems and (suggestion := report.problems["diff"].suggestion):
        terminal.note(f"  try: {suggestion}")
    if report.outcome != "passed":
        end()


def _parse_line_range(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    first, _, last = (value or "").partition(",")
    try:
        return (int(first or 1), int(last) if last else None) if value else None
    except ValueError:
        raise click.BadParameter(f"{value!r} must look like 10,20 or 10, or ,20", ctx, param) from None


@base_verb("blame", reads=True, action="blame")
@options.record_type
@click.argument("identity")
@click.argument("field", required=False, metavar="[FIELD[.KEY|[INDEX]]...]")
@click.option(
    "--lines",
    "-L",
    "chosen",
    callback=_parse_line_range,
    metavar="A,B",
    help="For a document: these lines of its file.",
)
def blame_command(
    kb: "KnowledgeBase", type_name: str, identity: str, field: str | None, chosen: tuple[int, int | None] | None
) -> None:
    """A FIELD with a map or list has one line per value: `names` or `names.fr`, `cities[0].size` by position, and
    `tags["red"]` by value for a list that merges as a set. The `text` of a document has one line per run of
    `lines` from the same commit, like `git blame`. Records are followed by their __id, so a move between files
    is no change. For an uncommitted value `commit` is null and `uncommitted` is true. `shallow` means that the
    history ends at that commit, so the value may be older."""
    if chosen and field not in (None, "text"):
        raise click.UsageError(f"--lines counts lines of a document's file, not of its {field}: leave out one of them")
    if runs := kb.provenance.lines(type_name, identity, *(chosen or ())) if chosen or field == "text" else ():
        output.lines(map(_run_line, runs), under="lines")
    else:
        output.lines(blame_lines(kb.provenance.blame(type_name, identity, field), field), under="fields")


@base_verb("log", under="changes", reads=True, action="log")
@options.record_type
@click.argument("identity")
def log_command(kb: "KnowledgeBase", type_name: str, identity: str) -> Any:
    """Prints one line per commit: op, and the old and new value of each field. Uncommitted changes come first, with
    a null `commit`. `op` is insert, update, rename (with `was`) or delete."""
    return [log_line(entry) for entry in kb.provenance.log(type_name, identity)]


def _run_line(origin: "LineOrigin") -> dict[str, Any]:
    line = {
        "lines": [origin.first, origin.last],
        **signature_object(origin.by, origin.is_boundary),
        "path": origin.path,
    }
    return line | ({"repository": origin.repository} if origin.repository else {})
