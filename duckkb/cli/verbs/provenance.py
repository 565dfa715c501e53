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
        raise click.BadParameter(f"{value!r} is not of the form 10,20 or 10, or ,20", ctx, param) from None


@base_verb("blame", reads=True, action="blame")
@options.record_type
@click.argument("identity")
@click.argument("field", required=False, metavar="[FIELD[.KEY|[INDEX]]...]")
@click.option(
    "--lines", "-L", "chosen", callback=_parse_line_range, metavar="A,B", help="Of a document: these lines of its file."
)
def blame_command(
    kb: "KnowledgeBase", type_name: str, identity: str, field: str | None, chosen: tuple[int, int | None] | None
) -> None:
    """Of a FIELD that holds a map or a list each value in it by itself: `names` or `names.fr`, `cities[0].size` by place, and of
    a list that merges as a set by value: `tags["red"]`. Of `text`, where that is what a file says, as `git blame` does: a run
    of its `lines` of one commit a line, by their numbers in the file.

    Records are followed by their __id: one that moved to another file has not changed. `commit` is null, and `uncommitted`
    true, where a value is in the working tree alone; `shallow` says that history ends at that commit, so that the value
    may be older.
    """
    if chosen and field not in (None, "text"):
        raise click.UsageError(f"--lines are lines of a document's file, not of its {field}: leave one of them out")
    if runs := kb.provenance.lines(type_name, identity, *(chosen or ())) if chosen or field == "text" else ():
        out.lines(map(_run_line, runs), under="lines")
    else:
        out.lines(blame_lines(kb.provenance.blame(type_name, identity, field), field), under="fields")


@base_verb("log", under="changes", reads=True, action="log")
@options.record_type
@click.argument("identity")
def log_command(kb: "KnowledgeBase", type_name: str, identity: str) -> Any:
    """A commit a line: op, and what each field was and became. What is not committed comes first, with a null `commit`. `op` is insert, update,
    rename (with `was`) or delete.
    """
    return [log_line(entry) for entry in kb.provenance.log(type_name, identity)]


def _run_line(origin: "LineOrigin") -> dict[str, Any]:
    line = {
        "lines": [origin.first, origin.last],
        **signature_object(origin.by, origin.is_boundary),
        "path": origin.path,
    }
    return line | ({"repository": origin.repository} if origin.repository else {})
