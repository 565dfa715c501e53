"""The verb review: a change under one headline, for those who decide on it."""

import shlex

import click

from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.formats import FORMATS
from duckkb.cli.options import choose_format, read_front_options
from duckkb.cli.verb import end, prepare_unopened, report_missing_verdict, verb
from duckkb.cli.verbs.diff import note_undone
from duckkb.review.reports.formats import REVIEW


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
    from duckkb.actions.impact import ImpactOptions
    from duckkb.actions.reviewing import lines, refuse_places, review, save

    out.only_json("a review")
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
        (printed.comment if form == "markdown" else printed.result)(piece)
    note_undone(range_text, "review")
    for name, problem in report.problems.items():
        printed.note(f"{name} could not run: {problem.code}: {problem.message}")
    if "diff" in report.problems and (suggestion := report.problems["diff"].suggestion):
        printed.note(f"  try: {suggestion}")
    if report.outcome != "passed":
        end()
