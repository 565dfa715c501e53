"""Records against their types: one verdict from two validators, and words that name field and rule."""

import datetime
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from duckkb.ontology.ontology_files import load
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import read_yaml

TYPES = """\
nodes:
  Person:
    identity: id
    schema:
      type: object
      properties:
        id: {type: string, minLength: 1, maxLength: 4}
        name: {type: string, pattern: '^[A-Z中-龥]'}
        born: {type: string, format: date}
        seen: {type: string, format: date-time}
        mail: {type: string, format: email}
        uid: {type: string, format: uuid}
        age: {type: integer, minimum: 0, exclusiveMaximum: 150, multipleOf: 5}
        score: {type: [number, "null"]}
        kind: {enum: [reader, writer, 作者]}
        tags: {type: array, items: {type: string}, minItems: 1, maxItems: 3, uniqueItems: true}
        home: {type: object, properties: {city: {type: string}}, required: [city], additionalProperties: false}
        pet: {anyOf: [{type: string}, {type: object, required: [name]}]}
        one: {oneOf: [{type: integer}, {type: number, minimum: 10}]}
        never: {not: {type: string}}
        fixed: {const: 1}
      required: [name]
      additionalProperties: false
      dependentRequired: {born: [seen]}
  Border:
    identity: [a, n]
    schema: {properties: {a: {type: string}, n: {type: integer}}}
  Number: {table: numbers, identity: n, schema: {properties: {n: {type: integer}}}}
  Open: {identity: id, schema: {properties: {id: {type: string}}, patternProperties: {'^x_': {type: integer}}}}
edges:
  knows:
    from: Person
    to: Person
    schema: {properties: {how: {type: string}}, additionalProperties: false, required: [how]}
  crosses: {from: Person, to: [Border, Number]}
"""


ONTOLOGY, FINDINGS = load([read_yaml(TYPES.encode(), "config.yaml")])


def test_the_types_that_these_tests_use_are_right() -> None:
    assert FINDINGS == []


def validator(name: str) -> Validator:
    kind = ONTOLOGY.find(name)
    assert kind is not None
    return Validator(kind, ONTOLOGY)


GOOD = {
    "id": "a",
    "name": "中文",
    "tags": ["x"],
    "home": {"city": ""},
    "score": None,
    "uid": "0" * 8 + "-0000-0000-0000-" + "0" * 12,
}


def test_dk_02_a_record_without_a_required_field_is_refused_with_the_field() -> None:
    found = validator("Person").findings({})
    assert [(f.code, f.field, f.type) for f in found] == [
        ("E_SCHEMA", "/id", "Person"),
        ("E_SCHEMA", "/name", "Person"),
    ]
    assert all("required" in finding.message for finding in found)


def test_a_record_that_fits_has_no_findings() -> None:
    person = validator("Person")
    assert person.is_valid(GOOD) and person.findings(GOOD) == []


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"id": 7}, "/id", "must be of type string, is of type integer (rule: type)"),
        ({"id": ""}, "/id", "at least 1 characters, has 0 (rule: minLength)"),
        ({"id": "abcde"}, "/id", "at most 4 characters, has 5 (rule: maxLength)"),
        ({"name": "a"}, "/name", "(rule: pattern)"),
        (
            {"born": "2024-02-30", "seen": "2024-01-01T00:00:00Z"},
            "/born",
            'is no valid date: "2024-02-30" (rule: format)',
        ),
        ({"seen": "2024-01-01"}, "/seen", "is no valid date-time"),
        ({"mail": "nobody"}, "/mail", "is no valid email"),
        ({"uid": "123"}, "/uid", "is no valid uuid"),
        ({"age": -5}, "/age", "must be at least 0, is -5 (rule: minimum)"),
        ({"age": 150}, "/age", "must be less than 150, is 150 (rule: exclusiveMaximum)"),
        ({"age": 7}, "/age", "must be a multiple of 5, is 7 (rule: multipleOf)"),
        ({"age": True}, "/age", "must be of type integer, is of type boolean"),
        ({"score": "1"}, "/score", "must be of type number or null, is of type string"),
        ({"kind": "raeder"}, "/kind", 'must be one of "reader", "writer", "作者", is "raeder"; did you mean "reader"?'),
        ({"tags": []}, "/tags", "at least 1 items, has 0 (rule: minItems)"),
        ({"tags": ["a", "a"]}, "/tags", "must not hold an item twice (rule: uniqueItems)"),
        ({"tags": ["a", 1]}, "/tags/1", "(rule: type)"),
        ({"tags": list("abcd")}, "/tags", "at most 3 items, has 4"),
        ({"home": {}}, "/home/city", "is required (rule: required)"),
        ({"home": {"city": "x", "a/b": 1}}, "/home/a~1b", "is no field of this schema (rule: additionalProperties)"),
        ({"nmae": 1}, "/nmae", "did you mean `name`? (rule: additionalProperties)"),
        ({"pet": 7}, "/pet", "matches none of the 2 alternatives"),
        ({"one": 12}, "/one", "fits more than one of the alternatives (rule: oneOf)"),
        ({"never": "x"}, "/never", "must not have this form (rule: not)"),
        ({"fixed": 2}, "/fixed", "must be 1, is 2 (rule: const)"),
        ({"born": "2024-01-01"}, "", 'others depend on: "seen" (rule: dependentRequired)'),
    ],
)
def test_a_misfit_names_pointer_and_rule(fields: dict[str, Any], pointer: str, words: str) -> None:
    person = validator("Person")
    found = person.findings(GOOD | fields)
    assert [finding.field for finding in found] == [pointer]
    assert words in found[0].message
    assert not person.is_valid(GOOD | fields)


