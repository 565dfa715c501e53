"""The checks of every request for a page: its origin and its session; and the headers of its answer."""

from collections.abc import Mapping, MutableMapping
from html import escape
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Send

from duckkb.caller import Caller
from duckkb.errors import Refused
from duckkb.serving.statuses import make_error_response
from duckkb.serving.tenants import Denial
from duckkb.serving.web.sessions import Sessions

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
