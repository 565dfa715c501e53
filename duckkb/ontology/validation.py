"""Checks whether a record's fields fit its type, and explains why not.

Two validators share the work: a fast one decides, a slow one explains (`reasons`). The slow one uses the fast
one's patterns and formats, so the two agree there. Where they still differ, the decision stands and the fast
one's own words are used.

Explains in bounded time why a record does not fit its schema.

A fast validator decides whether it fits. The explanation checks every part against every rule, which could take
hours for a large value, or for a schema that refers to itself and branches: then it names the field alone.

Checks the arguments of a call against the JSON Schema of its parameters.

Findings never repeat a value: it may be a secret, or megabytes. They repeat names, as only these tell what was meant."""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from duckkb.ontology.identity import coerce, coerce_ends, fits
from duckkb.ontology.json_schema import FORMATS, pattern_options, refuse_remote, subschemas
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.names import did_you_mean, show_value
from duckkb.ontology.schema_kinds import kind_of, target, word_errors
from duckkb.ontology.yaml_source import pointer
from duckkb.types.errors import Finding
from duckkb.types.records import FROM, TO, Identity, TypedEnd, component_of

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


class Validator:
    """A check of records of one type against its schema; compiled at the first use, then kept."""

    def __init__(self, kind: RecordType, ontology: Ontology) -> None:
        self.kind = kind
        self._ontology = ontology

    def is_valid(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the fields fit; an edge's `from` and `to` by their own rule, the rest by the schema."""
        schema_fields = self._select_schema_fields(fields)
        return (
            self._is_schema_valid(schema_fields)
            and not any(self._end_problems(fields))
            and not any(self._iter_vector_problems(schema_fields))
        )

    def findings(self, fields: Mapping[str, Any]) -> list[Finding]:
        """Return what does not fit: `E_SCHEMA` with a JSON pointer each; empty exactly where `is_valid` is true."""
        schema_fields = self._select_schema_fields(fields)
        problems = [] if self._is_schema_valid(schema_fields) else self._list_problems(schema_fields)
        if schema_fields is fields and not problems and not self.kind.given_vectors:
            return []  # the fields of a node, the common case
        problems += self._end_problems(fields)
        problems += self._iter_vector_problems(schema_fields)
        return [Finding("E_SCHEMA", message, field=place, type=self.kind.name) for place, message in problems]

    def coerce_identity(self, values: Any) -> Identity:
        """Return the identity that a caller's value names; raises `errors.UsageError` (`E_INVALID`)."""
        return coerce(self.kind, self._ontology, values)

    def coerce_ends(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with an edge's ends in the form that files have; a node's fields are unchanged."""
        return coerce_ends(self.kind, self._ontology, fields)

    def _select_schema_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the type's schema describes."""
        if isinstance(self.kind, EdgeType):
            return {name: value for name, value in fields.items() if name not in (FROM, TO)}
        return fields if isinstance(fields, dict) else dict(fields)

    def _is_schema_valid(self, schema_fields: dict[str, Any]) -> bool:
        try:
            return bool(self._fast.is_valid(schema_fields))
        except ValueError:
            # A value that JSON does not have, such as a date, or text that is not Unicode.
            return False

    def _list_problems(self, schema_fields: dict[str, Any]) -> list[tuple[str, str]]:
        return list(islice(foreign(schema_fields, ""), MOST)) or self._reasons.list_reasons(schema_fields)

    def _end_problems(self, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if isinstance(self.kind, EdgeType):
            for key, names in ((FROM, self.kind.from_types), (TO, self.kind.to_types)):
                problem = self._end_problem(fields.get(key), names)
                if problem:
                    yield pointer(key), problem

    def _iter_vector_problems(self, schema_fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, field in self.kind.given_vectors.items():
            problem = (
                vector_problem(schema_fields[name], field.dimension) if schema_fields.get(name) is not None else ""
            )
            if problem:
                yield pointer(name), f"{problem} (rule: vector)"

    def _end_problem(self, value: Any, names: tuple[str, ...]) -> str | None:
        if value is None:
            return "is required: the identity of a record (rule: end)"
        try:
            component = component_of(value)
        except ValueError as error:
            return f"{error} (rule: end)"
        type_names = names
        if isinstance(component, TypedEnd):
            if component.type not in names:
                hint = did_you_mean(component.type, names)
                return f"type {show_value(component.type)} is not among {', '.join(names)}; {hint or 'see the ontology'} (rule: end)"
            type_names, component = (component.type,), component.id
            component = component if len(component) > 1 else component[0]
        if any(fits(self._ontology.nodes[name], component) for name in type_names):
            return None
        return f"{show_value(value)} cannot name a {' or '.join(type_names)} (rule: end)"

    @cached_property
    def _fast(self) -> Any:
        import jsonschema_rs

        return jsonschema_rs.Draft202012Validator(
            dict(self.kind.schema),
            validate_formats=True,
            retriever=refuse_remote,
            pattern_options=pattern_options(),
            mask="the value",
        )

    @cached_property
    def _reasons(self) -> Reasons:
        return Reasons(self.kind.schema)


def foreign(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the pointers of values that JSON does not have, with a message each."""
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    yield place, f"the key {key!r} is not text (rule: JSON)"
                elif not _is_unicode(key):
                    yield place, f"the key {key!r} holds a lone surrogate (rule: JSON)"
                else:
                    yield from foreign(item, place + pointer(key))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from foreign(item, place + pointer(index))
        case str():
            if not _is_unicode(value):
                yield place, "holds a lone surrogate (rule: JSON)"
        case float():
            if not math.isfinite(value):
                yield place, "is not a finite number (rule: JSON)"
        case None | bool() | int():
            return
        case _:
            yield place, f"is a {type(value).__name__}, which JSON does not have (rule: JSON)"


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


LONGEST = 16_384
_HEX = re.compile(r"[0-9a-fA-F]{8}")


def vector_problem(value: Any, dimension: int | None) -> str:
    """Return why a value is no vector, as the rest of a sentence; empty where it is one.

    A vector is an array of 1 to 16,384 finite numbers, or of as many texts of 8 hex digits (float32,
    big-endian, as `duckkb embed` prints them). It has the length `dimension` where that is given, and is not
    all zero.
    """
    if not isinstance(value, list) or not value:
        return "is not an array of numbers"
    if len(value) > LONGEST:
        return f"has {len(value):,} numbers, more than {LONGEST:,}"
    if dimension and len(value) != dimension:
        return f"has {len(value)} numbers, not {dimension}"
    is_hex = isinstance(value[0], str)
    for at, item in enumerate(value):
        if problem := _check_hex(item) if is_hex else _check_number(item):
            return f"{problem} at place {at}"
    if all(int(item, 16) & 0x7FFFFFFF == 0 for item in value) if is_hex else not any(value):
        return "is all zeros, which points nowhere"
    return ""


def _check_number(value: Any) -> str:
    if type(value) not in (int, float):
        return "has something other than a number"
    if not math.isfinite(value) or abs(value) > 3.4e38:
        return "has a number that float32 cannot hold"
    return ""


def _check_hex(value: Any) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return "has something other than 8 hex digits"
    (number,) = struct.unpack(">f", bytes.fromhex(value))
    return "" if math.isfinite(number) else "has a number that is not finite"


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
