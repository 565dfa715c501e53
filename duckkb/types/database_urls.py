"""The URL of a PostgreSQL, as `table` and `publish` take it: its server, and its passwords, which are never shown.

The address of a base in Lance tables: a folder, or a bucket of an object storage.

An address holds no keys of an object storage: its client takes them from the environment (AWS_ACCESS_KEY_ID and
similar), a profile or the machine's role."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from duckkb.types.errors import UsageError

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


STORAGES = {"lance+s3": "s3", "lance+gs": "gs", "lance+az": "az"}
SCHEMES = ("lance", *STORAGES)
_KEPT = 10
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SUGGESTION = "lance:FOLDER, lance+s3://BUCKET/PATH, lance+gs://... or lance+az://..."


class LanceAddress(Struct, frozen=True):
    """The address of Lance tables. `place` has LanceDB's form. `at` is the requested earlier commit by 7 or more
    digits of its hash. The last `kept` publications stay readable.
    """

    place: str
    at: str | None = None
    kept: int = _KEPT

    @classmethod
    def parse(cls, given: str) -> "LanceAddress":
        """Parse an address. Raises `errors.UsageError` (E_URL) if it holds a key, or has an unknown option."""
        scheme, _, location = given.partition(":")
        path, _, query = location.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        at, kept_count = options.pop("at", None), options.pop("keep", str(_KEPT))
        if options:
            raise _build_refusal(
                "the address of Lance tables takes ?at=COMMIT and ?keep=N alone",
                "give keys and endpoints of an object storage by its environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT, ...",
            )
        if at is not None and not _COMMIT.fullmatch(at):
            raise _build_refusal("?at= names a commit by 7 or more digits of its hash", "git log")
        if not kept_count.isascii() or not kept_count.isdigit() or not 1 <= int(kept_count) <= 1_000:
            raise _build_refusal("?keep= is the number of readable publications, 1 to 1000", "?keep=10")
        return cls(_place(scheme.lower(), path), at, int(kept_count))

    @property
    def is_folder(self) -> bool:
        return "://" not in self.place

    @property
    def name(self) -> str:
        """Return the address for display."""
        return f"{self.place}@{self.at}" if self.at else self.place


def _place(scheme: str, path: str) -> str:
    if scheme == "lance":
        folder = path.removeprefix("//")
        if not folder:
            raise _build_refusal("the address names no folder")
        return str(Path(folder).absolute())
    try:
        parts = urlsplit(f"{STORAGES[scheme]}:{path}")
    except ValueError:
        raise _build_refusal("the address of the storage does not parse") from None
    if not parts.netloc:
        raise _build_refusal("the address names no bucket")
    if "@" in parts.netloc:
        raise _build_refusal(
            "the address contains a key", "leave it out, and give it by the environment of the storage"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _build_refusal(message: str, suggestion: str = _SUGGESTION) -> UsageError:
    return UsageError(message, code="E_URL", suggestion=suggestion)
