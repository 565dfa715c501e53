"""impact, why: what a change does to search, and why a record is not found."""

from typing import TYPE_CHECKING

import click

from duckkb.cli import printed
from duckkb.cli.common import base_options_and, chosen_format, emit, emit_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from duckkb.review.impact import Report

_MEASURES = ("ndcg", "recall", "lost")


class Limit(click.ParamType):
    """`ndcg=0.05`: a measure and the number from which on it fails."""

    name = "limit"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, _, number = value.partition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        whole = name != "lost" or limit == int(limit) if 0 <= limit < 1e9 else False
        if name not in _MEASURES or not whole:
            self.fail(f"{value!r}: give ndcg=DROP, recall=DROP (0 to 1) or lost=NUMBER", param, ctx)
        return name, limit


@click.command("impact")
@click.argument("range_text", metavar="[BASE[...HEAD]]", required=False)
@click.option("-k", "k", type=click.IntRange(1, 1_000), default=10, show_default=True, help="How many results count.")
@click.option(
    "--fail-on",
    "limits",
    type=Limit(),
    multiple=True,
    metavar="MEASURE=LIMIT",
    help="Exit 1 where mean ndcg or recall falls by this much or more, or this many judged records are lost; repeatable.",
)
@base_options_and("text", "markdown")
@click.pass_context
def impact_command(
    ctx: click.Context, range_text: str | None, *, k: int, limits: tuple[tuple[str, float], ...]
) -> None:
    """Ask the judged questions of ontology/ before and after a change, and say what moved.

    \b
    duckkb impact                                      HEAD against the working tree
    duckkb impact main...topic --fail-on ndcg=0.05 --fail-on lost=1
    duckkb impact main...HEAD --format markdown

    A question is `{question, type, mode?, where?, expected: {IDENTITY: grade}}` under `questions:`. Both sides are read from
    git, or from the working tree, and share the caches of vectors. With --format json one object, jsonl a question a line.
    """
    from duckkb.app.impact import impact
    from duckkb.review.impact_report import as_markdown, as_object, as_text

    report = impact(ctx.ensure_object(dict).get("kb"), range_text, k=k, fail_on=dict(limits))
    form = chosen_format(ctx, "text")
    pages: Mapping[str, Callable[[Report], Iterator[str]]] = {"text": as_text, "markdown": as_markdown}
    if form in pages:
        for line in pages[form](report):
            printed.result(line)
    elif form == "json":
        emit(as_object(report))
    else:
        emit_lines(as_object(report)["results"])
    for said in report.crossed:
        printed.note(f"limit crossed: {said}")
    if report.crossed:
        ctx.exit(1)
