"""The nearest rows of a table to a vector, by cosine: the question is checked against the table, then answered.

Exact unless `approximate` is set: the rows are ordered by an expression that no vector index answers, so
PostgreSQL compares all rows that pass the filter. With an index, rows are read from it, where pgvector can
until enough match. Where these are too few, all rows are compared, so a filter never costs results.

Reranking of a table's nearest rows by how well their texts answer the question.

The SQL of a search: names are quoted, values are bound. Imported on demand, since it needs the driver."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from time import monotonic
from typing import Any, LiteralString

from psycopg import Cursor
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from duckkb.engine.rerank import room_for_texts, score_texts, unit_scores
from duckkb.engine.text_vectors import batches
from duckkb.llm.call_pool import side_by_side
from duckkb.llm.embedder_contract import clip_to_tokens
from duckkb.ontology.names import suggest_known_names
from duckkb.ports import Reranker
from duckkb.tables.table_catalogue import FoundTable, PgVector, TableColumn, find_table, invalid, pgvector, refuse
from duckkb.tables.table_query import (
    RERANKED,
    SCORE,
    ColumnTest,
    Neighbour,
    NeighbourSearch,
    SafeNames,
    is_number,
    unfit,
)
from duckkb.types.errors import Finding, Unavailable
from duckkb.types.settings import RerankSettings


def rerank_rows(
    model: Reranker, wanted: RerankSettings, question: str, rows: Sequence[Neighbour], least: float
) -> list[tuple[Neighbour, float]]:
    """Return rows with their scores from 0 to 1, the best first, ties in their order, without those below `least`.

    A row without text is not shown to the model, and scores 0. Raises `errors.Unavailable` (E_MODEL).
    """
    room, until = room_for_texts(wanted, question), monotonic() + wanted.timeout_ms / 1000
    texts = [clip_to_tokens(row.text, room) if row.text and row.text.strip() else None for row in rows]
    different = list(dict.fromkeys(text for text in texts if text is not None))
    scores: dict[str, float] = {}

    def ask(some: Sequence[str]) -> list[float]:
        return score_texts(model, question, some, until - monotonic())

    text_batches = list(batches(different, model.at_once or max(1, len(different))))
    for some, outcome in side_by_side(text_batches, ask, wanted.concurrency):
        if isinstance(outcome, Unavailable):
            raise outcome
        scores |= zip(some, outcome, strict=True)
    unit = unit_scores(scores)
    pairs = [(row, 0.0 if text is None else unit[text]) for row, text in zip(rows, texts, strict=True)]
    return sorted((pair for pair in pairs if pair[1] >= least), key=lambda pair: -pair[1])


class Statement:
    """The statements for one question. An inner one chooses rows, an outer one renders only these."""

    def __init__(self, table: FoundTable, extension: PgVector, checked: SafeNames, asked: NeighbourSearch) -> None:
        self.columns = checked.select or tuple(table.columns)
        self._table, self._text, self._asked, self._schema = table, checked.text, asked, extension.schema
        self._column = table.columns[checked.vector]
        read = dict.fromkeys([*self.columns, *table.key, checked.vector, *([checked.text] if checked.text else [])])
        self._places = {name: f"c{place}" for place, name in enumerate(read)}
        self._values: dict[str, Any] = {"limit": asked.top_k}
        self._conditions = _conditions(checked.tests, table.columns, self._values)

    def exact(self, vector: Sequence[float]) -> tuple[Composed, Mapping[str, Any]]:
        """Return the statement that compares all rows.

        Adding zero to the distance keeps PostgreSQL from using an index. Without a primary key, rows as near as
        the last row are read too, and the outer order chooses among them.
        """
        length = SQL("{}({})").format(quote_names(self._schema, "vector_dims"), self._vector)
        distance = self._build_distance(SQL("{}::{}").format(self._vector, self._type("vector")), self._question)
        more: list[Composable] = []
        if not self._column.dimension:
            # Comparing vectors of unequal length is an error, and PostgreSQL chooses the order of conditions.
            distance = SQL("CASE WHEN {} = %(dimension)s THEN {} END").format(length, distance)
            more.append(SQL("{} = %(dimension)s").format(length))
        keys = [SQL("t.{}").format(quote_names(name)) for name in self._table.key]
        end = SQL("ORDER BY {} LIMIT %(limit)s") if keys else SQL("ORDER BY {} FETCH FIRST %(limit)s ROWS WITH TIES")
        inner = self._inner(SQL("{} + 0").format(distance), more, end.format(SQL(", ").join([SQL("d"), *keys])))
        return self._build_outer(SQL("n.d"), inner), self._bind_values(vector)

    def order_by_index(self, vector: Sequence[float]) -> tuple[Composed, Mapping[str, Any]]:
        """Return the statement that reads rows in the order of the index.

        The index may hold numbers of less precision; the cosine is computed from the full ones.
        """
        question = SQL("{}::{}").format(self._question, self._type(self._column.base))
        inner = self._inner(self._build_distance(self._vector, question), [], SQL("ORDER BY d LIMIT %(limit)s"))
        full_vector = SQL("n.{}::{}").format(SQL(self._places[self._column.name]), self._type("vector"))
        return self._build_outer(self._build_distance(full_vector, self._question), inner), self._bind_values(vector)

    def _inner(self, distance: Composable, more: Sequence[Composable], end: Composable) -> Composed:
        read = [SQL("t.{} AS {}").format(quote_names(name), quote_names(place)) for name, place in self._places.items()]
        where = SQL(" AND ").join([SQL("{} IS NOT NULL").format(self._vector), *more, *self._conditions])
        table = quote_names(self._table.schema, self._table.name)
        return SQL("SELECT {}, {} AS d FROM {} t WHERE {} {}").format(SQL(", ").join(read), distance, table, where, end)

    def _build_outer(self, distance: Composable, inner: Composable) -> Composed:
        text = SQL("n.{}::pg_catalog.text").format(quote_names(self._places[self._text])) if self._text else SQL("NULL")
        column_values = [self._render_column(self._table.columns[name]) for name in self.columns]
        keys = [SQL("n.{}").format(quote_names(self._places[name])) for name in self._table.key]
        order: Sequence[Composable] = keys or [SQL(str(place)) for place in range(3, 3 + len(column_values))]
        return SQL("SELECT 1 - {d}, {}, {} FROM ({}) n WHERE {d} <> 'NaN' ORDER BY 1 DESC, {}").format(
            text, SQL(", ").join(column_values), inner, SQL(", ").join(order), d=distance
        )

    def _render_column(self, column: TableColumn) -> Composed:
        """Render a column as JSON: vectors as numbers, an enum as its label or as the server's text."""
        value = SQL("n.{}").format(quote_names(self._places[column.name]))
        if column.is_vector:
            value = SQL("{}::pg_catalog.float4[]").format(value)
        elif column.labels and not self._asked.parse_enum:
            value = SQL("{}::pg_catalog.text").format(value)
        return SQL("pg_catalog.to_json({})::pg_catalog.text").format(value)

    def _build_distance(self, vector: Composable, question: Composable) -> Composed:
        return SQL("({} OPERATOR({}.<=>) {})").format(vector, quote_names(self._schema), question)

    @property
    def _vector(self) -> Composed:
        return SQL("t.{}").format(quote_names(self._column.name))

    @property
    def _question(self) -> Composed:
        return SQL("%(vector)s::{}").format(self._type("vector"))

    def _type(self, name: str) -> SQL:
        return quote_names(self._schema, name)

    def _bind_values(self, vector: Sequence[float]) -> Mapping[str, Any]:
        literal = "[" + ",".join(map(repr, vector)) + "]"
        return {**self._values, "vector": literal, "dimension": len(vector)}


