"""The runtime tables: records as rows that filters and `sql` read, built when they are first needed.

The engine sees immutable Arrow data: a base, and after changes a delta with the list of base rows that it replaces.
Records are read when the data is built and not held; what is kept of them is what they say about the columns.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from duckkb.errors import FilterError, UsageError
from duckkb.id_set import IdSet
from duckkb.lanes.sql import simple
from duckkb.lanes.sql.answers import Answers
from duckkb.lanes.sql.columns import Columns, quoted
from duckkb.lanes.sql.process.confined import Confined
from duckkb.lanes.sql.process.engine import Engine, Rejected
from duckkb.lanes.sql.reader.question import read_condition, read_statement
from duckkb.lanes.sql.row_table import Piece, RowTable
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ports import Rows, SqlLimits
from duckkb.queries import SqlResult
from duckkb.records import ID, Record
from duckkb.values import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

SEARCH_INDEX, SEARCH_CACHE = "search_index", "search_cache"
FILTER_SECONDS = 30.0
MAX_SECONDS = 3_600

Answer = TypeVar("Answer")

Ends = Callable[[RecordType, Record], tuple[int | None, int | None]]


@dataclass
class _Table:
    """One type's rows, the state that they were in when that was last looked at, and what the engine has of them: pieces by
    name, in the generation of the engine that they were registered in. `answers` are those to conditions over the rows as
    they are."""

    number: int
    rows: RowTable
    state: str = ""
    nodes: str = ""
    registered: dict[str, Piece] = field(default_factory=dict)
    generation: int = -1
    answers: Answers = field(default_factory=Answers)

    @property
    def kind(self) -> RecordType:
        return self.rows.kind


class Tables:
    """Runtime tables of a whole ontology in one engine (a confined DuckDB in this process unless another is given).

    `rows` gives the records of a type as they are now, `ends` resolves an edge's ends to record ids, `cache_rows` gives the
    rows of the search cache. All three are called when a statement needs them, never before.
    """

    def __init__(
        self,
        ontology: Ontology,
        rows: Callable[[RecordType], Rows],
        ends: Ends | None = None,
        cache_rows: "Callable[[], pa.Table] | None" = None,
        *,
        engine: Engine | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._rows = rows
        self._ends = ends
        self._cache_rows = cache_rows
        self._now = now
        self._engine: Engine = engine or Confined()
        self._ontology = ontology
        self._numbers = {(kind.kind, kind.name): number for number, kind in enumerate(ontology)}
        self._tables: dict[tuple[str, str], _Table] = {}

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Ids of the records that satisfy a condition; raises FilterError, or Unavailable over time or memory."""
        table = self._table(kind)
        columns = table.rows.columns
        if tests := simple.tests(condition, columns):
            return table.answers.get(tests, lambda: self._matching(table, tests))
        self._offer()
        with self._engine.within(FILTER_SECONDS):
            asked = read_condition(self._engine, kind.table, columns, condition, self._now())

            def answer() -> IdSet:
                self._build(table)
                return self._answered("E_FILTER", lambda: self._engine.ids(asked.sql, FILTER_SECONDS))

            return table.answers.get(asked.sql, answer)

    def columns(self, kind: RecordType) -> Columns:
        """The columns of a type's table as its records are now."""
        return self._table(kind).rows.columns

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
        if limits.rows < 1 or limits.bytes < 1 or not 0 < limits.seconds <= MAX_SECONDS:
            raise UsageError("The caps of a query must be above zero, and its time at most an hour.")
        self._offer()
        with self._engine.within(limits.seconds):
            asked = read_statement(self._engine, self._known(), statement, self._now())
            if asked is None:
                names = tuple((name,) for name in self._names())
                return SqlResult(("name",), names[: limits.rows], truncated=len(names) > limits.rows)
            self._prepare(asked.tables)
            return self._answered("E_SQL", lambda: self._engine.rows(asked.sql, limits), asked.tables)

    def close(self) -> None:
        """Drop the instance. A later call opens another."""
        self._engine.drop()

    def _offer(self) -> None:
        """Let the engine have the files that lie ready, if it has just begun."""
        self._engine.offer(lambda: [path for kind in self._ontology for path in self._table(kind).rows.files()])

    def _table(self, kind: RecordType) -> _Table:
        """A type's table over its rows as they are now. Edges keep the ids of their ends, so they are read anew where nodes
        that may be ends have changed."""
        rows, key = self._rows(kind), (kind.kind, kind.name)
        nodes, state = self._nodes_of(kind), _named(rows)
        table = self._tables.get(key)
        if table is None or table.rows.rows is not rows:
            table = self._tables[key] = _Table(self._numbers[key], self._row_table(kind, rows), state, nodes)
        if (table.state, table.nodes) != (state, nodes):
            if table.nodes != nodes:
                table.rows.forget()
            table.state, table.nodes = state, nodes
            table.answers.clear()
        return table

    def _known(self) -> dict[str, Callable[[], Columns | None]]:
        """By table, what gives its columns."""
        found: dict[str, Callable[[], Columns | None]] = {SEARCH_INDEX: lambda: None, SEARCH_CACHE: lambda: None}
        return found | {kind.table.casefold(): partial(self.columns, kind) for kind in self._ontology}

    def _answered(self, code: str, answer: Callable[[], Answer], tables: Collection[str] = ()) -> Answer:
        """What the engine answers; what it refuses is told without its own words."""
        try:
            return answer()
        except Rejected as error:
            raise _refusal(error, code, tables) from error

    def _names(self) -> list[str]:
        return sorted([*(kind.table for kind in self._ontology), SEARCH_INDEX, SEARCH_CACHE])

    def _prepare(self, wanted: Collection[str]) -> None:
        """Build what a statement names."""
        for kind in self._ontology:
            if kind.table.casefold() in wanted:
                self._build(self._table(kind))
        if SEARCH_INDEX in wanted:
            self._build_index()
        if SEARCH_CACHE in wanted:
            self._build_cache()

    def _row_table(self, kind: RecordType, rows: Rows) -> RowTable:
        ends = self._ends
        if not isinstance(kind, EdgeType) or ends is None:
            return RowTable(kind, rows)
        return RowTable(kind, rows, lambda record: ends(kind, record), lambda: self._nodes_of(kind))

    def _nodes_of(self, kind: RecordType) -> str:
        """Names the nodes that an edge type may lead to, as they are; empty for nodes."""
        if not isinstance(kind, EdgeType) or self._ends is None:
            return ""
        names = dict.fromkeys((*kind.from_types, *kind.to_types))
        return " ".join(f"{name}:{_named(self._rows(self._ontology.nodes[name]))}" for name in names)

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
        from duckkb.lanes.sql.arrow import entry_table

        rows = (
            (kind.table, row.record.id, entry)
            for kind in self._ontology
            for rows in self._rows(kind).batches()
            for row in rows
            for entry in row.entries
        )
        self._engine.register(SEARCH_INDEX, entry_table(rows))

    def _build_cache(self) -> None:
        from duckkb.lanes.sql.arrow import CACHE_SCHEMA

        rows = self._cache_rows() if self._cache_rows else CACHE_SCHEMA.empty_table()
        self._engine.register(SEARCH_CACHE, rows)


def _named(rows: Rows) -> str:
    version = rows.version
    return f"{version.store}:{version.revision}"


def _refusal(error: Rejected, code: str, tables: Collection[str]) -> FilterError:
    """What the engine would not run is the caller's to mend, but its words are not the caller's to read."""
    what = "condition" if code == "E_FILTER" else "statement"
    described = min(tables, default="")
    advice = f'duckkb sql "DESCRIBE {described}"' if described else "compare values of one kind, or CAST one side"
    match error.reason:
        case "column":
            message = f"The {what} names a column that does not exist: {error.name}."
        case "value":
            message, advice = "A value does not convert or is out of range.", "use TRY_CAST"
        case "fit":
            message = f"The {what} does not fit the tables: check column names, types and arguments."
        case _:
            message = f"The {what} cannot be evaluated over these records."
    return FilterError(message, code=code, suggestion=advice, details={"construct": error.reason})
