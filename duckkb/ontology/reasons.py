"""Explains in bounded time why a record does not fit its schema.

A fast validator decides whether it fits. The explanation checks every part against every rule, which could take
hours for a large value, or for a schema that refers to itself and branches: then it names the field alone.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from duckkb.ontology.kinds import target
from duckkb.ontology.rules import show_value
from duckkb.ontology.schema import FORMATS, pattern_options, refuse_remote, subschemas
from duckkb.ontology.source import pointer
from duckkb.ontology.words import word_errors

MOST = 100
"""Problems reported for one record."""

_MOST_VALUES = 500
_LONGEST_MESSAGE = 200
_BRANCHES = ("anyOf", "oneOf", "allOf", "not", "if", "dependentSchemas", "patternProperties", "unevaluatedProperties",
             "unevaluatedItems")  # fmt: skip


class Reasons:
    """The explanations for one schema that has passed `check_schema`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._explodes = _has_cycle(schema) and any(
            keyword in part for _, part in subschemas(schema) for keyword in _BRANCHES
        )

    def list_reasons(self, fields: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return `(pointer, message)` pairs for fields that do not fit; at least one, at most `MOST`."""
        if not self._explodes and _count(fields, _MOST_VALUES) <= _MOST_VALUES:
            return _describe_problems(self._schema, dict(fields)) or [_WHOLE]
        return list(islice(self._check_fields(fields), MOST)) or [_WHOLE]

    def _check_fields(self, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        properties, is_strict = self._schema.get("properties", {}), self._schema.get("additionalProperties") is False
        for name in self._schema.get("required", ()):
            if name not in fields:
                yield pointer(name), "is required (rule: required)"
        for name, value in fields.items():
            if name in properties:
                yield from self._check_field(name, value)
            elif is_strict and "patternProperties" not in self._schema:
                yield pointer(name), "is no field of this schema (rule: additionalProperties)"

    def _check_field(self, name: str, value: Any) -> Iterator[tuple[str, str]]:
        alone = {"$defs": self._schema.get("$defs", {}), "properties": {name: self._schema["properties"][name]}}
        if compile_rule(alone).is_valid({name: value}):
            return
        if self._explodes or _count(value, _MOST_VALUES) > _MOST_VALUES:
            yield pointer(name), f"does not satisfy its schema, is {show_value(value)} (rule: properties)"
        else:
            yield from _describe_problems(alone, {name: value})


_WHOLE = ("", "the record as a whole does not satisfy the schema (rule: schema)")


def compile_rule(rule: Mapping[str, Any]) -> Any:
    """Compile the fast validator of a part of a schema."""
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(
        dict(rule),
        validate_formats=True,
        retriever=refuse_remote,
        pattern_options=pattern_options(),
        mask="the value",
    )


def _describe_problems(schema: Mapping[str, Any], instance: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the slow validator's findings in our words; where it cannot be used, the fast one's own."""
    try:
        problems = (
            word_errors(_build_slow_validator(schema).iter_errors(instance), MOST) if _can_describe(schema) else []
        )
    except RecursionError:
        problems = []
    quick_errors = islice(compile_rule(schema).iter_errors(instance), MOST)
    return problems or [(pointer(*error.instance_path), _truncate_message(error.message)) for error in quick_errors]


def _can_describe(schema: Mapping[str, Any]) -> bool:
    """Return whether the slow validator can be used: not for `patternProperties`.

    Only the fast one reads those by the rules of JSON Schema's expressions, and in bounded time.
    """
    return not any("patternProperties" in part for _, part in subschemas(schema))


def _build_slow_validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend
    from referencing import Registry

    formats = FormatChecker(formats=())
    for name in FORMATS:
        formats.checks(name)(lambda value, name=name: compile_rule({"format": name}).is_valid(value))
    return extend(Draft202012Validator, {"pattern": _check_pattern, "properties": _check_properties})(
        dict(schema), registry=Registry(), format_checker=formats
    )


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not compile_rule({"pattern": pattern}).is_valid(instance):
        yield ValidationError("does not match")


def _check_properties(validator: Any, properties: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    """Check properties as the library does, but report the place of a value that the schema `false` refuses."""
    from jsonschema import ValidationError

    for name, rule in properties.items() if isinstance(instance, dict) else ():
        if name in instance and rule is False:
            yield ValidationError("", None, (name,), validator_value=None, instance=instance[name], schema=False)
        elif name in instance:
            yield from validator.descend(instance[name], rule, path=name, schema_path=name)


def _has_cycle(schema: Mapping[str, Any]) -> bool:
    """Return whether a definition can be reached from itself."""
    definitions = schema.get("$defs", {})
    targets_by_name = {
        name: {id(target(schema, ref)) for ref in _collect_references(part)} for name, part in definitions.items()
    }
    names = {id(part): name for name, part in definitions.items()}
    steps = {name: {names[place] for place in places if place in names} for name, places in targets_by_name.items()}
    return any(name in _find_reachable(name, steps) for name in steps)


def _find_reachable(start: str, steps: Mapping[str, set[str]]) -> set[str]:
    names: set[str] = set()
    pending = [*steps[start]]
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += steps[name]
    return names


def _collect_references(part: Any) -> set[str]:
    return {inside["$ref"] for _, inside in subschemas(part) if isinstance(inside.get("$ref"), str)}


def _count(value: Any, enough: int) -> int:
    """Count the values inside a value, no further than just over `enough`."""
    pending, count = [value], 0
    while pending and count <= enough:
        inside = pending.pop()
        count += 1
        if isinstance(inside, Mapping):
            pending += inside.values()
        elif isinstance(inside, (list, tuple)):
            pending += inside
    return count


def _truncate_message(message: str) -> str:
    line = message.partition("\n")[0]
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 1] + "…"
