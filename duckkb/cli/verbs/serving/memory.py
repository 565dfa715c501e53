"""The verb memory: what agents remember, by scope and key."""

from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out
from duckkb.cli.commands import parameters
from duckkb.cli.options import wants_json
from duckkb.cli.verb import action_verb, base_verb, group
from duckkb.cli.verbs.write import TRIAL_FORMATS, print_receipt

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


@group("memory")
def memory_command() -> None:
    """Memories are texts under keys, separate for each scope.

    `duckkb col init memory-ann --policy memory --params '{"scope": "ann"}'` creates a scope.
    """


@base_verb("put", group=memory_command, tells=False, action="memory_put", formats=TRIAL_FORMATS)
@click.argument("key")
@click.argument("text", required=False)
@parameters("scope", "tags", "links", "source", "if_match", "dry_run", "embed")
def put_command(kb: "KnowledgeBase", key: str, text: str | None, **how: Any) -> None:
    """Without TEXT, or with -, the text is read from stdin."""
    memory_text = out.read_argument_or_stdin(text, "give the text as an argument or on stdin").decode(
        "utf-8", "surrogateescape"
    )
    memory_text = memory_text.removesuffix("\n") if text in (None, "-") else memory_text
    print_receipt(kb.memory.put(key, memory_text, **how), kb.notices)


@base_verb("search", group=memory_command, tells=False, action="memory_search")
@click.argument("query")
@parameters("scope")
@options.mode
@parameters("limit")
def search_command(kb: "KnowledgeBase", query: str, **how: Any) -> None:
    """Prints one memory per line with its score, and how often it was `_accessed`."""
    from duckkb.queries import Notice

    answer = kb.memory.search(query, **how)
    if not answer["results"]:
        out.raise_no_results(answer, "no results", "use other words")
    out.emit(answer) if wants_json() else out.lines(answer["results"])
    out.tell(Notice(**notice) for notice in answer["notices"])


for _name in ("history", "stats", "mark-accessed"):
    action_verb(f"memory_{_name.replace('-', '_')}", _name, memory_command)
