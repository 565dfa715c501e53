"""Citations: a record, the commit of that version, and a chunk of it, as one URI that `get` resolves.

    duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ

TYPE and IDENTITY are percent-encoded, the identity as the command line writes it (a JSON array where it is
composite or an edge's). Without `@COMMIT` it is the present record; `@worktree+ETAG` also requires that
version.
"""

import re
from urllib.parse import quote, unquote

from msgspec import Struct

from duckkb.errors import UsageError

_FORM = re.compile(
    r"duckkb://(?P<type>[^/@#]+)/(?P<identity>[^/@#]+)(?:@(?P<commit>[^/@#]+))?(?:#(?P<field>[^/@#]+)/(?P<seq>[0-9]{1,9}))?"
)
COMMIT_DIGITS = 16
"""Digits of a commit in a citation: short enough for a model, and unique in a repository."""
_NOW = "worktree+"
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Citation(Struct, frozen=True):
    """A citation of a record.

    `identity` is as the command line writes it; `commit` is a name that git knows, None for the present; a
    chunk is named by its field and its number there.
    """

    type: str
    identity: str
    commit: str | None = None
    field: str | None = None
    seq: int = 0

    @property
    def at(self) -> str | None:
        """The commit at which the record is read; None for the present record."""
        return None if self.version else self.commit

    @property
    def version(self) -> str:
        """The `_etag` that the record must have now; empty where any will do, or where it is read at a commit."""
        return self.commit.removeprefix(_NOW) if self.commit and self.commit.startswith(_NOW) else ""

    def __str__(self) -> str:
        """Return the URI.

        >>> str(Citation("cites", '["a/b","c"]', "1f0c2a9", "why", 0))
        'duckkb://cites/%5B%22a%2Fb%22%2C%22c%22%5D@1f0c2a9#why/0'
        """
        text = f"duckkb://{_quote_part(self.type)}/{_quote_part(self.identity)}"
        text += f"@{_quote_part(self.commit)}" if self.commit else ""
        return text + (f"#{_quote_part(self.field)}/{self.seq}" if self.field is not None else "")


def worktree(etag: str) -> str:
    """Return the stand-in for a commit: the present record, while it has this `_etag`."""
    return _NOW + etag


def parse(uri: str) -> Citation:
    """Parse a URI, as the inverse of `str`; raises `errors.UsageError`."""
    match = _FORM.fullmatch(uri)
    if match is None or _ESCAPE.search(uri):
        raise _build_error(uri)
    try:
        part = {name: unquote(text, errors="strict") for name, text in match.groupdict().items() if text is not None}
    except UnicodeDecodeError as error:
        raise _build_error(uri) from error
    return Citation(part["type"], part["identity"], part.get("commit"), part.get("field"), int(part.get("seq", "0")))


def _quote_part(text: str) -> str:
    return quote(text, safe="")


def _build_error(uri: str) -> UsageError:
    return UsageError(
        f"{uri} is not a citation: duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ, percent-encoded",
        suggestion="`duckkb find --provenance` prints the URI of each hit",
    )
