"""The embedded backend: records and index entries in memory, and three ways to find among them.

Filters and SQL go to DuckDB, words to Tantivy, vectors to a matrix. Each is loaded and built when it is first asked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from threading import RLock
from typing import TYPE_CHECKING, Any

from duckkb.entries import IndexEntry
from duckkb.id_set import IdSet
from duckkb.lanes.shelf import Shelf
from duckkb.lanes.sql.engine import Engine
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Row, Rows, SqlLimits, Tokenizer, Version
from duckkb.queries import LaneHit, LexicalQuery, Notice, SqlResult
from duckkb.records import Record
from duckkb.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from duckkb.lanes.sql.tables import Tables

Ends = Callable[[RecordType, Record], tuple[int | None, int | None]]


class DuckdbBackend:
    """Implements `ports.Backend` for one process. Safe to share between threads, which take turns.

    `ends` resolves an edge's ends to record ids, for the columns `from_id` and `to_id` of filters and SQL; `cache_rows`
    gives the rows of the table `search_cache`; `engine` runs filters and SQL, in this process where none is given.
    """

    def __init__(
        self,
        ontology: Ontology,
        settings: Settings,
        tokenizer: Tokenizer,
        ends: Ends | None = None,
        cache_rows: "Callable[[], pa.Table] | None" = None,
        engine: Engine | None = None,
    ) -> None:
        self._ontology = ontology
        self._settings = settings
        self._tokenizer = tokenizer
        self._ends = ends
        self._cache_rows = cache_rows
        self._engine = engine
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._tables: Tables | None = None
        self._lock = RLock()

    def load(self, kind: RecordType, rows: Rows | Sequence[Row], version: Version | None = None) -> None:
        """Replace everything of one type. Nothing is read before a question needs it."""
        with self._lock:
            shelf = self._shelves[kind.kind, kind.name] = self._made(kind, rows, version)
            if self._tables is not None:
                self._tables.load(kind, shelf.rows, version)

    def apply(
        self, kind: RecordType, upserts: Sequence[Row], gone: Iterable[int], version: Version | None = None
    ) -> None:
        """Replace or add `upserts` by record id and drop `gone`; an id in both is replaced."""
        with self._lock:
            new = {row.record.id: row for row in upserts}
            dropped = set(gone) - new.keys()
            self._shelf(kind).change(new, dropped, version)
            if self._tables is not None:
                self._tables.apply(kind, new, dropped, version)

    def prepare(self, kind: RecordType) -> None:
        """Have the components of a type on disk as they should be; nothing where they are kept in memory."""
        with self._lock:
            shelf = self._shelf(kind)
            if shelf.version is not None:
                shelf.prepare()
                self._filled_tables().columns(kind)

    def expect(self, kind: RecordType, words: LexicalQuery) -> None:
        """Say that a type is about to be asked by words and by a vector; what lies on disk for neither is made for both."""
        with self._lock:
            self._shelf(kind).expect(words)

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Ids of the records that satisfy an allow-listed SQL condition; raises `errors.FilterError`."""
        with self._lock:
            return self._filled_tables().where(kind, condition)

    def match(
        self, kind: RecordType, query: LexicalQuery, depth: int, allowed: Set[int] | None = None
    ) -> list[LaneHit]:
        """The lexical lane: BM25 over whole records."""
        with self._lock:
            return self._shelf(kind).lexical.match(query, depth, allowed)

    def best_chunks(self, kind: RecordType, query: LexicalQuery, ids: Sequence[int]) -> list[tuple[str, int]]:
        """For each of these records the field and number of the chunk that holds the most of what a query asks for."""
        with self._lock:
            return self._shelf(kind).lexical.best_chunks(query, ids)

    def excluded(self, kind: RecordType, query: LexicalQuery) -> IdSet:
        """Ids that the query's `-negations` rule out."""
        with self._lock:
            return self._shelf(kind).lexical.excluded(query) if query.excluded else IdSet.of(())

    def similar(
        self,
        kind: RecordType,
        vector: "np.ndarray | Sequence[float]",
        depth: int,
        allowed: Set[int] | None = None,
    ) -> list[LaneHit]:
        """The vector lane: exact cosine over every chunk, one hit per record with its best chunk.

        Raises `errors.UsageError` for a query vector that is zero, not finite, or of another dimension.
        """
        with self._lock:
            return self._shelf(kind).vectors.similar(vector, depth, allowed)

    def dimension(self, kind: RecordType) -> int:
        """That of the stored vectors; 0 where there is none."""
        with self._lock:
            return self._shelf(kind).vectors.dimension if kind.vectors else 0

    def account(self, kind: RecordType) -> Mapping[str, Any]:
        """What the lanes of a type are made of: `{"vectors": {"rows", "dimension", "storage", "ann", "recall"}}`, None for
        a lane that no question has needed yet."""
        with self._lock:
            return {"vectors": self._shelf(kind).vectors.account()} if kind.vectors else {}

    def notices(self, kind: RecordType) -> tuple[Notice, ...]:
        """What must be said of the answers that a type's lanes give, as they were last asked."""
        with self._lock:
            return self._shelf(kind).notices()

    def pending(self, kind: RecordType) -> list[tuple[bytes, str]]:
        """(vector key, text) of the chunks that lack a vector, each key once, in an order that depends on the records alone."""
        with self._lock:
            return self._shelf(kind).pending()

    def fill(self, kind: RecordType, vectors: "Mapping[bytes, np.ndarray]") -> None:
        """Give vectors to pending chunks by their key; keys that nothing waits for are passed over.

        Raises `errors.UsageError` for a vector that is not one row of finite numbers; nothing is filled then.
        """
        with self._lock:
            if self._shelf(kind).fill(vectors) and self._tables is not None:
                self._tables.entries_changed()

    def entries(self, kind: RecordType, record_id: int) -> tuple[IndexEntry, ...]:
        """The index entries of one record, empty for an unknown id."""
        with self._lock:
            return self._shelf(kind).entries(record_id)

    def explain(self, kind: RecordType, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        """Terms of the query with their part in one record's lexical score: `{"score", "terms": [{"token", "part",
        "fields", "doc_freq", "score"}]}`; the terms' scores add up to the whole."""
        with self._lock:
            return self._shelf(kind).lexical.explain(query, record_id)

    def discard(self, kind: RecordType) -> None:
        """Forget what was derived from the entries of a type, on disk too."""
        with self._lock:
            self._shelf(kind).discard()
            if self._tables is not None:
                self._tables.entries_changed()

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """One read-only SELECT over the runtime tables; raises `errors.FilterError` or `errors.Unavailable`."""
        with self._lock:
            return self._filled_tables().sql(statement, limits)

    def close(self) -> None:
        """Let everything go."""
        with self._lock:
            if self._tables is not None:
                self._tables.close()
            if self._engine is not None:
                self._engine.drop()
            self._tables = None
            self._shelves.clear()

    def _shelf(self, kind: RecordType) -> Shelf:
        key = kind.kind, kind.name
        if key not in self._shelves:
            self._shelves[key] = self._made(kind)
        return self._shelves[key]

    def _made(self, kind: RecordType, rows: Rows | Sequence[Row] = (), version: Version | None = None) -> Shelf:
        return Shelf(kind, self._tokenizer, self._settings, rows, version)

    def _filled_tables(self) -> "Tables":
        if self._tables is None:
            from duckkb.lanes.sql.tables import Tables

            tables = Tables(self._ontology, self._entry_pairs, self._ends, self._cache_rows, engine=self._engine)
            for shelf in self._shelves.values():
                tables.load(shelf.kind, shelf.rows, shelf.version)
            self._tables = tables
        return self._tables

    def _entry_pairs(self, kind: RecordType) -> Iterator[tuple[int, IndexEntry]]:
        return self._shelf(kind).all_entries()
