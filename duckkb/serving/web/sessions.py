"""Who is signed in: a cookie holds the name of a session, and this process alone knows whose session that is.

A session knows the SHA-256 of the token that began it, and is asked anew with each request what that stands for now; so it ends
with the token. All of them end with the server.
"""

import hmac
import secrets
import threading
import time
from hashlib import sha256

from msgspec import Struct

from duckkb.caller import Caller
from duckkb.serving.strangers import Strangers
from duckkb.serving.tenants import BearerTokens, Denial
from duckkb.serving.tenants.authentication import SERVER

_MOST, _MOST_OF_ONE = 1_000, 50
_IDLE_S, _LONGEST_S, _CODE_S = 12 * 3600.0, 7 * 24 * 3600.0, 600.0
_OPERATOR = Caller(SERVER, "admin")


class SignedIn(Struct, frozen=True):
    """A new session, by its name, and whose it is."""

    session: str
    tenant: str


class _Session(Struct):
    """`token` is the SHA-256 of a token; empty for who started the server, who needs none."""

    token: str
    begun: float
    seen: float


class Sessions:
    """The sessions of one server. May be asked by several threads. `base` is part of every key under which a browser keeps something:
    another base may be served under the same address later."""

    def __init__(self, tokens: BearerTokens, strangers: Strangers) -> None:
        self.strangers = strangers
        self._tokens, self._lock = tokens, threading.Lock()
        self._key, self._proxy_key = secrets.token_bytes(32), secrets.token_bytes(32)
        self._held: dict[str, _Session] = {}
        self._codes: dict[str, float] = {}

    @property
    def base(self) -> str:
        """The name of the base in the keys of a browser."""
        return self._tokens.base

    def sign_in(self, token: str) -> SignedIn | Denial:
        """A session for whoever shows this token; or why there is none."""
        caller = self._tokens.authenticate(token or None)
        if isinstance(caller, Denial):
            return caller
        return SignedIn(self._begin_session(sha256(token.encode()).hexdigest()), caller.tenant)

    def audit(self, tenant: str, action: str, outcome: str, request_id: str, address: str) -> None:
        """As `audit.audit`, of this base."""
        self._tokens.audit(tenant, action, outcome, request_id, address)

    def nameless(self) -> str:
        """What a cookie holds before anybody is signed in: the name of no session."""
        return secrets.token_urlsafe(32)

    def name_by_proxy(self, tenant: str, name: str) -> str:
        """What the cookie holds of a browser whose tenant a proxy names with each request: it signs nobody in, and is there for the
        proof in forms. That is `name` where it was made for this tenant, else a new one."""
        nonce = name.partition(".")[0]
        if hmac.compare_digest(name.encode(), self._name_by_proxy(tenant, nonce).encode()):
            return name
        return self._name_by_proxy(tenant, self.nameless())

    def _name_by_proxy(self, tenant: str, nonce: str) -> str:
        return f"{nonce}.{hmac.new(self._proxy_key, f'{tenant} {nonce}'.encode(), sha256).hexdigest()}"

    def code(self) -> str:
        """What signs in once, as who started the server, within ten minutes."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._codes[_hash_text(secret)] = time.monotonic()
        return secret

    def redeem(self, code: str) -> str | None:
        """The name of a session, once for each code."""
        with self._lock:
            start_time = self._codes.pop(_hash_text(code), None)
        return None if start_time is None or time.monotonic() - start_time > _CODE_S else self._begin_session("")

    def caller(self, name: str) -> Caller | None:
        """Who is signed in under this name now."""
        now, key = time.monotonic(), _hash_text(name)
        with self._lock:
            session = self._held.get(key)
            if session is None or now - session.seen > _IDLE_S or now - session.begun > _LONGEST_S:
                self._held.pop(key, None)
                return None
            session.seen = now
        outcome = self._tokens.known(session.token) if session.token else _OPERATOR
        if not isinstance(outcome, Denial):
            return outcome
        if outcome.status == 403:  # not while tokens cannot be read
            self.end(name)
        return None

    def end(self, name: str) -> None:
        """Sign out."""
        with self._lock:
            self._held.pop(_hash_text(name), None)

    def proof(self, name: str) -> str:
        """What a form has to send with the cookie that holds this name: no page of another server can read it."""
        return hmac.new(self._key, name.encode(), sha256).hexdigest()

    def is_proven(self, name: str, proof: str) -> bool:
        """Whether this is `proof(name)`; what has no name has no proof, as all who have no cookie would have the same."""
        return bool(name) and hmac.compare_digest(self.proof(name).encode(), proof.encode())

    def _begin_session(self, token: str) -> str:
        name, now = secrets.token_urlsafe(32), time.monotonic()
        with self._lock:
            token_keys = [key for key, session in self._held.items() if session.token == token]
            candidates = (
                token_keys if len(token_keys) >= _MOST_OF_ONE else [*self._held] if len(self._held) >= _MOST else ()
            )
            if candidates:  # whoever has not been seen for longest has to sign in again
                del self._held[min(candidates, key=lambda key: self._held[key].seen)]
            self._held[_hash_text(name)] = _Session(token, now, now)
        return name


def _hash_text(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
