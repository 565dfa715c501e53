"""Finds where a newer JSON Schema accepts records that the older one refused.
Both are brought into normal form, so that another spelling of the same rule is no loss. Then values at their
borders are checked against both: a record that only the newer one accepts is a loss, wherever it comes from.
Where the forms differ, a weaker part counts unless the newer schema still refuses everything that this part
alone had refused.
A list of values or types that grew is no loss, and neither is a new field of a closed type.
Sample values at the borders of two schemas, which one of them accepts and the other may refuse.
They are drawn from the schemas' own constants, so that equal schemas give equal values. Schemas are in normal
form (`normal_schema`).
The normal form of a JSON Schema, equal for all its spellings: references resolved, `allOf` merged, empty
keywords removed. A recursive reference stays as it is. What cannot be merged stays in `allOf`, in a fixed order."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import islice
from typing import Any

from msgspec import Struct

from duckkb.ontology.schema_kinds import ANY, kind_of, target
from duckkb.ontology.validation import compile_rule
from duckkb.ontology.yaml_source import pointer

Schema = Any
"""A mapping in normal form, or False. `{}` is the schema that accepts everything."""

MOST = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
LEAST = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
OPAQUE = (
    ("pattern",), ("format",), ("multipleOf",), ("not",), ("if", "then", "else"), ("anyOf",), ("oneOf",), ("$ref",),
    ("contains", "minContains", "maxContains"), ("propertyNames",), ("dependentSchemas",), ("patternProperties",),
    ("unevaluatedItems",), ("unevaluatedProperties",),
)  # fmt: skip
"""Keywords that belong together, and of which none shows whether it is stricter than another."""
_SAYS_NOTHING: dict[str, Any] = {
    "minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False, "not": False,
    "required": [], "prefixItems": [], "allOf": [],
    "properties": {}, "patternProperties": {}, "dependentRequired": {}, "dependentSchemas": {},
    "additionalProperties": {}, "items": {}, "unevaluatedItems": {}, "unevaluatedProperties": {}, "propertyNames": {},
}  # fmt: skip
_ONE = ("additionalProperties", "items", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
        "not", "if", "then", "else")  # fmt: skip
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("prefixItems", "anyOf", "oneOf")
_PLAIN = (
    *MOST,
    *LEAST,
    "pattern",
    "format",
    "multipleOf",
    "uniqueItems",
    "minContains",
    "maxContains",
    "dependentRequired",
)
_MOST_PARTS = 5_000


def normal_schema(schema: Any) -> Schema:
    """Return the normal form of a whole schema. A form with references has its own `$defs`."""
    root = schema if isinstance(schema, Mapping) else {}
    normal = _Normal(root)
    resolved_schema = normal.normalize(schema, ())
    if resolved_schema and '"$ref"' in json.dumps(resolved_schema):
        definitions = root.get("$defs", {})
        return {
            **resolved_schema,
            "$defs": {name: normal.normalize(definitions[name], (reference(name),)) for name in definitions},
        }
    return resolved_schema


def reference(name: str) -> str:
    """Return the reference to a definition."""
    return "#/$defs/" + name.replace("~", "~0").replace("/", "~1")


def normalize_value(value: Any) -> str:
    """Return a text that is equal for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


