"""Authenticates requests: a bearer token -> the caller that it stands for, or why there is none.

The audit log of a base: one line a decision; and a separate sample of requests refused at the entrance.

So strangers cannot push decisions out. Neither has a place for tokens or questions.

Notes about one request on its way through a server: the code that answers fills them in; the log and the spans
read them."""

import hmac
import ipaddress
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.atomic_write import NO_FOLLOW
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import notices_of
from duckkb.server.tenant_files import Facts, Tenant, TenantFiles, is_id, refuse_foreign, stamp
from duckkb.storage import clone_state
from duckkb.types.errors import DuckkbError, Unavailable, UsageError
from duckkb.types.request_context import Caller, Step, record_steps

_MOST_BYTES, _OLDER = 8_000_000, 4
_MOST_BYTES_REFUSED, _OLDER_REFUSED = 1_000_000, 1
# Both come from clients, and are too short for a token: anything longer is not written.
_ACTION = re.compile(r"[a-z][a-z0-9_ ./-]{0,39}")
_REQUEST = re.compile(r"[A-Za-z0-9._:-]{1,40}")


class AuditEntry(Struct, frozen=True):
    """An entry of the log.

    It has the ID of a tenant ("server", or empty where unknown), the name of an action or a route, and an
    `outcome`, such as "allowed", or a code; for a request also its ID and the client's address.
    """

    tenant: str
    action: str
    outcome: str
    request_id: str = ""
    address: str = ""

    def line(self, files: TenantFiles) -> dict[str, Any]:
        """Return the entry as it is written; a text of another form becomes "?"."""
        return {
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
            "base": str(files.root),
            "tenant": self.tenant if not self.tenant or is_id(self.tenant) else "?",
            "action": self.action if _ACTION.fullmatch(self.action) else "?",
            "outcome": self.outcome if _REQUEST.fullmatch(self.outcome) else "?",
            "request": self.request_id if not self.request_id or _REQUEST.fullmatch(self.request_id) else "?",
            "address": self.address if not self.address or _is_address(self.address) else "?",
        }


def audit(files: TenantFiles, entry: AuditEntry) -> None:
    """Write a decision to the log.

    Raises `errors.Unavailable` (E_TENANTS, E_IO); the caller should then not go on.
    """
    _write(files, files.audit, entry.line(files), _MOST_BYTES, _OLDER)


def note_refusal(files: TenantFiles, entry: AuditEntry, left_out: int) -> None:
    """Write a refusal to the sample, and how many were left out since the last line. Raises as `audit`."""
    line = entry.line(files) | {"left_out": left_out}
    _write(files, files.refused, line, _MOST_BYTES_REFUSED, _OLDER_REFUSED)


def last(files: TenantFiles, count: int) -> list[dict[str, Any]]:
    """Return the last decisions of a base, the newest last. Raises `errors.Unavailable` (E_TENANTS, E_IO)."""
    return _read_last(files, files.audit, _OLDER, count)


def list_refusals(files: TenantFiles, count: int) -> list[dict[str, Any]]:
    """Return the last refusals in the sample, the newest last. Raises as `last`."""
    return _read_last(files, files.refused, _OLDER_REFUSED, count)


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _write(files: TenantFiles, path: Path, line: dict[str, Any], most: int, older: int) -> None:
    try:
        files.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = _append(path, f"{json.dumps(line)}\n".encode())
    except OSError as error:
        message = f"the audit log {path} cannot be written: {error.strerror or error}"
        raise Unavailable(message, "E_IO", clone_state.remedy_of(error, "mend permissions")) from error
    if size > most:
        with suppress(Unavailable, OSError):  # the entry is written; the next one retries
            _rotate(files, path, most, older)


def _read_last(files: TenantFiles, path: Path, older: int, count: int) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for line in _iter_newest(files, path, older):
        if len(entries) >= count:
            break
        entries.append(line)
    return entries[::-1]


def _iter_newest(files: TenantFiles, path: Path, older: int) -> Iterator[dict[str, Any]]:
    for file in (_build_path(path, number) for number in range(older + 1)):
        for line in reversed((files.own(file) or b"").splitlines()):
            with suppress(ValueError):  # a line torn by a full disk
                yield json.loads(line)


def _append(path: Path, line: bytes) -> int:
    """Append a line; return the size of the log in bytes.

    Each line is one write, so that processes do not mix lines.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_FOLLOW, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file_stat = os.fstat(descriptor)
        refuse_foreign(path, file_stat)
        file.write(line)
    return file_stat.st_size + len(line)


def _rotate(files: TenantFiles, path: Path, most: int, older: int) -> None:
    with files.hold_lock(5, ".audit"):
        if path.lstat().st_size > most:
            for number in range(older, 0, -1):
                with suppress(FileNotFoundError):
                    _build_path(path, number - 1).replace(_build_path(path, number))


def _build_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


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


NOTED = "duckkb.noted"
"""Key in the scope of an HTTP request for its notes."""
Run = Callable[[str, Mapping[str, Any], Caller], dict[str, Any]]
"""`Served.run`, or that of a pool."""


class Noted(Struct):
    """The notes about one request.

    `code` is that of its error, `hits` the number of its results; `arguments` are those of a reading action,
    which no label and no span holds; `address` is that of the client; `steps` are kept where `is_traced`.
    """

    route: str = ""
    request_id: str = ""
    tenant: str = ""
    action: str = ""
    arguments: Mapping[str, Any] = {}
    hits: int | None = None
    degraded: tuple[str, ...] = ()
    code: str = ""
    address: str = ""
    is_traced: bool = False
    steps: list[Step] = []

    @contextmanager
    def record_action(self, name: str, given: Mapping[str, Any], caller: Caller) -> Iterator[None]:
        """Note an action that the block asks for, and the error that it raises."""
        self.action, self.tenant = name, caller.tenant
        self.arguments = {} if name not in ACTIONS or ACTIONS[name].writes else given
        try:
            yield
        except Exception as problem:
            self.code = problem.code if isinstance(problem, DuckkbError) else "E_INTERNAL"
            raise

    def trace_run(self, run: Run, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Run an action in the present thread, and trace its steps; raises what it raises."""
        if not self.is_traced:
            return run(name, given, caller)
        with record_steps() as steps:
            try:
                return run(name, given, caller)
            finally:
                self.steps += steps

    def record_answer(self, answer: Mapping[str, Any]) -> None:
        """Note the answer."""
        of_many = {} if "_type" in answer else answer
        results = of_many.get("results", of_many.get("rows", of_many.get("records")))
        self.hits = len(results) if isinstance(results, list) else None
        self.degraded = tuple(list_reasons(answer))


def get_notes(scope: MutableMapping[str, Any] | None) -> Noted:
    """Return the notes about the request with this scope; fresh notes where there are none."""
    notes = None if scope is None else scope.get(NOTED)
    return notes if isinstance(notes, Noted) else Noted()


def list_reasons(answer: Mapping[str, Any]) -> list[str]:
    """Return what an answer went without and why, a word each, as `reason` of notices."""
    notices = [notice for notice in notices_of(answer) if isinstance(notice, Mapping)]
    reasons = (str(notice.get("reason") or "unknown") for notice in notices if notice.get("code") == "W_DEGRADED")
    return list(dict.fromkeys(reasons))
