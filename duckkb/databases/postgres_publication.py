"""A publication, read in a transaction: it sees a single moment, whatever is published meanwhile.

The lanes of a type over a publication in PostgreSQL.

Vectors in pgvector: exact by a scan, or by its graph (HNSW).

Words by postings in PostgreSQL: the database scores and cuts plain terms; for other clauses the postings are
fetched.

The BM25 counts of a type's published records, looked up for all terms of a query at once."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from psycopg import sql

from duckkb.databases.postgres_connection import Connection, identifier
from duckkb.databases.published_rows import PublishedVectors, Row, end_of, place_of, prefix_range, term_key
from duckkb.databases.published_words import MARGIN, MORE, SLACK, Ids, PublishedStatistics, PublishedWords, Scores, Term
from duckkb.id_set import IdSet
from duckkb.index.word_fields import K1, SEQUENCE, B
from duckkb.index.word_query import Clauses
from duckkb.ontology.model import RecordType
from duckkb.ports import EdgeSide, Publication, Rows, Scored, Tokenizer, Watermark, is_settled
from duckkb.types.records import Component, Identity
from duckkb.types.settings import Settings, VectorSettings

if TYPE_CHECKING:
    from duckkb.databases.postgres_target import PostgresTarget

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


_MOST_EFFORT = 1_000  # candidates that pgvector looks at, at most


class PostgresVectors(PublishedVectors):
    """Implements `ports.VectorLane`."""

    def __init__(self, kind: RecordType, settings: VectorSettings, target: "PostgresTarget") -> None:
        super().__init__(kind, settings)
        self._target = target

    def _counts(self) -> tuple[int, int]:
        kind_row = self._target.now.kind(self._kind)
        return (kind_row.count, kind_row.vectors) if kind_row else (0, 0)

    def _dimension(self) -> int:
        rows = self._target.now.query(
            self._kind, "SELECT vector_dims(vector) FROM {vector} WHERE kind = {kind} LIMIT 1"
        )
        return int(rows[0][0]) if rows else 0

    def _graph_candidates(self, query: Any, fetch: int, allowed_ids: IdSet | None) -> list[Row]:
        now = self._target.now
        now.execute("SET LOCAL hnsw.iterative_scan = 'strict_order'")
        # otherwise a selective filter ends the walk too soon
        now.execute("SET LOCAL hnsw.max_scan_tuples = 2147483647")
        now.execute(f"SET LOCAL hnsw.ef_search = {min(max(2 * fetch, 40), _MOST_EFFORT)}")
        column = sql.SQL("vector::vector({})").format(sql.Literal(len(query)))
        return self._rows(query, fetch, allowed_ids, column)

    def _nearest(self, query: Any, fetch: int, allowed_ids: IdSet | None) -> list[Row]:
        return self._rows(query, fetch, allowed_ids, sql.SQL("vector"))

    def _rows(self, query: Any, fetch: int, allowed_ids: IdSet | None, column: sql.Composable) -> list[Row]:
        id_filter = sql.SQL("" if allowed_ids is None else "AND id = ANY(%s::bigint[])")
        statement = """
            SELECT id, field, seq, at, vector, -({column} <#> %s) FROM {vector}
            WHERE kind = {kind} {narrowed} ORDER BY {column} <#> %s LIMIT %s
        """
        query_vector = query.astype(np.float32)
        arguments = [] if allowed_ids is None else [allowed_ids.array.tolist()]
        return self._target.now.query(
            self._kind, statement, query_vector, *arguments, query_vector, fetch, column=column, narrowed=id_filter
        )

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)


class PostgresStatistics(PublishedStatistics):
    """The statistics of the publication at the time of creation; `numbers` are those of the index's fields."""

    def __init__(self, kind: RecordType, numbers: Mapping[str, int], target: "PostgresTarget") -> None:
        kind_row = target.now.kind(kind)
        self._kind, self._numbers, self._target = kind, numbers, target
        self.documents = kind_row.count if kind_row else 0
        self._lengths = kind_row.lengths if kind_row else []
        self._terms: dict[tuple[str, str], tuple[int, int]] = {}

    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        missing_terms = [term for term in dict.fromkeys(terms) if term not in self._terms]
        if not missing_terms:
            return
        keys = {(self._numbers[field], term_key(token)): (field, token) for field, token in missing_terms}
        statement = """
            SELECT t.field, t.token, t.id, t.records
            FROM unnest(%s::smallint[], %s::bytea[]) AS w (field, token)
            JOIN {term} t ON t.kind = {kind} AND t.field = w.field AND t.token = w.token
        """
        rows = self._target.now.query(self._kind, statement, [field for field, _ in keys], [token for _, token in keys])
        self._terms |= dict.fromkeys(missing_terms, (0, 0))
        self._terms |= {keys[field, bytes(token)]: (term_id, records) for field, token, term_id, records in rows}

    def frequency(self, field: str, token: str) -> int:
        return self._lookup_term(field, token)[1]

    def term(self, field: str, token: str) -> int:
        return self._lookup_term(field, token)[0]

    def average(self, field: str) -> float:
        return self._lengths[self._numbers[field]] / self.documents

    def list_tokens_by_prefix(self, prefix: str) -> Sequence[str]:
        terms = self._find_prefix_terms(prefix)
        self._terms |= {(SEQUENCE, token): entry for token, entry in terms.items()}
        return [*terms]

    def list_terms_by_prefix(self, prefix: str) -> list[int]:
        return [term_id for term_id, _ in self._find_prefix_terms(prefix).values()]

    def _find_prefix_terms(self, prefix: str) -> dict[str, tuple[int, int]]:
        first, behind = prefix_range(prefix)
        statement = """
            SELECT token, id, records FROM {term}
            WHERE kind = {kind} AND field = 0 AND token >= %s AND token < %s ORDER BY token
        """
        rows = self._target.now.query(self._kind, statement, first, behind)
        return {bytes(token).decode("utf-8", "replace"): (term_id, records) for token, term_id, records in rows}

    def _lookup_term(self, field: str, token: str) -> tuple[int, int]:
        if (field, token) not in self._terms:
            self.know([(field, token)])
        return self._terms[field, token]


class PostgresWords(PublishedWords):
    """Implements `ports.WordLane`."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str, target: "PostgresTarget"
    ) -> None:
        super().__init__(kind, rows, tokenizer, language)
        self._target = target

    @property
    def _now(self) -> Publication:
        return self._target.now

    def _build_statistics(self) -> PublishedStatistics:
        return PostgresStatistics(self._kind, self._numbers, self._target)

    def _search_terms(
        self, query_clauses: Clauses, depth: int, allowed_ids: IdSet | None, view: PublishedStatistics
    ) -> Sequence[Scored]:
        """Return the first records with any of some terms, scored in the database."""
        known_clauses = [clause for clause in query_clauses.scored if view.frequency(clause.field, clause.tokens[0])]
        if not known_clauses:
            return []
        terms = [view.term(clause.field, clause.tokens[0]) for clause in known_clauses]
        weights = [clause.weight * view.idf(clause.field, clause.tokens[0]) * (K1 + 1) for clause in known_clauses]
        steps = [K1 * B / view.average(clause.field) for clause in known_clauses]
        statement = f"""
            SELECT p.id, sum(w.weight * p.times / (p.times + {K1 * (1 - B)!r} + w.step * p.length)) AS score
            FROM unnest(%s::integer[], %s::float8[], %s::float8[]) AS w (term, weight, step)
            JOIN {{posting}} p ON p.kind = {{kind}} AND p.term = w.term {{narrowed}}
            GROUP BY p.id ORDER BY score DESC LIMIT %s
        """
        arguments: list[Any] = [terms, weights, steps]
        if allowed_ids is not None:
            arguments.append(allowed_ids.array.tolist())
        id_filter = sql.SQL("AND p.id = ANY(%s::bigint[])" if allowed_ids is not None else "")
        fetch = depth + MARGIN
        while True:
            rows = self._target.now.query(self._kind, statement, *arguments, fetch, narrowed=id_filter)
            scored_ids = [(score, record_id) for record_id, score in rows]
            if len(rows) < fetch or is_settled(scored_ids, depth, SLACK):
                return self._best(scored_ids, depth)
            fetch *= MORE

    def _postings_of(self, term: Term, allowed_ids: IdSet | None) -> tuple[Ids, Scores, Ids]:
        rows = np.array(self._select_postings([term], allowed_ids, "p.id, p.times, p.length"), np.int64).reshape(-1, 3)
        return rows[:, 0], rows[:, 1].astype(float), rows[:, 2]

    def _ids_with(self, terms: Sequence[Term], allowed_ids: IdSet | None) -> Ids:
        return np.unique(np.array(self._select_postings(terms, allowed_ids, "p.id"), np.int64).reshape(-1))

    def _places_of(self, terms: Sequence[Term], allowed_ids: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        rows = self._select_postings(terms, allowed_ids, "p.id, p.term, p.length, p.positions")
        return ((record_id, term, length, bytes(positions)) for record_id, term, length, positions in rows)

    def _select_postings(self, terms: Sequence[Term], allowed_ids: IdSet | None, columns: str) -> list[tuple[Any, ...]]:
        id_filter = "" if allowed_ids is None else "AND p.id = ANY(%s::bigint[])"
        arguments = [] if allowed_ids is None else [allowed_ids.array.tolist()]
        statement = f"""
            SELECT {columns} FROM {{posting}} p WHERE p.kind = {{kind}} AND p.term = ANY(%s::integer[]) {id_filter}
            ORDER BY p.id
        """
        return self._target.now.query(self._kind, statement, [*terms], *arguments)

    def _others(self, excluded_ids: IdSet, depth: int, allowed_ids: IdSet | None) -> list[int]:
        id_filter = "" if allowed_ids is None else "AND id = ANY(%s::bigint[])"
        arguments = [] if allowed_ids is None else [allowed_ids.array.tolist()]
        statement = f"""
            SELECT id FROM {{record}} WHERE kind = {{kind}} AND id <> ALL(%s::bigint[]) {id_filter}
            ORDER BY substring(place, 1, 1000), place LIMIT %s
        """
        rows = self._target.now.query(self._kind, statement, excluded_ids.array.tolist(), *arguments, depth)
        return [record_id for (record_id,) in rows]

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)


class PostgresLanes:
    """Implements `ports.Lanes`."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings, target: "PostgresTarget"
    ) -> None:
        self.words = PostgresWords(kind, rows, tokenizer, settings.language, target)
        self.vectors = PostgresVectors(kind, kind.settings(settings).vectors, target)

    def discard(self) -> None:
        """Do nothing: this process keeps no files of these lanes."""
