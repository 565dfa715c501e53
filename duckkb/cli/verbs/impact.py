"""The verbs impact and why: what a change does to search, and why a record is not found."""

from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.options import choose_format, read_front_options
from duckkb.cli.verb import base_verb, end, prepare_unopened, report_missing_verdict, verb
from duckkb.cli.verbs.diff import note_undone
from duckkb.review.reports.formats import IMPACT

if TYPE_CHECKING:
    from duckkb.actions.impact import ImpactOptions
    from duckkb.app import KnowledgeBase
    from duckkb.review.impact.impact import ImpactReport


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
    from duckkb.actions.impact import ImpactOptions
    from duckkb.review.impact.impact_report import convert_report_to_object

    with report_missing_verdict():
        report = _report(
            range_text, models, ImpactOptions(k, limits, bool(read_front_options().get("lenient")), allow_weaker)
        )
    form = choose_format("text")
    if form in IMPACT:
        for line in IMPACT[form].lines(report, budget):
            (printed.print_drawing if form == "text" else printed.comment)(line)
    elif form == "json":
        out.emit(convert_report_to_object(report))
    else:
        out.lines(convert_report_to_object(report)["results"])
    if models is None:
        note_undone(range_text, "impact")
    for message in report.crossed:
        printed.note(f"limit crossed: {message}")
    if report.crossed or (limits and report.errors):
        end()


def _report(range_text: str | None, models: str | None, options: "ImpactOptions") -> "ImpactReport":
    from duckkb.actions.impact import impact
    from duckkb.actions.models.comparing import impact_of_models

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
    out.only_json("an account of quality")
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
    from duckkb.review.impact.why import convert_why_to_object, iter_why_text

    explanation = kb.why(type_name, identity, query, **how)
    if choose_format("text") == "text":
        for line in iter_why_text(explanation):
            printed.result(printed.one_line(line))
    else:
        out.emit(convert_why_to_object(explanation))
