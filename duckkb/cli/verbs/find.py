"""find, sql, graph, embed: asking."""

import sys
from collections.abc import Sequence
from itertools import count
from typing import Any, Literal

import click

from duckkb.cli import printed
from duckkb.cli.common import (
    PathName,
    Seconds,
    at_option,
    base_options,
    emit,
    emit_lines,
    mode_options,
    only_json,
    opened,
    read_text,
    tell,
    wants_json,
)
from duckkb.cli.projection import OF_HITS, OF_STEPS, Fields, fields_option, project, shape
from duckkb.cli.slips import Group


@click.command("find")
@click.argument("type_name", metavar="TYPE|all")
@click.argument("query", required=False)
@mode_options
@click.option("-w", "--where", metavar="CONDITION", help="A filter over fields; alone it lists what satisfies it.")
@click.option("-l", "--limit", type=int, default=10, show_default=True, help="How many records.")
@click.option(
    "--vector",
    metavar="FILE|-",
    type=PathName(),
    help="A question as a vector: a JSON array of numbers, or as `embed` prints it.",
)
@click.option("--explain", is_flag=True, help="Say why each record ranks where it does.")
@click.option("--provenance", is_flag=True, help="Say which commit each record's line is from, and how to cite it.")
@fields_option
@click.option("--no-chunk", is_flag=True, help="Do not say where in a longer text it was found.")
@at_option
@base_options
@click.pass_context
def find_command(
    ctx: click.Context,
    type_name: str,
    query: str | None,
    *,
    mode: Literal["similar", "match", "hybrid"] | None,
    where: str | None,
    limit: int,
    vector: str | None,
    explain: bool,
    provenance: bool,
    asked: Fields | None,
    no_chunk: bool,
    at: str | None,
) -> None:
    """Search one type, or all of them.

    \b
    duckkb find concept "how are ranked lists joined"
    duckkb find concept "倒数排名融合" -m -l 3
    duckkb find concept -w "topic = 'storage' AND name LIKE 'P%'"

    Without a flag the type's policy decides; with both words and vectors that is hybrid. A filter is applied before
    ranking: as many results as match, up to the limit. With --vector alone the search is by that vector, with a query
    as well it is hybrid, by the query's words and that vector.

    A line is the record with _type, _etag, _engine and _score, and _chunk where the best piece is a part of a longer text.
    --fields +_chunk,_scores,__id,__updated_at prints more, --fields id,_score less; vectors that callers gave are printed
    only where they are named.
    """
    from duckkb.cli.lines import hit_lines, result_object
    from duckkb.errors import NotFound

    if mode == "similar" and query is None and vector is None:
        query = read_text().strip() if not sys.stdin.isatty() else None
    if vector is not None and vector.lstrip().startswith("["):
        (param,) = (one for one in ctx.command.params if one.name == "vector")
        raise click.BadParameter("a vector stands in a file, or comes on stdin (-)", ctx, param)
    with opened(ctx, first_filter=where, at=at) as kb:
        near = kb.vector_input(vector, stdin=sys.stdin.buffer) if vector is not None else None
        result = kb.find(type_name, query, mode=mode, where=where, limit=limit, vector=near, explain=explain)
        tell(result.notices)
        if not result:
            raise NotFound("no results", code="E_NO_RESULTS", suggestion="loosen the query or the filter")
        origins = kb.provenance.of(result) if provenance else ()
        found = hit_lines(result, origins)
        for _, form in found if no_chunk else ():
            form.pop("_chunk", None)
        wanted = shape(kb, type_name, asked, OF_HITS)
        lines = project(kb, wanted, found)
        if wants_json(ctx):
            emit(result_object(result, lines))
        else:
            emit_lines(lines, wanted.columns)


@click.command("sql")
@click.argument("statement", required=False)
@click.option(
    "-l", "--limit", type=click.IntRange(min=1), default=10_000, show_default=True, help="At most this many rows."
)
@click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take.",
)
@base_options
@click.pass_context
def sql_command(ctx: click.Context, statement: str | None, limit: int, timeout: float) -> None:
    """Run one read-only SELECT (as an argument, or on stdin); a JSON object a row.

    Tables: one per node type and edge label, search_index, search_cache. `duckkb schema --sql` shows them.
    """
    if statement is None and sys.stdin.isatty():
        raise click.UsageError("give a statement, as an argument or on stdin")
    text = statement if statement not in (None, "-") else read_text()
    with opened(ctx, first_filter=text) as kb:
        result = kb.sql(text or "", limit=limit, timeout=timeout)
        columns = _distinct(result.columns)
        rows = [dict(zip(columns, row, strict=True)) for row in result.rows]
        if wants_json(ctx):
            emit({"columns": columns, "rows": rows, "truncated": result.truncated})
        else:
            emit_lines(rows, columns)
        tell(kb.notices)
        if result.truncated:
            printed.notice("W_TRUNCATED", f"stopped at {len(rows)} rows", "raise --limit, or narrow the statement")


