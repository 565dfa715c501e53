"""Checks a type's JSON Schema (Draft 2020-12) before anything is validated with it.

It is stricter than the standard where the standard is silent: an unknown keyword is refused unless it starts
with `x-`. References stay inside the schema (`#/$defs/NAME`) and cannot form a cycle, so that validation always
ends.

Hashes of schemas that passed their checks, each over everything that the result depends on.

The checks need a library that takes 20 ms to load; a schema that passed them once passes them again. `config`
stores the hashes in the user's state folder: in a clone they could pass a schema that nobody checked."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from duckkb.installed import version_of
from duckkb.ontology.names import did_you_mean, nearest, show_value
from duckkb.ontology.schema_kinds import kinds, target
from duckkb.ontology.yaml_source import Section, pointer

_known: set[str] = set()
_fresh: set[str] = set()


def recall(names: Iterable[str]) -> None:
    """Add the hashes of schemas that an earlier process has checked."""
    _known.update(names)


def fresh() -> set[str]:
    """Return the hashes that this process has added since the last call."""
    names = set(_fresh)
    _fresh.clear()
    return names


def is_known(schema: Mapping[str, Any]) -> bool:
    return _name(schema) in _known


def note(schema: Mapping[str, Any]) -> None:
    """Remember that every check of this schema found nothing."""
    name = _name(schema)
    if name not in _known:
        _known.add(name)
        _fresh.add(name)


def _name(schema: Mapping[str, Any]) -> str:
    text = json.dumps(schema, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake2b(f"{_hash_rules()}\0{text}".encode(), digest_size=16).hexdigest()


@cache
def _hash_rules() -> str:
    """Return a hash that names the checks: our own by their source, and the library's."""
    here = Path(__file__).parent
    source_code = b"".join((here / name).read_bytes() for name in ("json_schema.py", "names.py"))
    return f"{blake2b(source_code, digest_size=16).hexdigest()} {version_of('jsonschema-rs', 'jsonschema_rs')}"


DIALECT = "https://json-schema.org/draft/2020-12/schema"
FORMATS = (
    "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template",
    "uuid",
)  # fmt: skip
MERGE_RULES = {
    "set": ("array",), "text": ("string",), "max": ("integer", "number", "string"), "min": ("integer", "number", "string"),
    "latest": (), "ours": (),
}  # fmt: skip
"""The values of `x-merge`, with the types of fields that each is for (none: all)."""
MERGE_BY_SIDE = ("max", "min", "latest", "ours")
"""The rules that choose one of the two values."""

