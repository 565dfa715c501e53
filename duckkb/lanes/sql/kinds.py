"""The kinds of value a runtime column or an expression has, and which JSON values fit each.

Scalar kinds: `text`, `integer` (int64), `number` (double), `boolean`, `date`, `timestamp` (UTC, without a zone). A scalar
kind followed by `[]` is a list of it. `json` holds what is nested or mixed, `json[]` lists whose members are. `null`,
`interval` and `any` (nobody knows) are kinds of expressions alone.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

SQL_TYPES = {
    "text": "VARCHAR",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "json": "JSON",
}

INT64 = 1 << 63
EXACT = 1 << 53  # every integer up to here has an equal double
PAST_EXACT = "a whole number past 2^53"  # the error text of a calculation that would round a whole number
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(?::(\d\d)(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)


def sql_type(kind: str) -> str:
    """Return the DuckDB type of a kind: `text[]` gives `VARCHAR[]`."""
    return f"{SQL_TYPES[element(kind)]}[]" if is_list(kind) else SQL_TYPES[kind]


def is_list(kind: str) -> bool:
    return kind.endswith("[]")


def element(kind: str) -> str:
    return kind.removesuffix("[]")


def make_fit_test(kind: str) -> Callable[[Any], bool]:
    """Return a test whether a column of this kind can hold a value exactly; None always fits."""
    if is_list(kind):
        inner = make_fit_test(element(kind))
        return lambda value: value is None or (type(value) is list and all(map(inner, value)))
    fits = _FITS[kind]
    return lambda value: value is None or fits(value)


def shape_of(value: Any) -> str:
    """Return the narrowest kind that holds a value, or the reason against a kind: `bigint` is past int64,
    `inexact` an integer without an equal double, `empty[]` an empty list.
    """
    kind = type(value)
    if kind is int:
        if not -INT64 <= value < INT64:
            return "bigint"
        return "integer" if abs(value) <= EXACT or int(float(value)) == value else "inexact"
    if kind is list:
        shapes = {shape_of(member) for member in value}
        inner = kind_of_shapes(shapes) if None not in value else "json"
        return "empty[]" if not shapes else "json[]" if is_list(inner) else f"{inner}[]"
    return SHAPES.get(kind, "json")


def kind_of_shapes(shapes: Iterable[str]) -> str:
    """Return the kind of a column whose values have these shapes; `json` if no narrower kind holds them all.

    >>> kind_of_shapes(["integer", "number"]), kind_of_shapes(["integer", "text"]), kind_of_shapes(["empty[]",
    ... "text[]"])
    ('number', 'json', 'text[]')
    """
    distinct_shapes = set(shapes)
    if any(is_list(shape) for shape in distinct_shapes):
        inner = {element(shape) for shape in distinct_shapes - {"empty[]"}}
        return f"{kind_of_shapes(inner)}[]" if all(is_list(shape) for shape in distinct_shapes) else "json"
    if distinct_shapes <= {"integer", "inexact"}:
        return "integer" if distinct_shapes else "json"
    if distinct_shapes <= {"integer", "number"}:
        return "number"
    return distinct_shapes.pop() if len(distinct_shapes) == 1 and distinct_shapes <= {"text", "boolean"} else "json"


@lru_cache(maxsize=4096)
def parse_date(text: str) -> date | None:
    """Parse an existing calendar day written `YYYY-MM-DD`; return None for anything else."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def parse_timestamp(text: str) -> datetime | None:
    """Parse an RFC 3339 time to UTC without a zone, to the microsecond. A time without an offset counts as UTC,
    and a leap second as the next second. Returns None for anything else.
    """
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        return None
    day, minute, second, fraction, zone = match.groups()
    second, fraction = second or "00", (fraction or ".0")[:7]
    is_leap = second == "60"
    offset = "+00:00" if zone in (None, "Z", "z") else zone
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}:{'59' if is_leap else second}{fraction:0<7}{offset}")
        return (moment + timedelta(seconds=is_leap)).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _is_integer_value(value: Any) -> bool:
    if type(value) is float:
        return value.is_integer() and abs(value) <= EXACT
    return type(value) is int and -INT64 <= value < INT64


def _is_number_value(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < INT64 and int(float(value)) == value)


_FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "integer": _is_integer_value,
    "number": _is_number_value,
    "boolean": lambda value: type(value) is bool,
    "date": lambda value: type(value) is str and parse_date(value) is not None,
    "timestamp": lambda value: type(value) is str and parse_timestamp(value) is not None,
    "json": lambda value: True,
}
SHAPES: dict[type, str] = {str: "text", bool: "boolean", float: "number"}
"""The shapes of values whose type alone decides."""
