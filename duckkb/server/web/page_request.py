"""A request for a page: its user, language and commit; the answers of actions, and the template that shows them.

The checks of every request for a page: its origin and its session; and the headers of its answer.

The sessions of browsers: a cookie holds the name of a session, and this process alone knows whose session that
is.

A session stores the SHA-256 of the token that began it, and checks with each request what that token stands for
now; so it ends with the token. All sessions end with the server."""

import asyncio
import hmac
import secrets
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Send

from duckkb.server.authentication import SERVER, BearerTokens, Denial
from duckkb.server.dispatcher import ASKED, Answerer, Asked, Front
from duckkb.server.http_statuses import make_error_response
from duckkb.server.server_log import Strangers
from duckkb.server.web.templates import LANGUAGES, Words, choose_language, draw_page, static, words
from duckkb.types.errors import Refused
from duckkb.types.request_context import Caller

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


ROOT = "/web"
ROOT_PATH = "duckkb.root_path"
"""Key in the scope of a request for the path below which the server is reached, where that is not its root."""
VISITOR = "duckkb.visitor"
"""Key in the scope of a request for a page for its `Visitor`."""
_OPEN = (f"{ROOT}/sign-in", f"{ROOT}/open", f"{ROOT}/preferences", f"{ROOT}/static/")
_SENDS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types duckkb"
)
# With `no-referrer`, browsers would send `Origin: null` with forms, as other servers' forms may do too.
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Visitor(Struct, frozen=True):
    """The user of a page: the name in the session cookie, and the caller.

    A user who is not signed in has a name too, for the proof in the form. `by_proxy`: a proxy names the user;
    where that user may not come, `denial` has the reason.
    """

    session: str
    caller: Caller | None
    by_proxy: bool = False
    denial: Denial | None = None


def is_page(path: str) -> bool:
    """Return whether a path belongs to a page."""
    return path == "/" or path == ROOT or path.startswith(f"{ROOT}/")


def is_static(path: str) -> bool:
    """Return whether a path is a file that is the same for everybody."""
    return path.startswith(f"{ROOT}/static/")


class PageGate:
    """The gate before the pages of one server."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    def admit(
        self, scope: MutableMapping[str, Any], headers: Headers, named: Caller | Denial | None = None
    ) -> Visitor | Response:
        """Return the visitor, or the answer that ends the request: other sites may link here, and nothing else.

        `named` is whom a proxy names, or why not; the cookie's session does not count then.
        """
        path, method = scope["path"], scope["method"]
        if (foreign := _refuse_foreign(method, headers)) is not None:
            is_link = method == "GET" and headers.get("sec-fetch-dest") == "document"
            return _repeat_request(scope) if is_link else foreign
        name = cookies(headers).get(session_cookie(headers, self.sessions.base), "")
        if isinstance(named, Denial):
            return Visitor("", None, by_proxy=True, denial=named)
        if named is not None:
            return Visitor(self.sessions.name_by_proxy(named.tenant, name), named, by_proxy=True)
        caller = self.sessions.caller(name) if name else None
        is_open = path == "/" or path.startswith(_OPEN)  # `/` gets no cookie and redirects to a page
        if caller is None and not is_open:
            if method != "GET":
                return make_error_response(Refused("you are not signed in", "E_DENIED", "sign in"))
            return RedirectResponse(f"{pages_root(scope)}/sign-in?{urlencode({'next': _build_address(scope)})}", 303)
        return Visitor(name, caller)

    def add_headers(self, send: Send) -> Send:
        """Wrap a sender so that answers have the headers of pages."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        return send_with_headers


def pages_root(scope: Mapping[str, Any]) -> str:
    """Return the path of all pages as browsers know it."""
    return f"{scope.get(ROOT_PATH, '')}{ROOT}"


def cookies(headers: Headers) -> dict[str, str]:
    """Return the cookies of a request, by name."""
    return cookie_parser(headers.get("cookie", ""))


def cookie_name(what: str, base: str) -> str:
    """Return the name of the cookie in which a browser stores something of a base."""
    return f"duckkb-{what}-{base}"


def session_cookie(headers: Headers, base: str) -> str:
    """Return the name of a session's cookie.

    Cookies ignore ports, and a machine may have several servers of a base.
    """
    return cookie_name(f"session-{_parse_port(headers)}", base)


def is_over_tls(headers: Headers) -> bool:
    """Return whether the browser came by https, as it says itself, or as a proxy does."""
    return headers.get("origin", "").startswith("https://") or headers.get("x-forwarded-proto") == "https"


def _parse_port(headers: Headers) -> int:
    try:
        return urlsplit(f"//{headers.get('host', '')}").port or 0
    except ValueError:
        return 0


