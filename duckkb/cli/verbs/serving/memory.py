"""memory: what agents remember, by scope and key."""

from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out
from duckkb.cli.options import wants_json
from duckkb.cli.verb import base_verb, group
from duckkb.cli.verbs.write import print_receipt, with_if_match, with_no_embed

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase

_scope = click.option("--scope", metavar="SCOPE", help="Whose memories: ann, ann/work. Without it the one that all others lie below.")  # fmt: skip


@group("memory")
def memory_command() -> None:
    """What agents remember: texts under keys, each scope by itself.

    `duckkb col init memory-ann --policy memory --params '{"scope": "ann"}'` makes a scope.
    """


@base_verb("put", group=memory_command, tells=False)
@click.argument("key")
@click.argument("text", required=False)
@_scope
@click.option("--tag", "tags", metavar="WORD", multiple=True, help="What it is kept under; repeatable.")
@click.option("--link", "links", metavar="URI", multiple=True, help="What it speaks of: duckkb://TYPE/IDENTITY, or an address; repeatable.")  # fmt: skip
@click.option("--source", metavar="TEXT", help="Where it was learned.")
@with_if_match
@options.dry_run
@with_no_embed
def put_command(kb: "KnowledgeBase", key: str, text: str | None, **how: Any) -> None:
    """Remember a text under a key, in place of what was there. Without TEXT, or with -, it is read from stdin."""
    told = out.read_argument_or_stdin(text, "give the text, as an argument or on stdin").decode(
        "utf-8", "surrogateescape"
    )
    told = told.removesuffix("\n") if text in (None, "-") else told
    print_receipt(kb.memory.put(key, told, **how), kb.notices)


@base_verb("search", group=memory_command, tells=False)
@click.argument("query")
@_scope
@options.mode
@options.limit(10)
def search_command(kb: "KnowledgeBase", query: str, **how: Any) -> None:
    """Search one scope. A line is a memory with its score, and how often it was `_accessed`."""
    from duckkb.queries import Notice

    found = kb.memory.search(query, **how)
    if not found["results"]:
        out.raise_no_results(found, "no results", "ask with other words")
    out.emit(found) if wants_json() else out.lines(found["results"])
    out.tell(Notice(**one) for one in found["notices"])


@base_verb("history", group=memory_command)
@click.argument("key")
@_scope
@options.limit(100, "How many versions.")
def history_command(kb: "KnowledgeBase", key: str, **how: Any) -> Any:
    """Print what was remembered under a key, the newest version first, each with the commit that brought it."""
    found = kb.memory.history(key, **how)
    out.emit(found) if wants_json() else out.lines(found["versions"])


@base_verb("stats", group=memory_command)
@_scope
def stats_command(kb: "KnowledgeBase", scope: str | None) -> Any:
    """Print what there is in each scope: how many memories, the newest, the oldest, the most accessed, the tags."""
    found = kb.memory.stats(scope=scope)
    out.emit(found) if wants_json() else out.lines(found["scopes"])


@base_verb("mark-accessed", group=memory_command)
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_scope
def mark_accessed_command(kb: "KnowledgeBase", keys: tuple[str, ...], scope: str | None) -> Any:
    """Count that memories were of use. Counts are of this machine: they change no file of the base."""
    found = kb.memory.mark_accessed(keys, scope=scope)
    out.emit(found) if wants_json() else out.lines(found["marked"])
