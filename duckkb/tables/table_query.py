"""A question to a table, checked in full before any server is asked: its rows, its vector and its names.

Filters of rows as plain values, parsed and checked against columns.

An example is `{"price": {"$lt": 100}, "kind": ["a", "b"], "gone": null}`.

A plain value means equal, null `IS NULL`, a list any of its values (empty: no row), an object of $gt, $gte,
$lt, $lte all of them. Columns are joined by AND. Everything else is refused rather than guessed.

A read-only connection to PostgreSQL: each question in its own transaction with a time limit.

No error shows a password."""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from msgspec import Struct

from duckkb.ontology.names import suggest_known_names
from duckkb.tables.table_catalogue import TableColumn, column_name, invalid, refuse, table_name
from duckkb.types.database_urls import EXAMPLE, PostgresUrl
from duckkb.types.errors import DuckkbError, FilterError, Finding, Refused, StateError, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Error

Sign = Literal["=", ">", ">=", "<", "<=", "is null", "in"]
_OPERATORS: Mapping[str, Sign] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_MOST_VALUES = 10_000
_MOST_BITS = 4_096  # bits of an integer, more than a float8 can hold
_REMEDY = "a filter has column: value, null, [values] or {$gt, $gte, $lt, $lte: value}; columns of the table alone"
_WRITTEN = (bool, int, float, Decimal, str, date, time, UUID, bytes)
_FITTING: Mapping[str, tuple[type, ...]] = {"N": (int, float, Decimal), "B": (bool,), "S": (str, UUID), "E": (str,)}
_SAID = {str: "a text", bool: "true or false", int: "a number", float: "a number", Decimal: "a number"}
_UNCOMPARED = {"json": "JSON", "jsonb": "JSON", "vector": "vectors", "halfvec": "vectors", "sparsevec": "vectors"}


class ColumnTest(Struct, frozen=True):
    """A comparison of a column with `values`: a single value, several of `in`, none of `is null`."""

    column: str
    sign: Sign
    values: tuple[Any, ...] = ()
    or_null: bool = False


def read_filter(given: object) -> tuple[list[ColumnTest], list[Finding]]:
    """Parse a filter; return its comparisons and all problems of its form, without knowing the table."""
    if given is None:
        return [], []
    if not isinstance(given, Mapping):
        return [], [_report_flaw("the filter", "is not an object")]
    tests, findings = list[ColumnTest](), list[Finding]()
    for name, condition in given.items():
        column = column_name(name)
        if column is None:
            findings.append(invalid("column", name))
            continue
        for outcome in _parse_tests(column, condition):
            if isinstance(outcome, Finding):
                findings.append(outcome)
            else:
                tests.append(outcome)
    if sum(len(test.values) for test in tests) > _MOST_VALUES:
        findings.append(_report_flaw("the filter", f"has more than {_MOST_VALUES:,} values"))
    return tests, findings


def _parse_tests(column: str, condition: Any) -> Iterator[ColumnTest | Finding]:
    if condition is None:
        yield ColumnTest(column, "is null")
    elif isinstance(condition, Mapping):
        if not condition:
            yield _report_flaw(column, "has an object without an operator")
        for sign, value in condition.items():
            if sign not in _OPERATORS:
                yield _report_flaw(column, f"has {sign!r}, which is not a filter operator")
            elif flaw := "is null" if value is None else _find_flaw(value):
                yield _report_flaw(column, f"{sign} {flaw}")
            else:
                yield ColumnTest(column, _OPERATORS[sign], (value,))
    elif isinstance(condition, (list, tuple, set, frozenset)):
        values = [value for value in condition if value is not None]
        yield from (_report_flaw(column, f"has a value that {flaw}") for value in values if (flaw := _find_flaw(value)))
        yield ColumnTest(column, "in", tuple(values), or_null=len(values) < len(condition))
    elif flaw := _find_flaw(condition):
        yield _report_flaw(column, flaw)
    else:
        yield ColumnTest(column, "=", (condition,))


def _find_flaw(value: object) -> str:
    if not isinstance(value, _WRITTEN):
        return f"is not a single value ({type(value).__name__})"
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        return "is not a finite number"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "is too large a number"
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value)):
        return "has a NUL character or half of a surrogate pair"
    return ""


def _report_flaw(where: str, message: str) -> Finding:
    return Finding("E_FILTER", f"{where} {message}", field=where, remedy=_REMEDY)


def unfit(tests: Sequence[ColumnTest], columns: Mapping[str, TableColumn]) -> list[Finding]:
    """Return everything that is wrong with comparisons, given the table's columns."""
    findings: dict[str, Finding] = {}
    for test in tests:
        column = columns.get(test.column)
        if column is None:
            findings[test.column] = invalid("column", test.column, suggest_known_names(test.column, columns))
        elif mismatch := next(filter(None, (_explain_mismatch(column, value) for value in test.values)), ""):
            findings[test.column] = _report_flaw(test.column, mismatch)
    return list(findings.values())


