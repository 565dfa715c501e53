"""The runtime tables: records as rows that filters and `sql` read, built when they are first needed.

The engine sees immutable Arrow data: a base, and after changes a delta with the list of base rows that it replaces.
Records are read when the data is built and not held; what is kept of them is what they say about the columns.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from duckkb.errors import FilterError, UsageError, shell_word
from duckkb.id_set import IdSet
from duckkb.lanes.sql import simple
from duckkb.lanes.sql.columns import Columns, quoted
from duckkb.lanes.sql.process.confined import Confined
from duckkb.lanes.sql.process.engine import Engine, Rejected
from duckkb.lanes.sql.process.engines import Engines
from duckkb.lanes.sql.reader.question import SqlQuery, read_condition, read_statement, read_tree
from duckkb.lanes.sql.reader.reading import reads_clock
from duckkb.lanes.sql.reader.syntax import Node
from duckkb.lanes.sql.row_table import RowTable
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ports import Rows, SqlLimits
from duckkb.queries import SqlResult
from duckkb.records import ID, Record

if TYPE_CHECKING:
    import pyarrow as pa

SEARCH_INDEX, SEARCH_CACHE = "search_index", "search_cache"
FILTER_SECONDS = 30.0
TRIAL_SECONDS = 2.0  # for what a refusal would advise, before it does
MAX_SECONDS = 3_600

_OF_ARRAYS = re.compile(r"\barray_\w+\(", re.IGNORECASE)
_LISTS = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|(\[\s*[-+]?[\d.][\d.eE+-]*(?:\s*,\s*[-+]?[\d.][\d.eE+-]*)*\s*\])(?!\s*::)"
)
"""Texts and names, which are passed over, or a list of numbers that says no type."""

EdgeEnds = Callable[[RecordType, Record], tuple[int | None, int | None]]


class Tables:
    """Runtime tables of a whole ontology in one engine (a confined DuckDB in this process unless another is given), or in several:
    some for filters, and some for `statements`, which may take long. Threads may ask them side by side.

    `rows` gives the records of a type as they are now, `ends` resolves an edge's ends to record ids, `cache_rows` gives the
    rows of the search cache. All three are called when a statement needs them, never before.
    """

    def __init__(
        self,
        ontology: Ontology,
        rows: Callable[[RecordType], Rows],
        ends: EdgeEnds | None = None,
        cache_rows: "Callable[[], pa.Table] | None" = None,
        *,
        engine: Engine | tuple[Engines, Engines] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._rows = rows
        self._ends = ends
        self._cache_rows = cache_rows
        self._now = now
        several = engine if isinstance(engine, tuple) else (Engines(engine or Confined()),) * 2
        self._filters, self._statements = several
        self._ontology = self._whole = ontology
        self._besides: tuple[str, ...] = (SEARCH_INDEX, SEARCH_CACHE)
        self._tables: dict[tuple[str, str], RowTable] = {}
        self._turn = RLock()  # of threads that ask for a table, one makes it

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Ids of the records that satisfy a condition; raises FilterError, or Unavailable over time or memory."""
        table = self._table(kind)
        if (known := table.answer(condition)) is not None:
            return known
        if tests := simple.tests(condition, table.columns):
            found = table.lasting(lambda: table.matching(tests))
            return table.keep(condition, IdSet(found.array, simple.texts(tests)))
        with self._asking(self._filters) as engine, engine.within(FILTER_SECONDS), _refusals("E_FILTER"):
            run = partial(self._try_ids, table, engine)
            asked = read_condition(engine, kind.table, table.columns, condition, self._now(), run)
            found = self._shown(table, engine).ids(asked.sql, FILTER_SECONDS)
        return found if reads_clock(condition) else table.keep(condition, found)

    def tree(self, kind: RecordType, columns: Columns, condition: str) -> Node:
        """What a condition over such columns says, as the tree that would run; no record is looked at. Raises FilterError."""
        with self._filters.turn() as engine, engine.within(FILTER_SECONDS):
            return read_tree(engine, columns, condition, self._now())

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """One read-only SELECT over the runtime tables; raises FilterError (`E_SQL`) or Unavailable."""
        if limits.rows < 1 or limits.bytes < 1 or not 0 < limits.seconds <= MAX_SECONDS:
            raise UsageError("The caps of a query must be above zero, and its time at most an hour.")
        known: dict[str, Callable[[], Columns | None]] = {name: lambda: None for name in self._besides}
        known |= {kind.table.casefold(): partial(self._columns, kind) for kind in self._ontology}
        with self._asking(self._statements) as engine, engine.within(limits.seconds):
            run = partial(self._try_rows, engine, replace(limits, seconds=min(limits.seconds, TRIAL_SECONDS)))
            asked = read_statement(engine, known, statement, self._now(), run)
            if asked is None:
                names = sorted([*(kind.table for kind in self._ontology), *self._besides])
                return SqlResult(("name",), tuple((name,) for name in names[: limits.rows]), len(names) > limits.rows)
            with _refusals("E_SQL", asked.tables, statement):
                self._prepare(asked.tables, engine)
                try:
                    return engine.rows(asked.sql, limits)
                except Rejected as error:
                    sized = size_lists(statement)
                    if error.reason != "fit" or sized == statement:
                        raise
                    again = read_statement(engine, known, sized, self._now(), run)
                    return engine.rows((again or asked).sql, limits)

    def narrowed(self, ontology: Ontology) -> "Tables":
        """As `ports.Sql.narrowed`, with the same tables in the same engine. Without the rows of the cache: whose texts are in
        it does not go by type."""
        made = copy(self)
        made._ontology, made._besides = ontology, (SEARCH_INDEX,)
        return made

    def close(self) -> None:
        """Drop the instance. A later call opens another."""
        for engines in (self._filters, self._statements):
            engines.drop()

    def _try_ids(self, table: RowTable, engine: Engine, asked: SqlQuery) -> None:
        self._shown(table, engine).ids(asked.sql, TRIAL_SECONDS)

    def _try_rows(self, engine: Engine, limits: SqlLimits, asked: SqlQuery) -> None:
        self._prepare(asked.tables, engine)
        engine.rows(asked.sql, limits)

    @contextmanager
    def _asking(self, engines: Engines) -> Iterator[Engine]:
        """An engine's turn; it is offered the files that lie ready if it has just begun."""
        with engines.turn() as engine:
            engine.offer(lambda: [path for kind in self._whole for path in self._table(kind).files()])
            yield engine

    def _columns(self, kind: RecordType) -> Columns:
        return self._table(kind).columns

    def _table(self, kind: RecordType) -> RowTable:
        rows, key = self._rows(kind), (kind.kind, kind.name)
        with self._turn:
            table = self._tables.get(key)
            if table is None or table.rows is not rows:
                ends = self._ends if isinstance(kind, EdgeType) else None
                found_by = None if ends is None else partial(ends, kind)
                table = self._tables[key] = RowTable(kind, rows, found_by, partial(self._nodes_of, kind))
            return table

    def _nodes_of(self, kind: RecordType) -> str:
        """Names the nodes that an edge type may lead to, as they are; empty for nodes."""
        if not isinstance(kind, EdgeType) or self._ends is None:
            return ""
        names = dict.fromkeys((*kind.from_types, *kind.to_types))
        versions = {name: self._rows(self._whole.nodes[name]).version for name in names}
        return " ".join(f"{name}:{version.store}:{version.revision}" for name, version in versions.items())

    def _prepare(self, wanted: Collection[str], engine: Engine) -> None:
        """Have an engine see what a statement names."""
        for kind in self._ontology:
            if kind.table.casefold() in wanted:
                self._shown(self._table(kind), engine)
        if SEARCH_INDEX in wanted:
            from duckkb.lanes.sql.arrow import entry_table

            kinds = [(kind.table, rows) for kind in self._ontology for rows in self._rows(kind).batches()]
            entries = ((table, row.record.id, entry) for table, rows in kinds for row in rows for entry in row.entries)
            engine.register(SEARCH_INDEX, entry_table(entries))
        if SEARCH_CACHE in wanted:
            from duckkb.lanes.sql.arrow import CACHE_SCHEMA

            rows = self._cache_rows() if self._cache_rows else CACHE_SCHEMA.empty_table()
            engine.register(SEARCH_CACHE, rows)

    def _shown(self, table: RowTable, engine: Engine) -> Engine:
        """The engine, which sees the records of a type as they are now."""
        table.lasting(partial(self._show, table, engine))
        return engine

    def _show(self, table: RowTable, engine: Engine) -> None:
        pieces, view = table.pieces(), quoted(table.kind.table)
        own = f"{table.kind.kind}_{table.kind.table}"  # no number: the same whichever types are known beside it
        changed = {f"__{name}_{own}": piece for name, piece in pieces.items()}
        changed = {name: piece for name, piece in changed.items() if engine.shown.get(name) != (piece.path or piece)}
        for name, piece in changed.items():
            engine.register(name, piece.data)
            engine.shown[name] = piece.path or piece
        select = f"SELECT * FROM {quoted(f'__base_{own}')}"
        if "delta" in pieces:
            select += f" WHERE {quoted(ID)} NOT IN (SELECT {quoted(ID)} FROM {quoted(f'__gone_{own}')})"
            select += f" UNION ALL BY NAME SELECT * FROM {quoted(f'__delta_{own}')}"
        if changed or engine.shown.get(view) != select:
            engine.define(f"CREATE OR REPLACE TEMP VIEW {view} AS {select}")
            engine.shown[view] = select


