"""The server that tests of PostgreSQL share: real, empty databases with pgvector, and one that survives being killed."""

import psycopg
import pytest

from tests.harness.postgres import Server, running


def test_databases_are_empty_and_have_vectors(postgres: Server) -> None:
    first, second = postgres.database(), postgres.database()
    with psycopg.connect(first, autocommit=True) as one, psycopg.connect(second) as other:
        one.execute("CREATE TABLE a (v vector(2))")
        assert one.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone() >= ("0.8",)
        assert other.execute("SELECT to_regclass('a')").fetchone() == (None,)


def test_over_tcp_a_password_is_looked_at(postgres: Server) -> None:
    psycopg.connect(postgres.tcp("postgres")).close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.tcp("postgres", password="another"))


@pytest.mark.long
def test_what_was_committed_is_there_after_a_kill() -> None:
    with running() as server:
        url = server.database()
        with psycopg.connect(url) as one:
            one.execute("CREATE TABLE a AS SELECT 1 AS n")
            one.commit()
            one.execute("INSERT INTO a VALUES (2)")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                one.execute("SELECT 1")
        server.start()
        with psycopg.connect(url) as one:
            assert one.execute("SELECT n FROM a").fetchall() == [(1,)]
