"""The sessions of browsers: a cookie holds the name of a session, and this process alone knows whose session that
is.

A session stores the SHA-256 of the token that began it, and checks with each request what that token stands for
now; so it ends with the token. All sessions end with the server.
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
    """A new session, by its name, and its caller."""

    session: str
    tenant: str


class _Session(Struct):
    """The state of a session: `token` is the SHA-256 of a token; empty for the user who started the server, who
    needs none.
    """

    token: str
    begun: float
    seen: float


class Sessions:
    """The sessions of one server. Safe to use from several threads.

    `base` is part of every key under which a browser stores something: the same address may serve another base later.
    """

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
        """Begin a session for this token; return the denial where there is none."""
        caller = self._tokens.authenticate(token or None)
        if isinstance(caller, Denial):
            return caller
        return SignedIn(self._begin_session(sha256(token.encode()).hexdigest()), caller.tenant)

    def audit(self, tenant: str, action: str, outcome: str, request_id: str, address: str) -> None:
        """Write a decision of this base, as `audit.audit`."""
        self._tokens.audit(tenant, action, outcome, request_id, address)

    def nameless(self) -> str:
        """Return the content of a cookie before anybody is signed in: the name of no session."""
        return secrets.token_urlsafe(32)

    def name_by_proxy(self, tenant: str, name: str) -> str:
        """Return the content of the cookie for a browser whose tenant a proxy names with each request.

        It signs nobody in, and is only for the proof in forms. It is `name` where that was made for this
        tenant, else a new one.
        """
        nonce = name.partition(".")[0]
        if hmac.compare_digest(name.encode(), self._name_by_proxy(tenant, nonce).encode()):
            return name
        return self._name_by_proxy(tenant, self.nameless())

    def _name_by_proxy(self, tenant: str, nonce: str) -> str:
        return f"{nonce}.{hmac.new(self._proxy_key, f'{tenant} {nonce}'.encode(), sha256).hexdigest()}"

    def code(self) -> str:
        """Return a code that signs in once, as the user who started the server, within ten minutes."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._codes[_hash_text(secret)] = time.monotonic()
        return secret

    def redeem(self, code: str) -> str | None:
        """Return the name of a session, once for each code."""
        with self._lock:
            start_time = self._codes.pop(_hash_text(code), None)
        return None if start_time is None or time.monotonic() - start_time > _CODE_S else self._begin_session("")

    def caller(self, name: str) -> Caller | None:
        """Return the present caller of the session with this name."""
        now, key = time.monotonic(), _hash_text(name)
        with self._lock:
            session = self._held.get(key)
            if session is None or now - session.seen > _IDLE_S or now - session.begun > _LONGEST_S:
                self._held.pop(key, None)
                return None
            session.seen = now
        outcome = self._tokens.resolve_token_hash(session.token) if session.token else _OPERATOR
        if not isinstance(outcome, Denial):
            return outcome
        if outcome.status == 403:  # not while tokens are unreadable
            self.end(name)
        return None

    def end(self, name: str) -> None:
        """Sign out."""
        with self._lock:
            self._held.pop(_hash_text(name), None)

    def proof(self, name: str) -> str:
        """Return what a form must send with the cookie that holds this name: no other site's page can read it."""
        return hmac.new(self._key, name.encode(), sha256).hexdigest()

    def is_proven(self, name: str, proof: str) -> bool:
        """Return whether `proof` is that of the name; an empty name has none, since all browsers without a cookie
        would share it.
        """
        return bool(name) and hmac.compare_digest(self.proof(name).encode(), proof.encode())

    def _begin_session(self, token: str) -> str:
        name, now = secrets.token_urlsafe(32), time.monotonic()
        with self._lock:
            token_keys = [key for key, session in self._held.items() if session.token == token]
            candidates = (
                token_keys if len(token_keys) >= _MOST_OF_ONE else [*self._held] if len(self._held) >= _MOST else ()
            )
            if candidates:  # the longest unused session ends
                del self._held[min(candidates, key=lambda key: self._held[key].seen)]
            self._held[_hash_text(name)] = _Session(token, now, now)
        return name


def _hash_text(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
