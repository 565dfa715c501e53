"""The fields of a record as pages show them: by the ontology, and by their values."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from duckkb.serving.web import markdown

LONGEST = 20_000
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
            return Value("json", text[:LONGEST], rest=max(0, len(text) - LONGEST))


def _enumerate_items(items: list[Any], depth: int) -> Iterator[tuple[str, Value]]:
    for number, item in enumerate(items[:_MOST_ITEMS], 1):
        yield str(number), show_json_value(item, "", depth + 1)


def _build_text(text: str, media: str) -> Value:
    hidden_count = max(0, len(text) - LONGEST)
    excerpt = text[:LONGEST]
    if "\n" not in text and len(text) <= _LONG:
        is_address = text.startswith(("https://", "http://")) and markdown.is_safe(text)
        return Value("address" if is_address else "text", excerpt)
    if media not in ("", "text/markdown"):
        return Value("plain", excerpt, rest=hidden_count)
    return Value("markdown", excerpt, markdown.html(excerpt), rest=hidden_count)