def size_lists(statement: str) -> str:
    """A statement in which lists of numbers that a function of arrays is given are arrays; the same where there are none.

    >>> size_lists("SELECT array_cosine_similarity(vector, [0.5, 1]) FROM search_index")
    'SELECT array_cosine_similarity(vector, [0.5, 1]::FLOAT[2]) FROM search_index'
    """
    if not _OF_ARRAYS.search(statement):
        return statement
    return _LISTS.sub(
        lambda list: list[0] if list[1] is None else f"{list[0]}::FLOAT[{list[0].count(',') + 1}]", statement
    )


_OF_NUMBERS = {
    "sum",
    "avg",
    "mean",
    "fsum",
    "product",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "var_pop",
    "var_samp",
    "variance",
}


def _untaken(what: str, call: str, statement: str, advice: str) -> tuple[str, str]:
    """What is said of a call that no function takes, such as `sum(VARCHAR)`, with the column, and what to do."""
    name, _, types = call.rstrip(")").partition("(")
    argument = re.search(rf"\b{name}\s*\(\s*((?:\w+\.)?\w+)\s*\)", statement, re.IGNORECASE)
    if argument is None or types != "VARCHAR" or name not in _OF_NUMBERS:
        return f"The {what} calls {name} with {types}, which it does not take.", advice
    cast = f"{name}(TRY_CAST({argument[1]} AS DOUBLE))"
    mended = f"{statement[: argument.start()]}{cast}{statement[argument.end() :]}"
    advice = f"duckkb sql {shell_word(mended)}" if what == "statement" else cast
    return f"The {what} calls {name} with {argument[1]}, which is VARCHAR; {name} takes numbers.", advice