class _Normal:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._parts = root, 0

    def normalize(self, schema: Any, names: tuple[str, ...]) -> Schema:
        """Return the normal form of a part; `names` are the references that led to it."""
        self._parts += 1
        if not isinstance(schema, Mapping):
            return False if schema is False else {}
        parts = [self._normalize_keywords(schema, names)]
        name = schema.get("$ref")
        if name in names or (name is not None and self._parts > _MOST_PARTS):
            parts.append({"$ref": name})
        elif name is not None:
            parts.append(self.normalize(target(self._root, name), (*names, name)))
        parts += [self.normalize(part, names) for part in schema.get("allOf", ())]
        for keyword in ("anyOf", "oneOf"):
            if isinstance(parts[0], Mapping) and len(parts[0].get(keyword, ())) == 1:
                parts.append(parts[0][keyword][0])
                parts[0] = {key: value for key, value in parts[0].items() if key != keyword}
        return _simplify(reduce(_meet, parts))

    def _normalize_keywords(self, schema: Mapping[str, Any], names: tuple[str, ...]) -> Schema:
        keywords = {key: schema[key] for key in _PLAIN if key in schema}
        keywords |= {key: self.normalize(schema[key], names) for key in _ONE if key in schema}
        for key in _NAMED:
            keywords |= (
                {key: {name: self.normalize(part, names) for name, part in schema[key].items()}}
                if key in schema
                else {}
            )
        for key in _LISTS:
            keywords |= {key: [self.normalize(part, names) for part in schema[key]]} if key in schema else {}
        if "required" in schema:
            keywords["required"] = sorted(set(schema["required"]))
        if "type" in schema:
            keywords["type"] = sorted({schema["type"]} if isinstance(schema["type"], str) else set(schema["type"]))
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            keywords["enum"] = sorted(values, key=normalize_value)
        if "anyOf" in keywords:
            keywords["anyOf"] = _dedupe_schemas(part for part in keywords["anyOf"] if part is not False)
            if not keywords["anyOf"]:
                return False
            if {} in keywords["anyOf"]:
                del keywords["anyOf"]
        if "oneOf" in keywords:
            keywords["oneOf"] = sorted(keywords["oneOf"], key=normalize_value)
        return _simplify(keywords)


def _simplify(schema: Schema) -> Schema:
    """Return the schema without keywords that have no effect."""
    if schema is False:
        return False
    keywords = {key: value for key, value in schema.items() if key not in _SAYS_NOTHING or value != _SAYS_NOTHING[key]}
    if "contains" not in keywords or (keywords.get("minContains") == 0 and "maxContains" not in keywords):
        keywords = {key: value for key, value in keywords.items() if key not in OPAQUE[8]}
    if keywords.get("minContains") == 1:
        del keywords["minContains"]
    if "if" not in keywords or not {"then", "else"} & keywords.keys():
        keywords = {key: value for key, value in keywords.items() if key not in OPAQUE[4]}
    if "enum" in keywords and "type" in keywords:
        kinds = keywords.pop("type")
        keywords["enum"] = [value for value in keywords["enum"] if _is_of(value, kinds)]
    return False if keywords.get("enum") == [] or keywords.get("type") == [] else keywords


def _is_of(value: Any, kinds: list[str]) -> bool:
    kind = "integer" if isinstance(value, float) and value.is_integer() else kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _dedupe_schemas(schemas: Iterable[Schema]) -> list[Schema]:
    return [schema for _, schema in sorted({normalize_value(schema): schema for schema in schemas}.items())]


def _meet(first_schema: Schema, second_schema: Schema) -> Schema:
    """Return a schema that accepts what both accept."""
    if first_schema is False or second_schema is False:
        return False
    if not first_schema or not second_schema:
        return first_schema or second_schema
    # These keywords see only their own neighbours.
    if {"unevaluatedItems", "unevaluatedProperties"} & second_schema.keys():
        return {**first_schema, "allOf": _dedupe_schemas([*first_schema.get("allOf", ()), second_schema])}
    keywords = (
        _merge_bounds(first_schema, second_schema)
        | _merge_members(first_schema, second_schema)
        | _merge_elements(first_schema, second_schema)
    )
    conjuncts = [*first_schema.get("allOf", ()), *second_schema.get("allOf", ())]
    for group in OPAQUE:
        mine, theirs = (
            {key: schema[key] for key in group if key in schema} for schema in (first_schema, second_schema)
        )
        if mine and theirs and mine != theirs:
            conjuncts += [mine, theirs]
        else:
            keywords |= mine or theirs
    if (
        "patternProperties" in {**first_schema, **second_schema}
        and {"properties", "additionalProperties"} & first_schema.keys() & second_schema.keys()
    ):
        return {"allOf": _dedupe_schemas([first_schema, second_schema])}
    return {**keywords, "allOf": _dedupe_schemas(conjuncts)}


