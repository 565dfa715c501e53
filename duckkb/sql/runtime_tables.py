"""The runtime tables: records as rows for filters and `sql`, built when they are first needed.

The engine sees immutable Arrow data: a base, and after changes a delta with the list of base rows that it
replaces. Records are read when the data is built and not held; only what they say about the columns is kept.
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

from duckkb.id_set import IdSet
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ports import Rows, SqlLimits
from duckkb.sql import row_table
from duckkb.sql.columns import Columns, quote_identifier
from duckkb.sql.confined import Confined
from duckkb.sql.row_table import RowTable
from duckkb.sql.sql_process import Engine, Engines, Rejected
from duckkb.sql.statement_reader import reads_clock
from duckkb.sql.statements import SqlQuery, read_condition, read_statement, read_tree
from duckkb.sql.syntax import Node
from duckkb.types.errors import FilterError, UsageError, shell_word
from duckkb.types.queries import SqlResult
from duckkb.types.records import ID, Record

if TYPE_CHECKING:
    import pyarrow as pa

SEARCH_INDEX, SEARCH_CACHE = "search_index", "search_cache"
FILTER_SECONDS = 30.0
TRIAL_SECONDS = 2.0  # to try a correction before a refusal suggests it
MAX_SECONDS = 3_600

_OF_ARRAYS = re.compile(r"\barray_\w+\(", re.IGNORECASE)
_LISTS = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|(\[\s*[-+]?[\d.][\d.eE+-]*(?:\s*,\s*[-+]?[\d.][\d.eE+-]*)*\s*\])(?!\s*::)"
)
"""Texts and names, which are skipped, or a list of numbers without a type."""

EdgeEnds = Callable[[RecordType, Record], tuple[int | None, int | None]]


class Tables:
    """The runtime tables of a whole ontology in an engine (by default a confined DuckDB in this process) or in
    several: some for filters, and some for `statements`, which may take long. Threads may use them
    concurrently.

    `rows` gives the present records of a type, `ends` resolves an edge's ends to record ids, `cache_rows` gives
    the rows of the search cache. All three are called only when a statement needs them.
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
        self._turn = RLock()  # a single thread builds a table that several request

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Return the ids of the records that satisfy a condition; raises FilterError, or Unavailable over time or
        memory.
        """
        table = self._load_table(kind)
        if (cached_ids := table.answer(condition)) is not None:
            return cached_ids
        if tests := row_table.simple_tests(condition, table.columns):
            record_ids = table.retry_if_damaged(lambda: table.select_ids(tests))
            return table.keep(condition, IdSet(record_ids.array, row_table.texts(tests)))
        with (
            self._borrow_engine(self._filters) as engine,
            engine.limit_time(FILTER_SECONDS),
            _translate_refusals("E_FILTER"),
        ):
            run = partial(self._try_ids, table, engine)
            query = read_condition(engine, kind.table, table.columns, condition, self._now(), run)
            record_ids = self._prepare_view(table, engine).ids(query.sql, FILTER_SECONDS)
        return record_ids if reads_clock(condition) else table.keep(condition, record_ids)

    def tree(self, kind: RecordType, columns: Columns, condition: str) -> Node:
        """Return the tree that a condition over such columns would run, without reading a record. Raises
        FilterError.
        """
        with self._filters.turn() as engine, engine.limit_time(FILTER_SECONDS):
            return read_tree(engine, columns, condition, self._now())

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """Run a read-only SELECT over the runtime tables; raises FilterError (`E_SQL`) or Unavailable."""
        if limits.rows < 1 or limits.bytes < 1 or not 0 < limits.seconds <= MAX_SECONDS:
            raise UsageError("The caps of a query must be above zero, and its time at most an hour.")
        columns_by_table: dict[str, Callable[[], Columns | None]] = {name: lambda: None for name in self._besides}
        columns_by_table |= {kind.table.casefold(): partial(self._columns, kind) for kind in self._ontology}
        with self._borrow_engine(self._statements) as engine, engine.limit_time(limits.seconds):
            run = partial(self._try_rows, engine, replace(limits, seconds=min(limits.seconds, TRIAL_SECONDS)))
            query = read_statement(engine, columns_by_table, statement, self._now(), run)
            if query is None:
                names = sorted([*(kind.table for kind in self._ontology), *self._besides])
                return SqlResult(("name",), tuple((name,) for name in names[: limits.rows]), len(names) > limits.rows)
            with _translate_refusals("E_SQL", query.tables, statement):
                self._prepare(query.tables, engine)
                try:
                    return engine.rows(query.sql, limits)
                except Rejected as error:
                    sized_statement = size_lists(statement)
                    if error.reason != "fit" or sized_statement == statement:
                        raise
                    again = read_statement(engine, columns_by_table, sized_statement, self._now(), run)
                    return engine.rows((again or query).sql, limits)

    def narrow(self, ontology: Ontology) -> "Tables":
        """Narrow as `ports.Sql.narrowed` does, with the same tables in the same engine. Leaves out the rows of the
        cache, because they do not depend on types.
        """
        narrowed_tables = copy(self)
        narrowed_tables._ontology, narrowed_tables._besides = ontology, (SEARCH_INDEX,)
        return narrowed_tables

    def close(self) -> None:
        """Drop the instance. A later call opens another."""
        for engines in (self._filters, self._statements):
            engines.drop()

    def _try_ids(self, table: RowTable, engine: Engine, query: SqlQuery) -> None:
        self._prepare_view(table, engine).ids(query.sql, TRIAL_SECONDS)

    def _try_rows(self, engine: Engine, limits: SqlLimits, query: SqlQuery) -> None:
        self._prepare(query.tables, engine)
        engine.rows(query.sql, limits)

    @contextmanager
    def _borrow_engine(self, engines: Engines) -> Iterator[Engine]:
        """Borrow an engine; announce the current files to an engine that has just started."""
        with engines.turn() as engine:
            engine.offer(lambda: [path for kind in self._whole for path in self._load_table(kind).files()])
            yield engine

    def _columns(self, kind: RecordType) -> Columns:
        return self._load_table(kind).columns

    def _load_table(self, kind: RecordType) -> RowTable:
        rows, key = self._rows(kind), (kind.kind, kind.name)
        with self._turn:
            table = self._tables.get(key)
            if table is None or table.rows is not rows:
                ends = self._ends if isinstance(kind, EdgeType) else None
                found_by = None if ends is None else partial(ends, kind)
                table = self._tables[key] = RowTable(kind, rows, found_by, partial(self._describe_nodes, kind))
            return table

    def _describe_nodes(self, kind: RecordType) -> str:
        """Name the present state of the nodes that an edge type may lead to; empty for nodes."""
        if not isinstance(kind, EdgeType) or self._ends is None:
            return ""
        names = dict.fromkeys((*kind.from_types, *kind.to_types))
        return " ".join(f"{name}:{self._rows(self._whole.nodes[name]).state.digest}" for name in names)

    def _prepare(self, table_names: Collection[str], engine: Engine) -> None:
        """Make the tables of a statement visible in an engine."""
        for kind in self._ontology:
            if kind.table.casefold() in table_names:
                self._prepare_view(self._load_table(kind), engine)
        if SEARCH_INDEX in table_names:
            from duckkb.sql.arrow_tables import entry_table

            kinds = [(kind.table, rows) for kind in self._ontology for rows in self._rows(kind).batches()]
            entries = ((table, row.record.id, entry) for table, rows in kinds for row in rows for entry in row.entries)
            engine.register(SEARCH_INDEX, entry_table(entries))
        if SEARCH_CACHE in table_names:
            from duckkb.sql.arrow_tables import CACHE_SCHEMA

            rows = self._cache_rows() if self._cache_rows else CACHE_SCHEMA.empty_table()
            engine.register(SEARCH_CACHE, rows)

    def _prepare_view(self, table: RowTable, engine: Engine) -> Engine:
        """Make the present records of a type visible in an engine and return the engine."""
        table.retry_if_damaged(partial(self._show, table, engine))
        return engine

    def _show(self, table: RowTable, engine: Engine) -> None:
        pieces, view = table.pieces(), quote_identifier(table.kind.table)
        # without a number, so that it does not depend on other known types
        local_name = f"{table.kind.kind}_{table.kind.table}"
        changed_pieces = {f"__{name}_{local_name}": piece for name, piece in pieces.items()}
        changed_pieces = {
            name: piece for name, piece in changed_pieces.items() if engine.shown.get(name) != (piece.path or piece)
        }
        for name, piece in changed_pieces.items():
            engine.register(name, piece.data)
            engine.shown[name] = piece.path or piece
        select = f"SELECT * FROM {quote_identifier(f'__base_{local_name}')}"
        if "delta" in pieces:
            select += f" WHERE {quote_identifier(ID)} NOT IN (SELECT {quote_identifier(ID)} FROM {quote_identifier(f'__gone_{local_name}')})"
            select += f" UNION ALL BY NAME SELECT * FROM {quote_identifier(f'__delta_{local_name}')}"
        if changed_pieces or engine.shown.get(view) != select:
            engine.define(f"CREATE OR REPLACE TEMP VIEW {view} AS {select}")
            engine.shown[view] = select


def size_lists(statement: str) -> str:
    """Turn lists of numbers in a statement into arrays if an array function takes them; leave other statements
    unchanged.

    >>> size_lists("SELECT array_cosine_similarity(vector, [0.5, 1]) FROM search_index")
    'SELECT array_cosine_similarity(vector, [0.5, 1]::FLOAT[2]) FROM search_index'
    """
    if not _OF_ARRAYS.search(statement):
        return statement
    return _LISTS.sub(
        lambda list: list[0] if list[1] is None else f"{list[0]}::FLOAT[{list[0].count(',') + 1}]", statement
    )


_OF_AGGREGATES = re.compile(r"(?i)\bselect\b[^()]*,.*\b(?:count|sum|avg|min|max)\s*\(.*\bfrom\b", re.DOTALL)
_OF_GROUPS = re.compile(r"(?i)\bgroup\s+by\b")
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


def _describe_type_error(subject: str, call: str, statement: str, advice: str) -> tuple[str, str]:
    """Describe a call without a matching function, such as `sum(VARCHAR)`, with its column, and advise what to do."""
    name, _, types = call.rstrip(")").partition("(")
    argument = re.search(rf"\b{name}\s*\(\s*((?:\w+\.)?\w+)\s*\)", statement, re.IGNORECASE)
    if argument is None or types != "VARCHAR" or name not in _OF_NUMBERS:
        return f"The {subject} calls {name} with {types}, which it does not take.", advice
    cast = f"{name}(TRY_CAST({argument[1]} AS DOUBLE))"
    corrected_statement = f"{statement[: argument.start()]}{cast}{statement[argument.end() :]}"
    advice = f"duckkb sql {shell_word(corrected_statement)}" if subject == "statement" else cast
    return f"The {subject} calls {name} with {argument[1]}, which is VARCHAR; {name} takes numbers.", advice


@contextmanager
def _translate_refusals(code: str, tables: Collection[str] = (), statement: str = "") -> Iterator[None]:
    """Translate the engine's refusals to errors that the caller can correct, without the engine's own text."""
    try:
        yield
    except Rejected as error:
        first_table = min(tables, default="")
        advice = (
            f'duckkb sql "DESCRIBE {first_table}"' if first_table else "compare values of one kind, or CAST one side"
        )
        subject = "condition" if code == "E_FILTER" else "statement"
        match error.reason:
            case "column":
                message = f"The {subject} names a column that does not exist: {error.name}."
            case "value":
                message, advice = "A value does not convert or is out of range.", "use TRY_CAST"
            case "json":
                message = f"The {subject} has a text meet a field with values of several kinds, which is JSON."
                advice = "CAST(FIELD AS VARCHAR) on both sides, or TRY_CAST(TEXT AS JSON)"
            case "exact":
                message = f"The {subject} calculates in doubles with a whole number past 2^53 that these would round."
                advice = "CAST(FIELD AS HUGEINT) beside whole numbers, or CAST(FIELD AS DOUBLE) if the nearest double will do"
            case "fit":
                message = f"The {subject} does not fit the tables: check column names, types and arguments."
                if _OF_AGGREGATES.search(statement) and not _OF_GROUPS.search(statement):
                    message = f"The {subject} has columns beside an aggregate: name them in GROUP BY."
                    grouped = re.sub(
                        r"(?i)(?=\s+(?:ORDER\s+BY|LIMIT)\b|\s*;?\s*$)", " GROUP BY ALL", statement, count=1
                    )
                    advice = f"duckkb sql {shell_word(grouped)}"
                elif error.name:
                    message, advice = _describe_type_error(subject, error.name, statement, advice)
                elif SEARCH_INDEX in tables and _OF_ARRAYS.search(statement):
                    message = f"The {subject} compares vectors of several lengths, or there are none."
                    advice = 'duckkb sql "SELECT len(vector), count(*) FROM search_index GROUP BY ALL"'
            case _:
                message = f"The {subject} cannot be evaluated over these records."
        details = {"construct": error.reason}
        raise FilterError(message, code=code, suggestion=advice, details=details) from error