def other_dimension(
    cursor: Cursor[Any], table: FoundTable, column: TableColumn, extension: PgVector, wanted: int
) -> int:
    """Return the length of a column's vectors where none is as long as `wanted`, else 0.

    Queries the rows only where the column declares no dimension.
    """
    if column.dimension:
        return 0 if column.dimension == wanted else column.dimension
    name, dims = quote_names(column.name), quote_names(extension.schema, "vector_dims")
    which = SQL("SELECT {}({}) FROM {} WHERE {} IS NOT NULL").format(
        dims, name, quote_names(table.schema, table.name), name
    )
    first = cursor.execute(SQL("{} LIMIT 1").format(which)).fetchone()
    if first is None or first[0] == wanted:
        return 0
    same = cursor.execute(SQL("{} AND {}({}) = %s LIMIT 1").format(which, dims, name), (wanted,)).fetchone()
    return 0 if same else int(first[0])


def _conditions(
    tests: Sequence[ColumnTest], columns: Mapping[str, TableColumn], values: dict[str, Any]
) -> list[Composable]:
    """Return each comparison as SQL over the table `t`, and add its values to those bound by name."""
    conditions: list[Composable] = []
    for test in tests:
        column, placeholder = columns[test.column], f"v{len(values)}"
        parts = {
            "name": SQL("t.{}").format(quote_names(test.column)),
            "type": _type(column),
            "value": Placeholder(placeholder),
        }
        if test.sign == "is null":
            conditions.append(SQL("{name} IS NULL").format(**parts))
        elif test.sign == "in":
            values[placeholder] = [_text(value) for value in test.values]
            null = SQL(" OR {name} IS NULL" if test.or_null else "").format(**parts)
            conditions.append(
                SQL("({name} = ANY({value}::pg_catalog.text[]::{type}[]){null})").format(null=null, **parts)
            )
        else:
            values[placeholder] = _text(test.values[0])
            sign: LiteralString = test.sign
            conditions.append(SQL("{name} {sign} {value}::pg_catalog.text::{type}").format(sign=SQL(sign), **parts))
    return conditions


