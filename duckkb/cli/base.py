"""init, status, index, config, trust: the base as a whole."""

from collections.abc import Iterator
from typing import Any

import click

from duckkb.cli import printed
from duckkb.cli.common import base_options, emit, emit_lines, opened, tell, wants_json


@click.command("init")
@click.argument("path", required=False, default=".")
@base_options
@click.pass_context
def init_command(ctx: click.Context, path: str) -> None:
    """Make a knowledge base in a folder (default: here): config.yaml, .gitattributes, data/FORMAT.json. Runs no git.

    Prints the files made, a `file` a line.
    """
    from duckkb import app

    made = app.init(path)
    if wants_json(ctx):
        emit({"path": str(made.root), "files": list(made.files)})
    else:
        emit_lines({"file": file} for file in made.files)
        printed.note('next: duckkb put Note \'{"id": "first", "text": "hello"}\', then git add and commit')


@click.command("status")
@base_options
@click.pass_context
def status_command(ctx: click.Context) -> None:
    """Say what this base is: revision, records, pending vectors, model, trust, lock."""
    with opened(ctx) as kb:
        emit(kb.status())
        tell(kb.notices)


@click.group("index")
@base_options
def index_command() -> None:
    """The team's cache of tokens and vectors, data/indices/."""


@index_command.command("status")
@base_options
@click.pass_context
def index_status_command(ctx: click.Context) -> None:
    """Say how many chunks there are, how many lack a vector, and what the caches hold. Exit 0 fresh, 1 not."""
    with opened(ctx) as kb:
        status = kb.index_status()
        emit(status)
        tell(kb.notices)
        if not status["fresh"]:
            ctx.exit(1)


@index_command.command("build")
@base_options
@click.pass_context
def index_build_command(ctx: click.Context) -> None:
    """Compute missing vectors and write the team's cache. Safe to interrupt: vectors made so far are kept.

    Exit 0 fresh; 1 partial, with the reason.
    """
    with opened(ctx) as kb:
        built = kb.index_build()
        line = {"files": list(built.files), "pending": built.pending}
        emit(line | ({"reason": built.reason, "code": "E_MODEL"} if built.reason else {}))
        tell((*kb.notices, *built.notices))
        if built.pending:
            ctx.exit(1)


@click.group("config")
@base_options
def config_command() -> None:
    """The effective configuration."""


@config_command.command("show")
@base_options
@click.pass_context
def config_show_command(ctx: click.Context) -> None:
    """Print every setting and type with its origin: `name`, `value`, `origin`; with --json as one nested object."""
    from duckkb import app

    shown = app.config_show(ctx.ensure_object(dict).get("kb"))
    if wants_json(ctx):
        emit(shown)
    else:
        emit_lines({"name": name, **entry} for name, entry in _leaves(shown, ""))


def _leaves(shown: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every `{"value", "origin"}` with the dotted name of its place."""
    if isinstance(shown, dict) and shown.keys() == {"value", "origin"}:
        yield name, shown
        return
    for key, inside in shown.items() if isinstance(shown, dict) else enumerate(shown):
        yield from _leaves(inside, f"{name}.{key}" if name else str(key))


@click.command("trust")
@click.option("--show", is_flag=True, help="Print what would be accepted; change nothing.")
@base_options
@click.pass_context
def trust_command(ctx: click.Context, show: bool) -> None:
    """Accept, on this machine, the hosts and key variables that this base's configuration names."""
    from duckkb import app

    emit(app.trust(ctx.ensure_object(dict).get("kb"), accept=not show))
