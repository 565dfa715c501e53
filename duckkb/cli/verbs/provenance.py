"""The verbs blame and log: where a record comes from."""

from typing import TYPE_CHECKING, Any

import click

from duckkb.actions.registry.record_lines import blame_lines, log_line, signature_object
from duckkb.cli import options, out
from duckkb.cli.verb import base_verb

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.review.provenance.history import LineOrigin


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
        out.lines(map(_run_line, runs), under="lines")
    else:
        out.lines(blame_lines(kb.provenance.blame(type_name, identity, field), field), under="fields")


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
