"""What a newer schema takes that an older one refused: named cases, and laws of the form in which the two are compared."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.review.schema_comparison import Samples, looser_parts, normal_schema
from tests.conftest import NOTES, commit, make_base, run_in

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
LIST: Schema = {"type": "array"}


def record(*required: str, **fields: Any) -> Schema:
    return {"type": "object", "properties": {"id": TEXT, **fields}, "required": ["id", *required]}


def defined(rule: Any) -> Schema:
    return record(t={"$ref": "#/$defs/t"}) | {"$defs": {"t": rule}}


def tree(least: int) -> Schema:
    number = {"type": "integer", "minimum": least}
    return defined({"type": "object", "properties": {"n": number, "below": {"$ref": "#/$defs/t"}}})


IS_A = {"if": {"properties": {"a": {"const": "甲"}}, "required": ["a"]}, "then": {"required": ["b"]}}
LOOSER: dict[str, tuple[Schema, Schema]] = {
    "a rule behind a reference": (defined({**TEXT, "minLength": 3}), defined({**TEXT, "minLength": 1})),
    "a rule behind a reference to itself": (tree(3), tree(1)),
    "items false beside prefixItems": (
        record(a={**LIST, "prefixItems": [TEXT], "items": False}),
        record(a={**LIST, "prefixItems": [TEXT]}),
    ),
    "minContains 0": (
        record(a={**LIST, "contains": {"const": "x"}}),
        record(a={**LIST, "contains": {"const": "x"}, "minContains": 0}),
    ),
    "maxContains": (
        record(a={**LIST, "contains": {"const": "x"}, "maxContains": 2}),
        record(a={**LIST, "contains": {"const": "x"}, "maxContains": 3}),
    ),
    "required": (record("a", a=TEXT), record(a=TEXT)),
    "required in allOf": (record(a=TEXT) | {"allOf": [{"required": ["a"]}]}, record(a=TEXT)),
    "a limit": (record(a={**TEXT, "maxLength": 3}), record(a={**TEXT, "maxLength": 5})),
    "a pattern": (record(a={**TEXT, "pattern": "^[a-z]+$"}), record(a={**TEXT, "pattern": "^[a-z0-9]+$"})),
    "a format": (record(a={**TEXT, "format": "date"}), record(a=TEXT)),
    "a closed type": (record() | {"additionalProperties": False}, record()),
    "a type": (record(a=TEXT), record(a=True)),
    "an enum": (record(a={"enum": ["x"]}), record(a=TEXT)),
    "false": (record(a=False), record()),
    "a field of an object": (
        record(a={"type": "object", "properties": {"n": {"minimum": 3}}}),
        record(a={"type": "object", "properties": {"n": {"minimum": 2}}}),
    ),
    "items of a list": (record(a={**LIST, "items": {"required": ["k"]}}), record(a={**LIST, "items": {}})),
    "a condition": (record(a=TEXT, b=TEXT) | IS_A, record(a=TEXT, b=TEXT)),
    "an alternative": (record(a={"anyOf": [{"minimum": 4}, TEXT]}), record(a={"anyOf": [{"minimum": 2}, TEXT]})),
    "patternProperties": (record() | {"patternProperties": {"^x": TEXT}}, record()),
}
# Which record is taken is not known of a pattern that none of the samples fits.
UNKNOWN = {"a limit beside a pattern": (
    record(a={"maxLength": 9, "pattern": "^[A-Z]{3}-[0-9]+$"}), record(a={"maxLength": 12, "pattern": "^[A-Z]{3}-[0-9]+$"})
)}  # fmt: skip
SAME: dict[str, tuple[Schema, Schema]] = {
    "allOf in another order": (
        record() | {"allOf": [{"required": ["a"]}, {"minProperties": 2}]},
        record() | {"allOf": [{"minProperties": 2}, {"required": ["a"]}]},
    ),
    "a reference that is written out": (defined({**TEXT, "minLength": 3}), record(t={**TEXT, "minLength": 3})),
    "required moved into allOf": (record("a", a=TEXT), record(a=TEXT) | {"allOf": [{"required": ["a"]}]}),
    "annotations": (record(a=TEXT), record(a={**TEXT, "title": "标题", "x-merge": "max", "default": "q"})),
    "a definition with another name": (
        defined({**TEXT, "minLength": 3}),
        record(t={"$ref": "#/$defs/u"}) | {"$defs": {"u": {**TEXT, "minLength": 3}}},
    ),
    "const as enum": (record(a={"const": "x"}), record(a={"enum": ["x"]})),
    "a type that enum says": (record(a={**TEXT, "enum": ["x"]}), record(a={"enum": ["x"]})),
    "types as alternatives": (record(a={"type": ["string", "null"]}), record(a={"anyOf": [TEXT, {"type": "null"}]})),
    "items false as maxItems": (
        record(a={**LIST, "prefixItems": [TEXT, TEXT], "items": False}),
        record(a={**LIST, "prefixItems": [TEXT, TEXT], "maxItems": 2}),
    ),
    "a limit of whole numbers": (
        record(a={"type": "integer", "exclusiveMinimum": 0}),
        record(a={"type": "integer", "minimum": 1}),
    ),
    "true as the empty schema": (record(a={}), record(a=True)),
    "stricter": (record(a=TEXT), record("a", a={**TEXT, "maxLength": 3}) | {"additionalProperties": False}),
    "a list of values that grew": (record(a={"enum": ["x"]}), record(a={"enum": ["x", "y"]})),
    "a type that takes null": (record(a=TEXT), record(a={"type": ["string", "null"]})),
    "a field more of a closed type": (
        record() | {"additionalProperties": False},
        record(b={"type": "integer"}) | {"additionalProperties": False},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", LOOSER)
def test_a_schema_that_takes_more_is_told_with_a_record_that_it_takes(case: str) -> None:
    old, new = LOOSER[case]
    found = looser_parts(old, new)
    assert found
    for one in found:
        assert one.record is not None
        assert _is_valid(new, one.record) and not _is_valid(old, one.record), one


def test_a_schema_that_may_take_more_is_told_though_no_record_is_known() -> None:
    (old, new) = UNKNOWN["a limit beside a pattern"]
    (found,) = looser_parts(old, new)
    assert found.record is None and found.said == "maxLength was 9, is 12"


@pytest.mark.parametrize("case", SAME)
def test_another_spelling_and_what_is_stricter_are_no_loss(case: str) -> None:
    assert [str(one) for one in looser_parts(*SAME[case])] == []


def test_check_tells_which_record_a_weaker_schema_takes(tmp_path: Any) -> None:
    root = make_base(tmp_path / "kb", NOTES.replace("required: [id]", "required: [id, title]"))
    commit(root)
    (root / "config.yaml").write_text(NOTES, "utf-8")
    ran = run_in(root, ["check", "--since", "HEAD"])
    assert ran.code == 1 and "E_GUARD" in ran.out and 'it takes {"id": "a"}, which it refused' in ran.out
    (root / "config.yaml").write_text(NOTES.replace("required: [id]", "allOf: [required: [id, title]]"), "utf-8")
    assert run_in(root, ["check", "--since", "HEAD"]).code == 0


_NAMES = st.sampled_from(["id", "a", "b"])
_LEAVES = st.one_of(
    st.booleans(),
    st.sampled_from([
        TEXT, {"type": ["integer", "null"]}, {"type": "number"}, {"enum": ["a", 1, None]}, {"const": "a"},
        {"$ref": "#/$defs/short"}, {"$ref": "#/$defs/tree"}, {"minLength": 2}, {"maxLength": 1, "pattern": "^a"},
        {"minimum": 1}, {"multipleOf": 2}, {"not": TEXT},
    ]),
)  # fmt: skip


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = {
        "properties": st.dictionaries(_NAMES, inner, max_size=2),
        "required": st.lists(_NAMES, unique=True, max_size=2),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "contains": inner,
        "minContains": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "unevaluatedProperties": inner,
        "if": inner,
        "then": inner,
        "propertyNames": st.just({"maxLength": 1}),
        "dependentRequired": st.just({"a": ["b"]}),
        "type": st.sampled_from(["object", "array"]),
    }
    names = st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=4, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: parts[name] for name in chosen}))


_DEFINITIONS = {"short": {"maxLength": 1}, "tree": {"properties": {"a": {"$ref": "#/$defs/tree"}, "b": {"minimum": 1}}}}
_SCHEMAS = st.recursive(_LEAVES, _larger, max_leaves=8).map(
    lambda rule: {"properties": {"id": rule}, "allOf": [rule], "$defs": _DEFINITIONS}
)


def _is_valid(schema: Any, value: Mapping[str, Any]) -> bool:
    return bool(jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value))


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(_SCHEMAS, _SCHEMAS)
def test_the_normal_form_takes_what_the_schema_takes(one: Schema, other: Schema) -> None:
    normal = normal_schema(one)
    form = normal if isinstance(normal, Mapping) else {"not": {}}
    for value in Samples(normal, normal_schema(other)).records[:300]:
        assert _is_valid(one, value) == _is_valid(form, value), (value, form)


@settings(max_examples=100, deadline=None)
@given(_SCHEMAS)
def test_a_schema_is_no_looser_than_itself_in_another_order(schema: Schema) -> None:
    turned = {**schema, "allOf": [{}, *reversed(schema["allOf"])], "title": "另"}
    assert looser_parts(schema, turned) == []
