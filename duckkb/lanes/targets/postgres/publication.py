"""A publication, read in a transaction: it sees a single moment, whatever is published meanwhile."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from psycopg import sql

from duckkb.lanes.targets.keys import end_of, place_of
from duckkb.lanes.targets.postgres.connecting import Connection, identifier
from duckkb.ontology.model import RecordType
from duckkb.ports import EdgeSide, Watermark
from duckkb.records import Component, Identity

_PAGE = 500  # lines that are fetched at a time

_FAULTS = {
    "the records are not as many as are counted": """
        SELECT 1 FROM {record} WHERE kind = {kind} HAVING count(*) <> {count}
    """,
    "a line is not what its etag was taken of": """
        SELECT 1 FROM {record} WHERE kind = {kind} AND substring(sha256(line), 1, 8) <> etag LIMIT 1
    """,
    "a term counts other records than have it": """
        SELECT 1 FROM (SELECT id, records FROM {term} WHERE kind = {kind}) t
        FULL JOIN (SELECT term, count(*) AS found FROM {posting} WHERE kind = {kind} GROUP BY term) p ON p.term = t.id
        WHERE t.records IS DISTINCT FROM p.found LIMIT 1
    """,
    "words or vectors are there of a record that is not": """
        SELECT 1 FROM (
            SELECT id FROM {posting} WHERE kind = {kind} UNION SELECT id FROM {vector} WHERE kind = {kind}
        ) x WHERE id NOT IN (SELECT id FROM {record} WHERE kind = {kind}) LIMIT 1
    """,
}
"""Statements that return a row if something does not fit."""


class KindRow(Struct, frozen=True):
    """The state of a type in the target: its number there, the number of its records and vectors, tokens by field
    of the index, and as JSON what its records say of columns and what the publisher noted.
    """

    number: int
    count: int
    lengths: Sequence[int]
    vectors: int
    said: str
    notes: str


class PostgresPublication:
    """Implements `ports.Publication` over the schema `build`, in the connection's transaction."""

    def __init__(self, connection: Connection, watermark: Watermark, build: str) -> None:
        self._connection = connection
        self._watermark = watermark
        self.build = build
        self._kinds: dict[str, KindRow] | None = None

    @property
    def watermark(self) -> Watermark:
        return self._watermark

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._load_kinds())

    def configuration(self) -> Mapping[str, bytes]:
        rows = self.rows("SELECT path, data FROM {configuration} ORDER BY path")
        return {path: bytes(data) for path, data in rows}

    def notes(self, kind: RecordType) -> Mapping[str, Any]:
        kind_row = self.kind(kind)
        note_values: dict[str, Any] = json.loads(kind_row.notes) if kind_row else {}
        return note_values

    def count(self, kind: RecordType) -> int:
        kind_row = self.kind(kind)
        return kind_row.count if kind_row else 0

    def ids(self, kind: RecordType) -> Sequence[int]:
        order = "ORDER BY substring(place, 1, 1000), place"
        return [
            record_id for (record_id,) in self.query(kind, f"SELECT id FROM {{record}} WHERE kind = {{kind}} {order}")
        ]

    def lines(self, kind: RecordType, ids: Collection[int]) -> Mapping[int, bytes]:
        if not ids:
            return {}
        rows = self.query(kind, "SELECT id, line FROM {record} WHERE kind = {kind} AND id = ANY(%s)", [*ids])
        return {record_id: bytes(line) for record_id, line in rows}

    def find_ids(self, kind: RecordType, identities: Collection[Identity]) -> Mapping[Identity, int]:
        by_place = {place_of(identity): identity for identity in identities}
        statement = """
            SELECT place, id FROM {record}
            WHERE kind = {kind} AND substring(place, 1, 1000) = ANY(%s) AND place = ANY(%s)
        """
        starts = list({place[:1000] for place in by_place})
        return {
            by_place[bytes(place)]: record_id for place, record_id in self.query(kind, statement, starts, [*by_place])
        }

    def iter_by_identity(self, kind: RecordType, behind: Identity | None = None) -> Iterator[bytes]:
        after = b"" if behind is None else place_of(behind)
        statement = """
            SELECT line, place FROM {record}
            WHERE kind = {kind} AND (substring(place, 1, 1000), place) > (substring(%s, 1, 1000), %s)
            ORDER BY substring(place, 1, 1000), place LIMIT %s
        """
        while page := self.query(kind, statement, after, after, _PAGE):
            for line, place in page:
                after = bytes(place)
                yield bytes(line)

    def find_edge_ids(self, kind: RecordType, side: EdgeSide, ends: Collection[Component]) -> Sequence[int]:
        column = identifier("source" if side == "out" else "target")
        statement = "SELECT id FROM {record} WHERE kind = {kind} AND {column} = ANY(%s)"
        return [record_id for (record_id,) in self.query(kind, statement, [end_of(end) for end in ends], column=column)]

    def etags(self, kind: RecordType) -> Mapping[int, bytes]:
        rows = self.query(kind, "SELECT id, etag FROM {record} WHERE kind = {kind}")
        return {record_id: bytes(tag) for record_id, tag in rows}

    def vectors(
        self, kind: RecordType, ids: Collection[int]
    ) -> Mapping[int, Mapping[tuple[str, int], NDArray[np.float32]]]:
        statement = "SELECT id, field, seq, vector FROM {vector} WHERE kind = {kind} AND id = ANY(%s)"
        vectors_by_id: dict[int, dict[tuple[str, int], NDArray[np.float32]]] = {}
        for record_id, field, seq, vector in self.query(kind, statement, [*ids]):
            vectors_by_id.setdefault(record_id, {})[field, seq] = vector
        return vectors_by_id

    def list_pending_ids(self, kind: RecordType) -> Sequence[int]:
        return [
            record_id
            for (record_id,) in self.query(kind, "SELECT id FROM {record} WHERE kind = {kind} AND pending > 0")
        ]

    def faults(self, kind: RecordType) -> Sequence[str]:
        kind_row = self.kind(kind)
        if kind_row is None:
            return ["it is not published"]
        return [
            message
            for message, statement in _FAULTS.items()
            if self.query(kind, statement, count=sql.Literal(kind_row.count))
        ]

    # For the lanes and tables of this target.

    def kind(self, kind: RecordType) -> KindRow | None:
        """Return what is known of a type; None if it is not published, or not visible to this user."""
        return self._load_kinds().get(kind.name)

    def places(self, kind: RecordType, ids: Collection[int]) -> Mapping[int, bytes]:
        """Return the sort key of each record's identity, by id."""
        rows = self.query(kind, "SELECT id, place FROM {record} WHERE kind = {kind} AND id = ANY(%s)", [*ids])
        return {record_id: bytes(place) for record_id, place in rows}

    def query(self, kind: RecordType, statement: str, *given: Any, **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Return a statement's rows for a type; `{kind}` stands for its number, and names of tables for these."""
        kind_row = self.kind(kind)
        return [] if kind_row is None else self.rows(statement, *given, kind=sql.Literal(kind_row.number), **parts)

    def rows(self, statement: str, *given: Any, **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        names = ("record", "term", "posting", "vector", "configuration")
        tables = {name: self._qualify_table(name) for name in names}
        query = sql.SQL(statement).format(**{**tables, **parts})
        with self._connection.cursor(binary=True) as cursor:
            return cursor.execute(query, given or None).fetchall()

    def execute(self, statement: str) -> None:
        """Run a constant statement without a result."""
        self._connection.execute(statement)

    def _load_kinds(self) -> Mapping[str, KindRow]:
        if self._kinds is None:
            statement = "SELECT name, number, count, lengths, vectors, said, notes FROM {kinds}"
            self._kinds = {
                name: KindRow(*row) for name, *row in self.rows(statement, kinds=self._qualify_table("kind"))
            }
        return self._kinds

    def _qualify_table(self, name: str) -> sql.Identifier:
        return identifier(self.build, name)