_ONE = (
    "items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
    "contentSchema", "not", "if", "then", "else",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("$defs", "properties", "patternProperties", "dependentSchemas")
_VALUES = (
    "$ref", "$schema", "$comment", "type", "const", "enum", "multipleOf", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains",
    "minContains", "maxProperties", "minProperties", "required", "dependentRequired", "format", "contentEncoding",
    "contentMediaType", "title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples",
)  # fmt: skip
_KEYWORDS = (*_ONE, *_MANY, *_NAMED, *_VALUES)
_REFUSED = {
    "$id": "a type's schema needs no id",
    "$anchor": "name the part under `$defs`",
    "$dynamicAnchor": "name the part under `$defs`",
    "$dynamicRef": "use `$ref: '#/$defs/NAME'`",
    "$vocabulary": "leave it out",
    "definitions": "call it `$defs`",
}
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_MOST_PARTS = 1_000
_LONGEST_CHAIN = 64
_LARGEST_PATTERN = 1 << 18  # bytes of the compiled form


def check_schema(section: Section) -> None:
    """Note every problem of the schema that this section holds."""
    before = len(section.found)
    schema = section.value
    if is_known(schema):
        return
    if schema.get("type", "object") != "object":
        section.problem(f"must be object, as a record is one; is {show_value(schema['type'])}", "type")
    for place, part in subschemas(schema):
        _check_keywords(section, place, part)
    _check_property_names(section)
    _check_merge_rules(section)
    _check_meta_schema(section)
    _check_expansion(section)
    if len(section.found) == before:
        _check_compiles(section)
    if len(section.found) == before:
        note(schema)


def subschemas(schema: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema inside a schema, itself first, with its pointer. Other values are skipped."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for step, part in _iter_children(schema, (*_ONE, *_MANY, *_NAMED)):
        yield from subschemas(part, place + step)


def _iter_children(schema: Mapping[str, Any], keywords: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for keyword in keywords:
        part = schema.get(keyword)
        if keyword in _ONE:
            yield pointer(keyword), part
        elif keyword in _MANY and isinstance(part, list):
            yield from ((pointer(keyword, index), item) for index, item in enumerate(part))
        elif keyword in _NAMED and isinstance(part, dict):
            yield from ((pointer(keyword, name), item) for name, item in part.items())


def _check_keywords(section: Section, place: str, schema: Mapping[str, Any]) -> None:
    def problem(keyword: str, message: str, remedy: str = "") -> None:
        at = section.at + place + pointer(keyword)
        section.found.append(section.document.finding(section.code, at, message, remedy))

    for keyword in schema:
        if keyword in _REFUSED:
            problem(keyword, f"`{keyword}` is not used here", _REFUSED[keyword])
        elif keyword not in _KEYWORDS and not keyword.startswith("x-"):
            remedy = did_you_mean(keyword, _KEYWORDS) or "the names of your own annotations start with `x-`"
            problem(keyword, f"unknown JSON Schema keyword {show_value(keyword)}", remedy)
    if schema.get("$schema", DIALECT) != DIALECT:
        problem("$schema", "only Draft 2020-12 is used", f"write {DIALECT}, or leave it out")
    if "$ref" in schema:
        for message in _check_reference(section.value, schema["$ref"]):
            problem("$ref", message)
    if "pattern" in schema and not _is_pattern(schema["pattern"]):
        remedy = "lookaround, back-references and very large repetitions are refused: they could run for hours"
        problem("pattern", f"is not a regular expression: {show_value(schema['pattern'])}", remedy)
    format_name = schema.get("format")
    if isinstance(format_name, str) and format_name not in FORMATS and nearest(format_name, FORMATS):
        problem("format", f"unknown format {show_value(format_name)}", did_you_mean(format_name, FORMATS))


def _check_reference(root: Mapping[str, Any], reference: Any) -> Iterator[str]:
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        yield f"a reference must be '#/$defs/NAME' inside this schema, is {show_value(reference)}"
        return
    definitions = root.get("$defs")
    names = definitions if isinstance(definitions, dict) else {}
    name = reference.removeprefix("#/$defs/")
    if name.replace("~1", "/").replace("~0", "~") not in names:
        hint = did_you_mean(name, names)
        yield f"{show_value(reference)} does not exist" + (f"; {hint}" if hint else "")


def _is_pattern(pattern: Any) -> bool:
    import jsonschema_rs

    return isinstance(pattern, str) and jsonschema_rs.meta.is_valid({"pattern": pattern}) and _can_compile(pattern)


def _can_compile(pattern: str) -> bool:
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=pattern_options())
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


def _check_property_names(section: Section) -> None:
    properties = section.value.get("properties")
    names_by_casefold: dict[str, str] = {}
    for name in properties if isinstance(properties, dict) else ():
        if name.startswith("_"):
            section.problem("field names that start with _ are duckkb's own", "properties", name, remedy="rename it")
        elif not name or not name.isprintable():
            section.problem("a field needs a printable name", "properties", name, remedy="rename it")
        first_name = names_by_casefold.setdefault(name.casefold(), name)
        if first_name != name:
            message = f"differs from {show_value(first_name)} in case alone"
            section.problem(message, "properties", name, remedy="rename one of them")


def _check_merge_rules(section: Section) -> None:
    for place, part in subschemas(section.value):
        steps = place.split("/")
        is_field = len(steps) == 3 and steps[1] == "properties"
        for keyword, choices in (("x-merge", tuple(MERGE_RULES)), ("x-review", ("required",))):
            if keyword not in part:
                continue
            value, at = part[keyword], section.at + place + pointer(keyword)
            message = ""
            if value not in choices:
                message = f"must be {' or '.join(choices)}, is {show_value(value)}"
            elif not is_field:
                message = "is for the fields of a record, not for parts of them"
            elif keyword == "x-merge" and (merge_types := MERGE_RULES[value]):
                field_types = kinds(section.value, part) - {"null"}
                if not (field_types and field_types <= {*merge_types}):
                    message = f"`{value}` is for fields of type {' or '.join(merge_types)}"
            if message:
                section.found.append(section.document.finding(section.code, at, message))


def _check_meta_schema(section: Section) -> None:
    """Check the standard's own rules. The fast validator decides, the slow one words the problems."""
    import jsonschema_rs

    if jsonschema_rs.meta.is_valid(dict(section.value) | {"$schema": DIALECT}):
        return
    from jsonschema import Draft202012Validator

    from duckkb.ontology.schema_kinds import word_errors

    known_places = {(finding.line, finding.field) for finding in section.found}
    for place, message in word_errors(
        Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(section.value)
    ):
        finding = section.document.finding(section.code, section.at + place, f"wrong JSON Schema: {message}")
        if (finding.line, finding.field) not in known_places:
            section.found.append(finding)


class _Endless(Exception):
    """References that form a cycle, or that pass through more steps than anyone would write."""


def _check_expansion(section: Section) -> None:
    """Refuse references that form a cycle at one place, or that unfold to more parts than anyone would write."""
    costs: dict[int, int] = {}
    for place, part in subschemas(section.value):
        at = section.at + place
        try:
            if _count_parts(section.value, part, costs, ()) > _MOST_PARTS:
                message = f"its references unfold to more than {_MOST_PARTS} parts"
                section.found.append(section.document.finding(section.code, at, message))
                return
        except _Endless as error:
            section.found.append(section.document.finding(section.code, at, f"its references run {error}"))
            return


def _count_parts(root: Mapping[str, Any], schema: Any, costs: dict[int, int], path: tuple[int, ...]) -> int:
    """Count the schemas that check one value: this one, those it combines, and those they refer to."""
    if not isinstance(schema, dict):
        return 1
    key = id(schema)
    if key in costs:
        return costs[key]
    if key in path:
        raise _Endless("in a circle")
    if len(path) > _LONGEST_CHAIN:
        raise _Endless(f"through more than {_LONGEST_CHAIN} steps")
    parts = [part for _, part in _iter_children(schema, _IN_PLACE)]
    if "$ref" in schema:
        parts.append(target(root, schema["$ref"]))
    costs[key] = 1 + sum(_count_parts(root, part, costs, (*path, key)) for part in parts)
    return costs[key]


def _check_compiles(section: Section) -> None:
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator(
            dict(section.value), validate_formats=True, retriever=refuse_remote, pattern_options=pattern_options()
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        reason = str(getattr(error, "message", error)).partition("\n")[0][:200]
        section.problem(f"wrong JSON Schema: {reason}")


def pattern_options() -> Any:
    """Return the options of the engine for patterns, whose time is linear in the text.

    So no pattern of a clone can block a write. The engine has no lookaround and no back-references.
    """
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(size_limit=_LARGEST_PATTERN)


def refuse_remote(uri: str) -> Any:
    """Refuse to retrieve `uri`: a schema never reaches a host or a file."""
    raise ValueError(f"{uri} is outside the schema")