def test_all_misfits_come_at_once_in_the_order_of_their_fields() -> None:
    found = validator("Person").findings({"id": "", "age": 7.5, "tags": [1, "a", 2], "x": 1, "kind": 1})
    assert [finding.field for finding in found] == ["/age", "/age", "/id", "/kind", "/name", "/tags/0", "/tags/2", "/x"]


def test_long_values_are_not_repeated_in_full() -> None:
    found = validator("Person").findings(GOOD | {"name": "x" * 1_000_000, "kind": "\x1b[31m"})
    assert all(len(finding.message) < 300 and finding.message.isprintable() for finding in found)


def test_a_field_that_the_schema_does_not_know_is_kept_where_it_does_not_forbid_it() -> None:
    assert validator("Number").findings({"n": 1, "more": {"x": [1]}}) == []


def test_pattern_properties_are_worded_too() -> None:
    found = validator("Open").findings({"id": 7, "x_a": "secret words"})
    assert [finding.field for finding in found] == ["/x_a", "/id"] or [finding.field for finding in found] == [
        "/id",
        "/x_a",
    ]
    assert not any("secret words" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.date(2024, 1, 1), "is a date"),
        ({1, 2}, "is a set"),
        (b"x", "is a bytes"),
        (float("nan"), "finite"),
        ("\ud800", "surrogate"),
        ([{"a": object()}], "is a object"),
        ({1: 2}, "not text"),
    ],
)
def test_checked_values_that_json_does_not_have_are_findings_and_no_crash(value: Any, words: str) -> None:
    person = validator("Person")
    found = person.findings(GOOD | {"tags": value, "id": value})
    assert not person.is_valid(GOOD | {"tags": value})
    assert {finding.field.split("/")[1] for finding in found} == {"id", "tags"}
    assert all(words in finding.message for finding in found)


def test_a_pattern_that_would_run_for_ever_ends() -> None:
    text = "nodes: {T: {table: t, identity: id, schema: {properties: {id: {type: string, pattern: '^(a+)+$'}}}}}"
    found, findings = load([read_yaml(text.encode(), "config.yaml")])
    assert findings == []
    assert [f.field for f in Validator(found.nodes["T"], found).findings({"id": "a" * 5_000 + "!"})] == ["/id"]


def test_an_edge_s_ends_are_no_business_of_its_schema() -> None:
    knows = validator("knows")
    assert knows.findings({"from": "a", "to": "b", "how": "at work"}) == []
    assert [f.field for f in knows.findings({"from": "a", "to": "b", "why": ""})] == ["/how", "/why"]