def _merge_bounds(first_schema: Mapping[str, Any], second_schema: Mapping[str, Any]) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for keys, choose in ((MOST, min), (LEAST, max)):
        for key in keys:
            values = [schema[key] for schema in (first_schema, second_schema) if key in schema]
            bounds |= {key: choose(values)} if values else {}
    bounds["required"] = sorted({*first_schema.get("required", ()), *second_schema.get("required", ())})
    bounds["uniqueItems"] = bool(first_schema.get("uniqueItems") or second_schema.get("uniqueItems"))
    needs = [schema.get("dependentRequired", {}) for schema in (first_schema, second_schema)]
    names = {name for need in needs for name in need}
    bounds["dependentRequired"] = {
        name: sorted({key for need in needs for key in need.get(name, ())}) for name in names
    }
    for key, common in (("type", _intersect_types), ("enum", _intersect_values)):
        values = [schema[key] for schema in (first_schema, second_schema) if key in schema]
        bounds |= {key: reduce(common, values)} if values else {}
    return bounds


def _intersect_types(first_types: list[str], second_types: list[str]) -> list[str]:
    wide = [{*names, "integer"} if "number" in names else {*names} for names in (first_types, second_types)]
    common_types = wide[0] & wide[1]
    return sorted(common_types - {"integer"} if "number" in common_types else common_types)


def _intersect_values(first_values: list[Any], second_values: list[Any]) -> list[Any]:
    known_texts = {normalize_value(value) for value in second_values}
    return [value for value in first_values if normalize_value(value) in known_texts]


def member_rule(schema: Schema, name: str) -> Schema:
    """Return the schema of a member of an object, by a schema without patterns."""
    return schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))


def element_rule(schema: Schema, place: int) -> Schema:
    """Return the schema of an element of an array."""
    first = schema.get("prefixItems", ())
    return first[place] if place < len(first) else schema.get("items", {})


def _merge_members(first_schema: Mapping[str, Any], second_schema: Mapping[str, Any]) -> dict[str, Any]:
    names = {*first_schema.get("properties", {}), *second_schema.get("properties", {})}
    extra_rules = [schema.get("additionalProperties", {}) for schema in (first_schema, second_schema)]
    rules = {
        name: _simplify(_meet(member_rule(first_schema, name), member_rule(second_schema, name)))
        for name in sorted(names)
    }
    return {"properties": rules, "additionalProperties": _simplify(_meet(*extra_rules))}


def _merge_elements(first_schema: Mapping[str, Any], second_schema: Mapping[str, Any]) -> dict[str, Any]:
    most = max(len(schema.get("prefixItems", ())) for schema in (first_schema, second_schema))
    first = [
        _simplify(_meet(element_rule(first_schema, place), element_rule(second_schema, place))) for place in range(most)
    ]
    return {
        "prefixItems": first,
        "items": _simplify(_meet(first_schema.get("items", {}), second_schema.get("items", {}))),
    }


Sides = tuple[Schema, Schema]
"""The same part of the older and of the newer schema."""

_MOST_VALUES, _DEEPEST, _LONGEST = 60, 6, 2_000
_TEXTS = ("a", "", "A", "0", "a1", "ab-1", "é 中", "2026-01-02", "2026-01-02T03:04:05Z", "03:04:05Z", "P1D", "a@b.example",
          "b.example", "192.0.2.1", "2001:db8::1", "https://b.example/a", "/a", "0/a", "a*",
          "123e4567-e89b-12d3-a456-426614174000")  # fmt: skip
