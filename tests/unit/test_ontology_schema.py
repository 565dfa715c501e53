"""JSON Schemas of types are checked before use: the standard's rules, and what duckkb adds to them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from duckkb.ontology.ontology_files import load
from duckkb.ontology.schema_kinds import identity_kind, kinds
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import read_yaml
from duckkb.types.errors import Finding


def findings(schema: dict[str, Any], searched: str = "") -> list[Finding]:
    """What is wrong with a type of this schema. JSON is YAML; one key a line, `schema` on line 5."""
    schema = {"type": "object", **schema, "properties": {"id": {"type": "string"}, **schema.get("properties", {})}}
    text = f"nodes:\n  T:\n    identity: id\n    table: t\n    schema: {json.dumps(schema, ensure_ascii=False)}\n"
    if searched:
        text += f"    search: {{full_text: [{searched}]}}\n"
    return load([read_yaml(text.encode(), "config.yaml")])[1]


def field(rule: Any, name: str = "x") -> dict[str, Any]:
    return {"properties": {name: rule}}


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ({"type": "array"}, "/type", "must be object"),
        ({"type": ["object", "null"]}, "/type", "must be object"),
        (field({"type": "strin"}), "/properties/x/type", 'did you mean "string"'),
        (field({"minimum": "1"}), "/properties/x/minimum", "type number"),
        (field({"minLength": -1}), "/properties/x/minLength", "at least 0"),
        (field(7), "/properties/x", "of type object or boolean"),
        (field({"enum": "a"}), "/properties/x/enum", "type array"),
        ({"required": "id"}, "/required", "type array"),
        ({"required": ["id", "id"]}, "/required", "twice"),
        ({"requird": ["id"]}, "/requird", "unknown JSON Schema keyword"),
        (field({"type": "string", "maxLenght": 3}), "/properties/x/maxLenght", "unknown JSON Schema keyword"),
        ({"$defs": {"T": {"nullable": True}}}, "/$defs/T/nullable", "unknown JSON Schema keyword"),
        (field({"anyOf": [{"typ": "string"}]}), "/properties/x/anyOf/0/typ", "unknown JSON Schema keyword"),
        (field({"pattern": "("}), "/properties/x/pattern", "not a regular expression"),
        (field({"type": "string", "format": "datetime"}), "/properties/x/format", "unknown format"),
        (field({"$ref": "http://127.0.0.1:9/x.json"}), "/properties/x/$ref", "inside this schema"),
        (field({"$ref": "file:///etc/passwd"}), "/properties/x/$ref", "inside this schema"),
        (field({"$ref": "other.json#/$defs/A"}), "/properties/x/$ref", "inside this schema"),
        (field({"$ref": "#/properties/id"}), "/properties/x/$ref", "inside this schema"),
        (field({"$ref": "#"}), "/properties/x/$ref", "inside this schema"),
        (field({"$ref": "#/$defs/Tagg"}) | {"$defs": {"Tag": {}}}, "/properties/x/$ref", "did you mean `Tag`"),
        ({"$id": "http://x/"}, "/$id", "not used here"),
        ({"definitions": {}}, "/definitions", "not used here"),
        (field({"$dynamicRef": "#a"}), "/properties/x/$dynamicRef", "not used here"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema", "Draft 2020-12"),
        (field({}, "_x"), "/properties/_x", "duckkb's own"),
        (field({}, "ID"), "/properties/ID", "in case alone"),
        (field({}, ""), "/properties/", "printable name"),
        (field({}, "a\nb"), "/properties/a\nb", "printable name"),
        (field({"type": "array", "x-merge": "sets"}), "/properties/x/x-merge", "max or min or latest or ours"),
        (field({"type": "boolean", "x-merge": "max"}), "/properties/x/x-merge", "integer or number or string"),
        (
            field({"type": ["number", "array"], "x-merge": "min"}),
            "/properties/x/x-merge",
            "integer or number or string",
        ),
        (field({"type": "string", "x-merge": "set"}), "/properties/x/x-merge", "type array"),
        (field({"type": "array", "x-merge": "text"}), "/properties/x/x-merge", "type string"),
        (field({"x-merge": "set"}), "/properties/x/x-merge", "type array"),
        (field({"x-review": "optional"}), "/properties/x/x-review", "must be required"),
        ({"x-merge": "set"}, "/x-merge", "fields of a record"),
        (
            field({"type": "object", "properties": {"y": {"type": "array", "x-merge": "set"}}}),
            "/properties/x/properties/y/x-merge",
            "fields of a record",
        ),
        ({"$defs": {"A": {"$ref": "#/$defs/A"}}}, "/$defs/A", "circle"),
        (
            {"$defs": {"A": {"anyOf": [{}, {"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}}},
            "/$defs/A",
            "circle",
        ),
    ],
)
def test_dk_03_a_wrong_schema_is_named_by_line_and_pointer(schema: dict[str, Any], pointer: str, words: str) -> None:
    found = findings(schema)
    assert [(finding.code, finding.place, finding.field) for finding in found] == [
        ("E_ONTOLOGY", "config.yaml:5", f"/nodes/T/schema{pointer}")
    ]
    assert words in found[0].message + found[0].remedy


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "概念", "description": "一"},
        field({"type": "string", "pattern": r"^\p{Han}+$", "format": "markdown", "examples": ["中"], "default": "x"}),
        field({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "x-merge": "set", "x-own": {"a": 1}}),
        field({"type": ["array", "null"], "x-merge": "set"}),
        field({"type": ["number", "null"], "x-merge": "max"}),
        field({"type": "string", "format": "date", "x-merge": "min"}),
        field({"x-merge": "latest"}),
        field({"type": "object", "x-merge": "ours"}),
        field({"const": {"typ": 1, "$ref": "#"}, "enum": [{"_a": 1}], "default": {"patern": "("}}),
        field({"type": "object", "properties": {"_inner": {}, "A": {}, "a": {}}}),
        {"$defs": {"Tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/Tree"}}}}}},
        field({"$ref": "#/$defs/a~1b"}) | {"$defs": {"a/b": True}},
        {"additionalProperties": False, "patternProperties": {"^x-": {}}, "dependentRequired": {"id": ["x"]}},
        {"if": {"required": ["x"]}, "then": {"required": ["id"]}, "else": True, "not": False},
    ],
)
def test_a_right_schema_has_no_findings(schema: dict[str, Any]) -> None:
    assert findings(schema) == []


def test_references_that_unfold_without_end_are_refused_at_once() -> None:
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}
    found = findings({"$defs": doubling})
    assert len(found) == 1 and "unfold to more than" in found[0].message
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)} | {"d3000": {}}
    found = findings({"$defs": chain})
    assert len(found) == 1 and "more than 64 steps" in found[0].message


def test_several_problems_of_one_schema_come_at_once() -> None:
    found = findings({"properties": {"a": {"type": "strin"}, "b": {"patern": "x"}, "_c": {}}, "required": 7})
    assert {finding.field.removeprefix("/nodes/T/schema") for finding in found} == {
        "/properties/a/type",
        "/properties/b/patern",
        "/properties/_c",
        "/required",
    }


@pytest.mark.parametrize(
    ("rule", "fine"),
    [
        ({"type": "string"}, True),
        ({"type": ["string", "null"]}, True),
        ({"type": "array", "items": {"type": "string"}}, True),
        ({"type": ["string", "array"], "items": {"type": "string"}}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"enum": ["a", "b"]}, True),
        ({"const": "a"}, True),
        ({"$ref": "#/$defs/Text"}, True),
        ({"allOf": [{"$ref": "#/$defs/Texts"}]}, True),
        ({"type": "integer"}, False),
        ({}, False),
        (True, False),
        ({"type": "array"}, False),
        ({"type": "array", "items": {"type": "integer"}}, False),
        ({"type": "object"}, False),
        ({"type": ["string", "integer"]}, False),
        ({"enum": ["a", 1]}, False),
        ({"type": "null"}, False),
    ],
)
def test_a_searched_field_is_text_or_a_list_of_texts(rule: Any, fine: bool) -> None:
    schema = field(rule) | {
        "$defs": {"Text": {"type": "string"}, "Texts": {"type": "array", "items": {"$ref": "#/$defs/Text"}}}
    }
    assert (findings(schema, searched="x") == []) is fine


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer", "minimum": 1}, "integer"),
        ({"$ref": "#/$defs/Slug"}, "string"),
        ({"enum": ["a"]}, "string"),
        ({"const": 7}, "integer"),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, "integer"),
        ({"type": "number"}, None),
        ({"type": ["string", "null"]}, None),
        ({"const": True}, None),
        ({"type": "array"}, None),
        ({}, None),
        (False, None),
    ],
)
def test_an_identity_field_is_a_string_or_an_integer(rule: Any, kind: str | None) -> None:
    assert identity_kind({"$defs": {"Slug": {"type": "string", "pattern": "^[a-z]"}}}, rule) == kind


VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab中", max_size=3)
TYPE_NAMES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
RULES = st.recursive(
    st.just({})
    | st.fixed_dictionaries({"type": TYPE_NAMES | st.lists(TYPE_NAMES, min_size=1, max_size=3, unique=True)})
    | st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)})
    | st.fixed_dictionaries({"const": VALUES})
    | st.just({"$ref": "#/$defs/Text"}),
    lambda inner: st.fixed_dictionaries(
        {}, optional={word: st.lists(inner, min_size=1, max_size=2) for word in ("anyOf", "oneOf", "allOf")}
    ),
    max_leaves=5,
)
INSTANCES = VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(st.text("ab", max_size=2), VALUES, max_size=2)


@settings(max_examples=300, deadline=None)
@given(RULES, INSTANCES)
def test_a_value_that_a_schema_takes_is_of_a_kind_that_we_read_from_it(rule: dict[str, Any], value: Any) -> None:
    root = {"$defs": {"Text": {"type": "string"}}}
    if Draft202012Validator(root | rule).is_valid(value):
        is_whole = isinstance(value, float) and value.is_integer()
        names = {
            "null": value is None,
            "boolean": isinstance(value, bool),
            "integer": (isinstance(value, int) and not isinstance(value, bool)) or is_whole,
            "number": isinstance(value, float),
            "string": isinstance(value, str),
            "array": isinstance(value, list),
            "object": isinstance(value, dict),
        }
        assert kinds(root, rule) & {name for name, holds in names.items() if holds}


KEYWORDS = st.sampled_from(
    ["type", "minimum", "required", "properties", "items", "enum", "anyOf", "pattern", "const", "$defs"]
)
SCHEMAS = st.recursive(
    VALUES | TYPE_NAMES | st.just({"type": "string"}),
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYWORDS, SCHEMAS, max_size=3))
def test_what_the_standard_refuses_is_refused_and_what_passes_can_be_used(rule: dict[str, Any]) -> None:
    found = findings(field(rule))
    try:
        Draft202012Validator.check_schema(rule)
    except SchemaError:
        assert found
    if not found:
        text = json.dumps(
            {"nodes": {"T": {"identity": "id", "schema": {"properties": {"id": {"type": "string"}, "x": rule}}}}}
        )
        ontology = load([read_yaml(text.encode(), "config.yaml")])[0]
        validator = Validator(ontology.nodes["T"], ontology)
        for value in ("a", 1, None, [], {}):
            fields = {"id": "a", "x": value}
            assert validator.is_valid(fields) == (validator.findings(fields) == [])


@pytest.mark.parametrize("pattern", [r"(?=a)(a+)+$", r"(?<!x)(a*)*b$", r"^(a|aa)+\1$", r"(a{1000}){1000}"])
def test_a_pattern_whose_time_could_explode_is_refused(pattern: str) -> None:
    assert "is not a regular expression" in findings(field({"type": "string", "pattern": pattern}))[0].message
