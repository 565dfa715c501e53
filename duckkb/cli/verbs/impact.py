"""impact, why: what a change does to search, and why a record is not found."""

from typing import Literal

import click

from duckkb.cli import printed
from duckkb.cli.common import (
    allow_weaker_option,
    at_option,
    base_options_and,
    chosen_format,
    emit,
    emit_lines,
    judging,
    mode_options,
    opened,
    tell,
    unopened,
)
from duckkb.review.reports.formats import IMPACT

_COUNTS = ("lost", "faded")
_MEASURES = ("ndcg", "recall", *_COUNTS)


def _limits(ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
    """`ndcg=0.05`: a measure, and the number from which on it fails."""
    found = {}
    for text in given:
        name, _equals, number = text.partition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        most = 1e9 if name in _COUNTS else 1
        if name not in _MEASURES or not 0 <= limit <= most or (name in _COUNTS and limit != int(limit)):
            raise click.BadParameter(f"{text!r}: give ndcg=DROP, recall=DROP (0 to 1), lost=NUMBER or faded=NUMBER")
        found[name] = limit
    return found


@click.command("impact")
@click.argument("range_text", metavar="[BASE[...HEAD]]", required=False)
@click.option("-k", "k", type=click.IntRange(1, 1_000), default=10, show_default=True, help="How many results count.")
@click.option(
    "--fail-on",
    "limits",
    callback=_limits,
    multiple=True,
    metavar="MEASURE=LIMIT",
    help="Exit 1 where mean ndcg or recall falls by this much or more, or so many judged records are lost or faded (half of their words' score gone); repeatable.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=2_000),
    default=IMPACT["markdown"].budget,
    show_default=True,
    metavar="BYTES",
    help="The most bytes of a comment (--format markdown); what has no room is counted.",
)
@allow_weaker_option
@base_options_and(*IMPACT)
@click.pass_context
def impact_command(
    ctx: click.Context, range_text: str | None, *, k: int, limits: dict[str, float], budget: int, allow_weaker: bool
) -> None:
    """Ask the judged questions of ontology/ before and after a change, and say what moved.

    \b
    duckkb impact                                      HEAD against the working tree
    duckkb impact main...topic --fail-on ndcg=0.05 --fail-on lost=1
    duckkb impact main...HEAD --format markdown

    A question is `{question, type, mode?, where?, expected: {IDENTITY: grade}}` under `questions:`. Both sides are read from
    git, or from the working tree, and share the caches of vectors. With --format json one object, jsonl a question a line.
    """
    from duckkb.actions.impact import ImpactOptions, impact
    from duckkb.review.impact.impact_report import as_object

    with judging(ctx):
        options = ImpactOptions(k, limits, bool(ctx.ensure_object(dict).get("lenient")), allow_weaker)
        report = impact(unopened(ctx), range_text, options)
    form = chosen_format(ctx, "text")
    if form in IMPACT:
        for line in IMPACT[form].lines(report, budget):
            (printed.drawn if form == "text" else printed.comment)(line)
    elif form == "json":
        emit(as_object(report))
    else:
        emit_lines(as_object(report)["results"])
    for said in report.crossed:
        printed.note(f"limit crossed: {said}")
    if report.crossed or (limits and report.errors):
        ctx.exit(1)


@click.command("why")
@click.argument("type_name", metavar="TYPE")
@click.argument("identity")
@click.argument("query")
@mode_options
@click.option("-w", "--where", metavar="CONDITION", help="The filter of the search.")
@click.option("-l", "--limit", type=int, default=10, show_default=True, help="How many records the search gives.")
@at_option
@base_options_and("text")
@click.pass_context
def why_command(
    ctx: click.Context,
    type_name: str,
    identity: str,
    query: str,
    *,
    mode: Literal["similar", "match", "hybrid"] | None,
    where: str | None,
    limit: int,
    at: str | None,
) -> None:
    """Say why a search finds a record where it does, or does not find it.

    \b
    duckkb why concept fsync "what happens when the power goes out"
    duckkb why concept fsync "power" -m -w "topic = 'storage'"

    Names what the filter or a -word removed, the words of the question that the record has and lacks, its rank in each lane
    also where it is below the cut, chunks without a vector, and what the type's policy allows. A page of text, or --json.
    """
    from duckkb.review.impact.why import as_object, as_text

    with opened(ctx, first_filter=where, at=at) as kb:
        found = kb.why(type_name, identity, query, mode=mode, where=where, limit=limit)
        if chosen_format(ctx, "text") == "text":
            for line in as_text(found):
                printed.result(printed.one_line(line))
        else:
            emit(as_object(found))
        tell(kb.notices)
