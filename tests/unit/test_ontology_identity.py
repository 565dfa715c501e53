"""What a caller names a record by becomes an identity, typed by the schema."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ontology.model import Ontology
from duckkb.ontology.ontology_files import load
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import read_yaml
from duckkb.types.errors import UsageError
from duckkb.types.records import TypedEnd, component_of, identity_text, identity_value

TYPES = """\
nodes:
  Person: {identity: id, schema: {properties: {id: {type: string}}}}
  Day: {identity: n, schema: {properties: {n: {type: integer}}}}
  Border: {identity: [a, n], schema: {properties: {a: {type: string}, n: {type: integer}}}}
edges:
  knows: {from: Person, to: Person}
  lasts: {from: Person, to: Person, identity: since, schema: {properties: {since: {type: integer}}}}
  near: {from: Border, to: Day}
  any: {from: [Person, Day], to: [Person, Border]}
  both: {from: [Person, Day], to: [Day, Person]}
"""
ONTOLOGY: Ontology = load([read_yaml(TYPES.encode(), "config.yaml")])[0]


def coerce(name: str, value: Any) -> Any:
    kind = ONTOLOGY.find(name)
    assert kind is not None
    return Validator(kind, ONTOLOGY).coerce_identity(value)


@pytest.mark.parametrize(
    ("name", "value", "identity"),
    [
        ("Person", "alice", ("alice",)),
        ("Person", "概念 一", ("概念 一",)),
        ("Person", '["alice"]', ('["alice"]',)),
        ("Person", "-rf", ("-rf",)),
        ("Person", ["alice"], ("alice",)),
        ("Person", 7, ("7",)),
        ("Day", "7", (7,)),
        ("Day", "-7", (-7,)),
        ("Day", 7, (7,)),
        ("Day", ("7",), (7,)),
        ("Day", str(2**63 - 1), (2**63 - 1,)),
        ("Border", '["CHE", 7]', ("CHE", 7)),
        ("Border", '["CHE","7"]', ("CHE", 7)),
        ("Border", ("CHE", 7), ("CHE", 7)),
        ("knows", '["a","b"]', ("a", "b")),
        ("knows", ("a", "b"), ("a", "b")),
        ("knows", [["a"], {"type": "Person", "id": "b"}], ("a", "b")),
        ("lasts", '["a","b","1999"]', ("a", "b", 1999)),
        ("near", [["CHE", "7"], "3"], (("CHE", 7), 3)),
        ("any", ["a", ["CHE", 7]], ("a", ("CHE", 7))),
        ("any", ["a", {"type": "Border", "id": ["CHE", "7"]}], ("a", TypedEnd("Border", ("CHE", 7)))),
        ("any", [TypedEnd("Day", (7,)), "b"], (TypedEnd("Day", (7,)), "b")),
        ("both", [7, "7"], (7, "7")),
    ],
)
def test_an_identity_takes_the_types_of_its_schema(name: str, value: Any, identity: Any) -> None:
    found = coerce(name, value)
    assert found == identity
    assert [type(part) for part in found] == [type(part) for part in identity]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Day", "seven", "no integer"),
        ("Day", "007", "no integer"),
        ("Day", "７", "no integer"),
        ("Day", "1.0", "no integer"),
        ("Day", str(2**63), "no integer"),
        ("Day", 2**63, "no integer"),
        ("Day", "9" * 5_000, "no integer"),
        ("Day", True, "no string or integer"),
        ("Person", 1.5, "no string or integer"),
        ("Person", None, "no string or integer"),
        ("Person", {"id": "a"}, "no string or integer"),
        ("Person", [], "one value, not 0"),
        ("Border", "CHE", "not a JSON array"),
        ("Border", '{"a": 1}', "not a list"),
        ("Border", '["CHE"]', "2 values, not 1"),
        ("Border", "[" * 100_000, "not a JSON array"),
        ("Border", '["CHE", NaN]', "no string or integer"),
        ("knows", "a", "not a JSON array"),
        ("knows", ["a", "b", "c"], "2 values, not 3"),
        ("knows", ["a", None], "the end nothing is no Person"),
        ("knows", ["a", {"type": "Day", "id": 7}], '"Day" is not among Person'),
        ("knows", ["a", {"type": "Person"}], "an end with its type"),
        ("lasts", ["a", "b"], "3 values, not 2"),
        ("any", [["x", 1], "b"], "no Person"),
        ("both", [["7"], "b"], "fits several types"),
    ],
)
def test_what_names_no_record_is_a_usage_error_with_the_form_to_use(name: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        coerce(name, value)
    assert (caught.value.code, caught.value.exit_code) == ("E_INVALID", 2)
    assert words in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("Person", "ID"),
        ("Border", """'["A",N]'"""),
        ("near", """'[["A",N],N]'"""),
        ("lasts", """'["ID","ID",SINCE]'"""),
    ],
)
def test_the_suggestion_shows_how_the_command_line_writes_it(name: str, form: str) -> None:
    with pytest.raises(UsageError) as caught:
        coerce(name, {"no": "identity"})
    assert caught.value.suggestion == f"name it as {form}"


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
PAIRS = st.tuples(WORDS, NUMBERS)


@settings(max_examples=200, deadline=None)
@given(
    st.tuples(st.just("Person"), st.tuples(WORDS))
    | st.tuples(st.just("Day"), st.tuples(NUMBERS))
    | st.tuples(st.just("Border"), PAIRS)
    | st.tuples(st.just("near"), st.tuples(PAIRS, NUMBERS))
    | st.tuples(st.just("lasts"), st.tuples(WORDS, WORDS, NUMBERS))
    | st.tuples(st.just("any"), st.tuples(WORDS, PAIRS.map(lambda pair: TypedEnd("Border", pair))))
)
def test_an_identity_survives_its_forms_on_the_command_line_and_in_the_api(named: tuple[str, Any]) -> None:
    name, identity = named
    assert coerce(name, identity) == identity
    assert coerce(name, identity_text(identity)) == identity
    assert coerce(name, identity_value(identity)) == identity


def test_an_edge_s_ends_are_given_the_form_that_files_carry() -> None:
    kind = ONTOLOGY.find("near")
    assert kind is not None
    given_fields = {"from": ("CHE", "7"), "to": {"type": "Day", "id": "3"}, "note": "中"}
    coerced = Validator(kind, ONTOLOGY).coerce_ends(given_fields)
    assert json.loads(json.dumps(coerced)) == {"from": ["CHE", 7], "to": 3, "note": "中"}
    assert component_of(coerced["from"]) == ("CHE", 7)


def test_ends_that_fit_no_type_and_nodes_stay_as_they_were_given() -> None:
    kind, person = ONTOLOGY.find("near"), ONTOLOGY.find("Person")
    assert kind is not None and person is not None
    assert Validator(kind, ONTOLOGY).coerce_ends({"from": "x", "why": 1}) == {"from": "x", "why": 1}
    assert Validator(person, ONTOLOGY).coerce_ends({"from": "7"}) == {"from": "7"}
