"""The normal form of a JSON Schema, equal for all its spellings: references resolved, `allOf` merged, empty
keywords removed.

A recursive reference stays as it is. What cannot be merged stays in `allOf`, in a fixed order.
"""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from duckkb.ontology.kinds import kind_of, target

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
