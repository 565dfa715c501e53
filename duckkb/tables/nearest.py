"""The nearest rows of a table to a vector, by cosine: the question is checked against the table, then answered.

Exact unless `approximate` is set: the rows are ordered by an expression that no vector index answers, so
PostgreSQL compares all rows that pass the filter. With an index, rows are read from it, where pgvector can
until enough match. Where these are too few, all rows are compared, so a filter never costs results.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from psycopg import Cursor

from duckkb.errors import Finding
from duckkb.ontology.names import suggest_known_names
from duckkb.tables.asked import RERANKED, SCORE, Neighbour, NeighbourSearch, SafeNames
from duckkb.tables.catalogue import FoundTable, PgVector, find_table, pgvector
from duckkb.tables.filters import unfit
from duckkb.tables.names import invalid, refuse
from duckkb.tables.statement import Statement, other_dimension

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
