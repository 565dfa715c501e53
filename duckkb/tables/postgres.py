"""A read-only connection to PostgreSQL: each question in its own transaction with a time limit.

No error shows a password.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from duckkb.errors import DuckkbError, FilterError, Refused, StateError, Unavailable
from duckkb.postgres_url import EXAMPLE, PostgresUrl

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Error

_SESSION = {
    "TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "iso_8601", "bytea_output": "hex", "extra_float_digits": "1",
}  # fmt: skip
"""Settings that fix how values look, whoever asks."""
_SET = "SELECT pg_catalog.set_config(s.name, s.value, true) FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) AS s(name, value)"
_TOO_LATE = "57014"
_VALUES = {"22P02", "22003", "22007", "22008"}  # SQL states of values that do not fit their type


class Postgres:
    """A connection that is made at the first question, and again after it was lost. Threads take turns."""

    def __init__(self, url: str, connect_s: float = 10.0, statement_s: float = 30.0) -> None:
        """Prepare a connection, without connecting. Limits are in seconds.

        `place` is host, port and database, as people read them. Raises `errors.UsageError` (E_URL) for an
        invalid URL, `errors.Refused` without the extra.
        """
        if find_spec("psycopg") is None:
            raise Refused("PostgreSQL needs the extra `postgres`", suggestion="pip install 'duckkb[postgres]'")
        self._url = PostgresUrl.read(url)
        self.place = self._url.place
        self._connect_s, self._statement_s = connect_s, statement_s
        self._connection: Connection[Any] | None = None
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"Postgres({self.place})"

    @contextmanager
    def open_cursor(self) -> "Iterator[Cursor[Any]]":
        """Open a snapshot in which nothing can be written.

        Raises `errors.Unavailable` (E_DATABASE, E_TIMEOUT), `errors.StateError` (E_DATABASE) and, for values
        that do not fit their columns, `errors.FilterError`.
        """
        from psycopg import Error

        with self._turn:
            try:
                connection = self._get_connection()
                with connection.transaction(), connection.cursor() as cursor:
                    settings = {**_SESSION, "statement_timeout": str(max(1, int(self._statement_s * 1000)))}
                    cursor.execute(_SET, (list(settings), list(settings.values())))
                    yield cursor
            except Error as error:
                raise self._problem(error) from None  # its text and frames may hold the URL
            except UnicodeError:
                message = "[database] a value of the database is not UTF-8"
                raise StateError(message, "E_DATABASE", "select other columns, or correct the value") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get_connection(self) -> "Connection[Any]":
        import psycopg

        if self._connection is not None and not _is_alive(self._connection):
            self.close()
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url.url,
                autocommit=True,
                prepare_threshold=None,  # poolers that reassign connections lose prepared statements
                connect_timeout=max(1, int(self._connect_s)),
                tcp_user_timeout=int(1000 * (self._connect_s + self._statement_s)),
                application_name="duckkb",
                client_encoding="UTF8",
            )
            self._connection.read_only = True
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return self._connection

    def _problem(self, error: "Error") -> DuckkbError:
        state = error.sqlstate or ""
        if state == _TOO_LATE:
            message = f"[database] no answer within {self._statement_s:g} s"
            return Unavailable(message, "E_TIMEOUT", "ask for less, or with a larger --timeout")
        kind = type(error).__name__
        message = f"[database] {self._url.scrub(error.diag.message_primary or str(error), kind) or kind}"
        if state in _VALUES:
            return FilterError(message, suggestion="give a value of the column's type; `duckkb table show` names it")
        if not state or state.startswith(("08", "28", "3D", "53", "57")):
            return Unavailable(message, "E_DATABASE", f"check that the server runs and accepts your login: {EXAMPLE}")
        return StateError(message, "E_DATABASE", "`duckkb table show --url URL TABLE` shows what may be read")


def _is_alive(connection: "Connection[Any]") -> bool:
    """Return whether a connection is still open; servers and poolers close idle ones."""
    from psycopg import OperationalError

    try:
        connection.execute("SELECT 1")
    except OperationalError:
        return False
    return True
