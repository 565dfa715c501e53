"""Typed pieces of SQL and the ways from one kind of value to another.

Every piece is text that we wrote. Conversions never raise in the engine: a value that does not convert is NULL, so it
does not match. A constant that does not convert is the caller's mistake and raises FilterError naming the field.
"""

import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from duckkb.errors import FilterError
from duckkb.lanes.sql.kinds import element, is_list, parse_date, parse_timestamp, sql_type
from duckkb.values import dataclass, field

_NUMERIC_TEXT = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?\s*$"


@dataclass(frozen=True, slots=True)
class Term:
    """An SQL expression and its kind. A constant keeps its Python `value`; JSON keeps the column and the path into it.

    `name` is the field or the word that messages use.
    """

    sql: str
    kind: str
    name: str = "the expression"
    constant: bool = False
    value: Any = None
    path: tuple[str | int, ...] = field(default=())

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("integer", "number")

    @property
    def is_moment(self) -> bool:
        return self.kind in ("date", "timestamp")


NULL = Term("NULL", "null", "NULL", constant=True)


def text_constant(value: str) -> Term:
    return Term(quoted_text(value), "text", "the constant", constant=True, value=value)


def number_constant(value: int | float) -> Term:
    """An integer stays exact within int64; everything else is a double."""
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return Term(f"CAST('{value}' AS BIGINT)", "integer", "the constant", constant=True, value=value)
    return Term(f"CAST('{float(value)!r}' AS DOUBLE)", "number", "the constant", constant=True, value=float(value))


def boolean_constant(value: bool) -> Term:
    return Term("TRUE" if value else "FALSE", "boolean", "the constant", constant=True, value=value)


def date_constant(value: date) -> Term:
    return Term(f"DATE '{value.isoformat()}'", "date", "the constant", constant=True, value=value)


def timestamp_constant(value: datetime) -> Term:
    text = value.isoformat(sep=" ", timespec="microseconds")
    return Term(f"TIMESTAMP '{text}'", "timestamp", "the constant", constant=True, value=value)


def interval_constant(count: int, unit: str) -> Term:
    return Term(f"INTERVAL '{count}' {unit}", "interval", "the interval", constant=True, value=(count, unit))


