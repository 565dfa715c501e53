"""How records get into the tables: all of a build by streams, the few of a delta in the place of what they replace.

What is counted of a type (records, tokens, records with a term, what the records say of columns) is kept up with each delta, so
that it is at every commit what a build of that commit would count.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field
from psycopg import sql
from psycopg.types.json import Jsonb

from duckkb.lanes.lexical.fields import words_fields
from duckkb.lanes.sql.columns import Observation
from duckkb.lanes.targets.keys import end_of, place_of, term_key
from duckkb.lanes.targets.postgres import schema
from duckkb.lanes.targets.postgres.connecting import Connection, identifier
from duckkb.lanes.targets.postgres.facts import facts_of
from duckkb.lanes.targets.postgres.publication import KindRow, PostgresPublication
from duckkb.lanes.targets.postings import RecordTerms, Term
from duckkb.lanes.vectors.cosine import make_unit
from duckkb.ontology.model import RecordType
from duckkb.ports import Delta, PublishedRow, TypeDelta
from duckkb.truth.files.part import etag, row_in

_COLUMNS = {
    "record": ("int2", "int8", "bytea", "bytea", "bytea", "bytea", "bytea", "int4", "int4[]", "jsonb"),
    "posting": ("int2", "int4", "int8", "int4", "int4", "bytea"),
    "vector": ("int2", "int8", "text", "int4", "int4", "vector"),
    "term": ("int2", "int2", "bytea", "int4", "int4"),
}
_MOST_VECTORS = 2_000  # numbers of a vector that an index of pgvector takes


class Counted(Struct):
    """What is counted of a type; of terms the number in the database, by which how many records have one."""

    count: int
    lengths: list[int]
    vectors: int
    seen: Observation
    terms: dict[Term, int] = {}
    records_with: Counter[int] = field(default_factory=Counter)


class Loading:
    """One delta on its way into the schema `build`, in the transaction that the connection is in."""

    def __init__(self, connection: Connection, build: str, delta: Delta) -> None:
        self._connection = connection
        self._build = build
        self._delta = delta
        self._last_term = 0

    def build(self) -> None:
        """Make the tables, of all that the delta holds."""
        deltas = [*self._delta.types]
        fields = {number: len(self._fields(delta.kind)) + 1 for number, delta in enumerate(deltas, 1)}
        schema.make_tables(self._connection, self._build, fields)
        for number, delta in enumerate(deltas, 1):
            counted = Counted(0, [0] * fields[number], 0, Observation(delta.kind))
            for rows in delta.puts:
                self._put(number, delta.kind, rows, counted)
            found = counted.terms.items()
            terms = [(number, at, term_key(token), one, counted.records_with[one]) for (at, token), one in found]
            self._copy("term", number, terms)
            schema.make_indices(self._connection, self._build, number)
            self._note(number, delta, counted, is_new=True)
            self._make_graph(number, delta.kind, counted)
        self._execute("ALTER SEQUENCE {s} RESTART WITH %s" % (self._last_term + 1), s=self._name("term_id"))
        self._configure()

    def follow(self, before: PostgresPublication) -> None:
        """Bring the tables from what is published to what the delta leads to."""
        for delta in self._delta.types:
            known = before.kind(delta.kind)
            assert known is not None, "another ontology is another fingerprint, and built anew"
            self._follow(known, delta, before)
        self._execute("DELETE FROM {}", self._name("configuration"))
        self._configure()

    def _follow(self, known: KindRow, delta: TypeDelta, before: PostgresPublication) -> None:
        kind, number = delta.kind, known.number
        said = json.loads(known.said)
        counted = Counted(known.count, [*known.lengths], known.vectors, Observation(kind, said))
        lost = self._take_away(number, kind, [*delta.gone], counted)
        for rows in delta.puts:
            self._put_few(number, kind, rows, counted, lost)
        self._forget(number, lost)
        self._note(number, delta, counted)

    def _take_away(self, number: int, kind: RecordType, ids: list[int], counted: Counted) -> Counter[int]:
        """Remove records; in how many each term was, by the term's id."""
        gone = self._execute(
            "DELETE FROM {} WHERE id = ANY(%s) RETURNING line, lengths", self._part("record", number), given=[ids]
        )
        records = [row_in(kind, bytes(line)).record for line, _ in gone]
        counted.seen.counts.subtract(counted.seen.said_by(records))
        counted.count -= len(records)
        for _, lengths in gone:
            counted.lengths = [all - own for all, own in zip(counted.lengths, lengths, strict=True)]
        counted.vectors -= len(
            self._execute("DELETE FROM {} WHERE id = ANY(%s) RETURNING id", self._part("vector", number), given=[ids])
        )
        terms = self._execute(
            "DELETE FROM {} WHERE id = ANY(%s) RETURNING term", self._part("posting", number), given=[ids]
        )
        return Counter(term for (term,) in terms)

    def _put_few(
        self, number: int, kind: RecordType, rows: Sequence[PublishedRow], counted: Counted, lost: Counter[int]
    ) -> None:
        """As `_put`, where terms are known by what is there."""
        made = [RecordTerms(one.row, self._fields(kind)) for one in rows]
        wanted = Counter(term for terms in made for term, *_ in terms.postings())
        counted.terms = self._known_terms(number, wanted)
        new = [term for term in wanted if term not in counted.terms]
        if new:
            ids = self._execute(
                "SELECT nextval(%s)::integer FROM generate_series(1, %s)", given=[f'"{self._build}".term_id', len(new)]
            )
            fresh = {term: one for term, (one,) in zip(new, ids, strict=True)}
            rows_of_terms = [(number, at, term_key(token), one, 0) for (at, token), one in fresh.items()]
            self._copy("term", number, rows_of_terms)
            counted.terms |= fresh
        for term, times in wanted.items():
            lost[counted.terms[term]] -= times
        self._put(number, kind, rows, counted, made)

    def _known_terms(self, number: int, wanted: Iterable[Term]) -> dict[Term, int]:
        by_key = {(at, term_key(token)): (at, token) for at, token in wanted}
        found = self._execute(
            "SELECT t.field, t.token, t.id FROM {} t JOIN unnest(%s::smallint[], %s::bytea[]) w (field, token)"
            " ON t.field = w.field AND t.token = w.token",
            self._part("term", number),
            given=[[at for at, _ in by_key], [key for _, key in by_key]],
        )
        return {by_key[at, bytes(key)]: one for at, key, one in found}

    def _forget(self, number: int, lost: Counter[int]) -> None:
        """Count the records of each term as they are now; terms that no record has any more go."""
        changed = {term: times for term, times in lost.items() if times}
        if not changed:
            return
        self._execute(
            "UPDATE {} t SET records = t.records - w.lost FROM unnest(%s::integer[], %s::integer[]) w (id, lost)"
            " WHERE t.id = w.id",
            self._part("term", number),
            given=[[*changed], [*changed.values()]],
        )
        self._execute(
            "DELETE FROM {} WHERE id = ANY(%s) AND records = 0", self._part("term", number), given=[[*changed]]
        )

    def _put(
        self,
        number: int,
        kind: RecordType,
        rows: Sequence[PublishedRow],
        counted: Counted,
        made: Sequence[RecordTerms] | None = None,
    ) -> None:
        """Add records. A term that is not known yet is given a number."""
        fields = self._fields(kind)
        made = [RecordTerms(one.row, fields) for one in rows] if made is None else made
        counted.seen.add([one.row.record for one in rows])
        counted.count += len(rows)
        postings = []
        known, records_with = counted.terms, counted.records_with
        for one, terms in zip(rows, made, strict=True):
            counted.lengths = [all + own for all, own in zip(counted.lengths, terms.lengths, strict=True)]
            record_id = one.row.record.id
            for term, times, length, positions in terms.postings():
                found = known.get(term)
                if found is None:
                    found = known[term] = self._last_term = self._last_term + 1
                records_with[found] += 1
                postings.append((number, found, record_id, times, length, positions))
        self._copy("record", number, [_record(number, kind, one, terms) for one, terms in zip(rows, made, strict=True)])
        self._copy("posting", number, postings)
        vectors = [vector for one in rows for vector in self._vectors(number, one)]
        self._copy("vector", number, vectors)
        counted.vectors += len(vectors)

    def _vectors(self, number: int, one: PublishedRow) -> Iterable[tuple[Any, ...]]:
        """The vectors of a record, of unit length."""
        for at, entry in enumerate(one.row.entries):
            if entry.vector is not None:
                unit = entry.vector.reshape(1, -1).astype("f4")
                make_unit(unit)
                yield number, one.row.record.id, entry.field, entry.seq, at, unit[0]

    def _note(self, number: int, delta: TypeDelta, counted: Counted, *, is_new: bool = False) -> None:
        said = {said: count for said, count in sorted(counted.seen.counts.items()) if count}
        given = [
            counted.count,
            counted.lengths,
            counted.vectors,
            json.dumps(said),
            json.dumps(delta.notes, sort_keys=True),
        ]
        if is_new:
            statement = "INSERT INTO {} (number, name, count, lengths, vectors, said, notes) VALUES (%s, %s, %s, %s, %s, %s, %s)"
            self._execute(statement, self._name("kind"), given=[number, delta.kind.name, *given])
        else:
            statement = "UPDATE {} SET count = %s, lengths = %s, vectors = %s, said = %s, notes = %s WHERE number = %s"
            self._execute(statement, self._name("kind"), given=[*given, number])

    def _make_graph(self, number: int, kind: RecordType, counted: Counted) -> None:
        settings = kind.settings(self._delta.settings).vectors
        if not counted.vectors or not settings.wants_graph(counted.vectors):
            return
        lengths = self._execute("SELECT DISTINCT vector_dims(vector) FROM {}", self._part("vector", number))
        if len(lengths) == 1 and lengths[0][0] <= _MOST_VECTORS:
            schema.make_graph(self._connection, self._build, number, lengths[0][0])

    def _configure(self) -> None:
        statement = "INSERT INTO {} VALUES (%s, %s, %s::text[], %s::text[])"
        for path, file in self._delta.configuration.items():
            self._execute(statement, self._name("configuration"), given=[path, file.data, [*file.every], [*file.some]])

    def _copy(self, table: str, number: int, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(self._part(table, number))
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(_COLUMNS[table])
            for row in rows:
                copy.write_row(row)

    def _execute(
        self, statement: str, *names: sql.Composable, given: Sequence[Any] = (), **named: sql.Composable
    ) -> list[tuple[Any, ...]]:
        made = sql.SQL(statement).format(*names, **named)
        with self._connection.cursor(binary=True) as cursor:
            cursor.execute(made, given or None)
            return cursor.fetchall() if cursor.description else []

    def _fields(self, kind: RecordType) -> Any:
        return words_fields(kind, self._delta.settings.language)

    def _name(self, table: str) -> sql.Identifier:
        return identifier(self._build, table)

    def _part(self, table: str, number: int) -> sql.Identifier:
        return schema.part(self._build, table, number)


def _record(number: int, kind: RecordType, one: PublishedRow, terms: RecordTerms) -> tuple[Any, ...]:
    record = one.row.record
    ends = [end_of(end) for end in record.identity[:2]] if kind.kind == "edge" else [None, None]
    pending = sum(entry.vector_key is not None and entry.vector is None for entry in one.row.entries)
    facts = facts_of(kind, record)
    return (
        number, record.id, place_of(record.identity), etag(one.line), one.line, *ends, pending, terms.lengths,
        Jsonb(facts) if facts is not None else None,
    )  # fmt: skip
