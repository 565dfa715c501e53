"""The verb table: search over tables of a PostgreSQL with pgvector, with or without a base for its models."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out
from duckkb.cli.options import read_front_options
from duckkb.cli.verb import group, verb

if TYPE_CHECKING:
    from duckkb.app.tables import VectorTables

_LARGEST = 1 << 20
_url = options.several(
    click.option("--url", required=True, metavar="URL", help="postgresql://USER@HOST/DATABASE; put the password in PGPASSWORD or ~/.pgpass."),
    click.option("--timeout", "timeout_s", type=options.Seconds(min=0.001, max=86_400), default=30.0, show_default=True, help="Time limit of a statement, in seconds."),
)  # fmt: skip
_rows = options.several(
    click.option("--top-k", type=int, default=10, show_default=True, help="Number of nearest rows, 1 to 1000."),
    click.option("--threshold", type=float, metavar="X", help="Omit rows with a smaller cosine, -1 to 1."),
    click.option("--vector-column", default="embedding", show_default=True, metavar="COLUMN"),
    click.option("--select", multiple=True, metavar="COLUMN", help="Print this column, instead of all. Repeatable."),
    click.option("--filter", "given", metavar="JSON", help='{"COLUMN": VALUE, null, [VALUES] or {"$gt", "$gte", "$lt", "$lte": VALUE}}, joined by AND.'),
    click.option("--no-parse-enum", "parse_enum", flag_value=False, type=bool, default=True, help="Print enums, and arrays of them, as the server writes them."),
    click.option("--approximate", is_flag=True, help="Use an approximate pgvector index (HNSW, IVFFlat); rows may be missing."),
)  # fmt: skip


@group("table")
def table_command() -> None:
    """Tables may have any schema. Nothing is written to the database."""


@contextmanager
def _open_tables(url: str, timeout_s: float) -> "Iterator[VectorTables]":
    from duckkb.app.tables import connect

    with connect(url, kb=read_front_options().get("kb"), timeout_s=timeout_s) as tables:
        yield tables


@verb("show", group=table_command)
@click.argument("table", required=False)
@_url
def show_command(table: str | None, url: str, timeout_s: float) -> None:
    """Print the tables and views that have vectors, or the columns of one.

    \b
    duckkb table show --url postgresql://reader@127.0.0.1/shop
    duckkb table show --url postgresql://reader@127.0.0.1/shop 'sales."Old Items"'
    """
    with _open_tables(url, timeout_s) as tables:
        out.lines(tables.show(table), under="tables" if table is None else "columns")


@verb("query", group=table_command)
@click.argument("table")
@click.argument("text")
@_url
@_rows
@click.option("--final", type=int, default=5, show_default=True, help="Print at most this many rows, the best first.")
@click.option(
    "--no-rerank",
    "rerank",
    flag_value=False,
    type=bool,
    default=True,
    help="Do not use the configured reranker.",
)
@click.option(
    "--rerank-threshold",
    type=float,
    default=0.1,
    show_default=True,
    metavar="X",
    help="Omit rows with a smaller reranker score, 0 to 1.",
)
@click.option(
    "--text-column", default="query", show_default=True, metavar="COLUMN", help="Column that the reranker reads."
)
@click.option("--dimensions", type=int, metavar="N", help="Dimension to request from an endpoint, 1 to 1024.")
def query_command(table: str, text: str, url: str, timeout_s: float, **how: Any) -> None:
    """Print the rows nearest to a question, reranked if a reranker is configured.

    \b
    duckkb table query --url postgresql://reader@127.0.0.1/shop products "boots for rain" --select id --select title
    duckkb table query --url "$URL" products "boots" --filter '{"price": {"$lt": 100}, "kind": ["boot", "shoe"]}'

    Uses the models of the surrounding knowledge base, else the offline model. Each line is a row with
    embedding_score (the cosine) and, if reranked, rerank_score. Names are case-sensitive; put other names in
    double quotes: '"My Table"'. """  # fmt: skip
    with _open_tables(url, timeout_s) as tables:
        _print_rows(tables.query(text, table, **_read(how)), "use other words, or a lower --threshold")


@verb("search", group=table_command)
@click.argument("table")
@_url
@_rows
@click.option(
    "--vector",
    required=True,
    metavar="FILE|-",
    type=options.PathName(),
    help="A JSON array of numbers, or as `embed` prints it.",
)
def search_command(table: str, url: str, timeout_s: float, *, vector: str, **how: Any) -> None:
    """Print the rows nearest to a vector, as `table query` does, without a model.

    \b
    duckkb embed "boots for rain" | duckkb table search --url "$URL" products --vector -
    """
    with _open_tables(url, timeout_s) as tables:
        _print_rows(
            tables.vector_search(table, _load_vector(vector), **_read(how)), "loosen the --filter or the --threshold"
        )


def _print_rows(rows: "Sequence[dict[str, Any]]", remedy: str) -> None:
    if not rows:
        out.raise_no_results({"rows": []}, "no results", remedy)
    out.lines(rows, under="rows")


def _read(how: dict[str, Any]) -> dict[str, Any]:
    """Convert options to arguments of the library."""
    condition, columns = how.pop("given"), how.pop("select")
    return {**how, "select": list(columns) or None, "filter": None if condition is None else _parse_filter(condition)}


def _parse_filter(text: str) -> Any:
    from duckkb.errors import FilterError
    from duckkb.truth.files.line import Limits, LineError, parse_json

    try:
        return parse_json(text.encode("utf-8", "surrogateescape"), Limits())
    except LineError as error:
        message = f"the filter is not JSON: {error.findings[0].message}"
        raise FilterError(
            message, suggestion="""--filter '{"price": {"$lt": 100}}'""", findings=error.findings
        ) from error


def _load_vector(name: str) -> Any:
    from pathlib import Path

    from duckkb import config
    from duckkb.actions.embedding import read_vector
    from duckkb.truth.commit import outside

    if name == "-":
        return read_vector(sys.stdin.buffer.read(_LARGEST))
    path = outside.regular(name, Path.cwd(), config.environment(), "a file with a vector")
    with path.open("rb") as file:
        return read_vector(file.read(_LARGEST))
