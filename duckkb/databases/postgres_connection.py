"""Connects to a PostgreSQL server: parses addresses, transfers vectors, and reports failures.

A password is better in PGPASSWORD, a service file or ~/.pgpass, where no list of processes shows it; a password
in the address never shows in a message.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import psycopg
from msgspec import Struct
from numpy.typing import NDArray
from psycopg import sql
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.types import TypeInfo

from duckkb.types.database_urls import PostgresUrl
from duckkb.types.errors import Unavailable, UsageError

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMES = ("postgresql", "postgres")
_SOURCE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CONNECT_SECONDS = 10
_STATEMENT_SECONDS = 30


class Address(Struct, frozen=True):
    """The address of a database, and after a `#` the name under which a base is published there."""

    database: PostgresUrl
    source: str

    @classmethod
    def parse(cls, given: str) -> "Address":
        """Parse an address; raise `errors.UsageError` (E_URL) if it is not a PostgreSQL URL, or the name of the
        base is invalid.
        """
        url, _, name = given.partition("#")
        source = name or "base"
        if not _SOURCE.fullmatch(source):
            # Do not repeat the text: it may be part of a password with a # that is not written as %23.
            raise UsageError(
                "the part after # in the URL is not a name of a published base",
                "E_URL",
                "a letter, then letters, digits and _ in lower case: postgresql://HOST/DATABASE#NAME",
            )
        return cls(PostgresUrl.read(url), source)

    @property
    def name(self) -> str:
        """Return the address for display."""
        place = self.database.place
        return f"{f'localhost{place}' if place[:1] in ('', '/') else place}#{self.source}"


class Connections:
    """A pool of connections that stay open between queries; a borrowed connection belongs to a single thread."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._turn = Lock()
        self._is_closed = False

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Borrow a connection without a transaction. Raises `errors.Unavailable` (E_DATABASE), also for server
        errors in the block that no caller expects.
        """
        with translate_errors(self._address):
            connection = self._take_connection()
            try:
                yield connection
            finally:
                self._give_back(connection)

    def close(self) -> None:
        with self._turn:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_connection(self) -> Connection:
        while True:
            with self._turn:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return open_connection(self._address)
            try:
                connection.execute("SELECT 1")  # fails if the server was restarted meanwhile
                return connection
            except psycopg.OperationalError:
                connection.close()

    def _give_back(self, connection: Connection) -> None:
        with self._turn:
            is_sound = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            if is_sound and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()


def open_connection(address: Address) -> Connection:
    """Open a connection that commits by itself outside of transactions and has a time limit. Other parameters of
    the address (`options`, by which some hosts tell databases apart) apply.
    """
    address_options = conninfo_to_dict(address.database.url).get("options") or ""
    limits = (
        f"-c statement_timeout={_STATEMENT_SECONDS * 1000} -c lock_timeout={_STATEMENT_SECONDS * 1000} -c timezone=UTC"
    )
    connection = psycopg.connect(
        address.database.url,
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        application_name="duckkb",
        options=f"{address_options} {limits}".strip(),
    )
    know_vectors(connection)
    return connection


def know_vectors(connection: Connection) -> None:
    """Transfer vectors as their numbers, if the server has the extension."""
    info = TypeInfo.fetch(connection, "vector")
    if info is None:
        return
    info.register(connection)
    dumper = type("VectorDumper", (_VectorDumper,), {"oid": info.oid})
    connection.adapters.register_dumper(np.ndarray, dumper)
    connection.adapters.register_loader(info.oid, _VectorLoader)


class _VectorDumper(Dumper):
    """pgvector's binary form: the dimension and two spare bytes, then 32-bit floats, all big-endian."""

    format = Format.BINARY

    def dump(self, obj: NDArray[np.float32]) -> Buffer:
        return len(obj).to_bytes(2, "big") + b"\0\0" + obj.astype(">f4").tobytes()


class _VectorLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> NDArray[np.float32]:
        return np.frombuffer(bytes(data)[4:], ">f4").astype(np.float32)


@contextmanager
def translate_errors(address: Address) -> Iterator[None]:
    """Translate server errors to ours; libpq's messages contain no password."""
    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise Unavailable(
            f"{address.name} took longer than {_STATEMENT_SECONDS} seconds",
            code="E_DATABASE",
            suggestion="ask for less",
        ) from None
    except psycopg.Error as problem:
        first = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        message = address.database.scrub(first, type(problem).__name__)
        raise Unavailable(
            f"{address.name} does not answer as it should: {message}",
            code="E_DATABASE",
            suggestion="check that the server runs and accepts your login: `psql` with the same address",
        ) from None  # the original error's text and frames may hold the URL


def identifier(*names: str) -> sql.Identifier:
    """Quote a name for a statement; the only way in which names get into statements."""
    return sql.Identifier(*names)
