"""Writes records into the tables: a full build by streams, a small delta in place of what it replaces.

The counts of a type (records, tokens, records with a term, what the records say of columns) are updated with
each delta. So at every commit they equal the counts of a full build of that commit.

The tables of a target in PostgreSQL.

The schema `duckkb` records the publication of each base; each build of a base has a separate schema. In it
every table is partitioned by type: `record` (lines, and columns for filters and order), `term` and `posting`
(words), `vector`."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field
from psycopg import sql
from psycopg.types.json import Jsonb

from duckkb.databases.postgres_connection import Connection, identifier
from duckkb.databases.postgres_filters import facts_of
from duckkb.databases.postgres_publication import KindRow, PostgresPublication
from duckkb.databases.published_rows import end_of, place_of, term_key
from duckkb.databases.published_words import PostedTerm, RecordTerms
from duckkb.index.cosine import make_unit
from duckkb.index.word_fields import words_fields
from duckkb.ontology.model import RecordType
from duckkb.ports import Delta, PublishedRow, TypeDelta
from duckkb.sql.columns import Observation
from duckkb.storage.part import etag, row_in

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


_COLUMNS = {
    "record": ("int2", "int8", "bytea", "bytea", "bytea", "bytea", "bytea", "int4", "int4[]", "jsonb"),
    "posting": ("int2", "int4", "int8", "int4", "int4", "bytea"),
    "vector": ("int2", "int8", "text", "int4", "int4", "vector"),
    "term": ("int2", "int2", "bytea", "int4", "int4"),
}
_MOST_VECTORS = 2_000  # the largest dimension that an index of pgvector takes


class Counted(Struct):
    """The counts of a type. `terms` has the number of each term in the database, `records_with` the records with
    each number.
    """

    count: int
    lengths: list[int]
    vectors: int
    seen: Observation
    terms: dict[PostedTerm, int] = {}
    records_with: Counter[int] = field(default_factory=Counter)


class Loading:
    """The loading of a delta into the schema `build`, in the connection's transaction."""

    def __init__(self, connection: Connection, build: str, delta: Delta) -> None:
        self._connection = connection
        self._build = build
        self._delta = delta
        self._last_term = 0

    def build(self) -> None:
        """Create the tables with everything in the delta."""
        deltas = [*self._delta.types]
        fields = {number: len(self._list_fields(delta.kind)) + 1 for number, delta in enumerate(deltas, 1)}
        make_tables(self._connection, self._build, fields)
        for number, delta in enumerate(deltas, 1):
            totals = Counted(0, [0] * fields[number], 0, Observation(delta.kind))
            for rows in delta.puts:
                self._put(number, delta.kind, rows, totals)
            term_items = totals.terms.items()
            terms = [
                (number, at, term_key(token), term_id, totals.records_with[term_id])
                for (at, token), term_id in term_items
            ]
            self._copy("term", number, terms)
            make_indices(self._connection, self._build, number)
            self._note(number, delta, totals, is_new=True)
            self._make_graph(number, delta.kind, totals)
        self._execute("ALTER SEQUENCE {s} RESTART WITH %s" % (self._last_term + 1), s=self._name("term_id"))
        self._configure()

    def follow(self, before: PostgresPublication) -> None:
        """Change the tables from the present publication to the state that the delta leads to."""
        for delta in self._delta.types:
            kind_row = before.kind(delta.kind)
            assert kind_row is not None, "another ontology is another fingerprint, and built anew"
            self._follow(kind_row, delta, before)
        self._execute("DELETE FROM {}", self._name("configuration"))
        self._configure()

    def _follow(self, kind_row: KindRow, delta: TypeDelta, before: PostgresPublication) -> None:
        kind, number = delta.kind, kind_row.number
        remarks = json.loads(kind_row.said)
        totals = Counted(kind_row.count, [*kind_row.lengths], kind_row.vectors, Observation(kind, remarks))
        lost_counts = self._take_away(number, kind, [*delta.gone], totals)
        for rows in delta.puts:
            self._put_few(number, kind, rows, totals, lost_counts)
        self._forget(number, lost_counts)
        self._note(number, delta, totals)

    def _take_away(self, number: int, kind: RecordType, ids: list[int], totals: Counted) -> Counter[int]:
        """Remove records; return how many of them each term had, by the term's id."""
        removed_rows = self._execute(
            "DELETE FROM {} WHERE id = ANY(%s) RETURNING line, lengths",
            self._identify_part("record", number),
            arguments=[ids],
        )
        records = [row_in(kind, bytes(line)).record for line, _ in removed_rows]
        totals.seen.counts.subtract(totals.seen.list_remarks(records))
        totals.count -= len(records)
        for _, lengths in removed_rows:
            totals.lengths = [all - length for all, length in zip(totals.lengths, lengths, strict=True)]
        totals.vectors -= len(
            self._execute(
                "DELETE FROM {} WHERE id = ANY(%s) RETURNING id", self._identify_part("vector", number), arguments=[ids]
            )
        )
        terms = self._execute(
            "DELETE FROM {} WHERE id = ANY(%s) RETURNING term", self._identify_part("posting", number), arguments=[ids]
        )
        return Counter(term for (term,) in terms)

    def _put_few(
        self, number: int, kind: RecordType, rows: Sequence[PublishedRow], totals: Counted, lost_counts: Counter[int]
    ) -> None:
        """Add records as `_put` does, and look up known terms in the database."""
        record_terms = [RecordTerms(item.row, self._list_fields(kind)) for item in rows]
        term_counts = Counter(term for terms in record_terms for term, *_ in terms.postings())
        totals.terms = self._fetch_term_ids(number, term_counts)
        new = [term for term in term_counts if term not in totals.terms]
        if new:
            ids = self._execute(
                "SELECT nextval(%s)::integer FROM generate_series(1, %s)",
                arguments=[f'"{self._build}".term_id', len(new)],
            )
            fresh = {term: item for term, (item,) in zip(new, ids, strict=True)}
            rows_of_terms = [(number, at, term_key(token), item, 0) for (at, token), item in fresh.items()]
            self._copy("term", number, rows_of_terms)
            totals.terms |= fresh
        for term, times in term_counts.items():
            lost_counts[totals.terms[term]] -= times
        self._put(number, kind, rows, totals, record_terms)

    def _fetch_term_ids(self, number: int, target_terms: Iterable[PostedTerm]) -> dict[PostedTerm, int]:
        by_key = {(at, term_key(token)): (at, token) for at, token in target_terms}
        term_rows = self._execute(
            "SELECT t.field, t.token, t.id FROM {} t JOIN unnest(%s::smallint[], %s::bytea[]) w (field, token)"
            " ON t.field = w.field AND t.token = w.token",
            self._identify_part("term", number),
            arguments=[[at for at, _ in by_key], [key for _, key in by_key]],
        )
        return {by_key[at, bytes(key)]: term_id for at, key, term_id in term_rows}

    def _forget(self, number: int, lost_counts: Counter[int]) -> None:
        """Update each term's number of records; delete terms without records."""
        changed_counts = {term: times for term, times in lost_counts.items() if times}
        if not changed_counts:
            return
        self._execute(
            "UPDATE {} t SET records = t.records - w.lost FROM unnest(%s::integer[], %s::integer[]) w (id, lost)"
            " WHERE t.id = w.id",
            self._identify_part("term", number),
            arguments=[[*changed_counts], [*changed_counts.values()]],
        )
        self._execute(
            "DELETE FROM {} WHERE id = ANY(%s) AND records = 0",
            self._identify_part("term", number),
            arguments=[[*changed_counts]],
        )

    def _put(
        self,
        number: int,
        kind: RecordType,
        rows: Sequence[PublishedRow],
        totals: Counted,
        record_terms: Sequence[RecordTerms] | None = None,
    ) -> None:
        """Add records. An unknown term gets a number."""
        fields = self._list_fields(kind)
        record_terms = (
            [RecordTerms(published_row.row, fields) for published_row in rows] if record_terms is None else record_terms
        )
        totals.seen.add([published_row.row.record for published_row in rows])
        totals.count += len(rows)
        postings = []
        term_ids, records_with = totals.terms, totals.records_with
        for published_row, terms in zip(rows, record_terms, strict=True):
            totals.lengths = [
                all + added_length for all, added_length in zip(totals.lengths, terms.lengths, strict=True)
            ]
            record_id = published_row.row.record.id
            for term, times, length, positions in terms.postings():
                term_id = term_ids.get(term)
                if term_id is None:
                    term_id = term_ids[term] = self._last_term = self._last_term + 1
                records_with[term_id] += 1
                postings.append((number, term_id, record_id, times, length, positions))
        self._copy(
            "record",
            number,
            [
                _record(number, kind, published_row, terms)
                for published_row, terms in zip(rows, record_terms, strict=True)
            ],
        )
        self._copy("posting", number, postings)
        vectors = [vector for published_row in rows for vector in self._iter_vectors(number, published_row)]
        self._copy("vector", number, vectors)
        totals.vectors += len(vectors)

    def _iter_vectors(self, number: int, published_row: PublishedRow) -> Iterable[tuple[Any, ...]]:
        """Yield the vectors of a record, of unit length."""
        for at, entry in enumerate(published_row.row.entries):
            if entry.vector is not None:
                unit = entry.vector.reshape(1, -1).astype("f4")
                make_unit(unit)
                yield number, published_row.row.record.id, entry.field, entry.seq, at, unit[0]

    def _note(self, number: int, delta: TypeDelta, totals: Counted, *, is_new: bool = False) -> None:
        said = {said: count for said, count in sorted(totals.seen.counts.items()) if count}
        values = [
            totals.count,
            totals.lengths,
            totals.vectors,
            json.dumps(said),
            json.dumps(delta.notes, sort_keys=True),
        ]
        if is_new:
            statement = "INSERT INTO {} (number, name, count, lengths, vectors, said, notes) VALUES (%s, %s, %s, %s, %s, %s, %s)"
            self._execute(statement, self._name("kind"), arguments=[number, delta.kind.name, *values])
        else:
            statement = "UPDATE {} SET count = %s, lengths = %s, vectors = %s, said = %s, notes = %s WHERE number = %s"
            self._execute(statement, self._name("kind"), arguments=[*values, number])

    def _make_graph(self, number: int, kind: RecordType, totals: Counted) -> None:
        settings = kind.settings(self._delta.settings).vectors
        if not totals.vectors or not settings.wants_graph(totals.vectors):
            return
        lengths = self._execute("SELECT DISTINCT vector_dims(vector) FROM {}", self._identify_part("vector", number))
        if len(lengths) == 1 and lengths[0][0] <= _MOST_VECTORS:
            make_graph(self._connection, self._build, number, lengths[0][0])

    def _configure(self) -> None:
        statement = "INSERT INTO {} VALUES (%s, %s, %s::text[], %s::text[])"
        for path, file in self._delta.configuration.items():
            self._execute(
                statement, self._name("configuration"), arguments=[path, file.data, [*file.every], [*file.some]]
            )

    def _copy(self, table: str, number: int, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(self._identify_part(table, number))
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(_COLUMNS[table])
            for row in rows:
                copy.write_row(row)

    def _execute(
        self, statement: str, *names: sql.Composable, arguments: Sequence[Any] = (), **named_parts: sql.Composable
    ) -> list[tuple[Any, ...]]:
        query = sql.SQL(statement).format(*names, **named_parts)
        with self._connection.cursor(binary=True) as cursor:
            cursor.execute(query, arguments or None)
            return cursor.fetchall() if cursor.description else []

    def _list_fields(self, kind: RecordType) -> Any:
        return words_fields(kind, self._delta.settings.language)

    def _name(self, table: str) -> sql.Identifier:
        return identifier(self._build, table)

    def _identify_part(self, table: str, number: int) -> sql.Identifier:
        return part(self._build, table, number)


def _record(number: int, kind: RecordType, published_row: PublishedRow, terms: RecordTerms) -> tuple[Any, ...]:
    record = published_row.row.record
    ends = [end_of(end) for end in record.identity[:2]] if kind.kind == "edge" else [None, None]
    pending = sum(entry.vector_key is not None and entry.vector is None for entry in published_row.row.entries)
    facts = facts_of(kind, record)
    return (
        number, record.id, place_of(record.identity), etag(published_row.line), published_row.line, *ends, pending, terms.lengths,
        Jsonb(facts) if facts is not None else None,
    )  # fmt: skip
