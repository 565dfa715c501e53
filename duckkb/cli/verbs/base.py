"""The verbs init, status, config and trust for the base as a whole, and skill, which needs no base."""

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.options import read_front_options, wants_json
from duckkb.cli.verb import group, open_named_base, verb

if TYPE_CHECKING:
    from duckkb.queries import Notice


@verb("init")
@click.argument("path", required=False, default=".", type=options.PathName(written=True))
@click.option("--github", is_flag=True, help="Also write workflows and hooks; an existing base gets only those.")
@click.option(
    "--lfs", is_flag=True, help="Keep the team's cache (data/indices/) in Git LFS; also for an existing base."
)
@click.option(
    "--install",
    metavar="URL",
    help="What the workflows install: git+https://HOST/OWNER/duckkb@COMMIT, or the https URL of a wheel; in "
    "existing files it replaces that line. Default: the address that this duckkb was installed from. In "
    "duckkb's own repository: . (what is checked out).",
)
def init_command(path: str, *, github: bool, install: str | None, lfs: bool) -> None:
    """PATH is the current folder by default. Writes config.yaml, .gitattributes and data/FORMAT.json; runs no git.

    Prints each file it made as a `file` line. With --github also .github/workflows/duckkb-*.yml at the top of
    the repository (every record checked, pull requests reviewed, the index built at night) and
    .pre-commit-config.yaml; existing files stay unchanged."""
    from duckkb.actions import folder

    result = folder.init(path, github=github, install=install, lfs=lfs)
    for file in result.kept:
        printed.note(f"left unchanged: {file}")
    for note in result.notes:
        printed.note(note)
    if wants_json():
        out.emit({"path": str(result.root), "files": list(result.files)})
    else:
        out.lines({"file": file} for file in result.files)
    if "config.yaml" in result.files and (outer := folder.find_outer_base(result.root)) is not None:
        printed.note(
            f"this base is inside another base, {outer}, which does not include its records: duckkb --kb "
            f"{quote(str(outer))} status"
        )
    if not wants_json() and "config.yaml" in result.files:
        base = "" if result.root.samefile(".") else f" --kb {quote(str(result.root))}"
        first = '{"id": "first", "text": "hello"}'
        printed.note(
            f"next: duckkb{base} import faq faq.csv, and duckkb{base} find faq QUESTION; faq.csv is your own file"
        )
        printed.note(f"  or: duckkb{base} put Note '{first}', and git add and commit")


@verb("status", action="status")
def status_command() -> None:
    """Prints revision, records, pending vectors, model, trust, endpoints of models, lock, the last index job and
    the place of derived files. `server` has the process and URL of its background server.

    `team_cache` is the state of data/indices/: absent, stale or current (`duckkb index build` brings it up to
    date). `team_cache` and `missing` are null if a large base changed since the last count (`duckkb index
    status` counts). While another process writes, `locked_by` names it, and fields that need the records are
    null (--lock-timeout waits)."""
    status, notices = _read_status()
    out.emit(status | {"server": _describe_server()})
    out.tell(notices)


def _read_status() -> tuple[dict[str, Any], tuple["Notice", ...]]:
    """Return the status of the named base and its notices; waits for nobody."""
    from duckkb.actions.caring import status_unread
    from duckkb.errors import Unavailable

    read_front_options().setdefault("lock_timeout", 0.0)
    try:
        with open_named_base(reads=True) as kb:
            return kb.status(), kb.notices
    except Unavailable as problem:
        if problem.code != "E_LOCKED":
            raise
        return status_unread(read_front_options().get("kb")), ()


def _describe_server() -> dict[str, Any] | None:
    """Return the background server's `pid` and `url`, neither while it starts; None without a server.

    `serve --daemon` and `mcp --http --daemon` start it.
    """
    from duckkb.actions.folder import find
    from duckkb.serving.daemon import Daemon

    return Daemon.describe(find(read_front_options().get("kb")))


@group("scheduler")
def scheduler_command() -> None: ...


@verb("status", group=scheduler_command)
def scheduler_status_command() -> None:
    """Print the background work for this base. Shows the current or last index job, its progress, its last error
    and the command that continues it (`next`). Also who holds the lock, how many vectors are pending, and which
    `server` answers. Exit 0."""
    from duckkb.actions.caring import background

    status, notices = _read_status()
    out.emit(background(status) | {"server": _describe_server()})
    out.tell(notices)


@group("config")
def config_command() -> None: ...


@verb("show", group=config_command)
def config_show_command() -> None:
    """Print every setting and type with its origin: `name`, `value`, `origin`; with --json as one nested object."""
    from duckkb.actions import folder

    settings = folder.config_show(read_front_options().get("kb"))
    if wants_json():
        out.emit(settings)
    else:
        out.lines({"name": name, **entry} for name, entry in _iter_leaves(settings, ""))


def _iter_leaves(value: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every `{"value", "origin"}` with the dotted name of its place."""
    if isinstance(value, dict) and value.keys() == {"value", "origin"}:
        yield name, value
        return
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _iter_leaves(inside, f"{name}.{key}" if name else str(key))


@verb("trust")
@click.option("--show", is_flag=True, help="Print what you would accept; change nothing.")
@click.option(
    "--model",
    metavar="MODEL",
    help="Also accept the hosts and keys of another embedding model, given as for `index migrate --to`.",
)
def trust_command(show: bool, model: str | None) -> None:
    """Applies to this base on this machine."""
    from duckkb.actions import folder

    out.emit(folder.trust(read_front_options().get("kb"), accept=not show, model=model))


@group("skill")
def skill_command() -> None:
    """The skill is a page that teaches agents to use duckkb; `duckkb --skill` prints it."""


@verb("install", group=skill_command)
@click.option(
    "--to", metavar="DIR", type=options.PathName(written=True), help="The folder of skills (~/.claude/skills)."
)
@options.force
def skill_install_command(to: str | None, force: bool) -> None:
    """Write DIR/duckkb/SKILL.md, which agents read. A different file there stays, unless you give --force."""
    from duckkb.actions.agents import skill

    path, is_new = skill.install(*([to] if to else []), force=force)
    out.emit({"file": str(path), "written": is_new})
