"""init, status, config, trust: the base as a whole."""

from collections.abc import Iterator
from shlex import quote
from typing import Any

import click

from duckkb.cli import printed
from duckkb.cli.common import PathName, base_options, emit, emit_lines, opened, tell, wants_json


@click.command("init")
@click.argument("path", required=False, default=".", type=PathName(written=True))
@click.option("--github", is_flag=True, help="Also write workflows and hooks; a base that exists gets those alone.")
@click.option(
    "--lfs", is_flag=True, help="Keep the team's cache (data/indices/) in Git LFS; a base that exists can change."
)
@click.option(
    "--install",
    metavar="URL",
    help="What the workflows install: git+https://HOST/OWNER/duckkb@COMMIT, or ==VERSION. Default: where this duckkb is from.",
)
@base_options
@click.pass_context
def init_command(ctx: click.Context, path: str, *, github: bool, install: str | None, lfs: bool) -> None:
    """Make a knowledge base in a folder (default: here): config.yaml, .gitattributes, data/FORMAT.json. Runs no git.

    Prints the files made, a `file` a line. With --github also .github/workflows/duckkb-*.yml at the top of the repository
    (every record checked, pull requests reviewed, the index built at night) and .pre-commit-config.yaml; files that are
    there already stay as they are.
    """
    from duckkb import app

    made = app.init(path, github=github, install=install, lfs=lfs)
    for file in made.kept:
        printed.note(f"kept as it is: {file}")
    for note in made.notes:
        printed.note(note)
    if wants_json(ctx):
        emit({"path": str(made.root), "files": list(made.files)})
    else:
        emit_lines({"file": file} for file in made.files)
    if not wants_json(ctx) and "config.yaml" in made.files:
        base = "" if made.root.samefile(".") else f" --kb {quote(str(made.root))}"
        first = '{"id": "first", "content": "hello"}'
        printed.note(f"next: duckkb{base} col init notes --policy knowledge-base")
        printed.note(f"  then: duckkb{base} put notes '{first}', and git add and commit")


@click.command("status")
@base_options
@click.pass_context
def status_command(ctx: click.Context) -> None:
    """Say what this base is: revision, records, pending vectors, model, trust, lock, the last index job, and where what is
    derived of it lies.

    `pending` and `stale` are null where a large base has changed since it was last counted (`duckkb index status` counts).
    While another process writes, `locked_by` names it at once, and what its records would say is null (--lock-timeout waits).
    """
    from duckkb import app
    from duckkb.errors import Unavailable

    chosen = ctx.ensure_object(dict)
    chosen.setdefault("lock_timeout", 0.0)
    try:
        with opened(ctx) as kb:
            emit(kb.status())
            tell(kb.notices)
    except Unavailable as problem:
        if problem.code != "E_LOCKED":
            raise
        emit(app.status_unread(chosen.get("kb")))


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