def quoted_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def json_pointer(path: tuple[str | int, ...]) -> str:
    """RFC 6901; unlike DuckDB's paths it can name every key."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def plain(term: Term) -> Term:
    """JSON as its text, everything else as it stands."""
    return as_text(term) if term.kind == "json" else term


def as_text(term: Term) -> Term:
    match term.kind:
        case "text" | "null":
            return term
        case "json":
            return _made(f"json_extract_string({term.sql}, {quoted_text(json_pointer(term.path))})", "text", term)
        case "timestamp":
            return _made(f"(strftime({term.sql}, '%Y-%m-%dT%H:%M:%S.%f') || 'Z')", "text", term)
        case "interval":
            raise _impossible(term, "text")
        case kind if is_list(kind):
            raise list_error(term)
        case _:
            return _made(f"CAST({term.sql} AS VARCHAR)", "text", term)


def as_number(term: Term) -> Term:
    """A number; text counts where all of it is one (spaces around allowed), as `5`, `-0.5` or `1e3`."""
    if term.is_numeric or term.kind == "null":
        return term
    if term.constant and term.kind == "text":
        return _number_of(term)
    if term.kind in ("text", "json"):
        digits = f"regexp_extract({as_text(term).sql}, {quoted_text(_NUMERIC_TEXT)})"
        return _made(f"TRY_CAST({digits} AS DOUBLE)", "number", term)
    raise list_error(term) if is_list(term.kind) else _impossible(term, "a number")


def _number_of(term: Term) -> Term:
    if not re.search(_NUMERIC_TEXT, term.value, re.ASCII):
        raise _impossible(term, "a number")
    text = term.value.strip()
    return number_constant(int(text) if re.fullmatch(r"[-+]?\d{1,19}", text) else float(text))


def as_double(term: Term) -> str:
    """The SQL of a number in double precision: arithmetic in it cannot overflow into an error."""
    return f"CAST({as_number(term).sql} AS DOUBLE)"


def as_count(term: Term) -> str:
    """The SQL of an integer small enough for positions and lengths; NULL where a field holds a larger one."""
    number = as_number(term)
    if number.constant and number.value is not None:
        return str(max(-1_000_000_000, min(1_000_000_000, int(number.value))))
    return f"TRY_CAST({number.sql} AS INTEGER)"


def as_boolean(term: Term) -> Term:
    """A truth value; text counts where it is `true` or `false`."""
    if term.kind in ("boolean", "null"):
        return term
    if term.constant and term.kind == "text":
        words = {"true": True, "false": False, "t": True, "f": False}
        if term.value.strip().lower() not in words:
            raise _impossible(term, "true or false")
        return boolean_constant(words[term.value.strip().lower()])
    if term.kind in ("text", "json"):
        return _made(f"(MAP {{'true': TRUE, 'false': FALSE}}[{as_text(term).sql}])", "boolean", term)
    raise list_error(term) if is_list(term.kind) else _impossible(term, "true or false")


def as_date(term: Term) -> Term:
    if term.constant and term.kind == "text":
        day = parse_date(term.value.strip())
        if day is None:
            raise _impossible(term, "a date")
        return date_constant(day)
    return _as_moment(term, "date", "a date")


def as_timestamp(term: Term) -> Term:
    if term.constant and term.kind == "text":
        text = term.value.strip()
        day = parse_date(text)
        moment = datetime(day.year, day.month, day.day) if day else parse_timestamp(text)
        if moment is None:
            raise _impossible(term, "a time")
        return timestamp_constant(moment)
    return _as_moment(term, "timestamp", "a time")


def _as_moment(term: Term, kind: str, wanted: str) -> Term:
    if term.kind in (kind, "null"):
        return term
    if term.kind in ("text", "json", "date", "timestamp"):
        # as it stands and not as text: the text form of a time has its own zone mark
        source = term.sql if term.is_moment else as_text(term).sql
        return _made(f"TRY_CAST({source} AS {sql_type(kind)})", kind, term)
    raise list_error(term) if is_list(term.kind) else _impossible(term, wanted)


def as_list(term: Term, kind: str) -> Term:
    """A list with elements of `kind`; a JSON array gives one where all of its elements convert."""
    if term.kind == "json":
        inner = f"json_extract({term.sql}, {quoted_text(json_pointer(term.path))})"
        return _made(f"TRY_CAST({inner} AS {sql_type(kind)}[])", f"{kind}[]", term)
    if term.kind == f"{kind}[]" or (is_list(term.kind) and {element(term.kind), kind} == {"integer", "number"}):
        return term
    raise _impossible(term, "a list")


CONVERSIONS: dict[str, Callable[[Term], Term]] = {
    "text": as_text,
    "integer": as_number,
    "number": as_number,
    "boolean": as_boolean,
    "date": as_date,
    "timestamp": as_timestamp,
}


def _made(sql: str, kind: str, source: Term) -> Term:
    return Term(sql, kind, source.name)


def list_error(term: Term) -> FilterError:
    """The error for a list where a single value belongs."""
    return FilterError(
        f"{term.name} is a list and cannot stand where one value is needed.",
        suggestion=f"list_contains({term.name}, VALUE), or {term.name}[1] for its first element",
        details={"construct": "list", "field": term.name},
    )


def _impossible(term: Term, wanted: str) -> FilterError:
    return FilterError(
        f"{term.name} is no {wanted.removeprefix('a ')}."
        if term.constant
        else f"{term.name} is {named(term.kind)} and cannot be read as {wanted}.",
        details={"construct": "type", "field": term.name},
    )


def named(kind: str) -> str:
    """A kind in words."""
    words = {"integer": "an integer", "boolean": "true or false", "timestamp": "a time", "interval": "an interval"}
    words |= {"text": "text", "json": "JSON", "null": "NULL"}
    return f"a list of {element(kind)} values" if is_list(kind) else words.get(kind, f"a {kind}")
