"""The commands of an admin on tenants: add, remove, rotate, grant, revoke, disable, enable; list, show, ask,
status.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.ontology.model import NodeType, Ontology
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.lifecycle import OpenOptions
from duckkb.server.authentication import VARIABLE, AuditEntry, audit, last, list_refusals
from duckkb.server.tenant_files import Tenant, TenantFiles, expiry_of, is_id, is_name, stamp
from duckkb.storage.line import Limits, LineError, parse_json
from duckkb.types.errors import Conflict, NotFound, Refused, UsageError, shell_word
from duckkb.types.request_context import ROLES, Role

_Change = Callable[[Tenant], Tenant]


class Terms(Struct, frozen=True):
    """The display name of a new tenant, and when its token `expires`, as in `tenant.expiry_of` (empty: never)."""

    name: str = ""
    expires: str = ""


_ORDINARY = Terms()


def add(
    root: Path,
    id: str,
    types: Iterable[str] = (),
    role: Role = "viewer",
    terms: Terms = _ORDINARY,
    timeout: float = 60.0,
) -> dict[str, Any]:
    """Create a tenant; return it with its `token`, which cannot be shown again.

    Raises `errors.UsageError`, `errors.NotFound` (E_UNKNOWN_TYPE), `errors.Conflict` (E_EXISTS), and as
    `remove` does.
    """
    _check_values(id, role, terms.name)
    expires = _parse_expiry(terms.expires, f"duckkb tenant add {id}")
    type_names = _resolve_types(root, types) if types else ()
    if type_names and role == "admin":
        raise UsageError(
            "an admin sees everything; leave out the types", suggestion=f"duckkb tenant add {id} --role admin"
        )
    token, digest = _make_token()
    fresh = Tenant(id, role, digest, _stamp_now(), type_names, terms.name, expires=expires)

    def add_tenant(tenants: dict[str, Tenant]) -> Tenant:
        holder = next((tenant_id for tenant_id in tenants if tenant_id.casefold() == id.casefold()), None)
        if holder is not None:
            raise Conflict(f"the tenant {holder!r} already exists", "E_EXISTS", f"duckkb tenant rotate {holder}")
        return fresh

    _change(root, "add", id, add_tenant, timeout)
    return {**fresh.told, "token": token}


def remove(root: Path, id: str, timeout: float = 60.0) -> dict[str, Any]:
    """Remove a tenant; its token is refused from the next request on.

    Raises `errors.NotFound` (E_TENANT), `errors.Refused` in a sandbox, `errors.Unavailable` (E_LOCKED,
    E_TENANTS, E_IO).
    """
    matches: list[Tenant] = []

    def remove_tenant(tenants: dict[str, Tenant]) -> None:
        matches.append(_find_tenant(tenants, id))

    _change(root, "remove", id, remove_tenant, timeout)
    return matches[0].told


def rotate(root: Path, id: str, expires: str = "", timeout: float = 60.0) -> dict[str, Any]:
    """Replace a tenant's `token`, which is shown once; the old one is refused from the next request on.

    The new token expires when it `expires`, as in `Terms`; where that is empty, when the old one would have.
    Raises as `remove`, and `errors.UsageError` where that is past.
    """
    token, digest = _make_token()

    def rotate_token(tenant: Tenant) -> Tenant:
        end = _parse_expiry(expires or tenant.expires, f"duckkb tenant rotate {tenant.id}")
        return replace(tenant, sha256=digest, rotated=_stamp_now(), expires=end)

    return {**_replace_tenant(root, "rotate", id, rotate_token, timeout), "token": token}


def grant(root: Path, id: str, types: Iterable[str], timeout: float = 60.0) -> dict[str, Any]:
    """Grant types and collections to a tenant.

    Raises `errors.NotFound` (E_UNKNOWN_TYPE), `errors.UsageError` for an admin, and as `remove`.
    """
    type_names = _resolve_types(root, types)

    def grant_types(tenant: Tenant) -> Tenant:
        if tenant.role == "admin":
            raise UsageError(
                f"{tenant.id} is an admin and sees everything", suggestion=f"duckkb tenant show {tenant.id}"
            )
        return replace(tenant, types=tuple(sorted({*tenant.types, *type_names})))

    return _replace_tenant(root, "grant", id, grant_types, timeout)


def revoke(root: Path, id: str, types: Iterable[str], timeout: float = 60.0) -> dict[str, Any]:
    """Hide types and collections from a tenant, even those that the base no longer has. Raises as `grant`."""
    names = list(types)

    def revoke_types(tenant: Tenant) -> Tenant:
        if tenant.role == "admin":
            raise UsageError(
                f"{tenant.id} is an admin and sees everything", suggestion=f"duckkb tenant disable {tenant.id}"
            )
        unclear = [name for name in names if name not in tenant.types]
        removals = {*names, *(_resolve_types(root, unclear) if unclear else ())}
        return replace(tenant, types=tuple(name for name in tenant.types if name not in removals))

    return _replace_tenant(root, "revoke", id, revoke_types, timeout)


def switch(root: Path, id: str, *, disabled: bool, timeout: float = 60.0) -> dict[str, Any]:
    """Disable or enable a tenant; a disabled one's token is refused, and token and types stay.

    Raises as `remove`.
    """
    action = "disable" if disabled else "enable"
    return _replace_tenant(root, action, id, lambda tenant: replace(tenant, disabled=disabled), timeout)


def every(root: Path) -> list[dict[str, Any]]:
    """Return all tenants in the order of their IDs. Raises `errors.Unavailable` (E_TENANTS, E_IO)."""
    return [tenant.told for _, tenant in sorted(TenantFiles.from_root(root).read().items())]


def show(root: Path, id: str) -> dict[str, Any]:
    """Return one tenant, and what follows from its types.

    `memories` are the collections of its own scopes, which it sees without a grant; `edges` the edge types that
    it sees; `edges_not_granted` those that it would see if granted; `edges_without_ends` those granted but with
    an end that it does not see.
    `undeletable` are types whose records it cannot delete or rename, as hidden edges may end there; `missing`
    are granted types that the base lacks. Raises as `every`, `errors.NotFound` (E_TENANT) and
    `errors.OntologyError`.
    """
    tenant = _find_tenant(TenantFiles.from_root(root).read(), id)
    ontology = _load_ontology(root)
    names = {kind.name for kind in ontology} if tenant.role == "admin" else set(tenant.types)
    seen_types = names if tenant.role == "admin" else ontology.list_visible_types(frozenset(names), tenant.id)
    nodes = seen_types & ontology.nodes.keys()
    ends = {name: {*edge.from_types, *edge.to_types} for name, edge in ontology.edges.items()}
    # Links between documents come with their collection.
    granted_edges = {name for name, edge in ontology.edges.items() if name in names or edge.source is not None}
    visible_edges = {name for name in granted_edges if ends[name] <= nodes}
    hidden_ends = {end for name in ends.keys() - visible_edges for end in ends[name]}
    return {
        **tenant.told,
        "memories": sorted(name for name in nodes if ontology.nodes[name].scope is not None),
        "edges": sorted(visible_edges),
        "edges_not_granted": sorted(name for name in ends.keys() - granted_edges if ends[name] <= nodes),
        "edges_without_ends": sorted((names & ends.keys()) - visible_edges),
        "undeletable": sorted(nodes & hidden_ends),
        "missing": sorted(names - ontology.nodes.keys() - ends.keys()),
    }


def ask(root: Path, id: str, name: str, arguments: str, chosen: OpenOptions) -> dict[str, Any]:
    """Return the answer of an action to a tenant, even a disabled one, as a server gives it.

    `arguments` is a JSON object. Raises `errors.NotFound` (E_TENANT), `errors.UsageError` (E_ARGUMENT),
    `errors.Refused` for an action that writes, and as `Served.run`.
    """
    from duckkb.server.dispatcher import Served

    caller = _find_tenant(TenantFiles.from_root(root).read(), id).caller
    try:
        values = parse_json(arguments.encode("utf-8", "surrogateescape"), Limits())
    except LineError:
        values = None
    if not isinstance(values, dict):
        raise UsageError(
            "the arguments are not a JSON object", "E_ARGUMENT", f"""duckkb tenant ask {id} find '{{"type":"all"}}'"""
        )
    if name in ACTIONS and ACTIONS[name].writes:
        raise Refused(f"`tenant ask` only reads, but {name} writes", suggestion=f"duckkb tenant ask {id} types")
    with closing(Served(root, chosen)) as answerer:
        return answerer.run(name, values, caller)


def status(root: Path, decisions: int = 0) -> dict[str, Any]:
    """Return the number of tenants, by role and disabled, and the paths of their files.

    These are the files of tenants, server token, audit log and refusals; with `decisions`, the last so many of
    both logs are returned too. Raises as `every`.
    """
    files = TenantFiles.from_root(root)
    tenants = files.read()
    roles = Counter(tenant.role for tenant in tenants.values())
    token_source = VARIABLE if config.secret(VARIABLE) else str(files.token)
    return {
        "base": str(files.root),
        "tenants": len(tenants),
        "disabled": sum(tenant.disabled for tenant in tenants.values()),
        "roles": {role: roles[role] for role in ROLES},
        "file": str(files.tenants),
        "server_token": None if tenants else token_source,
        "audit": str(files.audit),
        "refused": str(files.refused),
        **({"decisions": last(files, decisions), "refusals": list_refusals(files, decisions)} if decisions else {}),
    }


def _replace_tenant(root: Path, action: str, id: str, change: _Change, timeout: float) -> dict[str, Any]:
    """Change an existing tenant; return it."""
    results: list[Tenant] = []

    def apply_change(tenants: dict[str, Tenant]) -> Tenant:
        results.append(change(_find_tenant(tenants, id)))
        return results[0]

    _change(root, action, id, apply_change, timeout)
    return results[0].told


def _change(
    root: Path, action: str, id: str, change: Callable[[dict[str, Tenant]], Tenant | None], timeout: float
) -> None:
    """Replace a tenant by what `change` returns, or remove it; the audit log has it before it takes effect."""
    if config.environment().sandbox:
        message = "DUCKKB_SANDBOX is set; tenants cannot be changed from a sandbox"
        raise Refused(message, suggestion=f"run `duckkb tenant {action} {shell_word(id)}` outside of the sandbox")
    files = TenantFiles.from_root(root)
    with files.hold_lock(timeout):
        before = files.read()
        replacement = change(before)
        after = {key: tenant for key, tenant in before.items() if key != id} | (
            {replacement.id: replacement} if replacement else {}
        )
        if after != before:
            audit(files, AuditEntry(id, f"tenant {action}", "done"))
            files.write(after)


def _find_tenant(tenants: Mapping[str, Tenant], id: str) -> Tenant:
    if id in tenants:
        return tenants[id]
    if not is_id(id):
        raise _build_id_error()
    near = get_close_matches(id, tenants, 1)
    message = f"no tenant {id!r}" + (f"; did you mean {near[0]}?" if near else "")
    raise NotFound(message, "E_TENANT", "`duckkb tenant list` names them")


def _check_values(id: str, role: str, name: str) -> None:
    if not is_id(id):
        raise _build_id_error()
    if role not in ROLES:
        raise UsageError(f"a role is one of {', '.join(ROLES)}", suggestion=f"duckkb tenant add {id} --role viewer")
    if not is_name(name):
        raise UsageError("a name is one line of at most 200 characters", suggestion="give a shorter --name")


def _parse_expiry(text: str, command: str) -> str:
    try:
        return expiry_of(text, datetime.now(UTC)) if text else ""
    except ValueError as problem:
        message = f"a token cannot expire at {text!r}: it is {problem}"
        raise UsageError(message, suggestion=f"{command} --expires 90d") from None


def _build_id_error() -> UsageError:
    """Return the error for an invalid ID, without the given text: it may be a token, by mistake."""
    message = "a tenant's ID has 1 to 63 letters, digits, `.`, `_` and `-`, and begins with a letter or digit"
    return UsageError(message, suggestion="duckkb tenant add ann --role viewer")


def _resolve_types(root: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return the types and collections with these names, tables or labels, sorted."""
    ontology, matches = _load_ontology(root), set()
    for name in names:
        kind = ontology.find(name)
        if kind is None:
            near = get_close_matches(name, [label for kind in ontology for label in (kind.name, kind.table)], 1)
            message = f"no type {name!r}" + (f"; did you mean {near[0]}?" if near else "")
            raise NotFound(message, "E_UNKNOWN_TYPE", "`duckkb schema` lists the types and collections")
        if isinstance(kind, NodeType) and kind.scope is not None:
            message = f"{kind.name} holds the memories of {kind.scope}, which only that tenant sees, without a grant"
            raise UsageError(message, suggestion="grant other types; put shared records into an ordinary collection")
        matches.add(kind.name)
    return tuple(sorted(matches))


def _load_ontology(root: Path) -> Ontology:
    configuration = config.load(root, config.read_environment(root))
    config.remember_schemas(configuration.env)
    return configuration.ontology


def _make_token() -> tuple[str, str]:
    """Return a token, and the hash of it that is stored."""
    from secrets import token_hex

    token = token_hex(32)
    return token, sha256(token.encode()).hexdigest()


def _stamp_now() -> str:
    return stamp(datetime.now(UTC))
