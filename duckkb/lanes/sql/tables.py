"""The runtime tables: records as rows that filters and `sql` read, built when they are first needed.

The engine sees immutable Arrow data: a base, and after changes a delta with the list of base rows that it replaces.
Records are read when the data is built and not held; what is kept of them is what they say about the columns.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from duckkb.entries import IndexEntry
from duckkb.errors import FilterError
from duckkb.id_set import IdSet
from duckkb.lanes.held import HeldRows
from duckkb.lanes.sql import simple
from duckkb.lanes.sql.answers import Answers
from duckkb.lanes.sql.columns import Columns, quoted
from duckkb.lanes.sql.condition import compile_condition
from duckkb.lanes.sql.confined import Confined
from duckkb.lanes.sql.engine import Engine, Rejected
from duckkb.lanes.sql.row_table import Piece, RowTable
from duckkb.lanes.sql.statement import Statement, read_statement
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ports import Rows, SqlLimits, Version
from duckkb.queries import SqlResult
from duckkb.records import ID, Record
from duckkb.values import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

SEARCH_INDEX, SEARCH_CACHE = "search_index", "search_cache"
FILTER_SECONDS = 30.0

Entries = Callable[[RecordType], Iterable[tuple[int, IndexEntry]]]
Ends = Callable[[RecordType, Record], tuple[int | None, int | None]]


@dataclass
class _Table:
    """One type's rows, how many there were when that was last looked at, and what the engine has of them: pieces by name,
    in the generation of the engine that they were registered in. `answers` are those to conditions over the rows as they
    are."""

    number: int
    rows: RowTable
    count: int = 0
    version: Version | None = None
    registered: dict[str, Piece] = field(default_factory=dict)
    generation: int = -1
    answers: Answers = field(default_factory=Answers)

    @property
    def kind(self) -> RecordType:
        return self.rows.kind


class Tables:
    """Runtime tables of a whole ontology in one engine (a confined DuckDB in this process unless another is given).

    `entries` gives the index entries of a type by record id, `ends` resolves an edge's ends to record ids,
    `cache_rows` gives the rows of the search cache. All three are called when a statement needs them, never before.
    """

    def __init__(
        self,
        ontology: Ontology,
        entries: Entries,
        ends: Ends | None = None,
        cache_rows: "Callable[[], pa.Table] | None" = None,
        *,
        engine: Engine | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._entries = entries
        self._ends = ends
        self._cache_rows = cache_rows
        self._now = now
        self._engine: Engine = engine or Confined()
        self._lock = threading.RLock()
        self._ontology = ontology
        self._tables = {
            (kind.kind, kind.name): _Table(number, self._row_table(kind, HeldRows({}), None))
            for number, kind in enumerate(ontology)
        }
        self._indexed = -1  # the generation in which `search_index` was registered, -1 while it is out of date

    def load(self, kind: RecordType, rows: Rows, version: Version | None = None) -> None:
        """Replace all records of a type; nothing is read or built yet."""
        with self._lock:
            table = self._table(kind)
            table.rows, table.count, table.version = self._row_table(kind, rows, version), len(rows), version
            table.answers.clear()
            self._entries_changed(kind, moved=True)

    def apply(
        self, kind: RecordType, put: Iterable[int], gone: Collection[int], version: Version | None = None
    ) -> None:
        """Take in that records were replaced or added (`put`) or dropped. The rows of the type have changed already."""
        with self._lock:
            table = self._table(kind)
            table.rows.touch([*put, *gone], version)
            table.version = version
            table.answers.clear()
            before, table.count = table.count, table.rows.total
            self._entries_changed(kind, moved=bool(gone) or before != table.count)

    def entries_changed(self) -> None:
        """Say that vectors or tokens changed without a change of records."""
        with self._lock:
            self._indexed = -1

    def columns(self, kind: RecordType) -> Columns:
        """The columns of a type's table as its records are now."""
        with self._lock:
            return self._table(kind).rows.columns

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Ids of the records that satisfy a condition; raises FilterError, or Unavailable over time or memory."""
        with self._lock:
            table = self._table(kind)
            columns = table.rows.columns
            if asked := simple.tests(condition, columns):
                return table.answers.get(asked, lambda: self._matching(table, asked))
            self._offer()
            with self._engine.within(FILTER_SECONDS):
                sql = compile_condition(self._engine, columns, condition, self._now())

                def answer() -> IdSet:
                    self._build(table)
                    return self._ids(f"SELECT {quoted(ID)} FROM {quoted(kind.table)} WHERE {sql}")

                return table.answers.get(sql, answer)

    def _matching(self, table: _Table, asked: Sequence[simple.Test]) -> IdSet:
        # What lies there may have been replaced by another process since it was looked at; or it is damaged.
        for give_up in (table.rows.forget, table.rows.drop):
            try:
                return IdSet(table.rows.matching(asked).array, simple.texts(asked))
            except (OSError, ValueError):
                give_up()
        return IdSet(table.rows.matching(asked).array, simple.texts(asked))

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """One read-only SELECT over the runtime tables; raises FilterError (`E_SQL`) or Unavailable."""
        with self._lock:
            self._offer()
            return read_statement(self._engine, Statement(statement, limits), self._names(), self._prepare)

    def close(self) -> None:
        """Drop the instance. Records stay, so that a later call opens another."""
        with self._lock:
            self._engine.drop()

    def _offer(self) -> None:
        """Let the engine have the files that lie ready, if it has just begun."""
        self._engine.offer(lambda: [path for table in self._tables.values() for path in table.rows.files()])

    def _table(self, kind: RecordType) -> _Table:
        return self._tables[kind.kind, kind.name]

    def _entries_changed(self, kind: RecordType, *, moved: bool) -> None:
        """Edges keep the ids of their ends, so they are built anew when nodes came or went that may be ends."""
        self._indexed = -1
        if moved and kind.kind == "node" and self._ends:
            for table in self._tables.values():
                if table.kind.kind == "edge":
                    table.rows.forget()
                    table.answers.clear()

    def _ids(self, statement: str) -> IdSet:
        try:
            return self._engine.ids(statement, FILTER_SECONDS)
        except Rejected as error:
            # The compiler renders only what the engine accepts; whatever it still refuses is not the caller's to read.
            raise FilterError(
                "The condition cannot be evaluated over these records.",
                suggestion="compare values of one kind, or CAST one side",
                details={"construct": "condition"},
            ) from error

    def _names(self) -> list[str]:
        return sorted([*(table.kind.table for table in self._tables.values()), SEARCH_INDEX, SEARCH_CACHE])

    def _prepare(self, names: Iterable[str]) -> None:
        """Build what a statement names."""
        wanted = {name.casefold() for name in names}
        for table in self._tables.values():
            if table.kind.table.casefold() in wanted:
                self._build(table)
        if SEARCH_INDEX in wanted:
            self._build_index()
        if SEARCH_CACHE in wanted:
            self._build_cache()

    def _row_table(self, kind: RecordType, rows: Rows, version: Version | None) -> RowTable:
        ends = self._ends
        if not isinstance(kind, EdgeType) or ends is None:
            return RowTable(kind, rows, version)
        types = dict.fromkeys((*kind.from_types, *kind.to_types))
        return RowTable(kind, rows, version, lambda record: ends(kind, record), lambda: self._state_of(types))

    def _state_of(self, node_types: Iterable[str]) -> str:
        """Names the nodes that there are of some types."""
        versions = {name: self._tables["node", name].version for name in node_types}
        return " ".join(f"{name}:{one.store}:{one.revision}" if one else name for name, one in versions.items())

    def _build(self, table: _Table) -> None:
        """Have the engine see the records of a type as they are now."""
        try:
            self._show(table)
        except OSError:  # another process has replaced the files since they were looked at
            table.rows.forget()
            self._show(table)

    def _show(self, table: _Table) -> None:
        pieces = table.rows.pieces()
        if table.generation != self._engine.generation:
            table.registered.clear()
        changed = [name for name, piece in pieces.items() if self._register(table, f"__{name}_{table.number}", piece)]
        select = f"SELECT * FROM __base_{table.number}"
        if "gone" in pieces:
            select += f" WHERE {quoted(ID)} NOT IN (SELECT {quoted(ID)} FROM __gone_{table.number})"
            select += f" UNION ALL BY NAME SELECT * FROM __delta_{table.number}"
        if changed:
            self._engine.define(f"CREATE OR REPLACE TEMP VIEW {quoted(table.kind.table)} AS {select}")
        table.generation = self._engine.generation

    def _register(self, table: _Table, name: str, piece: Piece) -> bool:
        """Let the engine see a piece; False where it does already."""
        if table.registered.get(name) is piece:
            return False
        if piece.path is None:
            self._engine.register(name, piece.visible)
        else:
            self._engine.attach(name, piece.path)
        table.registered[name] = piece
        return True

    def _build_index(self) -> None:
        if self._indexed == self._engine.generation:
            return
        from duckkb.lanes.sql.arrow import entry_table

        rows = (
            (table.kind.table, record_id, entry)
            for table in self._tables.values()
            for record_id, entry in self._entries(table.kind)
        )
        self._engine.register(SEARCH_INDEX, entry_table(rows))
        self._indexed = self._engine.generation

    def _build_cache(self) -> None:
        from duckkb.lanes.sql.arrow import CACHE_SCHEMA

        rows = self._cache_rows() if self._cache_rows else CACHE_SCHEMA.empty_table()
        self._engine.register(SEARCH_CACHE, rows)