_NUMBERS = (0, 1, -1, 0.5, 2, 1_000)
_STRANGER = "another"
_ORDER = ((True, False), (False, True), (True, True), (False, False))
"""The order of values, by whether the newer and the older schema accept them."""


class Samples:
    """A small set of values for a whole record, each of which differs from a typical one at one place."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._sides = old, new
        self._definitions = [side.get("$defs", {}) if isinstance(side, Mapping) else {} for side in self._sides]
        self._known: dict[str, Any] = {}

    @cached_property
    def records(self) -> list[Mapping[str, Any]]:
        return [value for value in self._iter_objects(self._sides, 0) if isinstance(value, Mapping)]

    def _sample_values(self, sides: Sides, depth: int) -> list[Any]:
        """Return values for a part, a typical one first."""
        if depth > _DEEPEST:
            return ["a", 0, None, {}, []]
        candidates: list[Any] = []
        rules = [*_iter_rules(sides)]
        kinds = {kind for rule in rules[:2] for kind in rule.get("type", ANY)}
        candidates += [value for rule in rules for value in rule.get("enum", ())]
        candidates += _sample_texts(rules) if "string" in kinds else []
        candidates += _sample_numbers(rules) if kinds & {"integer", "number"} else []
        candidates += [True, False] if "boolean" in kinds else []
        candidates += islice(self._iter_arrays(sides, depth), 4 * _MOST_VALUES) if "array" in kinds else ()
        candidates += islice(self._iter_objects(sides, depth), 4 * _MOST_VALUES) if "object" in kinds else ()
        candidates += [None] if "null" in kinds else []
        candidates += ["a", 0, 0.5, True, None, [], {}]  # of the wrong type, for schemas without a type
        distinct = list({f"{type(value).__name__}{normalize_value(value)}": value for value in candidates}.values())
        judges = [self._judge(number, side) for number, side in enumerate(sides)]
        verdicts = [(judges[1](value), judges[0](value)) for value in distinct]
        usual = max(range(len(distinct)), key=lambda number: verdicts[number])
        # Then a value that the newer one alone takes, which tells the two apart.
        order = sorted(range(len(distinct)), key=lambda number: (number != usual, _ORDER.index(verdicts[number])))
        return [distinct[number] for number in order][: 4 * _MOST_VALUES]

    def _judge(self, number: int, schema: Schema) -> Callable[[Any], bool]:
        if not isinstance(schema, Mapping):
            return lambda value: False
        key = f"{number}{normalize_value(schema)}"
        if key not in self._known:
            self._known[key] = compile_rule({**schema, "$defs": self._definitions[number]})
        validator = self._known[key]
        return lambda value: bool(validator.is_valid(value))

    def _iter_arrays(self, sides: Sides, depth: int) -> Iterator[list[Any]]:
        rules = [*_iter_rules(sides)]
        for rule in rules:
            contained_values = (
                self._sample_values((rule["contains"], rule["contains"]), depth + 1)[:3] if "contains" in rule else []
            )
            counts = {1, *_list_borders([rule], ("minContains", "maxContains"))}
            yield from (
                [value] * count for value in contained_values for count in sorted(counts) if 0 <= count <= _LONGEST
            )
        first = max((len(rule.get("prefixItems", ())) for rule in rules), default=0)
        places = [[self._merge_values(rules, element_rule, place, depth)] for place in range(first + 1)]
        usual = [values[0][0] for values in places]
        sizes = {0, 1, first, first + 1, first + 2, *_list_borders(rules, ("minItems", "maxItems"))}
        for size in sorted(size for size in sizes if 0 <= size <= _LONGEST):
            yield [*usual[:first], *[usual[first]] * max(0, size - first)][:size]
        extra_values = places[first][0]
        yield [*usual[:first], *extra_values[:3]]
        for place, (values,) in enumerate(places):
            for value in values:
                for size in {
                    place + 1,
                    *(size for size in _list_borders(rules, ("minItems",)) if place < size <= _LONGEST),
                }:
                    array = [*usual[:first], *[usual[first]] * (size - first)]
                    yield [*array[:place], value, *array[place + 1 :]]

    def _iter_objects(self, sides: Sides, depth: int) -> Iterator[Mapping[str, Any]]:
        rules = [*_iter_rules(sides)]
        names = sorted({name for rule in rules for name in (*rule.get("properties", ()), *_iter_needed_names(rule))})
        values = {name: self._merge_values(rules, member_rule, name, depth) for name in names}
        for required_names in _dedupe_sets(
            [*({*side.get("required", ())} for side in sides if side), *_collect_required_sets(rules)]
        ):
            usual = {name: values[name][0] for name in sorted(required_names)}
            yield usual
            yield from (_drop_field(usual, name) for name in usual)
            for rank in range(
                max(map(len, values.values()), default=0)
            ):  # some of each field, where not all are checked
                yield from ({**usual, name: values[name][rank]} for name in names if rank < len(values[name]))
            extra_values = self._merge_values(rules, member_rule, _STRANGER, depth)
            yield from ({**usual, _STRANGER: value} for value in extra_values[:_MOST_VALUES])
            for size in _list_borders(rules, ("minProperties", "maxProperties")):
                if len(usual) < size <= _LONGEST:
                    yield {**usual, **{f"{_STRANGER}{number}": extra_values[0] for number in range(size - len(usual))}}
            yield {name: values[name][0] for name in names}

    def _merge_values(self, rules: Sequence[Mapping[str, Any]], rule_at: Any, place: Any, depth: int) -> list[Any]:
        """Return values for a member or an element: from both sides' own rules, then from parts of them."""
        parts = [rule_at(rule, place) for rule in rules]
        first = parts[0] if parts else {}
        last = parts[1] if len(parts) > 1 else first
        values = self._sample_values((first, last), depth + 1)
        for part in parts[2:]:
            values = [*values, *self._sample_values((part, part), depth + 1)[:_MOST_VALUES]] if part else values
        return values


