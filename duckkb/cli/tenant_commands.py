"""The verb tenant: who may ask a served base, and for what."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from duckkb.cli import output, terminal
from duckkb.cli.command import group, verb
from duckkb.cli.options import lock_timeout, read_front_options

if TYPE_CHECKING:
    from duckkb.types.request_context import Role

_id = click.argument("id")
_expires = click.option(
    "--expires", default="", metavar="WHEN", help="When the token expires: 90d, 2027-03-01 (UTC), never."
)
_types = click.argument("types", metavar="TYPES...", nargs=-1, required=True)


@group("tenant")
def tenant_command() -> None:
    """Each tenant has a role and a set of types. Tenants are kept in the user's state folder, for this user and
    this base. Changes apply from the next request. A viewer may search and read, an editor also write. An admin
    may do everything, and sees all types. A tenant sees only the types and collections granted to it. It sees
    edges of a granted edge type if it also sees all types at their ends; links between documents come with
    their collection. Without tenants there is one server token with the role admin: DUCKKB_MCP_TOKEN, else a
    generated one (`duckkb tenant status`)."""


@verb("add", group=tenant_command)
@_id
@click.argument("types", metavar="[TYPES]...", nargs=-1)
@click.option(
    "--role",
    type=click.Choice(["viewer", "editor", "admin"]),
    default="viewer",
    show_default=True,
    help="The tenant's role.",
)
@click.option("--name", default="", metavar="TEXT", help="A name for people.")
@_expires
def tenant_add_command(id: str, types: tuple[str, ...], *, role: "Role", name: str, expires: str) -> None:
    """Create a tenant, and print its token. The token cannot be printed again; only its SHA-256 is kept.

    \b
    duckkb tenant add ann Note Person --role editor
    duckkb tenant add ci --role admin --expires 90d | jq -r .token
    """
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.add(_find_root(), id, types, role, tenant_changes.Terms(name, expires), lock_timeout()))
    _print_token_note(id)
    if types:
        _print_edges_note(id)


@verb("remove", group=tenant_command)
@_id
def tenant_remove_command(id: str) -> None:
    """Remove a tenant and its token. After the last tenant, the server token is valid again."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.remove(_find_root(), id, lock_timeout()))


@verb("list", group=tenant_command)
def tenant_list_command() -> None:
    """Print each tenant: role, types (null: all), whether it is disabled, when its token was made and rotated, and when it
    expires (null: never)."""
    from duckkb.server import tenant_changes

    output.lines(tenant_changes.every(_find_root()), under="tenants")


@verb("show", group=tenant_command)
@_id
def tenant_show_command(id: str) -> None:
    """Print one tenant, and the effect of its grants. `edges`: edge types that it sees. `edges_not_granted`: edge
    types that it would see if granted. `edges_without_ends`: granted, but the tenant does not see the types at
    their ends. `undeletable`: types whose records it cannot delete or rename, since hidden edges may end there.
    `missing`: granted types that no longer exist."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.show(_find_root(), id))


@verb("ask", group=tenant_command)
@_id
@click.argument("action")
@click.argument("arguments", metavar="[JSON]", default="{}")
def tenant_ask_command(id: str, action: str, arguments: str) -> None:
    """Run a read action as a tenant, and print the answer that a server would give. Nothing is written.

    \b
    duckkb tenant ask ann types
    duckkb tenant ask ann find '{"type": "all", "query": "storage"}'
    """
    from duckkb.operations.lifecycle import OpenOptions
    from duckkb.server import tenant_changes

    output.emit(
        tenant_changes.ask(
            _find_root(), id, action, arguments, OpenOptions(bool(read_front_options().get("lenient")), lock_timeout())
        )
    )


@verb("rotate", group=tenant_command)
@_id
@_expires
def tenant_rotate_command(id: str, *, expires: str) -> None:
    """Give a tenant a new token, and print it; the old one becomes invalid. The token cannot be printed again.
    Without --expires it keeps the expiry of the old one."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.rotate(_find_root(), id, expires, lock_timeout()))
    _print_token_note(id)


@verb("grant", group=tenant_command)
@_id
@_types
def tenant_grant_command(id: str, types: tuple[str, ...]) -> None:
    """Grant types and collections to a tenant."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.grant(_find_root(), id, types, lock_timeout()))
    _print_edges_note(id)


@verb("revoke", group=tenant_command)
@_id
@_types
def tenant_revoke_command(id: str, types: tuple[str, ...]) -> None:
    """Revoke types and collections from a tenant."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.revoke(_find_root(), id, types, lock_timeout()))


@verb("disable", group=tenant_command)
@_id
def tenant_disable_command(id: str) -> None:
    """Refuse a tenant's token until `enable`; token and grants stay."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.switch(_find_root(), id, disabled=True, timeout=lock_timeout()))


@verb("enable", group=tenant_command)
@_id
def tenant_enable_command(id: str) -> None:
    """Accept the token of a disabled tenant again."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.switch(_find_root(), id, disabled=False, timeout=lock_timeout()))


@verb("status", group=tenant_command)
@click.option(
    "--audit",
    type=click.IntRange(0, 10_000),
    default=0,
    metavar="N",
    help="Also print the last N decisions and refusals.",
)
def tenant_status_command(audit: int) -> None:
    """Count tenants, and print the places of tenants, server token (null if there are tenants), audit log, and a
    sample of `refused` requests."""
    from duckkb.server import tenant_changes

    output.emit(tenant_changes.status(_find_root(), audit))


def _find_root() -> Path:
    from duckkb.operations import lifecycle

    return lifecycle.find(read_front_options().get("kb"))


def _print_token_note(id: str) -> None:
    terminal.note(f"the token of {id} is printed only once; `duckkb tenant rotate {id}` makes a new one")


def _print_edges_note(id: str) -> None:
    from duckkb.server import tenant_changes

    names = " ".join(tenant_changes.show(_find_root(), id)["edges_not_granted"])
    if names:
        terminal.note(
            f"{id} sees no edges between these types until they are granted: duckkb tenant grant {id} {names}"
        )
