"""The types of a text table's columns: inferred from all cells, declared by a schema, or named by the caller."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any

from duckkb.truth.files.ids import INT64_MAX, INT64_MIN

TYPES = ("text", "integer", "number", "boolean", "date", "timestamp", "json")
_SPELLINGS = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "str": "text",
    "string": "text",
    "bool": "boolean",
}
_SPELLINGS |= {"datetime": "timestamp"}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][+-]?[0-9]+)?|-?(?:0|[1-9][0-9]*)[eE][+-][0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_EXACT_DIGITS = 15  # digits that every double keeps
_DECLARED = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "array": "json",
    "object": "json",
}
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def parse_type_name(word: str) -> str:
    """Return a type by its name here or in a programming language; other words stay.

    >>> parse_type_name("int"), parse_type_name("Text"), parse_type_name("money")
    ('integer', 'text', 'money')
    """
    return _SPELLINGS.get(word.lower(), word.lower() if word.lower() in TYPES else word)


def type_of_cell(cell: str) -> str:
    """Return the narrowest type that keeps all of a cell's text: `007`, `+5` and `1e5` are text.

    >>> [type_of_cell(cell) for cell in ("12", "1.50", "True", "2026-01-31", "007", "12E4")]
    ['integer', 'number', 'boolean', 'date', 'text', 'text']
    """
    cell = cell.strip()
    if cell.casefold() in ("true", "false"):
        return "boolean"
    if _INTEGER.fullmatch(cell):
        return "integer" if INT64_MIN <= int(cell) <= INT64_MAX else "text"
    if _NUMBER.fullmatch(cell):
        return "number" if _is_exact(cell) else "text"
    with suppress(ValueError):
        if _DATE.fullmatch(cell):
            date.fromisoformat(cell)
            return "date"
        if _TIMESTAMP.fullmatch(cell):
            datetime.fromisoformat(cell)
            return "timestamp"
    return "text"


def _is_exact(cell: str) -> bool:
    value = float(cell)
    digits = re.sub(r"[eE].*|[-.]", "", cell).lstrip("0")
    return math.isfinite(value) and (len(digits) <= _EXACT_DIGITS or repr(value) == cell)


def read_declared_types(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of the fields for which a schema allows a single type."""
    types = {name: rule.get("type") for name, rule in properties.items() if isinstance(rule, Mapping)}
    return {name: _DECLARED[type] for name, type in types.items() if isinstance(type, str) and type in _DECLARED}


class ColumnTypes:
    """The type of each column over all noted rows; a column without values has none."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        self._fixed = dict(fixed)
        self._inferred: dict[str, str] = {}

    def note(self, names: Sequence[str], cells: Sequence[str]) -> None:
        """Note the cells of a row."""
        for name, cell in zip(names, cells, strict=False):
            current_type = self._inferred.get(name)
            if current_type == "text" or not cell or cell.isspace():
                continue
            type = "text" if name in self._fixed else type_of_cell(cell)
            if current_type is None or current_type == type:
                self._inferred[name] = type
            else:
                self._inferred[name] = "number" if {current_type, type} == {"integer", "number"} else "text"

    def map_types_by_column(self) -> dict[str, str]:
        """Return the type by column, in the order in which columns had their first values."""
        return self._inferred | {name: self._fixed[name] for name in self._inferred if name in self._fixed}

    def record(self, names: Sequence[str], cells: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Convert a row: return its values without empty cells, and by column what is wrong with a cell."""
        values: dict[str, Any] = {}
        wrong: dict[str, str] = {}
        for name, cell in zip(names, cells, strict=True):
            if not cell or cell.isspace():
                continue
            type = self._fixed.get(name) or self._inferred.get(name, "text")
            try:
                values[name] = cell if type == "text" else _CONVERSIONS[type](cell.strip())
            except (ValueError, RecursionError):
                wrong[name] = f"{cell[:40]!r} is not {'an' if type == 'integer' else 'a'} {type}"
        return values, wrong


def unknown_columns(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return the names that no column has."""
    column_names = set(columns)
    return [name for name in names if name not in column_names]


def _parse_boolean(cell: str) -> bool:
    value = _BOOLEANS.get(cell.casefold())
    if value is None:
        raise ValueError(cell)
    return value


def _parse_number(cell: str) -> int | float:
    if _INTEGER.fullmatch(cell):
        return int(cell)
    value = float(cell)
    if not math.isfinite(value) or "_" in cell:
        raise ValueError(cell)
    return value


def _parse_integer(cell: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", cell) or not INT64_MIN <= int(cell) <= INT64_MAX:
        raise ValueError(cell)
    return int(cell)


def _parse_date(cell: str) -> str:
    date.fromisoformat(cell)
    return cell


def _parse_timestamp(cell: str) -> str:
    datetime.fromisoformat(cell)
    return cell


_CONVERSIONS: Mapping[str, Callable[[str], Any]] = {
    "boolean": _parse_boolean,
    "integer": _parse_integer,
    "number": _parse_number,
    "date": _parse_date,
    "timestamp": _parse_timestamp,
    "json": json.loads,
}
