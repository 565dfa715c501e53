"""A JSON Schema in the one form that all spellings of it have: references resolved, `allOf` merged, what says nothing left out.

A reference that leads back to itself stays as it is, and so does what cannot be merged: it stands in `allOf`, in a fixed order.
"""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from duckkb.ontology.kinds import kind_of, target

Schema = Any
"""A mapping in normal form, or False. `{}` is the schema that takes everything."""

MOST = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
LEAST = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
OPAQUE = (
    ("pattern",), ("format",), ("multipleOf",), ("not",), ("if", "then", "else"), ("anyOf",), ("oneOf",), ("$ref",),
    ("contains", "minContains", "maxContains"), ("propertyNames",), ("dependentSchemas",), ("patternProperties",),
    ("unevaluatedItems",), ("unevaluatedProperties",),
)  # fmt: skip
"""Keywords that count together, of which nothing says whether one is stricter than another."""
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
    """The normal form of a whole schema. One in which references stay has its own `$defs`."""
    root = schema if isinstance(schema, Mapping) else {}
    normal = _Normal(root)
    found = normal.of(schema, ())
    if found and '"$ref"' in json.dumps(found):
        definitions = root.get("$defs", {})
        return {**found, "$defs": {name: normal.of(definitions[name], (reference(name),)) for name in definitions}}
    return found


def reference(name: str) -> str:
    """What a schema says to mean a definition."""
    return "#/$defs/" + name.replace("~", "~0").replace("/", "~1")


