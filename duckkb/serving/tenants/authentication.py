"""Authenticates requests: a bearer token -> the caller that it stands for, or why there is none."""

import hmac
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.caller import Caller
from duckkb.errors import DuckkbError, UsageError
from duckkb.serving.tenants.audit import AuditEntry, audit, note_refusal
from duckkb.serving.tenants.files import Facts, TenantFiles
from duckkb.serving.tenants.tenant import Tenant, stamp

VARIABLE = "DUCKKB_MCP_TOKEN"
SERVER = "server"
"""The tenant of a caller with the server token."""
_FORM = re.compile(r"[A-Za-z0-9._~+/-]{1,512}={0,2}")
_SHORTEST = 32
"""Least characters of a token that an operator gives: those of 128 bits in hex."""
_SETTLED = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its times, however coarse they are."""
_WAIT = 5.0

_Entries = tuple[tuple[str, "Tenant | Caller"], ...]
"""The SHA-256 (hex) of each token, with its tenant or, for the server token, its caller."""


class Denial(Struct, frozen=True):
    """The reason why a request is refused.

    `status` is that of HTTP: 401 without a well-formed token (E_TOKEN); 403 for an unknown token or a disabled
    tenant, which the client cannot tell apart (E_DENIED), or for an expired token (E_EXPIRED); 503 where
    tenants cannot be read (E_UNAVAILABLE).
    `problem` is then for the operator. No client sees it, nor the disabled `tenant`, which is for the log.
    """

    status: Literal[401, 403, 503]
    code: str
    message: str
    problem: DuckkbError | None = None
    tenant: str = ""


_MALFORMED = Denial(401, "E_TOKEN", "a bearer token is needed: `Authorization: Bearer TOKEN`")
_UNKNOWN = Denial(403, "E_DENIED", "this token is not valid")
_UNNAMED = Denial(403, "E_DENIED", "the proxy's name is not a known tenant")
FORGED = Denial(403, "E_DENIED", "only a proxy in --forwarded-allow-ips may name the tenant")
_EXPIRED = Denial(
    403, "E_EXPIRED", "the token of this tenant has expired; ask the operator of the server for a new one"
)


class BearerTokens:
    """The present tokens of one base: a change by `duckkb tenant` holds from the next request on, in every
    process.

    Safe to use from several threads.
    """

    def __init__(self, root: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Take the clock, in UTC, by which tokens expire.

        Raises `errors.UsageError` (E_TOKEN) where DUCKKB_MCP_TOKEN holds no token, or one that can be guessed.
        """
        self._files, self._clock = TenantFiles.from_root(root), clock
        token = config.secret(VARIABLE)
        if token is not None and (len(token) < _SHORTEST or _FORM.fullmatch(token) is None):
            fault = (
                f"fewer than {_SHORTEST} characters"
                if len(token) < _SHORTEST
                else "characters that bearer tokens cannot have"
            )
            raise UsageError(f"{VARIABLE} holds {fault}", "E_TOKEN", f"export {VARIABLE}=$(openssl rand -hex 32)")
        self._given = None if token is None else _hash_token(token)
        self._held: tuple[tuple[Facts, Facts], _Entries] | None = None

    @cached_property
    def base(self) -> str:
        """The name of this base in a browser, where one address may serve several bases."""
        root = self._files.root
        return _hash_token(f"{root}\n{root.stat().st_ino}")[:16]

    def prepare(self) -> str | None:
        """Return the place of the server token: the name of the variable, or a file, created where it is missing.

        None where there are tenants, since the server token does not count then. Raises `errors.Unavailable`
        (E_TENANTS, E_IO).
        """
        if self._files.read():
            return None
        if self._given is not None:
            return VARIABLE
        self._files.make_server_token(_WAIT)
        return str(self._files.token)

    def authenticate(self, token: str | None) -> Caller | Denial:
        """Return the caller of a token, as `bearer` returns it. Never raises for what is given or stored."""
        if token is None or _FORM.fullmatch(token) is None:
            return _MALFORMED
        return self.resolve_token_hash(_hash_token(token))

    def resolve_token_hash(self, given: str) -> Caller | Denial:
        """Return the present caller of the token with this SHA-256 (hex).

        Never raises for what is given or stored.
        """
        try:
            entries = self._entries()
        except DuckkbError as problem:
            return Denial(503, "E_UNAVAILABLE", "tokens cannot be checked at the moment", problem)
        match = None
        for digest, holder in entries:  # all of them: the time must not reveal the position
            if hmac.compare_digest(digest, given):
                match = holder
        return self._resolve_tenant(match, _UNKNOWN) if isinstance(match, Tenant) else match or _UNKNOWN

    def resolve_tenant_name(self, tenant: str) -> Caller | Denial:
        """Return the present caller of a tenant that a proxy names, without a token. Never raises either."""
        try:
            entry = self._files.read().get(tenant)
        except DuckkbError as problem:
            return Denial(503, "E_UNAVAILABLE", "tenants cannot be read at the moment", problem)
        return self._resolve_tenant(entry, _UNNAMED) if entry else _UNNAMED

    def audit(self, tenant: str, action: str, outcome: str, request_id: str = "", address: str = "") -> None:
        """Write a decision of this base, as `audit.audit`."""
        audit(self._files, AuditEntry(tenant, action, outcome, request_id, address))

    def note_refusal(self, denial: Denial, action: str, request_id: str, address: str, left_out: int) -> None:
        """Write a refusal of this base, as `audit.note_refusal`."""
        note_refusal(self._files, AuditEntry(denial.tenant, action, denial.code, request_id, address), left_out)

    def _entries(self) -> _Entries:
        """Return the tokens, read again where the files have changed."""
        began = time.time_ns()
        facts = self._files.facts(self._files.tenants), self._files.facts(self._files.token)
        cache = self._held
        if cache is not None and cache[0] == facts:
            return cache[1]
        tenants = self._files.read()
        entries: _Entries = tuple((item.sha256, item) for item in tenants.values())
        entries = entries or ((self._given or self._hash_server_token(), Caller(SERVER, "admin")),)
        # Two changes within one tick of the clock may have the same times, so fresh files are read again.
        is_stable = all(began - max(item[:2], default=0) > _SETTLED for item in facts)
        self._held = (facts, entries) if is_stable else None
        return entries

    def _resolve_tenant(self, tenant: Tenant, denial: Denial) -> Caller | Denial:
        if tenant.disabled:
            return replace(denial, tenant=tenant.id)
        if tenant.expires and tenant.expires <= stamp(self._clock()):
            return replace(_EXPIRED, tenant=tenant.id)
        return tenant.caller

    def _hash_server_token(self) -> str:
        token = self._files.server_token()
        return _hash_token(self._files.make_server_token(_WAIT) if token is None else token)


def bearer(header: str | None) -> str | None:
    """Return the token of an Authorization header; None where it has none.

    >>> bearer("Bearer abc"), bearer("bearer  abc"), bearer("Basic abc"), bearer("Bearer"), bearer(None)
    ('abc', 'abc', None, None, None)
    """
    scheme, _, token = (header or "").strip().partition(" ")
    return (token.strip() or None) if scheme.lower() == "bearer" else None


def _hash_token(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
