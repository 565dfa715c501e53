"""find, sql, graph, embed: asking."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.actions.registry.record_lines import OF_HITS, OF_STEPS, FieldChoice, hit_lines, result_object, sql_object
from duckkb.cli import options, out, printed
from duckkb.cli.lines import fields_option, known_columns, project
from duckkb.cli.options import wants_json
from duckkb.cli.verb import base_verb, group, opened, verb

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


@verb("find")
@click.argument("type_name", metavar="TYPE|all")
@click.argument("query", required=False)
@options.mode
@click.option("-w", "--where", metavar="CONDITION", help="A filter over fields; alone it lists what satisfies it.")
@options.limit(10)
@click.option(
    "--vector",
    metavar="FILE|-",
    type=options.PathName(),
    help="A question as a vector: a JSON array of numbers, or as `embed` prints it.",
)
@click.option("--explain", is_flag=True, help="Say why each record ranks where it does.")
@click.option("--provenance", is_flag=True, help="Say which commit each record's line is from, and how to cite it.")
@fields_option
@click.option("--no-chunk", is_flag=True, help="Do not say where in a longer text it was found.")
@options.at
def find_command(
    type_name: str,
    query: str | None,
    *,
    vector: str | None,
    provenance: bool,
    asked: FieldChoice | None,
    no_chunk: bool,
    at: str | None,
    **how: Any,
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
    from duckkb.errors import NotFound

    if how["mode"] == "similar" and query is None and vector is None:
        query = out.read_text().strip() if not sys.stdin.isatty() else None
    if vector is not None and vector.lstrip().startswith("["):
        ctx = click.get_current_context()
        (param,) = (one for one in ctx.command.params if one.name == "vector")
        raise click.BadParameter("a vector stands in a file, or comes on stdin (-)", ctx, param)
    with opened(first_filter=how["where"], at=at) as kb:
        near = kb.vector_input(vector, stdin=sys.stdin.buffer) if vector is not None else None
        result = kb.find(type_name, query, vector=near, **how)
        out.tell(result.notices)
        if not result:
            raise NotFound("no results", code="E_NO_RESULTS", suggestion="loosen the query or the filter")
        origins = kb.provenance.of(result) if provenance else ()
        found = hit_lines(result, origins)
        for _, form in found if no_chunk else ():
            form.pop("_chunk", None)
        lines = project(kb, found, asked, of=type_name, own=OF_HITS)
        if wants_json():
            out.emit(result_object(result, lines))
        else:
            out.lines(lines, known_columns(asked))


@verb("sql")
@click.argument("statement", required=False)
@options.limit(10_000, "At most this many rows.", least=1)
@click.option(
    "--timeout",
    type=options.Seconds(min=0, min_open=True, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take.",
)
def sql_command(statement: str | None, limit: int, timeout: float) -> None:
    """Run one read-only SELECT (as an argument, or on stdin); a JSON object a row.

    Tables: one per node type and edge label, search_index, search_cache. `duckkb schema --sql` shows them.
    """
    if statement is None and sys.stdin.isatty():
        raise click.UsageError("give a statement, as an argument or on stdin")
    text = statement if statement not in (None, "-") else out.read_text()
    with opened(first_filter=text) as kb:
        result = kb.sql(text or "", limit=limit, timeout=timeout)
        answer = sql_object(result)
        if wants_json():
            out.emit(answer)
        else:
            out.lines(answer["rows"], answer["columns"])
        out.tell(kb.notices)
        if result.truncated:
            printed.notice(
                "W_TRUNCATED", f"stopped at {len(result.rows)} rows", "raise --limit, or narrow the statement"
            )


@group("graph")
def graph_command() -> None:
    """Walk the edges."""


_which_edges = options.several(
    click.option(
        "--label",
        metavar="EDGE",
        multiple=True,
        callback=lambda _ctx, _param, given: given or None,
        help="Only edges of this type; repeatable.",
    ),
    click.option(
        "--direction",
        type=click.Choice(["out", "in", "both"]),
        default="both",
        show_default=True,
        help="Which way edges are followed.",
    ),
)


@base_verb("neighbors", group=graph_command, tells=False)
@options.type_name
@click.argument("identity")
@_which_edges
@click.option("--depth", type=click.IntRange(min=1), default=1, show_default=True, help="How many edges away at most.")
@options.limit(1000, "At most this many records.", least=1)
@fields_option
def neighbors_command(
    kb: "KnowledgeBase", type_name: str, identity: str, *, asked: FieldChoice | None, **walk: Any
) -> None:
    """Print the records around one node, nearest first, each with the `_edge` that led to it."""
    from duckkb.errors import NotFound

    found = kb.neighbors(type_name, identity, **walk)
    out.tell(kb.notices)
    if not found.records:
        raise NotFound("no neighbors", code="E_NO_RESULTS", suggestion="try --direction both, or without --label")
    out.lines(_steps(kb, found, asked), under="records", truncated=found.truncated)
    if found.truncated:
        printed.notice("W_TRUNCATED", f"stopped at {len(found.records)} records", "raise --limit")


@base_verb("path", group=graph_command, tells=False)
@click.argument("from_type", metavar="TYPE")
@click.argument("from_identity", metavar="IDENTITY")
@click.argument("to_type", metavar="TYPE")
@click.argument("to_identity", metavar="IDENTITY")
@_which_edges
@click.option("--depth", type=click.IntRange(min=1), default=6, show_default=True, help="The longest path looked for.")
@fields_option
def path_command(
    kb: "KnowledgeBase",
    from_type: str,
    from_identity: str,
    to_type: str,
    to_identity: str,
    *,
    asked: FieldChoice | None,
    **walk: Any,
) -> None:
    """Print a shortest path between two nodes, a record a line, each with the `_edge` that led to it."""
    from duckkb.errors import NotFound

    steps = kb.path((from_type, from_identity), (to_type, to_identity), **walk)
    out.tell(kb.notices)
    if not steps:
        raise NotFound(f"no path of at most {walk['depth']} edges", code="E_NO_RESULTS", suggestion="raise --depth")
    out.lines(_steps(kb, steps, asked), under="path")


def _steps(
    kb: "KnowledgeBase", records: Sequence[Mapping[str, Any]], asked: FieldChoice | None
) -> Sequence[Mapping[str, Any]]:
    """Records on a way over edges, as they are printed."""
    return project(kb, [(record, record) for record in records], asked, of="all", own=OF_STEPS)


@verb("embed")
@click.argument("text", required=False)
@click.option("--batch", is_flag=True, help="The argument is a JSON array of strings; a line each.")
@click.option("--passage", is_flag=True, help="As stored text, not as a question.")
@click.option("--input-file", metavar="FILE", type=options.PathName(), help="Take the text from a file.")
def embed_command(text: str | None, *, batch: bool, passage: bool, input_file: str | None) -> None:
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
    out.only_json("a vector")
    if text is None and input_file is None and sys.stdin.isatty():
        raise click.UsageError("give a text, --input-file FILE, or a text on stdin")
    with opened() as kb:
        texts = kb.embed_input(text, input_file, batch=batch, stdin=sys.stdin.buffer)
        answer = kb.embed(texts, passage=passage)
        out.tell(answer.notices)
        if not wants_json():
            for vector in answer.vectors:
                out.emit(vector)
            return
        one = {"embedding": answer.vectors[0]} if not batch else {"embeddings": list(answer.vectors)}
        usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens, "tokens": answer.tokens}
        out.emit({**one, "model": answer.model, "usage": usage})
