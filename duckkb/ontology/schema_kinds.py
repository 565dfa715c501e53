"""The JSON types that a schema lets a value have, as far as the schema alone tells.

Explains in words what a JSON Schema validator found: where (a JSON pointer), what, and the broken rule."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from duckkb.ontology.names import did_you_mean, nearest, show_value
from duckkb.ontology.yaml_source import pointer

if TYPE_CHECKING:
    from jsonschema import ValidationError

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


_LONGEST_LIST = 12


def word_errors(errors: "Iterable[ValidationError]", most: int = 1_000) -> list[tuple[str, str]]:
    """Return `(pointer, message)` of the first errors, every pair once, in the order of the pointers."""
    pairs = dict.fromkeys(islice((pair for error in errors for pair in _describe_error(error)), most))
    return sorted(pairs, key=lambda pair: pair[0])


def _describe_error(error: "ValidationError") -> Iterator[tuple[str, str]]:
    at, keyword = pointer(*error.absolute_path), _find_keyword(error)
    if keyword == "required":
        for name in error.validator_value:
            if name not in error.instance:
                yield at + pointer(name), "is required (rule: required)"
    elif keyword == "additionalProperties" and error.validator_value is False:
        known_names = error.schema.get("properties", {})
        for name in error.instance:
            if name not in known_names:
                hint = did_you_mean(name, known_names)
                yield at + pointer(name), f"is no field of this schema{'; ' + hint if hint else ''} (rule: {keyword})"
    else:
        yield at, f"{_describe_rule(keyword, error)} (rule: {keyword})"


def _find_keyword(error: "ValidationError") -> str:
    """Return the broken keyword; `false` where the schema is just that, and takes no value."""
    return str(error.validator or "false")


def _describe_rule(keyword: str, error: "ValidationError") -> str:
    if keyword in ("anyOf", "oneOf"):
        return _describe_alternatives(keyword, error)
    if keyword in _SENTENCES:
        return _SENTENCES[keyword](error.validator_value, error.instance)
    return f"does not satisfy {keyword}, is {show_value(error.instance)}"


def _describe_alternatives(keyword: str, error: "ValidationError") -> str:
    if not error.context:
        return "fits more than one of the alternatives"
    from jsonschema.exceptions import relevance

    closest = max(error.context, key=relevance)
    where = pointer(*closest.absolute_path)[len(pointer(*error.absolute_path)) :]
    reason = _describe_rule(_find_keyword(closest), closest) if keyword != _find_keyword(closest) else "see the schema"
    return f"matches none of the {len(error.validator_value)} alternatives, {where + ' ' if where else ''}{reason}"


def _list_values(values: Iterable[Any]) -> str:
    texts = [show_value(value) for value in values]
    return ", ".join(texts[:_LONGEST_LIST]) + (", …" if len(texts) > _LONGEST_LIST else "")


def _describe_choice(choices: Any, value: Any) -> str:
    words = [word for word in choices if isinstance(word, str)]
    close = nearest(value, words) if isinstance(value, str) else None
    return f"must be one of {_list_values(choices)}, is {show_value(value)}" + (
        f"; did you mean {show_value(close)}?" if close else ""
    )


def _describe_type(type_rule: Any, value: Any) -> str:
    names = " or ".join(type_rule) if isinstance(type_rule, list) else type_rule
    return f"must be of type {names}, is of type {kind_of(value)}"


_SENTENCES: dict[str, Callable[[Any, Any], str]] = {
    "false": lambda wanted, value: f"must not be there, is {show_value(value)}",
    "items": lambda wanted, value: "must have no items beyond those that the schema names",
    "type": _describe_type,
    "enum": _describe_choice,
    "const": lambda wanted, value: f"must be {show_value(wanted)}, is {show_value(value)}",
    "format": lambda wanted, value: f"is no valid {wanted}: {show_value(value)}",
    "pattern": lambda wanted, value: f"must match {show_value(wanted)}, is {show_value(value)}",
    "minimum": lambda wanted, value: f"must be at least {show_value(wanted)}, is {show_value(value)}",
    "maximum": lambda wanted, value: f"must be at most {show_value(wanted)}, is {show_value(value)}",
    "exclusiveMinimum": lambda wanted, value: f"must be more than {show_value(wanted)}, is {show_value(value)}",
    "exclusiveMaximum": lambda wanted, value: f"must be less than {show_value(wanted)}, is {show_value(value)}",
    "multipleOf": lambda wanted, value: f"must be a multiple of {show_value(wanted)}, is {show_value(value)}",
    "minLength": lambda wanted, value: f"must have at least {wanted} characters, has {len(value)}",
    "maxLength": lambda wanted, value: f"must have at most {wanted} characters, has {len(value)}",
    "minItems": lambda wanted, value: f"must have at least {wanted} items, has {len(value)}",
    "maxItems": lambda wanted, value: f"must have at most {wanted} items, has {len(value)}",
    "uniqueItems": lambda wanted, value: "must not hold an item twice",
    "minProperties": lambda wanted, value: f"must have at least {wanted} keys, has {len(value)}",
    "maxProperties": lambda wanted, value: f"must have at most {wanted} keys, has {len(value)}",
    "dependentRequired": lambda wanted, value: (
        f"needs the keys that others depend on: {describe_missing_keys(wanted, value)}"
    ),
    "not": lambda wanted, value: "must not have this form",
}


def describe_missing_keys(wanted: Any, value: Any) -> str:
    """Describe the keys that are missing because of others that are present."""
    missing = {name for key, names in wanted.items() if key in value for name in names if name not in value}
    return _list_values(sorted(missing))