def _refuse_foreign(method: str, headers: Headers) -> Response | None:
    """Refuse a request that another site made.

    Browsers tell where a request comes from: https://www.w3.org/TR/fetch-metadata/. Older ones tell the origin
    of a form.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    is_own = site in ("same-origin", *(() if method in _SENDS else ("none",)))
    if site is None:
        is_own = origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    return (
        None if is_own else make_error_response(Refused("pages of other sites may not use this server", "E_HOST"), 403)
    )


def _repeat_request(scope: MutableMapping[str, Any]) -> Response:
    """Return a page that repeats the request itself.

    A request from another site gets no content, and it came without a cookie.
    """
    address = escape(_build_address(scope), quote=True)
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">'
        f'<title>duckkb</title><p><a href="{address}">duckkb</a></p></html>'
    )


def _build_address(scope: MutableMapping[str, Any]) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return quote(f"{scope.get(ROOT_PATH, '')}{scope['path']}") + (f"?{query}" if query else "")


THEMES = ("light", "dark")


class Visit(Struct, frozen=True):
    """A request for a page.

    `form` are the fields of a form that was sent with its proof. `is_part`: a script asks for the part that it
    puts into the present page. `edits`: pages may have forms that propose changes of records.
    """

    request: Request
    front: Front
    sessions: Sessions
    form: Mapping[str, str]
    bar: Sequence[str] = ()
    edits: bool = False

    @property
    def visitor(self) -> Visitor:
        found: Visitor = self.request.scope[VISITOR]
        return found

    @property
    def asked(self) -> Asked:
        """The request to the base; only where somebody is signed in."""
        call: Asked = self.request.scope[ASKED]
        return call

    @property
    def caller(self) -> Caller:
        return self.asked.caller

    @property
    def words(self) -> Words:
        return words(choose_language(self._read_cookie("language"), self.request.headers.get("accept-language", "")))

    @property
    def root(self) -> str:
        """The path of all pages as the browser knows it."""
        return pages_root(self.request.scope)

    @property
    def at(self) -> str:
        """The commit of the page; empty for the present."""
        return self.get_parameter("at")

    @property
    def is_part(self) -> bool:
        return bool(self.get_parameter("part"))

    def get_parameter(self, name: str) -> str:
        """Return the parameter of the address with this name, else an empty text."""
        return self.request.query_params.get(name, "").strip()

    def number(self, name: str, otherwise: int, most: int = 1_000) -> int:
        """Return a parameter of the address as a number from 1 to `most`; `otherwise` where it is none."""
        text = self.get_parameter(name)
        return (
            min(int(text), most) if text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) else otherwise
        )

    async def ask(self, name: str, **given: Any) -> dict[str, Any]:
        """Return the answer of an action for the signed-in user, at the commit of the page.

        Values that are None or empty are left out. Raises as `Front.run`.
        """
        return await self.ask_at(self.at, name, **given)

    async def ask_at(self, commit: str, name: str, **given: Any) -> dict[str, Any]:
        """Ask as `ask` does, at another commit; empty for the present."""
        arguments = {key: value for key, value in given.items() if value not in (None, "")}
        await asyncio.to_thread(self.asked.decide, "web", name, arguments)
        if commit:
            return await self.front.read(self.asked, _run_at_commit, commit, name, arguments, self.caller)
        return await self.front.run(self.asked, name, arguments)

    async def propose(self, name: str, message: str = "", **given: Any) -> dict[str, Any]:
        """Return the answer of an action on the user's proposal, which also gets what it writes.

        Values that are None are left out. Raises as `Served.run_in_proposal`.
        """
        arguments = {key: value for key, value in given.items() if value is not None}
        await asyncio.to_thread(self.asked.decide, "web propose", name, arguments)
        return await self.front.propose(self.asked, name, arguments, message)

    def link(self, page: str, **given: object) -> str:
        """Return the address of a page, at the commit of this one; empty values are left out."""
        query = {"at": self.at, **given}
        query_string = urlencode({name: str(value) for name, value in query.items() if value not in (None, "")})
        return f"{self.root}/{page}" + (f"?{query_string}" if query_string else "")

    def again(self, **given: object) -> str:
        """Return the address of this page with some parameters replaced."""
        query = {name: value for name, value in self.request.query_params.multi_items() if name != "part"}
        query_string = urlencode(
            {name: str(value) for name, value in {**query, **given}.items() if value not in (None, "")}
        )
        path = f"{self.request.scope.get(ROOT_PATH, '')}{self.request.scope['path']}"
        return quote(path) + (f"?{query_string}" if query_string else "")

    @property
    def here(self) -> str:
        """The address of this page."""
        return self.again()

    @property
    def now(self) -> str:
        """The address of this page at present."""
        return self.again(at="")

    def _read_cookie(self, topic: str) -> str:
        """Return what the browser stores of this base, empty where it stores nothing."""
        return cookies(self.request.headers).get(cookie_name(topic, self.sessions.base), "")

    def render_page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template, which knows this visit as `visit`, and the words of its language as `say`."""
        say = self.words
        theme = self._read_cookie("theme")
        around = {
            "visit": self,
            "say": say,
            "languages": LANGUAGES,
            "theme": theme if theme in THEMES else "",
            "proof": self.sessions.proof(self.visitor.session),
            "static": partial(static, self.root),
        }
        return HTMLResponse(draw_page(template, {**around, **values}), status)


def _run_at_commit(
    answerer: Answerer, commit: str, name: str, arguments: Mapping[str, Any], caller: Caller
) -> dict[str, Any]:
    with answerer.open_revision(commit, caller) as past:
        return past.run(name, arguments, caller)
