"""A record as a form by its JSON Schema, and the submitted form as values again.

The form also returns each field's initial value: a field that differs from it was edited, whatever has become
of the record meanwhile.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from msgspec import Struct

from duckkb.rules.invisible import invisible_in
from duckkb.truth.files.line import Limits, LineError, parse_json

TYPED, BEGAN = "f.", "w."
"""Prefixes of a field's name in the form: for the typed value, and for the initial one."""
LONGEST = 200_000
"""Characters of a value that a form holds; longer values are not edited here."""
_LIMITS = Limits(4 * LONGEST)
_LINE = 120
_MOST_CHOICES = 60


class Input(Struct, frozen=True):
    """A field of a form.

    It is "text" of one line or ("area") of several, "number", "choice", "flag", "date", "lines" (a list of
    texts, one a line), or "json". `began` is the initial value as the form writes it, `typed` what the form
    shows. `now` is another user's value since then, None where there is none; `problems` are its faults.
    """

    name: str
    form: str
    typed: str
    began: str
    choices: tuple[str, ...] = ()
    said: str = ""
    is_required: bool = False
    is_fixed: bool = False
    now: str | None = None
    problems: tuple[str, ...] = ()


class Mistyped(ValueError):
    """A typed text that is no value of its field."""


def inputs(
    schema: Mapping[str, Any], record: Mapping[str, Any], form: Mapping[str, str], fixed: tuple[str, ...]
) -> list[Input]:
    """Return the fields of the present record, with the values of `form`; `fixed` fields cannot be changed.

    Edited fields keep what was typed, even where the record has lost them or they have grown meanwhile; the
    others follow the record.
    """
    required_names, rules = schema.get("required", ()), dict(schema.get("properties", {}))
    sent_names = (key.removeprefix(TYPED) for key in form if key.startswith(TYPED))
    rules |= {name: {} for name in (*record, *sent_names) if name not in rules and not name.startswith("_")}
    fields = []
    for name, rule in rules.items():
        value = record.get(name)
        kind = _choose_form(rule if isinstance(rule, Mapping) else {}, value)
        now = format_value(kind, value)
        began, typed_text = _read_field(form, BEGAN, name, now), _read_field(form, TYPED, name, now)
        has_edit = typed_text != began
        kind = "json" if has_edit and kind == "long" else kind
        fields.append(
            Input(
                name,
                kind,
                typed_text if has_edit else now,
                now,
                tuple(_iter_choices(rule)),
                str(rule.get("description", "")) if isinstance(rule, Mapping) else "",
                name in required_names,
                name in fixed or kind == "long",
                now if has_edit and now != began else None,
            )
        )
    return fields


def values(fields: list[Input]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the edited values by field (None: emptied), and the faults of invalid ones."""
    changes: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in fields:
        if field.is_fixed or field.typed == field.began:
            continue
        try:
            changes[field.name] = read(field.form, field.typed)
        except Mistyped as problem:
            wrong[field.name] = str(problem)
    return changes, wrong


def format_value(form: str, value: Any) -> str:
    """Return a value as a form shows it."""
    match form:
        case "json" | "long":
            return "" if value is None else json.dumps(value, ensure_ascii=False, indent=1)
        case "lines":
            return "\n".join(value or ())
        case "flag" | "number":
            return "" if value is None else json.dumps(value)
    return value or ""


def read(form: str, typed: str) -> Any:
    """Return the value of a typed text; None where it is empty. Raises `Mistyped`."""
    if not typed.strip():
        return None
    match form:
        case "json":
            return json_value(typed)
        case "lines":
            return [line for line in typed.split("\n") if line.strip()]
        case "flag":
            return typed == "true"
        case "number":
            value = json_value(typed, "is no number")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Mistyped("is no number")
            return value
    return typed


def json_value(typed: str, said: str = "is no JSON") -> Any:
    """Parse typed JSON as strictly as any caller's: no key twice, no NaN. Raises `Mistyped`."""
    try:
        return parse_json(typed.encode(), _LIMITS)
    except LineError as problem:
        raise Mistyped(f"{said}: {'; '.join(finding.message for finding in problem.findings)}") from problem


def _choose_form(rule: Mapping[str, Any], value: Any) -> str:
    """Return the kind of a field's input: as its schema says, unless its value is of another kind."""
    kinds = rule.get("type")
    type_names = {kinds} if isinstance(kinds, str) else set(kinds or ())
    if len(json.dumps(value)) > LONGEST:
        return "long"
    if isinstance(value, str | None) and _is_intact(value or ""):
        if (choices := list(_iter_choices(rule))) and (value is None or value in choices):
            return "choice"
        if "string" in type_names or (not type_names and value is not None):
            if rule.get("format") == "date" and (not value or _is_date(value)):
                return "date"
            is_long = "\n" in (value or "") or len(value or "") > _LINE or rule.get("contentMediaType")
            return "area" if is_long else "text"
    if type_names == {"boolean"} and isinstance(value, bool | None):
        return "flag"
    if type_names and type_names <= {"integer", "number"} and isinstance(value, int | float | None):
        return "number"
    items = rule.get("items")
    is_list = type_names == {"array"} and isinstance(items, Mapping) and items.get("type") == "string"
    if is_list and all(
        isinstance(item, str) and item.strip() and "\n" not in item and _is_intact(item) for item in value or ()
    ):
        return "lines"
    return "json"


def _iter_choices(rule: Any) -> Iterator[str]:
    options = rule.get("enum", ()) if isinstance(rule, Mapping) else ()
    if len(options) <= _MOST_CHOICES and all(isinstance(option, str) for option in options):
        yield from options


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_intact(text: str) -> bool:
    """Return whether a browser's field keeps a text unchanged, and shows all of it."""
    return "\r" not in text and next(invisible_in(text), None) is None


def _read_field(form: Mapping[str, str], before: str, name: str, otherwise: str) -> str:
    text = form.get(f"{before}{name}")
    return otherwise if text is None else text.replace("\r\n", "\n")
