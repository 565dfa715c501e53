"""Constants of a syntax tree as terms, and CAST."""

import re
from decimal import Decimal
from typing import Any

from duckkb.errors import FilterError
from duckkb.lanes.sql.kinds import is_list
from duckkb.lanes.sql.syntax import Node
from duckkb.lanes.sql.terms import (
    NULL,
    Term,
    as_boolean,
    as_date,
    as_number,
    as_text,
    as_timestamp,
    boolean_constant,
    interval_constant,
    named,
    number_constant,
    text_constant,
)

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UHUGEINT", "UBIGINT", "UINTEGER"}
_INTERVAL = re.compile(r"\s*(-?\d{1,6})\s*(second|minute|hour|day|week|month|year)s?\s*", re.ASCII | re.IGNORECASE)
_INTERVAL_CALLS = {f"to_{unit}s": unit for unit in ("second", "minute", "hour", "day", "week", "month", "year")}

CASTS = {
    **dict.fromkeys(("VARCHAR", "TEXT", "STRING"), "text"),
    **dict.fromkeys(("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "REAL", "DECIMAL"), "number"),
    "BOOLEAN": "boolean",
    "DATE": "date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), "timestamp"),
}


def constant(node: Node) -> Term:
    """A CONSTANT node as a term."""
    value = node["value"]
    name = value["type"]["id"]
    if value.get("is_null") or name == "NULL":
        return NULL
    found = value["value"]
    if name == "VARCHAR":
        return text_constant(_without_nul(found))
    if name == "BOOLEAN":
        return boolean_constant(bool(found))
    if name in _INTEGERS:
        return number_constant(_integer(found))
    if name == "DECIMAL":
        scale = value["type"]["type_info"]["scale"]
        return number_constant(float(Decimal(_integer(found)).scaleb(-scale)))
    if name in ("DOUBLE", "FLOAT"):
        return number_constant(_finite(float(found)))
    raise FilterError(f"A filter cannot have a constant of type {name}.", details={"construct": "constant"})


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise FilterError("A filter cannot have a NUL character.", details={"construct": "NUL"})
    return text


def _integer(value: Any) -> int:
    """Integers past int64 come in two halves of 64 bits."""
    return int(value["upper"]) * (1 << 64) + int(value["lower"]) if isinstance(value, dict) else int(value)


def _finite(number: float) -> float:
    if number - number != 0:
        raise FilterError("A number is too large.", details={"construct": "number"})
    return number


def interval(node: Node) -> Term | None:
    """`INTERVAL '7 days'` or `INTERVAL 7 DAY` as a term; None for any other node."""
    if node["class"] == "CAST" and node["cast_type"]["id"] == "INTERVAL":
        match = _INTERVAL.fullmatch(str(node["child"].get("value", {}).get("value", "")))
        if match is None:
            raise FilterError(
                "An interval does not parse.", suggestion="INTERVAL '7 days'", details={"construct": "INTERVAL"}
            )
        return interval_constant(int(match[1]), match[2].upper())
    unit = _INTERVAL_CALLS.get(node.get("function_name", ""))
    if unit and len(node["children"]) == 1:
        inner = _peeled(node["children"][0])
        if inner["class"] == "CONSTANT" and inner["value"]["type"]["id"] == "INTEGER":
            return interval_constant(max(-999_999, min(999_999, inner["value"]["value"])), unit.upper())
    return None


def _peeled(node: Node) -> Node:
    """The parser wraps the number of `INTERVAL 7 DAY` in casts and a trunc."""
    while node["class"] == "CAST" or (node.get("function_name") == "trunc" and len(node["children"]) == 1):
        node = node["child"] if node["class"] == "CAST" else node["children"][0]
    return node


def cast(term: Term, cast_type: Node) -> Term:
    """CAST and `::`, always as a TRY_CAST: what does not convert is NULL. A constant that does not is an error."""
    name = cast_type["id"]
    kind = CASTS.get(name)
    if kind is None:
        raise FilterError(
            f"A filter cannot CAST to {name if name != 'UNBOUND' else 'this type'}.",
            suggestion="use one of: VARCHAR, BIGINT, INTEGER, DOUBLE, DECIMAL, BOOLEAN, DATE, TIMESTAMP",
            details={"construct": "CAST"},
        )
    converted = _converted(term, kind)
    info = cast_type.get("type_info") or {}
    if name == "DECIMAL" and converted.kind != "null":
        rounded = f"TRY_CAST({converted.sql} AS DECIMAL({int(info['width'])}, {int(info['scale'])}))"
        return Term(f"CAST({rounded} AS DOUBLE)", "number", term.name)
    return converted


def _converted(term: Term, kind: str) -> Term:
    if kind == "text":
        return Term(f"CAST({term.sql} AS VARCHAR)", "text", term.name) if is_list(term.kind) else as_text(term)
    if kind == "boolean" and not term.is_numeric:
        return as_boolean(term)
    if kind in ("date", "timestamp"):
        return as_date(term) if kind == "date" else as_timestamp(term)
    if kind in ("integer", "number") and term.kind != "boolean":
        number = as_number(term)
        if number.kind in (kind, "null"):
            return number
        return Term(f"TRY_CAST({number.sql} AS {'BIGINT' if kind == 'integer' else 'DOUBLE'})", kind, term.name)
    if term.kind in ("boolean", "integer", "number"):
        types = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
        return Term(f"TRY_CAST({term.sql} AS {types[kind]})", kind, term.name)
    raise FilterError(f"{term.name} is {named(term.kind)} and cannot be CAST so.", details={"construct": "CAST"})
