"""The HTTP status of an error, and the response that carries it."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from duckkb.operations.dispatch import failure
from duckkb.types.errors import (
    Conflict,
    DuckkbError,
    NotFound,
    Refused,
    StateError,
    Unavailable,
    Unreadable,
    UsageError,
)

BY_CODE: Mapping[str, int] = {
    "E_TOKEN": 401,
    "E_DENIED": 403,
    "E_EXPIRED": 403,
    "E_FORBIDDEN": 403,
    "E_NOT_FOUND": 404,
    "E_UNKNOWN_TYPE": 404,
    "E_LIMIT": 422,
    "E_BUSY": 429,
    "E_INTERNAL": 500,
    "E_UNAVAILABLE": 503,
    "E_TIMEOUT": 504,
}
_BY_KIND: tuple[tuple[type[DuckkbError], int], ...] = (
    (UsageError, 400),
    (NotFound, 404),
    (Conflict, 409),
    (Refused, 409),
    (Unreadable, 500),
    (StateError, 409),
    (Unavailable, 503),
)
HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"www-authenticate": "Bearer"},
    408: {"connection": "close"},
    413: {"connection": "close"},
    503: {"retry-after": "1"},
}
"""Headers that belong to a status."""


def status_of(problem: Exception) -> int:
    """Return the status of an error by its code, else by its class; 500 for an unexpected error."""
    code = problem.code if isinstance(problem, DuckkbError) else "E_INTERNAL"
    return BY_CODE.get(code) or next((status for kind, status in _BY_KIND if isinstance(problem, kind)), 500)


def make_error_response(problem: Exception, status: int = 0, **headers: str) -> Response:
    """Return an error as `registry.run.failure` words it, with its status unless another is given."""
    status = status or status_of(problem)
    after = problem.details.get("retry_after_s") if isinstance(problem, DuckkbError) else None
    response_headers = {**HEADERS.get(status, {}), **headers, **({"retry-after": str(after)} if after else {})}
    return plain(failure(problem, for_calls=True), status, response_headers)


def plain(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a plain object as a response; a lone surrogate, which cannot be encoded, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(text, status, headers, "application/json")
