"""The filter form of a search: one control for each field of the ontology whose values can be compared."""

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
    """A field to filter by: "choice", "flag", "number", "date", "text" or "member".

    A choice is among its values, numbers and dates are ranges, a text contains something, and a member is of a
    list. `name` is that of the field, `said` its description in the ontology.
    """

    name: str
    form: str
    choices: tuple[str, ...] = ()
    said: str = ""


def controls(schema: Mapping[str, Any]) -> tuple[Control, ...]:
    """Return the controls of a JSON Schema, in its order."""
    return tuple(_iter_controls(schema))[:_MOST_FIELDS]


def condition(fields: tuple[Control, ...], given: Mapping[str, str], free: str) -> str:
    """Return the filter as the command line takes it; empty where the form is empty.

    It joins the controls (`f.NAME`, and `f.NAME.to` for the end of a range) and the free condition with AND.
    Raises `errors.UsageError` for a value that its field cannot be compared with.
    """
    parts = [part for field in fields for part in _build_conditions(field, given)]
    if free:
        parts.append(f"({free})" if parts else free)
    return " AND ".join(parts)


def _iter_controls(schema: Mapping[str, Any]) -> Iterator[Control]:
    for name, rule in schema.get("properties", {}).items():
        if not isinstance(rule, Mapping):
            continue
        description = str(rule.get("description", ""))
        kinds = rule.get("type")
        type_names = {kinds} if isinstance(kinds, str) else set(kinds or ())
        choices = [choice for choice in rule.get("enum", ()) if isinstance(choice, str)]
        if choices and len(choices) <= _MOST_CHOICES:
            yield Control(name, "choice", tuple(choices), description)
        elif "boolean" in type_names:
            yield Control(name, "flag", (), description)
        elif type_names & {"integer", "number"}:
            yield Control(name, "number", (), description)
        elif "string" in type_names:
            yield Control(name, "date" if rule.get("format") in ("date", "date-time") else "text", (), description)
        elif "array" in type_names and isinstance(rule.get("items"), Mapping) and rule["items"].get("type") == "string":
            yield Control(name, "member", (), description)


def _build_conditions(control: Control, form_values: Mapping[str, str]) -> Iterator[str]:
    value, end = (form_values.get(f"f.{control.name}{side}", "").strip() for side in ("", ".to"))
    field, ends = _quote_name(control.name), [pair for pair in ((">=", value), ("<=", end)) if pair[1]]
    match control.form:
        case "choice" if value:
            _refuse(control, value, value in control.choices, "a value of this field")
            yield f"{field} = {_quote_text(value)}"
        case "flag" if value:
            _refuse(control, value, value in ("true", "false"), "true or false")
            yield f"{field} = {value}"
        case "number":
            for sign, text in ends:
                _refuse(control, text, bool(_NUMBER.fullmatch(text)), "a number")
                yield f"{field} {sign} {text}"
        case "date":
            for sign, text in ends:
                _refuse(control, text, bool(_MOMENT.fullmatch(text)), "a date like 2026-01-31")
                yield f"{field} {sign} {_quote_text(text)}"
        case "text" if value:
            yield f"contains(lower({field}), {_quote_text(value.lower())})"
        case "member" if value:
            yield f"list_contains({field}, {_quote_text(value)})"


def _refuse(control: Control, text: str, is_fit: bool, expectation: str) -> None:
    if not is_fit:
        raise UsageError(
            f"the filter {control.name}: {text[:200]!r} is not {expectation}",
            "E_ARGUMENT",
            "type another value, or none",
        )


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quote_name(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name, ensure_ascii=False)
