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

_PRINTED = "what the vector actions print"
_collection = click.option("--collection", default="vectors", show_default=True, metavar="NAME", help="Made when something is first stored in it, by the policy vector-store.")  # fmt: skip


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
@click.option("--value", required=True, metavar="TEXT", help="What it stands for: text, kept as it is typed.")
@_collection
def store_command() -> None:
    """Keep a value behind a text. Prints the key alone, a UUID.

    The same text again keeps the key and takes the new value. A value that is JSON goes through `vector run`. Without a
    usable model nothing is stored.
    """


@_make_action_verb("retrieve")
@click.argument("key")
@_collection
def retrieve_command() -> None:
    """Print the value behind a key: text as it is, anything else as JSON. A unique beginning of 4 or more characters will do."""


@_make_action_verb("delete")
@click.argument("key")
@_collection
def delete_command() -> None:
    """Delete what is behind a key, or a unique beginning of 4 or more characters. Prints the whole key."""


@_make_action_verb("list")
@click.option("--limit", type=int, default=50, show_default=True, help="How many records.")
@click.option("--offset", type=int, default=0, show_default=True, help="How many to pass over.")
@_collection
def list_command() -> None:
    """Print one JSON array of records in the order of their keys: key, embedding_text, value, embedding.

    An embedding has unit length; that of a text longer than a chunk is the mean of its chunks.
    """


@_make_action_verb("search")
@click.argument("query")
@click.option("--top-k", type=int, default=5, show_default=True, help="How many records.")
@_collection
def search_command() -> None:
    """Print one JSON array of the nearest records, the nearest first: key, embedding_text, value, score.

    The score is the cosine distance, 0 for the same text, at most 2: that of the best chunk of a long text. A question
    longer than a chunk is asked chunk by chunk, and its score is the mean. `find` gives the same records by similarity,
    where higher is better.
    """


@_make_action_verb("import-file")
@click.argument("path", type=options.PathName())
@_collection
def import_file_command() -> None:
    """Keep the path of a text file, as it is given, behind its contents. Prints the key alone."""


@_make_action_verb("set-database")
@click.argument("path", type=options.PathName(written=True))
def set_database_command() -> None:
    """Let the vector actions of this base work on another knowledge base from now on. Prints its folder.

    It is made where there is none. Only the vector actions follow, and only in this clone: the folder is kept in .duckkb/.
    The path of this base itself ends it.
    """


@verb("run", group=vector_command)
@click.argument("action", required=False, metavar="[JSON]")
def run_command(action: str | None) -> None:
    """Do one action given as a JSON object, as an argument or on stdin. Prints one JSON value.

    \b
    duckkb vector run '{"action": "store", "embeddingText": "cat", "value": {"says": "meow"}}'
    duckkb vector run '{"action": "search", "query": "kitten", "topK": 3}'

    `vector schema` prints what each action takes. Paths are relative to the base and must not lead out of it.
    """
    out.only_json(_PRINTED)
    data = out.read_argument_or_stdin(action, "give the action as an argument, or on stdin")
    with open_named_base() as kb:
        _print(kb, kb.vectors.run(data), as_json=True)


@verb("schema", group=vector_command)
@click.argument("action", required=False)
def schema_command(action: str | None) -> None:
    """Print the JSON Schema of what `vector run` takes: one of several objects, or that of one action."""
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