def _iter_rules(sides: Sides) -> Iterator[Mapping[str, Any]]:
    """Yield both sides, then the schemas that they combine at the same place."""
    yield from (side if isinstance(side, Mapping) else {} for side in sides)
    pending = [part for side in sides for part in _list_subschemas(side)]
    for part in pending[:_MOST_VALUES]:
        if isinstance(part, Mapping):
            yield part
            pending += _list_subschemas(part)[:_MOST_VALUES]


def _list_subschemas(schema: Schema) -> list[Schema]:
    if not isinstance(schema, Mapping):
        return []
    several = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ())]
    return [*several, *(schema[key] for key in ("not", "if", "then", "else") if key in schema)]


def _iter_needed_names(rule: Mapping[str, Any]) -> Iterator[str]:
    yield from rule.get("required", ())
    for name, names in rule.get("dependentRequired", {}).items():
        yield from (name, *names)
    yield from rule.get("dependentSchemas", ())
    yield from (pattern.strip("^$") for pattern in rule.get("patternProperties", ()))


def _collect_required_sets(rules: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """Return the required names of each combined part, together with those of the whole."""
    whole = {name for rule in rules[:2] for name in rule.get("required", ())}
    return [whole | {*rule.get("required", ())} for rule in rules[2:]]


def _dedupe_sets(sets: Iterable[set[str]]) -> list[set[str]]:
    return [set(names) for names in sorted({tuple(sorted(name_set)) for name_set in sets} or {()})]


def _drop_field(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _list_borders(rules: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[Any]:
    """Return the limits that schemas set, and the values just beside them."""
    limits = sorted({rule[key] for rule in rules for key in keys if key in rule})
    return [limit + step for limit in limits for step in (-1, 0, 1)]


def _sample_texts(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = [size for size in _list_borders(rules, ("minLength", "maxLength")) if 0 <= size <= _LONGEST]
    return [*_TEXTS, *(letter * int(size) for size in sizes for letter in ("a", "A", "0"))]


def _sample_numbers(rules: Sequence[Mapping[str, Any]]) -> list[float]:
    limits = _list_borders(rules, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    steps = [rule["multipleOf"] for rule in rules if "multipleOf" in rule]
    near = [limit + half for limit in limits for half in (-0.5, 0.5)]
    return [*_NUMBERS, *limits, *near, *(step * factor for step in steps for factor in (1, 2, 3))]


_CLOSING = ("additionalProperties", "items", "unevaluatedItems", "unevaluatedProperties")
_OPAQUE_KEYS = frozenset(key for group in OPAQUE for key in group) - {"unevaluatedItems", "unevaluatedProperties"}
_MOST_TOLD = 20

Path = tuple[Any, ...]


class Looser(Struct, frozen=True):
    """A weakened part of the older schema: its JSON pointer in normal form, a description, and a sample record.

    The record was refused and is accepted now (None where none was found)."""

    at: str
    said: str
    record: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return (
            self.said if self.record is None else f"{self.said}; it takes {short(self.record, 120)}, which it refused"
        )


class _Suspicion(Struct, frozen=True):
    """A part of the older schema that may be weaker now.

    `path` leads to the keyword in the older schema; `name` is a field that `required` names. For an `opaque`
    suspicion no record can show that the newer schema is as strict."""

    path: Path
    said: str
    name: str = ""
    opaque: bool = False

    @property
    def at(self) -> str:
        return pointer(*self.path, *([self.name] if self.name else []))


def looser_parts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Looser]:
    """Return the parts of a record type's schema that ask less than before, in the order of the schema.

    >>> [str(one) for one in looser_parts({"required": ["id"], "properties": {"id": {"maxLength": 1}}}, {"properties": {"id": {"maxLength": 2}}})]
    ['id is required no longer; it takes {}, which it refused', 'maxLength was 1, is 2; it takes {"id": "a1"}, which it refused']"""
    before, after = normal_schema(old), normal_schema(new)
    if before == after:
        return []
    before = _extend_schema(before, after)
    is_old, is_new = _judge(before), _judge(after)
    records = [record for record in Samples(before, after).records if not is_old(record)]
    accepted_records = [record for record in records if is_new(record)]
    losses = []
    for suspicion in _find_suspicions(before, after, ()):
        is_without = _judge(_remove_part(before, suspicion.path, suspicion.name))
        by_it = [record for record in records if is_without(record)]
        record = next((record for record in by_it if is_new(record)), None)
        if record is not None or suspicion.opaque or not by_it:
            if record is None and accepted_records and not by_it:
                record = accepted_records[0]
            losses.append(Looser(suspicion.at, suspicion.said, record))
            accepted_records = [record for record in accepted_records if not is_without(record)]
    if accepted_records and not losses:
        error = next(compile_rule(_wrap_false_schema(before)).iter_errors(accepted_records[0]))
        losses.append(Looser(pointer(*error.schema_path), "asks less than it did", accepted_records[0]))
    return losses[:_MOST_TOLD]


def short(value: Any, most: int) -> str:
    """Return a value as JSON, cut to `most` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}…"


def _judge(schema: Schema) -> Callable[[Any], bool]:
    validator = compile_rule(_wrap_false_schema(schema))
    return lambda value: bool(validator.is_valid(value))


def _wrap_false_schema(schema: Schema) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else {"not": {}}


def _extend_schema(old: Schema, new: Schema) -> Schema:
    """Return the older schema with the longer lists of values and types, and the new fields of closed types, of
    the newer one."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return old
    wider_schema = dict(old)
    for key in ("type", "enum"):
        if key in old and key in new:
            wider_schema[key] = [*old[key], *(value for value in new[key] if value not in old[key])]
    names = {*old.get("properties", {}), *new.get("properties", {})}
    members = {
        name: _extend_schema(rule, new["properties"][name]) if name in new.get("properties", {}) else rule
        for name, rule in old.get("properties", {}).items()
    }
    if False in (old.get("additionalProperties"), old.get("unevaluatedProperties")):
        members |= {name: new["properties"][name] for name in names if name not in old.get("properties", {})}
    wider_schema |= {"properties": members} if members else {}
    for key in ("items", "additionalProperties"):
        if key in old and key in new:
            wider_schema[key] = _extend_schema(old[key], new[key])
    if "prefixItems" in old:
        first = old["prefixItems"]
        wider_schema["prefixItems"] = [
            _extend_schema(rule, element_rule(new, place)) for place, rule in enumerate(first)
        ]
    return wider_schema


def _find_suspicions(old: Schema, new: Schema, path: Path) -> Iterator[_Suspicion]:
    """Yield the parts of the older schema's form that the newer one's lacks."""
    if old == new or new is False:
        return
    if old is False:
        yield _Suspicion(path, "nothing was allowed, now something is")
        return
    for name in old.get("required", ()):
        if name not in new.get("required", ()):
            yield _Suspicion((*path, "required"), f"{name} is required no longer", name)
    for key, before in old.items():
        if key != "$defs" and _find_leader(key) in (key, *new) and _is_weaker(key, before, new):
            message = f"{key} was {short(before, 80)}, is {short(new[key], 80) if key in new else 'gone'}"
            yield _Suspicion((*path, key), message, opaque=key in _OPAQUE_KEYS)
    for name, rule in old.get("properties", {}).items():
        place = (*path, "properties", name)
        if name in new.get("properties", {}):
            yield from _find_suspicions(rule, new["properties"][name], place)
        elif next(_find_suspicions(rule, member_rule(new, name), place), None):
            yield _Suspicion(place, f"the rules of {name} are gone")
    for number, rule in enumerate(old.get("prefixItems", ())):
        yield from _find_suspicions(rule, element_rule(new, number), (*path, "prefixItems", number))
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), Mapping) and key in new:
            yield from _find_suspicions(old[key], new[key], (*path, key))
    if old.get("$defs") != new.get("$defs"):
        yield _Suspicion((*path, "$defs"), "definitions that refer to themselves are others", opaque=True)


def _find_leader(key: str) -> str:
    """Return the keyword without which this keyword has no effect, and with which it is reported."""
    return {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}.get(key, key)


def _is_weaker(key: str, before: Any, new: Mapping[str, Any]) -> bool:
    after = new.get(key)
    if key in MOST or key in LEAST or key == "maxContains":
        return key not in new or (after < before if key in LEAST else after > before)
    if key in ("type", "enum", "uniqueItems"):
        return key not in new
    if key == "minContains":
        return bool(new.get(key, 1) < before)
    if key in _CLOSING:
        return key not in new or (before is False and after is not False) or (key[0] == "u" and before != after)
    if key == "dependentRequired":
        return any(not {*names} <= {*new.get(key, {}).get(name, ())} for name, names in before.items())
    if key == "allOf":
        return any(part not in new.get(key, ()) for part in before)
    return key in _OPAQUE_KEYS and before != after


def _remove_part(schema: Schema, path: Path, name: str) -> Schema:
    """Return the schema without the part at a path, or without one name of the list there."""
    if not path:
        return {}
    step, inner_path = path[0], path[1:]
    if step == "$defs":  # references to them would be invalid
        return {}
    if isinstance(schema, list):
        return [*schema[:step], _remove_part(schema[step], inner_path, name), *schema[step + 1 :]]
    if inner_path:
        return {**schema, step: _remove_part(schema[step], inner_path, name)}
    if name:
        return {**schema, step: [entry for entry in schema[step] if entry != name]}
    return {key: value for key, value in schema.items() if key != step}
