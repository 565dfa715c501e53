"""A server behind a proxy or asked by other sites' pages: the path below which it lies, and the allowed origins."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from duckkb.errors import UsageError
from duckkb.serving.telemetry.measures import ROUTES
from duckkb.serving.web.gate import ROOT_PATH, is_page

_HEADER = re.compile(r"[a-z0-9-]{1,64}")
_OTHER_HEADERS = ("host", "origin", "cookie", "content-length", "x-forwarded-for", "x-forwarded-proto")
_METHODS = ("GET", "POST", "DELETE")
_SENT = (
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "x-request-id",
    "x-timeout-ms",
)
_READ = ("mcp-session-id", "retry-after", "x-request-id")


def validate_root_path(given: str) -> str:
    """Return a path before all routes, without a slash at its end; raises `errors.UsageError`.

    The path of a route is refused, since a proxy may or may not remove the path.
    """
    path = given.rstrip("/")
    first = f"/{path.removeprefix('/').partition('/')[0]}"
    is_path = not given or (
        path.startswith("/") and "//" not in path and urlsplit(path).path == path and path.isascii()
    )
    if not is_path or not path.isprintable() or " " in path or (path and first in ROUTES):
        raise UsageError(
            f"--root-path must be a path that is not a route of the server, not {given!r}", suggestion="--root-path /kb"
        )
    return path


def validate_origin(given: str) -> str:
    """Return an origin as browsers send it; raises `errors.UsageError`."""
    parts = urlsplit(given.lower())
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or given.lower() != f"{parts.scheme}://{parts.netloc}"
    ):
        raise UsageError(
            f"--allow-origin must be a scheme and a host, not {given!r}",
            suggestion="--allow-origin https://app.example.org",
        )
    return given.lower()


def validate_auth_header(given: str) -> str:
    """Return the name of a header in which a proxy names the tenant, or nothing; raises `errors.UsageError`.

    It is refused where it is no header name, or a header with another meaning here.
    """
    name = given.lower()
    if given and (not _HEADER.fullmatch(name) or name in (*_SENT, *_READ, *_OTHER_HEADERS)):
        message = f"--auth-header must name a header that the server does not use otherwise, not {given!r}"
        raise UsageError(message, suggestion="--auth-header X-Forwarded-User")
    return name


class BelowPath:
    """An ASGI middleware for routes below a path, whether the proxy before it removes that path or not.

    The path is in the scope under `ROOT_PATH`.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (root := self._root_path):
            path: str = scope["path"]
            is_below = path == root or path.startswith(f"{root}/")
            scope = {**scope, ROOT_PATH: root, "path": (path[len(root) :] or "/") if is_below else path}
        await self._app(scope, receive, send)


def open_to(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Let pages of these origins read what programs are answered; a browser's preflight needs no token.

    The server's own pages are not opened to other origins.
    """
    if not origins:
        return app
    cors_app = CORSMiddleware(app, origins, _METHODS, _SENT, expose_headers=_READ)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_program_route = scope["type"] == "http" and not is_page(scope["path"])
        await (cors_app if is_program_route else app)(scope, receive, send)

    return answer
