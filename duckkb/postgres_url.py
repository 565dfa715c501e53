"""The URL of a PostgreSQL, as `table` and `publish` take it: its server, and its passwords, which are never shown."""

import re
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from duckkb.errors import UsageError

EXAMPLE = "postgresql://USER@HOST:5432/DATABASE, with the password in PGPASSWORD or ~/.pgpass"
_HOST = r"(?:\[[\w:.%]*\]|[^\s:/?#@\[\],]*)(?::\d*)?"
_URL = re.compile(
    r"postgres(?:ql)?://(?:[^\s:/?#@\[\]]*(?::(?P<password>[^\s/?#@\[\]]*))?@)?"
    rf"(?P<place>{_HOST}(?:,{_HOST})*(?:/[^\s/?#@]*)?)(?:\?[^\s#@]*)?"
)
"""Stricter than libpq: a sign in a password that must be escaped would end it, and the rest would be shown as a host."""
_HIDDEN = "•••"
_SHORTEST = 4  # the shortest secret that can be cut out without spoiling a message


class PostgresUrl(Struct, frozen=True):
    """A URL of PostgreSQL.

    `url` is as libpq takes it. `place` is host, port and database, as people read them. `secrets` are the
    passwords, encoded and decoded, the longest first.
    """

    url: str
    place: str
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"PostgresUrl({self.place})"

    def mask(self) -> str:
        """Return the URL for a printed command: the whole URL, or only the place where it holds a password."""
        return f"postgresql://{self.place}" if self.secrets else self.url

    @classmethod
    def read(cls, given: object) -> "PostgresUrl":
        """Parse a URL; raises `errors.UsageError` (E_URL).

        The message repeats nothing of the URL, since an invalid URL may have a password anywhere.
        """
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict

        match, connection_values = (
            _URL.fullmatch(given) if isinstance(given, str) and "\0" not in given else None,
            dict[str, Any](),
        )
        try:
            connection_values = conninfo_to_dict(str(given)) if match else connection_values
        except (ValueError, Error):
            match = None
        if match is None:
            message = (
                "not a valid PostgreSQL URL; percent-encode special characters in the password (%40, %2F and so on)"
            )
            raise UsageError(message, "E_URL", f"give {EXAMPLE}")
        password = match["password"] or ""
        secrets = {
            password,
            unquote(password),
            *(str(connection_values.get(name) or "") for name in ("password", "sslpassword")),
        }
        return cls(str(given), match["place"], tuple(sorted(secrets - {""}, key=len, reverse=True)))

    def scrub(self, text: str, instead: str) -> str:
        """Return a text on one line without the secrets; `instead` where a secret is too short to be cut out."""
        line = " ".join(text.split())
        if any(len(secret) < _SHORTEST and secret in line for secret in self.secrets):
            return f"{instead} at {self.place}"
        for secret in self.secrets:
            line = line.replace(secret, _HIDDEN)
        return line