def as_text(value: Any) -> str:
    """A value as text that is equal where the value is."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


class _Normal:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._parts = root, 0

    def of(self, schema: Any, names: tuple[str, ...]) -> Schema:
        """`names` are the references that led here."""
        self._parts += 1
        if not isinstance(schema, Mapping):
            return False if schema is False else {}
        parts = [self._own(schema, names)]
        name = schema.get("$ref")
        if name in names or (name is not None and self._parts > _MOST_PARTS):
            parts.append({"$ref": name})
        elif name is not None:
            parts.append(self.of(target(self._root, name), (*names, name)))
        parts += [self.of(part, names) for part in schema.get("allOf", ())]
        for keyword in ("anyOf", "oneOf"):
            if isinstance(parts[0], Mapping) and len(parts[0].get(keyword, ())) == 1:
                parts.append(parts[0][keyword][0])
                parts[0] = {key: value for key, value in parts[0].items() if key != keyword}
        return _tidy(reduce(_meet, parts))

    def _own(self, schema: Mapping[str, Any], names: tuple[str, ...]) -> Schema:
        found = {key: schema[key] for key in _PLAIN if key in schema}
        found |= {key: self.of(schema[key], names) for key in _ONE if key in schema}
        for key in _NAMED:
            found |= {key: {name: self.of(part, names) for name, part in schema[key].items()}} if key in schema else {}
        for key in _LISTS:
            found |= {key: [self.of(part, names) for part in schema[key]]} if key in schema else {}
        if "required" in schema:
            found["required"] = sorted(set(schema["required"]))
        if "type" in schema:
            found["type"] = sorted({schema["type"]} if isinstance(schema["type"], str) else set(schema["type"]))
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            found["enum"] = sorted(values, key=as_text)
        if "anyOf" in found:
            found["anyOf"] = _distinct(part for part in found["anyOf"] if part is not False)
            if not found["anyOf"]:
                return False
            if {} in found["anyOf"]:
                del found["anyOf"]
        if "oneOf" in found:
            found["oneOf"] = sorted(found["oneOf"], key=as_text)
        return _tidy(found)


def _tidy(schema: Schema) -> Schema:
    """Without the keywords that say nothing."""
    if schema is False:
        return False
    found = {key: value for key, value in schema.items() if key not in _SAYS_NOTHING or value != _SAYS_NOTHING[key]}
    if "contains" not in found or (found.get("minContains") == 0 and "maxContains" not in found):
        found = {key: value for key, value in found.items() if key not in OPAQUE[8]}
    if found.get("minContains") == 1:
        del found["minContains"]
    if "if" not in found or not {"then", "else"} & found.keys():
        found = {key: value for key, value in found.items() if key not in OPAQUE[4]}
    if "enum" in found and "type" in found:
        kinds = found.pop("type")
        found["enum"] = [value for value in found["enum"] if _is_of(value, kinds)]
    return False if found.get("enum") == [] or found.get("type") == [] else found


def _is_of(value: Any, kinds: list[str]) -> bool:
    kind = "integer" if isinstance(value, float) and value.is_integer() else kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _distinct(schemas: Iterable[Schema]) -> list[Schema]:
    return [schema for _, schema in sorted({as_text(schema): schema for schema in schemas}.items())]


def _meet(one: Schema, other: Schema) -> Schema:
    """What takes what both take."""
    if one is False or other is False:
        return False
    if not one or not other:
        return one or other
    if {"unevaluatedItems", "unevaluatedProperties"} & other.keys():  # they see their own neighbours alone
        return {**one, "allOf": _distinct([*one.get("allOf", ()), other])}
    found = _bounds(one, other) | _members(one, other) | _elements(one, other)
    rest = [*one.get("allOf", ()), *other.get("allOf", ())]
    for group in OPAQUE:
        mine, theirs = ({key: schema[key] for key in group if key in schema} for schema in (one, other))
        if mine and theirs and mine != theirs:
            rest += [mine, theirs]
        else:
            found |= mine or theirs
    if "patternProperties" in {**one, **other} and {"properties", "additionalProperties"} & one.keys() & other.keys():
        return {"allOf": _distinct([one, other])}
    return {**found, "allOf": _distinct(rest)}


def _bounds(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keys, choose in ((MOST, min), (LEAST, max)):
        for key in keys:
            values = [schema[key] for schema in (one, other) if key in schema]
            found |= {key: choose(values)} if values else {}
    found["required"] = sorted({*one.get("required", ()), *other.get("required", ())})
    found["uniqueItems"] = bool(one.get("uniqueItems") or other.get("uniqueItems"))
    needs = [schema.get("dependentRequired", {}) for schema in (one, other)]
    names = {name for need in needs for name in need}
    found["dependentRequired"] = {name: sorted({key for need in needs for key in need.get(name, ())}) for name in names}
    for key, common in (("type", _common_types), ("enum", _common_values)):
        values = [schema[key] for schema in (one, other) if key in schema]
        found |= {key: reduce(common, values)} if values else {}
    return found


def _common_types(one: list[str], other: list[str]) -> list[str]:
    wide = [{*names, "integer"} if "number" in names else {*names} for names in (one, other)]
    found = wide[0] & wide[1]
    return sorted(found - {"integer"} if "number" in found else found)


def _common_values(one: list[Any], other: list[Any]) -> list[Any]:
    known = {as_text(value) for value in other}
    return [value for value in one if as_text(value) in known]


def member_rule(schema: Schema, name: str) -> Schema:
    """What a schema without patterns says of a member of an object."""
    return schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))


def element_rule(schema: Schema, place: int) -> Schema:
    """What a schema says of an element of an array."""
    first = schema.get("prefixItems", ())
    return first[place] if place < len(first) else schema.get("items", {})


def _members(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    names = {*one.get("properties", {}), *other.get("properties", {})}
    rest = [schema.get("additionalProperties", {}) for schema in (one, other)]
    rules = {name: _tidy(_meet(member_rule(one, name), member_rule(other, name))) for name in sorted(names)}
    return {"properties": rules, "additionalProperties": _tidy(_meet(*rest))}


def _elements(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    most = max(len(schema.get("prefixItems", ())) for schema in (one, other))
    first = [_tidy(_meet(element_rule(one, place), element_rule(other, place))) for place in range(most)]
    return {"prefixItems": first, "items": _tidy(_meet(one.get("items", {}), other.get("items", {})))}
