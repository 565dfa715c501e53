"""vector: the vector store actions. Unlike other verbs they print one value: a key, a value, an array."""

import sys
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import printed
from duckkb.cli.common import PathName, base_options, emit, only_json, opened, read_argument_or_stdin, tell, wants_json
from duckkb.cli.slips import Group

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase

_collection = click.option("--collection", default="vectors", show_default=True, metavar="NAME", help="Made when something is first stored in it, by the policy vector-store.")  # fmt: skip


@click.group("vector", cls=Group)
@base_options
def vector_command() -> None:
    """Values behind texts, found by how near a question comes to the text."""


@vector_command.command("store")
@click.option("--embedding-text", required=True, metavar="TEXT", help="The text that questions are compared with.")
@click.option("--value", required=True, metavar="TEXT", help="What it stands for: text, kept as it is typed.")
@_collection
@base_options
@click.pass_context
def store_command(ctx: click.Context, *, embedding_text: str, value: str, collection: str) -> None:
    """Keep a value behind a text. Prints the key alone, a UUID.

    The same text again keeps the key and takes the new value. A value that is JSON goes through `vector run`. Without a
    usable model nothing is stored.
    """
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.store(embedding_text, value, collection=collection))


@vector_command.command("retrieve")
@click.argument("key")
@_collection
@base_options
@click.pass_context
def retrieve_command(ctx: click.Context, key: str, *, collection: str) -> None:
    """Print the value behind a key: text as it is, anything else as JSON. A unique beginning of 4 or more characters will do."""
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.retrieve(key, collection=collection))


@vector_command.command("delete")
@click.argument("key")
@_collection
@base_options
@click.pass_context
def delete_command(ctx: click.Context, key: str, *, collection: str) -> None:
    """Delete what is behind a key, or a unique beginning of 4 or more characters. Prints the whole key."""
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.delete(key, collection=collection))


@vector_command.command("list")
@click.option("--limit", type=int, default=50, show_default=True, help="How many records.")
@click.option("--offset", type=int, default=0, show_default=True, help="How many to pass over.")
@_collection
@base_options
@click.pass_context
def list_command(ctx: click.Context, *, limit: int, offset: int, collection: str) -> None:
    """Print one JSON array of records in the order of their keys: key, embedding_text, value, embedding.

    An embedding has unit length; that of a text longer than a chunk is the mean of its chunks.
    """
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.list(limit=limit, offset=offset, collection=collection))


@vector_command.command("search")
@click.argument("query")
@click.option("--top-k", type=int, default=5, show_default=True, help="How many records.")
@_collection
@base_options
@click.pass_context
def search_command(ctx: click.Context, query: str, *, top_k: int, collection: str) -> None:
    """Print one JSON array of the nearest records, the nearest first: key, embedding_text, value, score.

    The score is the cosine distance, 0 for the same text, at most 2: that of the best chunk of a long text. A question
    longer than a chunk is asked chunk by chunk, and its score is the mean. `find` gives the same records by similarity,
    where higher is better.
    """
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.search(query, top_k=top_k, collection=collection))


@vector_command.command("import-file")
@click.argument("path", type=PathName())
@_collection
@base_options
@click.pass_context
def import_file_command(ctx: click.Context, path: str, *, collection: str) -> None:
    """Keep the path of a text file, as it is given, behind its contents. Prints the key alone."""
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.import_file(path, collection=collection))


@vector_command.command("set-database")
@click.argument("path", type=PathName(written=True))
@base_options
@click.pass_context
def set_database_command(ctx: click.Context, path: str) -> None:
    """Let the vector actions of this base work on another knowledge base from now on. Prints its folder.

    It is made where there is none. Only the vector actions follow, and only in this clone: the folder is kept in .duckkb/.
    The path of this base itself ends it.
    """
    _one_value()
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.set_database(path))


@vector_command.command("run")
@click.argument("action", required=False, metavar="[JSON]")
@base_options
@click.pass_context
def run_command(ctx: click.Context, action: str | None) -> None:
    """Do one action given as a JSON object, as an argument or on stdin. Prints one JSON value.

    \b
    duckkb vector run '{"action": "store", "embeddingText": "cat", "value": {"says": "meow"}}'
    duckkb vector run '{"action": "search", "query": "kitten", "topK": 3}'

    `vector schema` prints what each action takes. Paths are relative to the base and must not lead out of it.
    """
    _one_value()
    if action is None and sys.stdin.isatty():
        raise click.UsageError("give the action as an argument, or on stdin")
    data, _ = read_argument_or_stdin(action)
    with opened(ctx) as kb:
        _print(ctx, kb, kb.vectors.run(data), as_json=True)


@vector_command.command("schema")
@click.argument("action", required=False)
@base_options
@click.pass_context
def schema_command(ctx: click.Context, action: str | None) -> None:
    """Print the JSON Schema of what `vector run` takes: one of several objects, or that of one action."""
    from duckkb.actions.vector_run import schema

    only_json("a schema")
    emit(schema(action))


def _one_value() -> None:
    only_json("what the vector actions print")


def _print(ctx: click.Context, kb: "KnowledgeBase", value: Any, *, as_json: bool = False) -> None:
    """A text alone as it is, or as JSON where that is asked for; anything else as JSON on one line."""
    from duckkb.actions.vector_store import Rows

    notices = kb.vectors.notices
    if isinstance(value, Rows):
        emit(list(value))
        notices += value.notices
    elif isinstance(value, str) and not (as_json or wants_json(ctx)):
        printed.result(value)
    else:
        emit(value)
    tell(notices)
