"""The tables of a target in PostgreSQL.

The schema `duckkb` records the publication of each base; each build of a base has a separate schema. In it
every table is partitioned by type: `record` (lines, and columns for filters and order), `term` and `posting`
(words), `vector`.
"""

from psycopg import sql

from duckkb.lanes.targets.postgres.connecting import Connection, identifier

CATALOGUE = "duckkb"
FORMAT = 1
"""Increases when the tables change: it is part of the fingerprint, so that another version of duckkb rebuilds."""

_CATALOGUE = """
CREATE SCHEMA IF NOT EXISTS duckkb;
CREATE TABLE IF NOT EXISTS duckkb.target (
    source text PRIMARY KEY, commit text NOT NULL, fingerprint text NOT NULL, build text NOT NULL, number bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS duckkb.retired (build text PRIMARY KEY, source text NOT NULL);
CREATE TABLE IF NOT EXISTS duckkb.granted (
    source text NOT NULL, role text NOT NULL, kind text NOT NULL, PRIMARY KEY (source, role, kind)
);
ALTER TABLE duckkb.granted ENABLE ROW LEVEL SECURITY;
ALTER TABLE duckkb.target ENABLE ROW LEVEL SECURITY;
DO $$ BEGIN
    CREATE POLICY seen ON duckkb.granted FOR SELECT USING (role = current_user);
    CREATE POLICY seen ON duckkb.target FOR SELECT USING (source IN (SELECT source FROM duckkb.granted));
EXCEPTION WHEN duplicate_object THEN NULL; END $$;
"""
_SECURITY = """
ALTER TABLE {s}.kind ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON {s}.kind FOR SELECT
    USING (name IN (SELECT kind FROM duckkb.granted WHERE source = {source}));
ALTER TABLE {s}.configuration ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON {s}.configuration FOR SELECT USING (
    needed <@ (SELECT coalesce(array_agg(name), '{{}}') FROM {s}.kind)
    AND (users = '{{}}' OR users && (SELECT coalesce(array_agg(name), '{{}}') FROM {s}.kind))
);
"""
_OF_KINDS = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON {table} FOR SELECT USING (kind IN (SELECT number FROM {s}.kind));
"""
_TABLES = """
CREATE TABLE {s}.kind (
    number smallint PRIMARY KEY, name text NOT NULL UNIQUE, count bigint NOT NULL DEFAULT 0, lengths bigint[] NOT NULL,
    vectors bigint NOT NULL DEFAULT 0, said text NOT NULL DEFAULT '{{}}', notes text NOT NULL DEFAULT '{{}}'
);
CREATE TABLE {s}.configuration (path text PRIMARY KEY, data bytea NOT NULL, needed text[] NOT NULL, users text[] NOT NULL);
CREATE TABLE {s}.record (
    kind smallint NOT NULL, id bigint NOT NULL, place bytea NOT NULL, etag bytea NOT NULL, line bytea NOT NULL,
    source bytea, target bytea, pending integer NOT NULL, lengths integer[] NOT NULL, facts jsonb
) PARTITION BY LIST (kind);
CREATE TABLE {s}.term (
    kind smallint NOT NULL, field smallint NOT NULL, token bytea NOT NULL, id integer NOT NULL, records integer NOT NULL
) PARTITION BY LIST (kind);
CREATE SEQUENCE {s}.term_id AS integer;
CREATE TABLE {s}.posting (
    kind smallint NOT NULL, term integer NOT NULL, id bigint NOT NULL, times integer NOT NULL, length integer NOT NULL,
    positions bytea
) PARTITION BY LIST (kind);
CREATE TABLE {s}.vector (
    kind smallint NOT NULL, id bigint NOT NULL, field text NOT NULL, seq integer NOT NULL, at integer NOT NULL,
    vector vector NOT NULL
) PARTITION BY LIST (kind);
"""
PARTED = ("record", "term", "posting", "vector")

_PART = "CREATE TABLE {part} PARTITION OF {table} FOR VALUES IN ({number})"
_INDICES = """
ALTER TABLE {record} ADD PRIMARY KEY (id);
CREATE INDEX ON {record} (substring(place, 1, 1000));
CREATE INDEX ON {record} (id) WHERE pending > 0;
CREATE INDEX ON {record} USING hash (source) WHERE source IS NOT NULL;
CREATE INDEX ON {record} USING hash (target) WHERE target IS NOT NULL;
CREATE UNIQUE INDEX ON {term} (field, token) INCLUDE (id, records);
CREATE INDEX ON {posting} (term, id) INCLUDE (times, length);
CREATE INDEX ON {posting} (id);
CREATE INDEX ON {vector} (id);
"""


def make_catalogue(connection: Connection) -> None:
    """Create the tables that record publications, if they are missing; the caller holds the publishers' lock.
    Existing tables stay untouched: declaring row security again would lock out every reader until the
    publication ends.
    """
    if not has_catalogue(connection):
        connection.execute(_CATALOGUE)


def has_catalogue(connection: Connection) -> bool:
    """Return whether anything was ever published there."""
    (is_there,) = connection.execute("SELECT to_regclass('duckkb.target') IS NOT NULL").fetchone() or (False,)
    return bool(is_there)


def make_tables(connection: Connection, build: str, numbers: dict[int, int]) -> None:
    """Create the tables of a build without their indices, with a partition for each type; `numbers` maps each
    type's number to the number of its index fields.
    """
    connection.execute(sql.SQL(f"CREATE SCHEMA {{s}}; {_TABLES}").format(s=identifier(build)))
    for number in numbers:
        for table in PARTED:
            statement = sql.SQL(_PART).format(
                part=part(build, table, number), table=identifier(build, table), number=sql.Literal(number)
            )
            connection.execute(statement)
        connection.execute(
            # exact search reads every vector; stored out of line, each would be fetched separately
            sql.SQL("ALTER TABLE {} ALTER COLUMN vector SET STORAGE PLAIN").format(part(build, "vector", number))
        )


def secure(connection: Connection, build: str, source: str) -> None:
    """Enable row security for a build, so that non-owners see what is granted to them, and grant them access."""
    connection.execute(sql.SQL(_SECURITY).format(s=identifier(build), source=sql.Literal(source)))
    for table in PARTED:
        connection.execute(sql.SQL(_OF_KINDS).format(s=identifier(build), table=identifier(build, table)))
    let_in(connection, build, source)


def let_in(connection: Connection, build: str, source: str) -> None:
    """Grant the roles with any grant of the source access to a build's tables; row security limits the rows."""
    statement = "GRANT USAGE ON SCHEMA duckkb, {s} TO {role}; GRANT SELECT ON duckkb.target, duckkb.granted TO {role}"
    roles = connection.execute("SELECT DISTINCT role FROM duckkb.granted WHERE source = %s", [source]).fetchall()
    for (role,) in roles:
        connection.execute(sql.SQL(statement).format(s=identifier(build), role=identifier(role)))
        for table in ("kind", "configuration", *PARTED):
            grant = sql.SQL("GRANT SELECT ON {} TO {}").format(identifier(build, table), identifier(role))
            connection.execute(grant)


def make_indices(connection: Connection, build: str, number: int) -> None:
    """Create the indices of a type's partitions, after loading because that is faster."""
    names = {table: part(build, table, number) for table in PARTED}
    connection.execute(sql.SQL(_INDICES).format(**names))
    for table in PARTED:
        connection.execute(sql.SQL("ANALYZE {}").format(names[table]))


def make_graph(connection: Connection, build: str, number: int, dimension: int) -> None:
    """Create a graph (HNSW) over a type's vectors for approximate search."""
    statement = "CREATE INDEX ON {} USING hnsw ((vector::vector({})) vector_ip_ops)"
    connection.execute(sql.SQL(statement).format(part(build, "vector", number), sql.Literal(dimension)))


def part(build: str, table: str, number: int) -> sql.Identifier:
    """Return the partition of a table for a type."""
    return identifier(build, f"{table}_{number}")
