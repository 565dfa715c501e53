"""A question to a table, checked in full before any server is asked: its rows, its vector and its names."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from duckkb.errors import Finding
from duckkb.tables.filters import ColumnTest, read_filter
from duckkb.tables.names import column_name, invalid, refuse, table_name

SCORE, RERANKED = "embedding_score", "rerank_score"
MOST_ROWS = 1_000
_MOST_DIMENSIONS = 16_000


class NeighbourSearch(Struct, frozen=True):
    """A question to a table as given. `select` None means all columns; `text_column`, if named, is read too."""

    table: str
    top_k: int = 10
    threshold: float | None = None
    vector_column: str = "embedding"
    select: Sequence[str] | None = None
    filter: Mapping[str, Any] | None = None
    parse_enum: bool = True
    approximate: bool = False
    text_column: str | None = None


class Neighbour(Struct, frozen=True):
    """A row by its columns, its cosine (-1 to 1), and its text for a reranker, None without one."""

    values: Mapping[str, Any]
    score: float
    text: str | None = None


class SafeNames(Struct, frozen=True):
    """Validated names as the catalogue has them, and the comparisons of the filter."""

    schema: str
    name: str
    vector: str
    select: tuple[str, ...] | None
    tests: tuple[ColumnTest, ...]
    text: str | None


def check(asked: NeighbourSearch, more: Sequence[Finding] = ()) -> SafeNames:
    """Check a question without asking the server.

    Raises `errors.UsageError` (E_TABLE, E_USAGE) or `errors.FilterError` with all problems, those of `more` included.
    """
    tests, findings = read_filter(asked.filter)
    table = table_name(asked.table)
    if table is None:
        findings.insert(0, invalid("table", asked.table))
    if isinstance(asked.select, str) or (asked.select is not None and not asked.select):
        findings.append(Finding("E_USAGE", "select names no column", remedy="give a list of columns, or none for all"))
    column_names = [asked.vector_column, *([asked.text_column] if asked.text_column is not None else [])]
    column_names += [] if isinstance(asked.select, str) else list(asked.select or ())
    findings += [invalid("column", name) for name in column_names if column_name(name) is None]
    if isinstance(asked.top_k, bool) or not isinstance(asked.top_k, int) or not 1 <= asked.top_k <= MOST_ROWS:
        findings.append(
            Finding("E_USAGE", f"top_k is not from 1 to {MOST_ROWS:,}", remedy="ask for fewer rows, and filter")
        )
    if flaw := threshold_flaw("threshold", asked.threshold, -1):
        findings.append(flaw)
    refuse([*findings, *more])
    schema, name = table or ("", "")
    names = [str(column_name(column)) for column in column_names]
    select = tuple(dict.fromkeys(names[1 + (asked.text_column is not None) :])) if asked.select is not None else None
    return SafeNames(schema, name, names[0], select, tuple(tests), names[1] if asked.text_column is not None else None)


def threshold_flaw(name: str, value: object, least: int) -> Finding | None:
    """Return what is wrong with a minimum score; None where nothing is."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= 1):
        return None
    return Finding("E_USAGE", f"{name} is not from {least} to 1", remedy="leave it out for no threshold")


def unit(vector: Sequence[float]) -> list[float]:
    """Scale a vector to unit length, which keeps its cosines. Raises `errors.UsageError` (E_USAGE)."""
    try:
        numbers = [float(value) for value in vector]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    length = math.hypot(*numbers)
    if not 0 < len(numbers) <= _MOST_DIMENSIONS or not math.isfinite(length) or not length:
        message = f"a vector has 1 to {_MOST_DIMENSIONS:,} finite numbers, not all of them 0"
        refuse([Finding("E_USAGE", message, remedy="give a list of numbers")])
    return [value / length for value in numbers]
