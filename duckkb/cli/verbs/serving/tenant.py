"""The verb tenant: who may ask a served base, and for what."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from duckkb.cli import out, printed
from duckkb.cli.options import lock_timeout, read_front_options
from duckkb.cli.verb import group, verb

if TYPE_CHECKING:
    from duckkb.caller import Role

_id = click.argument("id")
_expires = click.option(
    "--expires", default="", metavar="WHEN", help="From when on the token lets nobody in: 90d, 2027-03-01 (UTC), never."
)
_types = click.argument("types", metavar="TYPES...", nargs=-1, required=True)


@group("tenant")
def tenant_command() -> None:
    """In which role, and of which types (`duckkb mcp --http`). Tenants are kept in the user's state folder, for this machine's user and
    this folder. What is changed holds from the next request on.

    A viewer may search and read; an editor also write; an admin may do everything, and sees all types. A tenant sees the
    types and collections granted to it; others do not exist for it. Of a granted edge type it sees the edges once it sees all
    types that they may join; links between documents come with their collection. Without any tenant there is one server token,
    which is an admin's: DUCKKB_MCP_TOKEN, else one that is made and kept (`duckkb tenant status`).
    """


@verb("add", group=tenant_command)
@_id
@click.argument("types", metavar="[TYPES]...", nargs=-1)
@click.option(
    "--role",
    type=click.Choice(["viewer", "editor", "admin"]),
    default="viewer",
    show_default=True,
    help="What it may do.",
)
@click.option("--name", default="", metavar="TEXT", help="What people call it.")
@_expires
def tenant_add_command(id: str, types: tuple[str, ...], *, role: "Role", name: str, expires: str) -> None:
    """Make a tenant, and print its token. Nobody can print it again; only its SHA-256 is kept.

    \b
    duckkb tenant add ann Note Person --role editor
    duckkb tenant add ci --role admin --expires 90d | jq -r .token
    """
    from duckkb.serving.tenants import changing

    out.emit(changing.add(_find_root(), id, types, role, changing.Terms(name, expires), lock_timeout()))
    _print_token_note(id)
    if types:
        _print_edges_note(id)


@verb("remove", group=tenant_command)
@_id
def tenant_remove_command(id: str) -> None:
    """Forget a tenant: its token lets nobody in. With the last one, the server token counts again."""
    from duckkb.serving.tenants import changing

    out.emit(changing.remove(_find_root(), id, lock_timeout()))


@verb("list", group=tenant_command)
def tenant_list_command() -> None:
    """Print each tenant: role, types (null: all), whether it is disabled, when its token was made and rotated, and when it
    expires (null: never)."""
    from duckkb.serving.tenants import changing

    out.lines(changing.every(_find_root()), under="tenants")


@verb("show", group=tenant_command)
@_id
def tenant_show_command(id: str) -> None:
    """Print one tenant, and what comes of its types. `edges`: the edge types that it sees. `edges_not_granted`: those that it
    would see if they were granted. `edges_without_ends`: granted, but joining types that it does not see. `undeletable`: types
    of which it may delete and rename no record, as edges may end there that it does not see. `missing`: granted types that the
    base has no longer."""
    from duckkb.serving.tenants import changing

    out.emit(changing.show(_find_root(), id))


@verb("ask", group=tenant_command)
@_id
@click.argument("action")
@click.argument("arguments", metavar="[JSON]", default="{}")
def tenant_ask_command(id: str, action: str, arguments: str) -> None:
    """Print what an action gives a tenant: what it sees, as a server of this base answers it. Nothing is written.

    \b
    duckkb tenant ask ann types
    duckkb tenant ask ann find '{"type": "all", "query": "storage"}'
    """
    from duckkb.actions.folder import OpenOptions
    from duckkb.serving.tenants import changing

    out.emit(
        changing.ask(
            _find_root(), id, action, arguments, OpenOptions(bool(read_front_options().get("lenient")), lock_timeout())
        )
    )


@verb("rotate", group=tenant_command)
@_id
@_expires
def tenant_rotate_command(id: str, *, expires: str) -> None:
    """Give a tenant another token, and print it; the one before lets nobody in. Nobody can print it again. Without --expires it
    expires when the one before would have."""
    from duckkb.serving.tenants import changing

    out.emit(changing.rotate(_find_root(), id, expires, lock_timeout()))
    _print_token_note(id)


@verb("grant", group=tenant_command)
@_id
@_types
def tenant_grant_command(id: str, types: tuple[str, ...]) -> None:
    """Let a tenant see more types and collections."""
    from duckkb.serving.tenants import changing

    out.emit(changing.grant(_find_root(), id, types, lock_timeout()))
    _print_edges_note(id)


@verb("revoke", group=tenant_command)
@_id
@_types
def tenant_revoke_command(id: str, types: tuple[str, ...]) -> None:
    """Take types and collections away from a tenant."""
    from duckkb.serving.tenants import changing

    out.emit(changing.revoke(_find_root(), id, types, lock_timeout()))


@verb("disable", group=tenant_command)
@_id
def tenant_disable_command(id: str) -> None:
    """Have a tenant's token let nobody in until `enable`; token and types stay."""
    from duckkb.serving.tenants import changing

    out.emit(changing.switch(_find_root(), id, disabled=True, timeout=lock_timeout()))


@verb("enable", group=tenant_command)
@_id
def tenant_enable_command(id: str) -> None:
    """Have the token of a disabled tenant count again."""
    from duckkb.serving.tenants import changing

    out.emit(changing.switch(_find_root(), id, disabled=False, timeout=lock_timeout()))


@verb("status", group=tenant_command)
@click.option(
    "--audit", type=click.IntRange(0, 10_000), default=0, metavar="N", help="Also the last N decisions, and refusals."
)
def tenant_status_command(audit: int) -> None:
    """Count tenants, and say where they, the server token (null while there are tenants), the audit log and the sample of requests that
    were `refused` are kept."""
    from duckkb.serving.tenants import changing

    out.emit(changing.status(_find_root(), audit))


def _find_root() -> Path:
    from duckkb.actions import folder

    return folder.find(read_front_options().get("kb"))


def _print_token_note(id: str) -> None:
    printed.note(f"the token of {id} is printed this once; `duckkb tenant rotate {id}` makes another")


def _print_edges_note(id: str) -> None:
    from duckkb.serving.tenants import changing

    names = " ".join(changing.show(_find_root(), id)["edges_not_granted"])
    if names:
        printed.note(f"{id} sees no edges between these types until they are granted: duckkb tenant grant {id} {names}")
