"""The runtime tables: records as rows that filters and `sql` read, built when they are first needed.

State is kept in Python: the records, and what they say about the columns. The engine sees immutable Arrow data: a base,
and after changes a delta with the list of base rows that it replaces.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from duckkb.backends.duckdb.columns import Columns, Observation, quoted
from duckkb.backends.duckdb.condition import compile_condition
from duckkb.backends.duckdb.confined import Confined
from duckkb.backends.duckdb.engine import Engine, Rejected
from duckkb.backends.duckdb.statement import Statement, read_statement
from duckkb.entries import IndexEntry
from duckkb.errors import FilterError
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult
from duckkb.records import ID, Record

if TYPE_CHECKING:
    import pyarrow as pa

SEARCH_INDEX, SEARCH_CACHE = "search_index", "search_cache"
FILTER_SECONDS = 30.0

Entries = Callable[[RecordType], Iterable[tuple[int, IndexEntry]]]
Ends = Callable[[RecordType, Record], tuple[int | None, int | None]]


@dataclass
class _Table:
    """One type's rows. `base` holds the ids in the built Arrow table, `seen` what the records say about the columns;
    both are None until they are needed."""

    kind: RecordType
    number: int
    seen: Observation | None = None
    records: dict[int, Record] = field(default_factory=dict)
    columns: Columns | None = None
    base: frozenset[int] | None = None
    delta: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    fresh: bool = False
    generation: int = -1

    @property
    def is_edge(self) -> bool:
        return self.kind.kind == "edge"

    def observed(self) -> Observation:
        if self.seen is None:
            self.seen = Observation(self.kind)
            self.seen.add(list(self.records.values()))
        return self.seen

    def stale(self) -> None:
        """Forget the built data; the next read builds it anew."""
        self.base, self.fresh = None, False
        self.delta.clear()
        self.gone.clear()


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
        self._tables = {(kind.kind, kind.name): _Table(kind, number) for number, kind in enumerate(ontology)}
        self._indexed = -1  # the generation in which `search_index` was registered, -1 while it is out of date

    def load(self, kind: RecordType, records: Sequence[Record]) -> None:
        """Replace all records of a type; nothing is built yet."""
        with self._lock:
            table = self._table(kind)
            table.seen = None
            table.records = {record.id: record for record in records}
            table.stale()
            self._entries_changed(kind, moved=True)

    def apply(self, kind: RecordType, upserts: Sequence[Record], gone: Iterable[int]) -> None:
        """Replace or add `upserts` by id and drop `gone`, at a cost that follows their number."""
        with self._lock:
            table = self._table(kind)
            new = {record.id: record for record in upserts}
            dropped = {record_id for record_id in gone if record_id in table.records} - new.keys()
            known = new.keys() & table.records.keys()
            if table.seen is not None:
                table.seen.remove([table.records[record_id] for record_id in (*known, *dropped)])
                table.seen.add(list(new.values()))
            table.records.update(new)
            for record_id in dropped:
                del table.records[record_id]
            table.delta = (table.delta | new.keys()) - dropped
            table.gone |= (known | dropped) & (table.base or frozenset())
            table.fresh = False
            self._entries_changed(kind, moved=bool(dropped) or len(known) < len(new))

    def entries_changed(self) -> None:
        """Say that vectors or tokens changed without a change of records."""
        with self._lock:
            self._indexed = -1

    def columns(self, kind: RecordType) -> Columns:
        """The columns of a type's table as its records are now."""
        with self._lock:
            return self._table(kind).observed().columns()

    def where(self, kind: RecordType, condition: str) -> frozenset[int]:
        """Ids of the records that satisfy a condition; raises FilterError, or Unavailable over time or memory."""
        with self._lock:
            table = self._table(kind)
            sql = compile_condition(self._engine, table.observed().columns(), condition, self._now())
            self._build(table)
            statement = f"SELECT {quoted(ID)} FROM {quoted(kind.table)} WHERE {sql}"
            return self._ids(statement)

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """One read-only SELECT over the runtime tables; raises FilterError (`E_SQL`) or Unavailable."""
        with self._lock:
            return read_statement(self._engine, Statement(statement, limits), self._names(), self._prepare)

    def close(self) -> None:
        """Drop the instance. Records stay, so that a later call opens another."""
        with self._lock:
            self._engine.drop()

    def _table(self, kind: RecordType) -> _Table:
        return self._tables[kind.kind, kind.name]

    def _entries_changed(self, kind: RecordType, *, moved: bool) -> None:
        """Edges keep the ids of their ends, so they are built anew when nodes came or went that may be ends."""
        self._indexed = -1
        if moved and kind.kind == "node" and self._ends:
            for table in self._tables.values():
                if table.is_edge:
                    table.stale()

    def _ids(self, statement: str) -> frozenset[int]:
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

    def _build(self, table: _Table) -> None:
        if table.fresh and table.generation == self._engine.generation:
            return
        columns = table.observed().columns()
        changed = len(table.delta) + len(table.gone)
        rebuild = (
            table.base is None
            or table.generation != self._engine.generation
            or columns.business != (table.columns.business if table.columns else ())
            or changed > max(100, len(table.base) // 10)
        )
        if rebuild:
            self._build_base(table, columns)
        self._build_view(table, columns)
        table.columns, table.fresh, table.generation = columns, True, self._engine.generation

    def _build_base(self, table: _Table, columns: Columns) -> None:
        self._register(f"__base_{table.number}", table, columns, list(table.records.values()))
        table.base = frozenset(table.records)
        table.delta.clear()
        table.gone.clear()

    def _build_view(self, table: _Table, columns: Columns) -> None:
        """The table that statements see: the base, less what changes replaced, and the changes."""
        number = table.number
        select = f"SELECT * FROM __base_{number}"
        if table.gone:
            self._register_ids(f"__gone_{number}", table.gone)
            select += f" WHERE {quoted(ID)} NOT IN (SELECT {quoted(ID)} FROM __gone_{number})"
        if table.delta:
            changed = [table.records[record_id] for record_id in sorted(table.delta)]
            self._register(f"__delta_{number}", table, columns, changed)
            select += f" UNION ALL BY NAME SELECT * FROM __delta_{number}"
        self._engine.define(f"CREATE OR REPLACE TEMP VIEW {quoted(table.kind.table)} AS {select}")

    def _register(self, name: str, table: _Table, columns: Columns, records: Sequence[Record]) -> None:
        from duckkb.backends.duckdb.arrow import record_table

        ends = self._ends
        resolve = (lambda record: ends(table.kind, record)) if ends else None
        self._engine.register(name, record_table(columns, records, resolve))

    def _register_ids(self, name: str, ids: Iterable[int]) -> None:
        import pyarrow as pa

        self._engine.register(name, pa.table({ID: pa.array(sorted(ids), pa.int64())}))

    def _build_index(self) -> None:
        if self._indexed == self._engine.generation:
            return
        from duckkb.backends.duckdb.arrow import entry_table

        rows = (
            (table.kind.table, record_id, entry)
            for table in self._tables.values()
            for record_id, entry in self._entries(table.kind)
        )
        self._engine.register(SEARCH_INDEX, entry_table(rows))
        self._indexed = self._engine.generation

    def _build_cache(self) -> None:
        from duckkb.backends.duckdb.arrow import CACHE_SCHEMA

        rows = self._cache_rows() if self._cache_rows else CACHE_SCHEMA.empty_table()
        self._engine.register(SEARCH_CACHE, rows)
