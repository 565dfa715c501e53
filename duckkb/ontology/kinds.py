"""The JSON types that a schema lets a value have, as far as the schema alone tells."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

ANY = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
ScalarKind = Literal["string", "integer"]

_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_DEPTH = 32


def kind_of(value: Any) -> str:
    """Return the JSON type of a plain value; the name of the Python type where JSON has none."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def kinds(root: Mapping[str, Any], rule: Any) -> frozenset[str]:
    """Return the JSON types that `rule`, a part of the schema `root`, allows.

    >>> sorted(kinds({}, {"anyOf": [{"type": "string"}, {"type": "null"}]}))
    ['null', 'string']
    """
    return _find_kinds(root, rule, {}, 0)


def _find_kinds(
    root: Mapping[str, Any], rule: Any, known_types: dict[int, frozenset[str]], depth: int
) -> frozenset[str]:
    """Find the allowed JSON types, as `kinds` does.

    Each part is visited once, by its place in memory: references can unfold to billions of parts.
    """
    if not isinstance(rule, dict) or depth > _DEPTH:
        return frozenset() if rule is False else ANY
    if id(rule) in known_types:
        return known_types[id(rule)]
    known_types[id(rule)] = ANY  # the result for a cycle of references
    json_types = _find_local_kinds(rule)
    for keyword, parts in _iter_alternatives(root, rule):
        each = [_find_kinds(root, part, known_types, depth + 1) for part in parts]
        json_types &= frozenset().union(*each) if keyword in ("anyOf", "oneOf") else ANY.intersection(*each)
    known_types[id(rule)] = json_types
    return json_types


def _find_local_kinds(rule: Mapping[str, Any]) -> frozenset[str]:
    json_types = ANY
    if "type" in rule:
        type_names = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
        json_types &= {name for name in type_names if isinstance(name, str)} | (
            {"integer"} if "number" in type_names else set()
        )
    if "const" in rule:
        json_types &= {kind_of(rule["const"])}
    if isinstance(rule.get("enum"), list):
        json_types &= {kind_of(value) for value in rule["enum"]}
    return json_types


def _iter_alternatives(root: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the schemas that a schema refers to or combines, by keyword."""
    if "$ref" in rule:
        yield "$ref", [target(root, rule["$ref"])]
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(rule.get(keyword), list):
            yield keyword, rule[keyword]


def target(root: Mapping[str, Any], reference: Any) -> Any:
    """Return the schema that `#/$defs/NAME` names; True, which allows everything, where there is none."""
    prefix = "#/$defs/"
    if not isinstance(reference, str) or not reference.startswith(prefix):
        return True
    definitions = root.get("$defs")
    name = reference.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    return definitions.get(name, True) if isinstance(definitions, dict) else True


def is_searchable(root: Mapping[str, Any], rule: Any) -> bool:
    """Return whether a field is text: a string, an array of strings, or either with null."""
    json_types = kinds(root, rule) - {"null"}
    if not json_types or not json_types <= {"string", "array"}:
        return False
    return "array" not in json_types or kinds(root, _find_items(root, rule, set(), 0)) - {"null"} == {"string"}


def _find_items(root: Mapping[str, Any], rule: Any, seen_ids: set[int], depth: int) -> Any:
    """Return the schema of an array's items, also through references and alternatives; True where there is none."""
    if not isinstance(rule, dict) or depth > _DEPTH or id(rule) in seen_ids:
        return True
    seen_ids.add(id(rule))
    if "items" in rule:
        return rule["items"]
    item_rules = (
        _find_items(root, part, seen_ids, depth + 1) for _, parts in _iter_alternatives(root, rule) for part in parts
    )
    return next((items for items in item_rules if items is not True), True)


def identity_kind(root: Mapping[str, Any], rule: Any) -> ScalarKind | None:
    """Return whether an identity field holds strings or integers; None where it may hold anything else, or both."""
    match sorted(kinds(root, rule)):
        case ["string"]:
            return "string"
        case ["integer"]:
            return "integer"
        case _:
            return None
