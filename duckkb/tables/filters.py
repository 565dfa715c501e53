"""Filters of rows as plain values, parsed and checked against columns.

An example is `{"price": {"$lt": 100}, "kind": ["a", "b"], "gone": null}`.

A plain value means equal, null `IS NULL`, a list any of its values (empty: no row), an object of $gt, $gte,
$lt, $lte all of them. Columns are joined by AND. Everything else is refused rather than guessed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from duckkb.errors import Finding
from duckkb.ontology.names import suggest_known_names
from duckkb.tables.catalogue import TableColumn
from duckkb.tables.names import column_name, invalid

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