def _type(column: TableColumn) -> Composable:
    """Return the type by which a value is read: the column's without a length, which would cut it.

    Numbers are read with any size and fraction, except for float4, whose numbers have few digits.
    """
    if is_number(column) and column.base != "float4":
        return quote_names("pg_catalog", "numeric")
    return quote_names(column.schema, column.base)


def _text(value: Any) -> str:
    """Return a value as PostgreSQL reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)


def quote_names(*parts: str) -> SQL:
    """Quote a name for a statement with bound values; percent signs are doubled."""
    return SQL(Identifier(*parts).as_string(None).replace("%", "%%"))


_ITERATIVE = (0, 8)
"""The version of pgvector from which an index can be read until there are enough rows."""
_READ_ON = "SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL ivfflat.iterative_scan = relaxed_order"
_LONGEST_NUMBER = 4_000  # digits; Python parses no longer integers


def look(
    cursor: Cursor[Any], asked: NeighbourSearch, checked: SafeNames, dimension: int
) -> tuple[FoundTable, PgVector]:
    """Return the table of a question and the database's pgvector, after checking the question against them.

    `dimension` is the vector's, 0 where it is not known yet. Raises `errors.UsageError` (E_TABLE, E_DIMENSION)
    and `errors.FilterError` with all mismatches, and `errors.StateError` (E_DATABASE).
    """
    extension = pgvector(cursor)
    table = find_table(cursor, checked.schema, checked.name, asked.table)
    findings = unfit(checked.tests, table.columns)
    requested_names = [*(checked.select or ()), *([checked.text] if checked.text is not None else [])]
    findings += [
        invalid("column", name, suggest_known_names(name, table.columns))
        for name in requested_names
        if name not in table.columns
    ]
    texts = [name for name, column in table.columns.items() if column.category == "S"]
    if checked.text is not None and checked.text in table.columns and checked.text not in texts:
        hint = f"columns of text here: {', '.join(texts)}" if texts else "the table has no column of text"
        message = f"a reranker reads text, and {checked.text} is {table.columns[checked.text].type}"
        findings.append(Finding("E_TABLE", message, remedy=f"{hint}; or ask without a reranker"))
    column = table.columns.get(checked.vector)
    if column is None or not column.is_vector:
        vectors = ", ".join(candidate.name for candidate in table.columns.values() if candidate.is_vector)
        hint = f"columns of vectors here: {vectors}" if vectors else "the table has no column of type vector or halfvec"
        findings.append(invalid("column", checked.vector, hint))
    elif dimension and (actual_dimension := other_dimension(cursor, table, column, extension, dimension)):
        problem = f"the vector has {dimension} dimensions, {checked.vector} has {actual_dimension}"
        findings.append(Finding("E_DIMENSION", problem, remedy="use the model that made the vectors of the table"))
    clashes = [name for name in (SCORE, RERANKED) if name in (checked.select or table.columns)]
    findings += [
        Finding("E_USAGE", f"the table has a column {name}, as the answer has", remedy="select other columns")
        for name in clashes
    ]
    refuse(findings)
    return table, extension


def nearest_rows(
    cursor: Cursor[Any],
    asked: NeighbourSearch,
    checked: SafeNames,
    looked: tuple[FoundTable, PgVector],
    vector: Sequence[float],
) -> list[Neighbour]:
    """Return the rows nearest to a vector of unit length; ties by primary key, else by the selected columns.

    Leaves out rows whose vector is missing, all zeros, or of another length.
    """
    table, extension = looked
    statement = Statement(table, extension, checked, asked)
    rows: list[Any] = []
    if asked.approximate and table.indexes.get(checked.vector):
        if extension.version >= _ITERATIVE:
            cursor.execute(_READ_ON)
        rows = cursor.execute(*statement.order_by_index(vector)).fetchall()
    if len(rows) < asked.top_k:
        rows = cursor.execute(*statement.exact(vector)).fetchall()
    neighbours = [
        _build_neighbour(statement.columns, row) for row in rows if row[0] is not None and not math.isnan(row[0])
    ]
    least = -math.inf if asked.threshold is None else asked.threshold
    return [neighbour for neighbour in neighbours if neighbour.score >= least][: asked.top_k]


def _build_neighbour(columns: Sequence[str], row: Sequence[Any]) -> Neighbour:
    values = {name: _parse_value(text) for name, text in zip(columns, row[2:], strict=True)}
    return Neighbour(values, max(-1.0, min(1.0, row[0])), row[1])


def _parse_value(text: str | None) -> Any:
    """Parse JSON as PostgreSQL writes it; keep as text what would lose digits or is nested too deep."""
    if text is None:
        return None
    try:
        return json.loads(
            text, parse_float=_parse_number, parse_int=lambda sign: int(sign) if len(sign) <= _LONGEST_NUMBER else sign
        )
    except RecursionError:
        return text


def _parse_number(text: str) -> float | str:
    from decimal import Decimal

    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text