def _explain_mismatch(column: TableColumn, value: object) -> str:
    """Return why a column cannot be compared with a value; the server judges dates and the like."""
    if column.category == "A" or column.base in _UNCOMPARED:
        return f"is {column.type}: {_UNCOMPARED.get(column.base, 'arrays')} can be compared with null alone"
    fits = isinstance(value, _FITTING.get(column.category, (str, date, time, UUID, bytes)))
    if column.category == "N" and not is_number(column):
        fits = isinstance(value, (int, float, Decimal, str))  # money, and object ids
    if not fits or (isinstance(value, bool) and column.category != "B"):
        return f"is {column.type}, and is not compared with {_SAID.get(type(value), 'a ' + type(value).__name__)}"
    if column.category == "E" and value not in column.labels:
        return f"is {column.type} and has no {value!r}; {suggest_known_names(str(value), column.labels)}"
    return ""


def is_number(column: TableColumn) -> bool:
    return column.base in ("int2", "int4", "int8", "numeric", "float4", "float8")


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


_SESSION = {
    "TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "iso_8601", "bytea_output": "hex", "extra_float_digits": "1",
}  # fmt: skip
"""Settings that fix how values look, whoever asks."""
_SET = "SELECT pg_catalog.set_config(s.name, s.value, true) FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) AS s(name, value)"
_TOO_LATE = "57014"
_VALUES = {"22P02", "22003", "22007", "22008"}  # SQL states of values that do not fit their type


class Postgres:
    """A connection that is made at the first question, and again after it was lost. Threads take turns."""

    def __init__(self, url: str, connect_s: float = 10.0, statement_s: float = 30.0) -> None:
        """Prepare a connection, without connecting. Limits are in seconds.

        `place` is host, port and database, as people read them. Raises `errors.UsageError` (E_URL) for an
        invalid URL, `errors.Refused` without the extra.
        """
        if find_spec("psycopg") is None:
            raise Refused("PostgreSQL needs the extra `postgres`", suggestion="pip install 'duckkb[postgres]'")
        self._url = PostgresUrl.read(url)
        self.place = self._url.place
        self._connect_s, self._statement_s = connect_s, statement_s
        self._connection: Connection[Any] | None = None
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"Postgres({self.place})"

    @contextmanager
    def open_cursor(self) -> "Iterator[Cursor[Any]]":
        """Open a snapshot in which nothing can be written.

        Raises `errors.Unavailable` (E_DATABASE, E_TIMEOUT), `errors.StateError` (E_DATABASE) and, for values
        that do not fit their columns, `errors.FilterError`.
        """
        from psycopg import Error

        with self._turn:
            try:
                connection = self._get_connection()
                with connection.transaction(), connection.cursor() as cursor:
                    settings = {**_SESSION, "statement_timeout": str(max(1, int(self._statement_s * 1000)))}
                    cursor.execute(_SET, (list(settings), list(settings.values())))
                    yield cursor
            except Error as error:
                raise self._problem(error) from None  # its text and frames may hold the URL
            except UnicodeError:
                message = "[database] a value of the database is not UTF-8"
                raise StateError(message, "E_DATABASE", "select other columns, or correct the value") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get_connection(self) -> "Connection[Any]":
        import psycopg

        if self._connection is not None and not _is_alive(self._connection):
            self.close()
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url.url,
                autocommit=True,
                prepare_threshold=None,  # poolers that reassign connections lose prepared statements
                connect_timeout=max(1, int(self._connect_s)),
                tcp_user_timeout=int(1000 * (self._connect_s + self._statement_s)),
                application_name="duckkb",
                client_encoding="UTF8",
            )
            self._connection.read_only = True
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return self._connection

    def _problem(self, error: "Error") -> DuckkbError:
        state = error.sqlstate or ""
        if state == _TOO_LATE:
            message = f"[database] no answer within {self._statement_s:g} s"
            return Unavailable(message, "E_TIMEOUT", "ask for less, or with a larger --timeout")
        kind = type(error).__name__
        message = f"[database] {self._url.scrub(error.diag.message_primary or str(error), kind) or kind}"
        if state in _VALUES:
            return FilterError(message, suggestion="give a value of the column's type; `duckkb table show` names it")
        if not state or state.startswith(("08", "28", "3D", "53", "57")):
            return Unavailable(message, "E_DATABASE", f"check that the server runs and accepts your login: {EXAMPLE}")
        return StateError(message, "E_DATABASE", "`duckkb table show --url URL TABLE` shows what may be read")


def _is_alive(connection: "Connection[Any]") -> bool:
    """Return whether a connection is still open; servers and poolers close idle ones."""
    from psycopg import OperationalError

    try:
        connection.execute("SELECT 1")
    except OperationalError:
        return False
    return True
