"""A PostgreSQL server as a target: reads publications, and applies a delta in a transaction."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress

import psycopg
from psycopg import sql

from duckkb.databases import postgres_rows
from duckkb.databases.postgres_connection import Address, Connection, Connections, identifier, know_vectors
from duckkb.databases.postgres_publication import PostgresPublication
from duckkb.databases.postgres_rows import Loading
from duckkb.databases.published_rows import Readings, make_behind_error, make_unpublished_error
from duckkb.ontology.model import RecordType
from duckkb.ports import Delta, Lanes, Rows, Sql, Tokenizer, Watermark
from duckkb.types.errors import UsageError
from duckkb.types.settings import Settings

_LOCK = 0x6475636B  # the lock of publishers that create the catalogue; "duck"
_PUBLISH_SECONDS = 6 * 3_600
_DROP_SECONDS = 5
_MOMENTS = 5
_ROLE = "SELECT 1 FROM pg_roles WHERE rolname = %s AND NOT rolsuper AND NOT rolbypassrls"
_MAY_BE_GONE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)


class PostgresTarget:
    """Implements `ports.Target`."""

    def __init__(self, url: str) -> None:
        self._address = Address.parse(url)
        self._connections = Connections(self._address)
        self._readings: Readings[PostgresPublication] = Readings()

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def now(self) -> PostgresPublication:
        return self._readings.now

    @contextmanager
    def open_publication(self) -> Iterator[PostgresPublication]:
        with self._connections.borrow() as connection, ExitStack() as transaction:
            publication = self._begin_read(connection, transaction)
            with self._readings.use(publication):
                yield publication

    def watermark(self) -> Watermark | None:
        with self._connections.borrow() as connection, connection.transaction():
            publication = self._find_publication(connection)
            return publication.watermark if publication else None

    def publish(self, delta: Delta) -> None:
        with self._connections.borrow() as connection:
            with connection.transaction():
                self._publish(connection, delta)
            self._drop_old_builds(connection)
            if delta.is_whole:
                self._settle(connection)

    def grant(self, role: str, types: Collection[str]) -> None:
        with self._connections.borrow() as connection, connection.transaction():
            self._lock(connection)
            if connection.execute(_ROLE, [role]).fetchone() is None:
                raise UsageError(
                    f"{self.name} has no role {role!r}, or one that sees everything",
                    code="E_ROLE",
                    suggestion="CREATE ROLE ... LOGIN, without SUPERUSER and BYPASSRLS",
                )
            source = self._address.source
            connection.execute("DELETE FROM duckkb.granted WHERE source = %s AND role = %s", [source, role])
            for name in types:
                connection.execute("INSERT INTO duckkb.granted VALUES (%s, %s, %s)", [source, role, name])
            if (publication := self._find_publication(connection)) is not None:
                postgres_rows.let_in(connection, publication.build, source)

    def lanes(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> Lanes:
        from duckkb.databases.postgres_publication import PostgresLanes

        return PostgresLanes(kind, rows, tokenizer, settings, self)

    def sql(self, inner: Sql) -> Sql:
        from duckkb.databases.postgres_filters import PostgresTables
        from duckkb.sql.runtime_tables import Tables

        assert isinstance(inner, Tables), "which reads conditions"
        return PostgresTables(inner, self)

    def close(self) -> None:
        self._connections.close()

    def _begin_read(self, connection: Connection, outer: ExitStack) -> PostgresPublication:
        """Return the publication, in a transaction that `outer` ends. A build may be replaced and dropped after it
        was named and before it is read; then a new transaction is tried. Once anything of it is read, no
        publisher can drop it.
        """
        for retries in reversed(range(_MOMENTS)):
            with suppress(*_MAY_BE_GONE) if retries else nullcontext(), ExitStack() as transaction:
                transaction.enter_context(connection.transaction())
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                publication = self._find_publication(connection)
                if publication is None:
                    raise make_unpublished_error(self.name, f"{self._address.database.mask()}#{self._address.source}")
                assert publication.kinds is not None, "which reads the build"
                outer.push(transaction.pop_all())
                return publication
        raise AssertionError("the last moment is returned, or raises")

    def _find_publication(self, connection: Connection) -> PostgresPublication | None:
        """Return the publication as the transaction sees it."""
        statement = "SELECT commit, fingerprint, build FROM duckkb.target WHERE source = %s"
        is_there = postgres_rows.has_catalogue(connection)
        row = connection.execute(statement, [self._address.source]).fetchone() if is_there else None
        return PostgresPublication(connection, Watermark(row[0], row[1]), row[2]) if row else None

    def _publish(self, connection: Connection, delta: Delta) -> None:
        connection.execute(
            sql.SQL("SET LOCAL statement_timeout = {0}; SET LOCAL lock_timeout = {0}").format(
                sql.Literal(_PUBLISH_SECONDS * 1000)
            )
        )
        self._lock(connection)
        before = connection.execute(
            "SELECT commit, fingerprint, build, number FROM duckkb.target WHERE source = %s FOR UPDATE",
            [self._address.source],
        ).fetchone()
        watermark = Watermark(before[0], before[1]) if before else None
        if watermark != delta.parent:
            raise make_behind_error(self.name, delta.parent, watermark)
        if delta.is_whole:
            self._build(connection, delta, before[2] if before else None, before[3] if before else 0)
        else:
            assert before is not None, "what follows has something before it"
            Loading(connection, before[2], delta).follow(self._load_publication(connection, before))
            connection.execute(
                "UPDATE duckkb.target SET commit = %s WHERE source = %s", [delta.watermark.commit, self._address.source]
            )

    def _lock(self, connection: Connection) -> None:
        """Lock the tables that record publications, so that a single publisher works at a time."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        postgres_rows.make_catalogue(connection)

    def _load_publication(self, connection: Connection, row: "tuple[object, ...]") -> PostgresPublication:
        commit, fingerprint, build, _ = map(str, row)
        return PostgresPublication(connection, Watermark(commit, fingerprint), build)

    def _build(self, connection: Connection, delta: Delta, before: str | None, number: int) -> None:
        """Build beside the present build; the transaction's commit replaces it."""
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        know_vectors(connection)
        source, build = self._address.source, f"duckkb_{self._address.source}_{number + 1}"
        Loading(connection, build, delta).build()
        postgres_rows.secure(connection, build, source)
        if before is not None:
            connection.execute("INSERT INTO duckkb.retired (build, source) VALUES (%s, %s)", [before, source])
        connection.execute(
            """
            INSERT INTO duckkb.target (source, commit, fingerprint, build, number) VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT (source) DO UPDATE SET commit = excluded.commit, fingerprint = excluded.fingerprint,
                build = excluded.build, number = excluded.number
            """,
            [source, delta.watermark.commit, delta.watermark.fingerprint, build, number + 1],
        )

    def _drop_old_builds(self, connection: Connection) -> None:
        """Remove replaced builds. A build that is still read is left for the next publisher."""
        statement = "SELECT build FROM duckkb.retired WHERE source = %s"
        for (build,) in connection.execute(statement, [self._address.source]).fetchall():
            try:
                with connection.transaction():
                    connection.execute(f"SET LOCAL lock_timeout = '{_DROP_SECONDS}s'; SET LOCAL statement_timeout = 0")
                    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(identifier(build)))
                    connection.execute("DELETE FROM duckkb.retired WHERE build = %s", [build])
            except psycopg.Error:  # a lock or another failure: the publication is valid without it
                continue

    def _settle(self, connection: Connection) -> None:
        """Vacuum the tables, so that indices answer without reading rows. Ignores failures (a replaced build, a
        lock), because the publication is valid without it.
        """
        with suppress(psycopg.Error):
            publication = self._find_publication(connection)
            if publication is None:
                return
            connection.execute("SET statement_timeout = 0")
            for (number,) in publication.rows(
                "SELECT number FROM {kinds}", kinds=identifier(publication.build, "kind")
            ):
                for table in ("record", "term", "posting"):
                    connection.execute(
                        sql.SQL("VACUUM {}").format(postgres_rows.part(publication.build, table, number))
                    )