@contextmanager
def _refusals(code: str, tables: Collection[str] = (), statement: str = "") -> Iterator[None]:
    """What the engine would not run is the caller's to mend, but its words are not the caller's to read."""
    try:
        yield
    except Rejected as error:
        described = min(tables, default="")
        advice = f'duckkb sql "DESCRIBE {described}"' if described else "compare values of one kind, or CAST one side"
        what = "condition" if code == "E_FILTER" else "statement"
        match error.reason:
            case "column":
                message = f"The {what} names a column that does not exist: {error.name}."
            case "value":
                message, advice = "A value does not convert or is out of range.", "use TRY_CAST"
            case "json":
                message = f"The {what} has a text meet a field with values of several kinds, which is JSON."
                advice = "CAST(FIELD AS VARCHAR) on both sides, or TRY_CAST(TEXT AS JSON)"
            case "exact":
                message = f"The {what} calculates with a field that has whole numbers past 2^53 beside other values."
                advice = "compare the field with a constant, or calculate with CAST(FIELD AS HUGEINT)"
            case "fit":
                message = f"The {what} does not fit the tables: check column names, types and arguments."
                if error.name:
                    message, advice = _untaken(what, error.name, statement, advice)
                elif SEARCH_INDEX in tables and _OF_ARRAYS.search(statement):
                    message = f"The {what} compares vectors of several lengths, or there are none."
                    advice = 'duckkb sql "SELECT len(vector), count(*) FROM search_index GROUP BY ALL"'
            case _:
                message = f"The {what} cannot be evaluated over these records."
        details = {"construct": error.reason}
        raise FilterError(message, code=code, suggestion=advice, details=details) from error
