"""The filter of a search, from a form that the ontology gives: a control for each field whose values can be compared."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from duckkb.errors import UsageError

_MOST_FIELDS, _MOST_CHOICES = 40, 60
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_MOMENT = re.compile(r"\d{4}(-\d{2}(-\d{2}([T ].*)?)?)?")


class Control(Struct, frozen=True):
    """A field that may be filtered by: "choice" among its values, "flag", "number" and "date" between two, "text" that contains
    something, "member" of a list. `name` is that of the field, `said` what the ontology says of it."""

    name: str
    form: str
    choices: tuple[str, ...] = ()
    said: str = ""


def controls(schema: Mapping[str, Any]) -> tuple[Control, ...]:
    """Those of a JSON Schema, in its order."""
    return tuple(_controls(schema))[:_MOST_FIELDS]


def condition(fields: tuple[Control, ...], given: Mapping[str, str], free: str) -> str:
    """The filter as the command line takes it: what the controls say (`f.NAME`, and `f.NAME.to` for the end of a range), and what was
    written besides, all of which have to hold. Empty where nothing is said. Raises `errors.UsageError` for what its field cannot be
    compared with."""
    parts = [part for one in fields for part in _conditions(one, given)]
    if free:
        parts.append(f"({free})" if parts else free)
    return " AND ".join(parts)


def _controls(schema: Mapping[str, Any]) -> Iterator[Control]:
    for name, rule in schema.get("properties", {}).items():
        if not isinstance(rule, Mapping):
            continue
        said = str(rule.get("description", ""))
        kinds = rule.get("type")
        own = {kinds} if isinstance(kinds, str) else set(kinds or ())
        choices = [one for one in rule.get("enum", ()) if isinstance(one, str)]
        if choices and len(choices) <= _MOST_CHOICES:
            yield Control(name, "choice", tuple(choices), said)
        elif "boolean" in own:
            yield Control(name, "flag", (), said)
        elif own & {"integer", "number"}:
            yield Control(name, "number", (), said)
        elif "string" in own:
            yield Control(name, "date" if rule.get("format") in ("date", "date-time") else "text", (), said)
        elif "array" in own and isinstance(rule.get("items"), Mapping) and rule["items"].get("type") == "string":
            yield Control(name, "member", (), said)


def _conditions(one: Control, given: Mapping[str, str]) -> Iterator[str]:
    value, end = (given.get(f"f.{one.name}{side}", "").strip() for side in ("", ".to"))
    field, ends = _quoted_name(one.name), [pair for pair in ((">=", value), ("<=", end)) if pair[1]]
    match one.form:
        case "choice" if value:
            _refuse(one, value, value in one.choices, "a value of this field")
            yield f"{field} = {_quoted(value)}"
        case "flag" if value:
            _refuse(one, value, value in ("true", "false"), "true or false")
            yield f"{field} = {value}"
        case "number":
            for sign, text in ends:
                _refuse(one, text, bool(_NUMBER.fullmatch(text)), "a number")
                yield f"{field} {sign} {text}"
        case "date":
            for sign, text in ends:
                _refuse(one, text, bool(_MOMENT.fullmatch(text)), "a date like 2026-01-31")
                yield f"{field} {sign} {_quoted(text)}"
        case "text" if value:
            yield f"contains(lower({field}), {_quoted(value.lower())})"
        case "member" if value:
            yield f"list_contains({field}, {_quoted(value)})"


def _refuse(one: Control, typed: str, is_fit: bool, wanted: str) -> None:
    if not is_fit:
        raise UsageError(
            f"the filter {one.name}: {typed[:200]!r} is not {wanted}", "E_ARGUMENT", "type another value, or none"
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted_name(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name, ensure_ascii=False)
