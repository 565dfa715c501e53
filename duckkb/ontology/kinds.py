"""What JSON types a schema lets a value have, as far as the schema alone tells."""

from collections.abc import Mapping
from typing import Any, Literal

ANY = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
ScalarKind = Literal["string", "integer"]

_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_DEPTH = 32


def kind_of(value: Any) -> str:
    """The JSON type of a plain value; the name of the Python type where JSON has none."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def kinds(root: Mapping[str, Any], rule: Any, depth: int = 0) -> frozenset[str]:
    """The JSON types that `rule`, a part of the schema `root`, allows.

    >>> sorted(kinds({}, {"anyOf": [{"type": "string"}, {"type": "null"}]}))
    ['null', 'string']
    """
    if not isinstance(rule, dict) or depth > _DEPTH:
        return frozenset() if rule is False else ANY
    found = ANY
    if "$ref" in rule:
        found &= kinds(root, target(root, rule["$ref"]), depth + 1)
    if "type" in rule:
        named = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
        found &= {name for name in named if isinstance(name, str)} | ({"integer"} if "number" in named else set())
    if "const" in rule:
        found &= {kind_of(rule["const"])}
    if isinstance(rule.get("enum"), list):
        found &= {kind_of(value) for value in rule["enum"]}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(rule.get(keyword), list):
            found &= frozenset().union(*(kinds(root, part, depth + 1) for part in rule[keyword]))
    if isinstance(rule.get("allOf"), list):
        for part in rule["allOf"]:
            found &= kinds(root, part, depth + 1)
    return found


def target(root: Mapping[str, Any], reference: Any) -> Any:
    """The schema that `#/$defs/NAME` names; True, which allows everything, where there is none."""
    prefix = "#/$defs/"
    if not isinstance(reference, str) or not reference.startswith(prefix):
        return True
    definitions = root.get("$defs")
    name = reference.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    return definitions.get(name, True) if isinstance(definitions, dict) else True


def is_searchable(root: Mapping[str, Any], rule: Any) -> bool:
    """Whether a field is text: a string, an array of strings, or either with null."""
    found = kinds(root, rule) - {"null"}
    if not found or not found <= {"string", "array"}:
        return False
    return "array" not in found or kinds(root, _items(root, rule)) - {"null"} == {"string"}


def _items(root: Mapping[str, Any], rule: Any, depth: int = 0) -> Any:
    """The schema of an array's items, looked for through references and alternatives; True where nothing says."""
    if not isinstance(rule, dict) or depth > _DEPTH:
        return True
    if "items" in rule:
        return rule["items"]
    parts = [target(root, rule["$ref"])] if "$ref" in rule else []
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts += rule[keyword] if isinstance(rule.get(keyword), list) else []
    found = (_items(root, part, depth + 1) for part in parts)
    return next((items for items in found if items is not True), True)


def identity_kind(root: Mapping[str, Any], rule: Any) -> ScalarKind | None:
    """Whether an identity field holds strings or integers; None where it may hold anything else, or both."""
    match sorted(kinds(root, rule)):
        case ["string"]:
            return "string"
        case ["integer"]:
            return "integer"
        case _:
            return None