def _distinct(columns: Sequence[str]) -> list[str]:
    """Names for the keys of a row: a second `a` becomes `a_1`, as where DuckDB selects from the statement."""
    names: list[str] = []
    for column in columns:
        free = (name for number in count() if (name := f"{column}_{number}" if number else column) not in names)
        names.append(next(free))
    return names


@click.group("graph", cls=Group)
@base_options
def graph_command() -> None:
    """Walk the edges."""


_direction = click.option(
    "--direction",
    type=click.Choice(["out", "in", "both"]),
    default="both",
    show_default=True,
    help="Which way edges are followed.",
)
_label = click.option("--label", metavar="EDGE", multiple=True, help="Only edges of this type; repeatable.")


@graph_command.command("neighbors")
@click.argument("type_name", metavar="TYPE")
@click.argument("identity")
@_label
@_direction
@click.option("--depth", type=click.IntRange(min=1), default=1, show_default=True, help="How many edges away at most.")
@click.option(
    "-l", "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most this many records."
)
@fields_option
@base_options
@click.pass_context
def neighbors_command(
    ctx: click.Context,
    type_name: str,
    identity: str,
    *,
    label: tuple[str, ...],
    direction: Any,
    depth: int,
    limit: int,
    asked: Fields | None,
) -> None:
    """Print the records around one node, nearest first, each with the `_edge` that led to it."""
    from duckkb.errors import NotFound

    with opened(ctx) as kb:
        found = kb.neighbors(type_name, identity, label=label or None, direction=direction, depth=depth, limit=limit)
        tell(kb.notices)
        if not found.records:
            raise NotFound("no neighbors", code="E_NO_RESULTS", suggestion="try --direction both, or without --label")
        records = project(kb, shape(kb, "all", asked, OF_STEPS), [(record, record) for record in found.records])
        if wants_json(ctx):
            emit({"records": records, "truncated": found.truncated})
        else:
            emit_lines(records)
        if found.truncated:
            printed.notice("W_TRUNCATED", f"stopped at {len(found.records)} records", "raise --limit")


@graph_command.command("path")
@click.argument("from_type", metavar="TYPE")
@click.argument("from_identity", metavar="IDENTITY")
@click.argument("to_type", metavar="TYPE")
@click.argument("to_identity", metavar="IDENTITY")
@_label
@_direction
@click.option("--depth", type=click.IntRange(min=1), default=6, show_default=True, help="The longest path looked for.")
@fields_option
@base_options
@click.pass_context
def path_command(
    ctx: click.Context,
    from_type: str,
    from_identity: str,
    to_type: str,
    to_identity: str,
    *,
    label: tuple[str, ...],
    direction: Any,
    depth: int,
    asked: Fields | None,
) -> None:
    """Print a shortest path between two nodes, a record a line, each with the `_edge` that led to it."""
    from duckkb.errors import NotFound

    with opened(ctx) as kb:
        steps = kb.path(
            (from_type, from_identity), (to_type, to_identity), label=label or None, direction=direction, depth=depth
        )
        tell(kb.notices)
        if not steps:
            raise NotFound(f"no path of at most {depth} edges", code="E_NO_RESULTS", suggestion="raise --depth")
        records = project(kb, shape(kb, "all", asked, OF_STEPS), [(record, record) for record in steps])
        if wants_json(ctx):
            emit({"path": records})
        else:
            emit_lines(records)


@click.command("embed")
@click.argument("text", required=False)
@click.option("--batch", is_flag=True, help="The argument is a JSON array of strings; a line each.")
@click.option("--passage", is_flag=True, help="As stored text, not as a question.")
@click.option("--input-file", metavar="FILE", type=PathName(), help="Take the text from a file.")
@base_options
@click.pass_context
def embed_command(ctx: click.Context, text: str | None, *, batch: bool, passage: bool, input_file: str | None) -> None:
    """Print the vector of a text: a JSON array of float32 values, each 8 hex digits, big-endian (1.0 is "3f800000").

    \b
    duckkb embed "how are ranked lists joined"
    duckkb embed --batch '["one text", "another"]' --passage
    duckkb embed --input-file page.txt --json

    The text comes from the argument, a file, or stdin where neither is given. What is longer than the model reads is cut
    (512 tokens of the offline model, with its prefix and marks), and stderr says how many tokens it had. An endpoint
    does not tell its limit: it gets whole texts. With --json one object: embedding (embeddings), model, usage.
    """
    if text is not None and input_file is not None:
        raise click.UsageError("give a text or --input-file, not both")
    only_json("a vector")
    if text is None and input_file is None and sys.stdin.isatty():
        raise click.UsageError("give a text, --input-file FILE, or a text on stdin")
    with opened(ctx) as kb:
        texts = kb.embed_input(text, input_file, batch=batch, stdin=sys.stdin.buffer)
        answer = kb.embed(texts, passage=passage)
        tell(answer.notices)
        if not wants_json(ctx):
            for vector in answer.vectors:
                emit(vector)
            return
        one = {"embedding": answer.vectors[0]} if not batch else {"embeddings": list(answer.vectors)}
        usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens, "tokens": answer.tokens}
        emit({**one, "model": answer.model, "usage": usage})
