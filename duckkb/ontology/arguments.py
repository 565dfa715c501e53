"""Checks the arguments of a call against the JSON Schema of its parameters.

Findings never repeat a value: it may be a secret, or megabytes. They repeat names, as only these tell what was meant.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from duckkb.errors import Finding
from duckkb.ontology.kinds import kind_of
from duckkb.ontology.names import did_you_mean
from duckkb.ontology.reasons import MOST, compile_rule
from duckkb.ontology.rules import show_value
from duckkb.ontology.source import pointer
from duckkb.ontology.validate import foreign

_LONGEST = 200
"""Characters up to which a name is repeated in a message: it may be anything."""
_AT_ONCE = 200
"""Items of a list that are validated together: all their problems are computed, needed or not."""


class Parameters:
    """The parameters of one call, as an object schema that takes no other names."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema, self._known = schema, schema["properties"]

    def findings(self, given: object) -> list[Finding]:
        """Return everything that is wrong (`E_ARGUMENT`), at most 100 findings, in the order of the parameters.

        `field` is a JSON pointer.
        """
        if not isinstance(given, Mapping):
            return [Finding("E_ARGUMENT", f"must be one object, not {kind_of(given)}")]
        try:
            strange = list(islice(foreign(given, ""), MOST))
        except RecursionError:
            strange = [("", "is nested too deeply")]
        if strange:
            return [
                Finding("E_ARGUMENT", message.partition(" (rule:")[0][:_LONGEST], field=at[:_LONGEST])
                for at, message in strange
            ]
        return [*dict.fromkeys(islice(self._find_problems(given), MOST))]

    def whole_numbers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return valid arguments with 3.0 as 3 where an integer is asked for: in JSON both are the same number."""
        return {
            name: int(value) if isinstance(value, float) and self._known[name].get("type") == "integer" else value
            for name, value in given.items()
        }

    def _find_problems(self, arguments: Mapping[str, Any]) -> Iterator[Finding]:
        for name in arguments:
            if name not in self._known:
                near = did_you_mean(name, self._known) or f"parameters: {', '.join(self._known) or 'none'}"
                yield Finding(
                    "E_ARGUMENT",
                    f"unknown parameter {show_value(name)}",
                    field=pointer(name)[:_LONGEST],
                    remedy=near,
                )
        for name in self._schema["required"]:
            if name not in arguments:
                yield Finding("E_ARGUMENT", "is required", field=pointer(name))
        known_arguments = {name: arguments[name] for name in self._known if name in arguments}
        if self._validator.is_valid(dict.fromkeys(self._schema["required"]) | known_arguments):
            return
        has_findings = False
        for name, value, first in _split_lists(known_arguments):
            for finding in self._check_rules({name: value}, first):
                has_findings = True
                yield finding
        if not has_findings:  # the list as a whole: it has too many items
            yield from self._check_rules(known_arguments)

    def _check_rules(self, arguments: Mapping[str, Any], first: int = 0) -> Iterator[Finding]:
        """Yield what the rules find in the arguments; for a piece of a list, `first` is the index of its first
        item.
        """
        for error in self._validator.iter_errors(arguments):
            keyword, (*path, _) = error.schema_path[-1], error.schema_path
            if keyword not in ("required", "additionalProperties"):
                at = error.instance_path
                message = _describe_problem(keyword, self._find_rule(path), error, _follow_path(arguments, at))
                if first and len(at) > 1:
                    at = [at[0], at[1] + first, *at[2:]]
                yield Finding("E_ARGUMENT", message, field=pointer(*at)[:_LONGEST])

    def _find_rule(self, path: list[str | int]) -> Any:
        """Return the part of the schema at a path."""
        return _follow_path(self._schema, path)

    @cached_property
    def _validator(self) -> Any:
        return compile_rule(self._schema)


def _split_lists(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any, int]]:
    """Yield each argument, a list in pieces with the index of their first items."""
    for name, value in arguments.items():
        if isinstance(value, list) and len(value) > _AT_ONCE:
            yield from ((name, value[at : at + _AT_ONCE], at) for at in range(0, len(value), _AT_ONCE))
        else:
            yield name, value, 0


def _follow_path(value: Any, path: list[str | int]) -> Any:
    for key in path:
        value = value[key]
    return value


def _describe_problem(keyword: str, rule: Any, error: Any, value: Any) -> str:
    """Describe what a rule asks for, with the JSON type of the given value where that tells more."""
    if keyword == "type":
        return f"must be of type {rule['type']}, not {kind_of(value)}"
    if keyword == "enum":
        return f"must be one of {', '.join(map(show_value, rule['enum']))}"
    if keyword == "anyOf":
        kinds = dict.fromkeys(option.get("type", "another form") for option in rule["anyOf"])
        return f"must be of type {' or '.join(kinds)}, not {kind_of(value)}"
    message: str = error.message.partition("\n")[0]  # with a mask in the place of the value
    return message
