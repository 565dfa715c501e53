"""The URL of a PostgreSQL, as `table` and `publish` take it: where it leads, and the passwords in it, which show nowhere."""

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
_SHORTEST = 4  # of a secret that can be taken out of a message without spoiling it


class PostgresUrl(Struct, frozen=True):
    """`url` is as libpq takes it; `place` is host, port and database, as a person is told them; `secrets` are the passwords, as
    they are written and as they are meant, the longest first."""

    url: str
    place: str
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"PostgresUrl({self.place})"

    def mask(self) -> str:
        """The URL as a command that is printed has it: whole, or where it holds a password the place alone."""
        return f"postgresql://{self.place}" if self.secrets else self.url

    @classmethod
    def read(cls, given: object) -> "PostgresUrl":
        """Raise `errors.UsageError` (E_URL), which repeats nothing of the URL: what cannot be read may have a password anywhere."""
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
                "the URL is none of a PostgreSQL, or its password has signs that must be written as %40, %2F and so on"
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
        """A text on one line without any of the secrets; `instead` where one is too short to be taken out."""
        line = " ".join(text.split())
        if any(len(secret) < _SHORTEST and secret in line for secret in self.secrets):
            return f"{instead} at {self.place}"
        for secret in self.secrets:
            line = line.replace(secret, _HIDDEN)
        return line