@pytest.mark.parametrize(
    ("ends", "pointers"),
    [
        ({"from": "a", "to": ["x", 1]}, []),
        ({"from": "a", "to": ("x", 1)}, []),
        ({"from": "a", "to": 7}, []),
        ({"from": "a", "to": {"type": "Number", "id": 7}}, []),
        ({"from": "a", "to": {"type": "Border", "id": ["x", 1]}}, []),
        ({"from": {"type": "Person", "id": "a"}, "to": 7}, []),
        ({}, ["/from", "/to"]),
        ({"from": None, "to": 7}, ["/from"]),
        ({"from": 7, "to": 7}, ["/from"]),
        ({"from": "a", "to": "7"}, ["/to"]),
        ({"from": "a", "to": ["x", "1"]}, ["/to"]),
        ({"from": "a", "to": ["x", 1, 2]}, ["/to"]),
        ({"from": "a", "to": True}, ["/to"]),
        ({"from": "a", "to": 1.5}, ["/to"]),
        ({"from": "a", "to": {"type": "Border", "id": 7}}, ["/to"]),
        ({"from": "a", "to": {"type": "Person", "id": "a"}}, ["/to"]),
        ({"from": "a", "to": {"id": 7}}, ["/to"]),
        ({"from": ["a"], "to": []}, ["/to"]),
    ],
)
def test_an_edge_s_ends_must_have_the_form_of_an_identity(ends: dict[str, Any], pointers: list[str]) -> None:
    crosses = validator("crosses")
    assert [finding.field for finding in crosses.findings(ends)] == pointers
    assert crosses.is_valid(ends) is (not pointers)


TEXTS = st.sampled_from(
    ["", "a", "Ab", "中文", "abcdef", "reader", "2024-02-29", "2024-02-30", "a@b.c", "2024-01-01T00:00:00Z"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 200) | st.floats(-200, 200) | TEXTS | st.uuids().map(str),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["city", "name", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from([*GOOD, "born", "age", "kind", "pet", "one", "never", "fixed", "other"])
RECORDS = st.builds(
    lambda start, more: start | more, st.sampled_from([{}, GOOD]), st.dictionaries(NAMES, VALUES, max_size=3)
)


PERSON = validator("Person")
REFERENCE = Draft202012Validator(ONTOLOGY.nodes["Person"].schema, format_checker=FormatChecker(["date", "uuid"]))


@settings(max_examples=400, deadline=None)
@given(RECORDS)
def test_the_verdict_is_that_of_the_reference_validator_and_findings_agree(fields: dict[str, Any]) -> None:
    assert PERSON.is_valid(fields) == REFERENCE.is_valid(fields)
    assert PERSON.is_valid(fields) == (PERSON.findings(fields) == [])


@settings(max_examples=100, deadline=None)
@given(RECORDS)
def test_the_words_point_where_the_reference_validator_points(fields: dict[str, Any]) -> None:
    wanted = {"/".join(["", *map(str, error.absolute_path)]) for error in REFERENCE.iter_errors(fields)}
    told = {finding.field for finding in PERSON.findings(fields)}
    # A missing or surplus key is named itself, where the standard names the object around it.
    assert {re.sub(r"/[^/]*$", "", field) if field not in wanted else field for field in told} == wanted


_DEEP: dict[str, Any] = {"v": 1}
for _ in range(50):
    _DEEP = {"x": _DEEP}
_SELF = {"$ref": "#/$defs/a"}
_BRANCHING = [{"type": "object", "properties": {"x": _SELF}, "required": [name]} for name in ("p", "q")]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"type": "array", "items": {"type": "string"}}, list(range(100_000))),
        ({"type": "array", "items": {"enum": [f"v{number}" for number in range(20_000)]}}, ["x"] * 20_000),
        ({"type": "array", "uniqueItems": True}, [[number, {"a": number}] for number in range(5_000)] + [1, 1]),
        ({"additionalProperties": False, "properties": {f"p{n}": {} for n in range(300)}}, {f"x{n}": n for n in range(9_000)}),
        (_SELF, _DEEP),
    ],
    ids=["many wrong items", "a huge enumeration", "unlike items", "many unknown names", "branches that refer to themselves"],
)  # fmt: skip
def test_words_for_a_huge_value_or_a_schema_that_explodes_are_few_and_come_soon(rule: Any, value: Any) -> None:
    schema = {"properties": {"id": {"type": "string"}, "v": rule}, "$defs": {"a": {"anyOf": _BRANCHING}}}
    document = {"nodes": {"T": {"table": "t", "identity": "id", "schema": schema}}}
    ontology, found = load([read_yaml(json.dumps(document).encode(), "config.yaml")])
    assert not found
    findings = Validator(ontology.nodes["T"], ontology).findings({"id": "a", "v": value})
    assert 1 <= len(findings) <= 100
    assert all(finding.field.startswith("/v") for finding in findings)
