"""The verb vector: the vector store actions. Unlike other verbs they print one value: a key, a value, an array."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.options import wants_json
from duckkb.cli.verb import group, open_named_base, verb

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase

_PRINTED = "the output of vector actions"
_collection = click.option("--collection", default="vectors", show_default=True, metavar="NAME", help="Created by the first store, with the policy vector-store.")  # fmt: skip


@group("vector")
def vector_command() -> None: ...


def _make_action_verb(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a verb for the vector store's method of this name; the callback only declares parameters and help."""

    def decorate(callback: Callable[..., None]) -> click.Command:
        @wraps(callback)
        def run(**given: Any) -> None:
            out.only_json(_PRINTED)
            with open_named_base() as kb:
                _print(kb, getattr(kb.vectors, name.replace("-", "_"))(**given), as_json=wants_json())

        return verb(name, group=vector_command)(run)

    return decorate


@_make_action_verb("store")
@click.option("--embedding-text", required=True, metavar="TEXT", help="The text that questions are compared with.")
@click.option("--value", required=True, metavar="TEXT", help="The value: a text, kept as typed.")
@_collection
def store_command() -> None:
    """Store a value under a text. Prints only the key, a UUID. The same text keeps its key and gets the new value.
    Use `vector run` for JSON values. Without a usable model nothing is stored."""


@_make_action_verb("retrieve")
@click.argument("key")
@_collection
def retrieve_command() -> None:
    """Print the value of a key: text as it is, other values as JSON. A unique prefix of at least 4 characters is
    enough."""


@_make_action_verb("delete")
@click.argument("key")
@_collection
def delete_command() -> None:
    """Delete the value of a key, or of a unique prefix of at least 4 characters. Prints the whole key."""


@_make_action_verb("list")
@click.option("--limit", type=int, default=50, show_default=True, help="Maximum number of records.")
@click.option("--offset", type=int, default=0, show_default=True, help="Number of records to skip.")
@_collection
def list_command() -> None:
    """Print one JSON array of records in key order: key, embedding_text, value, embedding. Embeddings have unit
    length; a text longer than a chunk has the mean of its chunks."""


@_make_action_verb("search")
@click.argument("query")
@click.option("--top-k", type=int, default=5, show_default=True, help="Maximum number of records.")
@_collection
def search_command() -> None:
    """Print one JSON array of records, the nearest first: key, embedding_text, value, score. The score is a cosine
    distance, from 0 (same text) to 2; a long text counts with its best chunk. A question longer than a chunk is
    searched chunk by chunk, and its score is the mean. `find` ranks the same records by similarity, where
    higher is better."""


@_make_action_verb("import-file")
@click.argument("path", type=options.PathName())
@_collection
def import_file_command() -> None:
    """Store the path of a text file, as given, under its contents. Prints only the key."""


@_make_action_verb("set-database")
@click.argument("path", type=options.PathName(written=True))
def set_database_command() -> None:
    """Make the vector actions of this base use another knowledge base, which is created if missing. Prints its
    folder. Only vector actions in this clone change: the folder is recorded in .duckkb/. Give the path of this
    base to switch back."""


@verb("run", group=vector_command)
@click.argument("action", required=False, metavar="[JSON]")
def run_command(action: str | None) -> None:
    """Run one action given as a JSON object, as an argument or on stdin. Prints one JSON value.

    \b
    duckkb vector run '{"action": "store", "embeddingText": "cat", "value": {"says": "meow"}}'
    duckkb vector run '{"action": "search", "query": "kitten", "topK": 3}'

    `vector schema` prints the parameters of each action. Paths are relative to the base and must stay inside it.
    """
    out.only_json(_PRINTED)
    data = out.read_argument_or_stdin(action, "give the action as an argument or on stdin")
    with open_named_base() as kb:
        _print(kb, kb.vectors.run(data), as_json=True)


@verb("schema", group=vector_command)
@click.argument("action", required=False)
def schema_command(action: str | None) -> None:
    """Print the JSON Schema of the input of `vector run`, for all actions or one."""
    from duckkb.actions.vector_run import schema

    out.only_json("a schema")
    out.emit(schema(action))


def _print(kb: "KnowledgeBase", value: Any, *, as_json: bool) -> None:
    """Print a text as it is, or as JSON where that is asked for; anything else as JSON on one line."""
    from duckkb.actions.vector_store import VectorRows

    notices = kb.vectors.notices
    if isinstance(value, VectorRows):
        out.emit(list(value))
        notices += value.notices
    elif isinstance(value, str) and not as_json:
        printed.result(value)
    else:
        out.emit(value)
    out.tell(notices)
