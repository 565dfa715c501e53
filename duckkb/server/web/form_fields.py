"""A record as a form by its JSON Schema, and the submitted form as values again.

The form also returns each field's initial value: a field that differs from it was edited, whatever has become
of the record meanwhile.

The filter form of a search: one control for each field of the ontology whose values can be compared.

The types that a caller sees, as pages need them: the answer of `types`, by name.

The fields of a record as pages show them: by the ontology, and by their values."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from msgspec import Struct

from duckkb.server.web import templates
from duckkb.server.web.page_request import Visit
from duckkb.storage.line import Limits, LineError, parse_json
from duckkb.types.errors import UsageError
from duckkb.types.invisible_characters import invisible_in

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


_MOST_FIELDS, _MOST_FILTER_CHOICES = 40, 60
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
        if choices and len(choices) <= _MOST_FILTER_CHOICES:
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


class Kind(Struct, frozen=True):
    """A type as pages need it.

    It has its name, "node" or "edge", the fields of its identity, those that represent a record (`display`),
    those that are searched, and the number of its records; for an edge type the node types of its `sources` and
    `targets`. `has_vectors`: its records can be compared by meaning.
    """

    name: str
    kind: str
    identity: Sequence[str]
    display: Sequence[str]
    texts: Sequence[str]
    records: int
    has_vectors: bool
    sources: Sequence[str] = ()
    targets: Sequence[str] = ()


async def kinds(visit: Visit) -> Mapping[str, Kind]:
    """Return the types by name, in the order of the ontology. Raises as `Visit.ask`."""
    lines = (await visit.ask("types"))["types"]
    return {line["name"]: _build_kind(line) for line in lines}


def _build_kind(line: Mapping[str, Any]) -> Kind:
    texts = [*dict.fromkeys([*line["full_text"], *line["vectors"]])]
    ends = line.get("from", ()), line.get("to", ())
    head = line["name"], line["kind"], line["identity"], line["display"]
    return Kind(*head, texts, line["records"], bool(line["vectors"]), *ends)


LONGEST_VALUE = 20_000
"""Characters of a field that a page shows; the rest has a page of its own."""
_LONG = 160
_MOST_ITEMS, _DEEPEST = 50, 6


class Value(Struct, frozen=True):
    """A value as a page shows it.

    It is "text" (one line), "markdown", "plain" (a text of several lines, unchanged), "address", "number",
    "flag", "list" of short values, "values" (a list of others), "map", or "json". `rest` counts what is not
    shown: characters or items. `parts` are named in a map, and numbered in a list.
    """

    form: str
    text: str = ""
    markup: Any = None
    parts: tuple[tuple[str, "Value"], ...] = ()
    rest: int = 0


class Field(Struct, frozen=True):
    """A field with its value; `said` is its description in the ontology, `is_identity` whether it names the
    record.
    """

    name: str
    value: Value
    said: str = ""
    is_identity: bool = False
    is_long: bool = False


def fields_of(record: Mapping[str, Any], schema: Mapping[str, Any], identity: tuple[str, ...] = ()) -> list[Field]:
    """Return the fields of a record in the order of its schema; fields that the schema does not know follow."""
    rules = schema.get("properties", {})
    names = [name for name in (*rules, *record) if name in record and not name.startswith("_")]
    return [_build_field(name, record[name], rules.get(name), identity) for name in dict.fromkeys(names)]


def _build_field(name: str, value: Any, rule: Any, identity: tuple[str, ...]) -> Field:
    rule = rule if isinstance(rule, Mapping) else {}
    display = show_json_value(value, str(rule.get("contentMediaType", "")))
    is_long = display.form in ("markdown", "plain", "values", "map", "json")
    return Field(name, display, str(rule.get("description", "")), name in identity, is_long)


def show_json_value(value: Any, media: str = "", depth: int = 0) -> Value:
    """Return a value of JSON as a page shows it; `media` is the media type that a schema gives a text."""
    match value:
        case bool() | None:
            return Value("flag", json.dumps(value))
        case int() | float():
            return Value("number", json.dumps(value))
        case str():
            return _build_text(value, media)
        case list() if all(isinstance(item, str | int | float) and len(str(item)) <= _LONG for item in value):
            return Value("list", parts=tuple(_enumerate_items(value, depth)), rest=max(0, len(value) - _MOST_ITEMS))
        case list() if depth < _DEEPEST:
            return Value("values", parts=tuple(_enumerate_items(value, depth)), rest=max(0, len(value) - _MOST_ITEMS))
        case dict() if depth < _DEEPEST:
            some = [*value.items()][:_MOST_ITEMS]
            parts = tuple((name, show_json_value(item, "", depth + 1)) for name, item in some)
            return Value("map", parts=parts, rest=len(value) - len(some))
        case _:
            text = json.dumps(value, ensure_ascii=False)
            return Value("json", text[:LONGEST_VALUE], rest=max(0, len(text) - LONGEST_VALUE))


def _enumerate_items(items: list[Any], depth: int) -> Iterator[tuple[str, Value]]:
    for number, item in enumerate(items[:_MOST_ITEMS], 1):
        yield str(number), show_json_value(item, "", depth + 1)


def _build_text(text: str, media: str) -> Value:
    hidden_count = max(0, len(text) - LONGEST_VALUE)
    excerpt = text[:LONGEST_VALUE]
    if "\n" not in text and len(text) <= _LONG:
        is_address = text.startswith(("https://", "http://")) and templates.is_safe(text)
        return Value("address" if is_address else "text", excerpt)
    if media not in ("", "text/markdown"):
        return Value("plain", excerpt, rest=hidden_count)
    return Value("markdown", excerpt, templates.html(excerpt), rest=hidden_count)
