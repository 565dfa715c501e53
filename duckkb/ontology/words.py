"""Explains in words what a JSON Schema validator found: where (a JSON pointer), what, and the broken rule."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from duckkb.ontology.kinds import kind_of
from duckkb.ontology.names import did_you_mean, nearest
from duckkb.ontology.rules import show_value
from duckkb.ontology.source import pointer

if TYPE_CHECKING:
    from jsonschema import ValidationError

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
