"""Types and policies from YAML: what a good ontology becomes, and every problem of a bad one with file and line."""

import textwrap

import pytest

from duckkb.ontology.model import Ontology, SearchField
from duckkb.ontology.names import did_you_mean, is_table_name, is_type_name, nearest
from duckkb.ontology.ontology_files import load, questions
from duckkb.ontology.yaml_source import read_yaml
from duckkb.types.errors import Finding
from duckkb.types.settings import Fusion

GOOD = """\
nodes:
  Concept:
    identity: id
    schema:
      type: object
      properties:
        id: {type: string}
        name: {type: string}
        简介: {type: [string, "null"]}
        tags: {type: array, items: {$ref: '#/$defs/Tag'}, x-merge: set}
        body: {type: string, x-merge: text}
      required: [name]
      $defs:
        Tag: {type: string, minLength: 1}
    search:
      full_text: [name, {field: tags, weight: 2, language: none}, 简介]
      vectors: [{field: body, chunk_size: 400}]
    policy: words
    merge: {granularity: record}
  Border:
    table: borders
    identity: [a, b]
    schema: {properties: {a: {type: string}, b: {type: integer}}}
edges:
  relates_to:
    from: Concept
    to: [Concept, Border]
    identity: since
    cardinality: "1:N"
    schema: {properties: {since: {type: integer}, how: {type: string}}}
    search: {full_text: [how]}
  Near: {label: near, from: Border, to: Border}
policies:
  words:
    intents: {allowed: [where, match], default: match}
    fusion: {method: minmax, weight: 0.4}
"""


def loaded(*texts: str) -> tuple[Ontology, list[Finding]]:
    documents = [
        read_yaml(textwrap.dedent(text).encode(), "config.yaml" if index == 0 else f"ontology/{index}.yaml")
        for index, text in enumerate(texts)
    ]
    return load(documents)


def problems(*texts: str) -> list[tuple[str, str, str]]:
    """`(place, pointer, message)` of each finding."""
    return [(finding.place, finding.field, finding.message) for finding in loaded(*texts)[1]]


def type_with(schema: str = "{properties: {id: {type: string}}}", rest: str = "", identity: str = "id") -> str:
    """A config with one node type: the schema stands on line 4, `rest` from line 5 on."""
    return f"nodes:\n  Note:\n    identity: {identity}\n    schema: {schema}\n{rest}"


def test_dk_01_types_policies_and_ends_load_with_their_places() -> None:
    ontology, findings = loaded(GOOD)
    assert findings == []
    concept, border = ontology.nodes["Concept"], ontology.nodes["Border"]
    assert (concept.table, concept.identity, concept.place) == ("concept", ("id",), "config.yaml:2")
    assert (border.table, border.identity) == ("borders", ("a", "b"))
    assert concept.full_text == (SearchField("name"), SearchField("tags", 2, "none"), SearchField("简介"))
    assert concept.vectors == (SearchField("body", chunk_size=400),)
    assert concept.merge_rules == {"tags": "set", "body": "text"}
    assert concept.granularity == "record" and border.granularity is None
    assert concept.policy is ontology.policies["words"]
    assert (concept.policy.intents, concept.policy.default_intent) == (("match", "where"), "match")
    assert concept.policy.overrides["fusion"] == Fusion("minmax", 60, 0.4)


def test_dk_01_edges_have_labels_ends_and_an_identity_of_their_own() -> None:
    ontology, _ = loaded(GOOD)
    relates, near = ontology.edges["relates_to"], ontology.edges["Near"]
    assert (relates.table, relates.from_types, relates.to_types) == ("relates_to", ("Concept",), ("Concept", "Border"))
    assert relates.identity_fields == ("from", "to", "since")
    assert (relates.cardinality, near.cardinality, near.table) == ("1:N", "N:N", "near")
    assert near.schema == {"type": "object", "properties": {}}


def test_identity_fields_are_required_even_where_the_schema_does_not_say_so() -> None:
    ontology, _ = loaded(GOOD)
    assert ontology.nodes["Concept"].schema["required"] == ["name", "id"]
    assert ontology.nodes["Border"].schema["required"] == ["a", "b"]
    assert ontology.edges["relates_to"].schema["required"] == ["since"]


def test_dk_01_types_of_several_files_make_one_ontology() -> None:
    node = "nodes:\n  {}: {{identity: id, schema: {{properties: {{id: {{type: string}}}}}}}}\n"
    edge = "edges:\n  knows: {from: Person, to: 概念}\n"
    ontology, findings = loaded(
        "nodes: {}\n",
        edge,
        node.format("Person"),
        node.format("概念").replace("{identity", "{table: concept, identity"),
    )
    assert findings == []
    assert list(ontology.nodes) == ["Person", "概念"]
    assert ontology.find("CONCEPT") is ontology.nodes["概念"]


def test_an_empty_configuration_is_an_empty_ontology() -> None:
    assert loaded("") == (Ontology(), [])
    assert loaded("nodes:\nedges: {}\npolicies:\n") == (Ontology(), [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodez: {}\n", ("config.yaml:1", "/nodez", "unknown key")),
        ("nodes: [a]\n", ("config.yaml:1", "/nodes", "must be a mapping, is a list")),
        ("nodes:\n  A: 7\n", ("config.yaml:2", "/nodes/A", "must be a mapping, is 7")),
        ("nodes:\n  A: {}\n", ("config.yaml:2", "/nodes/A", "declares nothing")),
        ("nodes:\n  A:\n", ("config.yaml:2", "/nodes/A", "declares nothing")),
        (type_with(rest="    serch: {}\n"), ("config.yaml:5", "/nodes/Note/serch", "unknown key")),
        (type_with(identity="ID"), ("config.yaml:3", "/nodes/Note/identity", "not in the schema")),
        (type_with(identity="[id, no_such]"), ("config.yaml:3", "/nodes/Note/identity/1", "not in the schema")),
        (type_with(identity="[id, id]"), ("config.yaml:3", "/nodes/Note/identity/1", "twice")),
        (type_with(identity="[]"), ("config.yaml:3", "/nodes/Note/identity", "empty")),
        (type_with(identity="7"), ("config.yaml:3", "/nodes/Note/identity", "must be a name")),
        (type_with("{properties: {id: {type: number}}}"), ("config.yaml:3", "/nodes/Note/identity", "string or an integer")),
        (type_with("{properties: {id: {}}}"), ("config.yaml:3", "/nodes/Note/identity", "string or an integer")),
        (
            type_with("{properties: {id: {type: [string, 'null']}}}"),
            ("config.yaml:3", "/nodes/Note/identity", "string or an integer"),
        ),
        (
            type_with("{properties: {id: {type: [string, integer]}}}"),
            ("config.yaml:3", "/nodes/Note/identity", "string or an integer"),
        ),
        (type_with(rest="    table: Note\n"), ("config.yaml:5", "/nodes/Note/table", "safe table")),
        (type_with(rest="    table: con\n"), ("config.yaml:5", "/nodes/Note/table", "safe table")),
        (type_with(rest="    table: search_index\n"), ("config.yaml:5", "/nodes/Note/table", "safe table")),
        (type_with(rest="    table: ../x\n"), ("config.yaml:5", "/nodes/Note/table", "safe table")),
        (type_with(rest="    policy: hybird\n"), ("config.yaml:5", "/nodes/Note/policy", "unknown policy")),
        (type_with(rest="    merge: {granularity: line}\n"), ("config.yaml:5", "/nodes/Note/merge/granularity", "one of")),
        (type_with(rest="    search: [id]\n"), ("config.yaml:5", "/nodes/Note/search", "must be a mapping")),
        (type_with(rest="    search: {full_text: id}\n"), ("config.yaml:5", "/nodes/Note/search/full_text", "must be a list")),
        (
            type_with(rest="    search:\n      full_text:\n      - id\n      - nam\n"),
            ("config.yaml:8", "/nodes/Note/search/full_text/1", "not in the schema"),
        ),
        (
            type_with(rest="    search:\n      vectors: [id, id]\n"),
            ("config.yaml:6", "/nodes/Note/search/vectors/1", "twice"),
        ),
        (
            type_with(rest="    search:\n      vectors: [{field: id, chunk_size: 10}]\n"),
            ("config.yaml:6", "/nodes/Note/search/vectors/0/chunk_size", "100 to 50000"),
        ),
        (
            type_with(rest="    search:\n      full_text: [{field: id, languag: english}]\n"),
            ("config.yaml:6", "/nodes/Note/search/full_text/0/languag", "unknown key"),
        ),
        (
            type_with(rest="    search:\n      full_text: [{field: id, language: klingon}]\n"),
            ("config.yaml:6", "/nodes/Note/search/full_text/0/language", "one of"),
        ),
        (
            type_with(rest="    search: {full_text: [{field: id, chunk_size: 200}], vectors: [{field: id, chunk_size: 300}]}\n"),
            ("config.yaml:5", "/nodes/Note/search/vectors/0", "another chunk_size"),
        ),
        ("nodes:\n  Con: {identity: i, schema: {properties: {i: {type: string}}}}\n", ("config.yaml:2", "/nodes/Con", "no safe table")),
        ("nodes:\n  All: {table: a, identity: i, schema: {properties: {i: {type: string}}}}\n", ("config.yaml:2", "/nodes/All", "cannot name")),
        ("policies:\n  p: {intents: {allowed: [matsch]}}\n", ("config.yaml:2", "/policies/p/intents/allowed/0", "one of")),
        ("policies:\n  p: {intents: {allowed: [match], default: where}}\n", ("config.yaml:2", "/policies/p/intents/default", "not among")),
        ("policies:\n  p: {fusion: {method: rff}}\n", ("config.yaml:2", "/policies/p/fusion/method", "did you mean `rrf`")),
        ("policies:\n  p: {fusion: {weight: 2}}\n", ("config.yaml:2", "/policies/p/fusion/weight", "0 to 1")),
        ("policies:\n  p: {ann: hsnw}\n", ("config.yaml:2", "/policies/p/ann", "did you mean `hnsw`")),
        ("policies:\n  p: {refuse: x}\n", ("config.yaml:2", "/policies/p/refuse", "must be a mapping")),
        ("policies:\n  p: {refuses: {}}\n", ("config.yaml:2", "/policies/p/refuses", "unknown key")),
        ("policies:\n  p: {refuse: {match: x}}\n", ("config.yaml:2", "/policies/p/refuse/match", "match is allowed")),
        ("policies:\n  p: {fields: {vectors: most}}\n", ("config.yaml:2", "/policies/p/fields/vectors", "none, auto, all")),
        ("policies:\n  p: {fields: {vectors: [{field: a, dimension: 3}]}}\n", ("config.yaml:2", "/policies/p/fields/vectors/0/dimension", "`given`")),
        ("policies:\n  p: {identity: {fields: [a, b], generate: uuid4}}\n", ("config.yaml:2", "/policies/p/identity/generate", "one field")),
        ("policies:\n  p: {identity: {fields: a, generate: serial}}\n", ("config.yaml:2", "/policies/p/identity/generate", "uuid4")),
        ("policies:\n  p: {params: {size: fields}}\n", ("config.yaml:2", "/policies/p/params/size", "pointer")),
        ("collections:\n  c: {table: c}\n", ("config.yaml:2", "/collections/c", "needs `policy`")),
        ("collections:\n  -c: {policy: {name: x}}\n", ("config.yaml:2", "/collections/-c", "cannot name a collection")),
    ],
)  # fmt: skip
def test_dk_03_a_wrong_declaration_is_named_with_its_line(text: str, expected: tuple[str, str, str]) -> None:
    found = problems(text)
    assert [(place, field) for place, field, _ in found] == [expected[:2]]
    assert expected[2] in found[0][2]


NODE = "nodes:\n  Note: {identity: id, schema: {properties: {id: {type: string}}}}\n"


@pytest.mark.parametrize(
    ("edge", "pointer", "words"),
    [
        ("{from: Note, to: Nota}", "/to", "unknown node type"),
        ("{from: [Note, Zebra], to: Note}", "/from/1", "unknown node type"),
        ("{from: note, to: Note}", "/from", "unknown node type"),
        ("{from: e, to: Note}", "/from", "unknown node type"),
        ("{from: [Note, Note], to: Note}", "/from/1", "twice"),
        ("{from: [], to: Note}", "/from", "empty"),
        ("{to: Note}", "", "needs `from`"),
        ("{from: Note, to: Note, cardinality: 'N:1:1'}", "/cardinality", "one of"),
        ("{from: Note, to: Note, label: Re-Lates}", "/label", "safe label"),
        ("{from: Note, to: Note, identity: from}", "/identity", "always part"),
        ("{from: Note, to: Note, identity: since}", "/identity", "not in the schema"),
        ("{from: Note, to: Note, schema: {properties: {to: {}}}}", "/schema/properties/to", "edge's end"),
        ("{from: Note, to: Note, schema: {properties: {from_id: {}}}}", "/schema/properties/from_id", "edge's end"),
        ("{from: Note, to: Note, schema: {required: [from]}}", "/schema/required/0", "always required"),
        ("{from: Note, to: Note, table: e}", "/table", "unknown key"),
    ],
)
def test_dk_03_a_wrong_edge_is_named_with_its_line(edge: str, pointer: str, words: str) -> None:
    found = problems(NODE + f"edges:\n  e: {edge}\n")
    assert [(place, field) for place, field, _ in found] == [("config.yaml:4", f"/edges/e{pointer}")]
    assert words in found[0][2]


def test_an_unsafe_edge_name_needs_a_label() -> None:
    found = problems(NODE + "edges:\n  Führt_Zu: {from: Note, to: Note}\n")
    assert [(place, message) for place, _, message in found] == [("config.yaml:4", "its name makes no safe label")]


def test_the_label_of_an_edge_type_follows_from_its_name_as_a_table_does_from_a_node_types() -> None:
    ontology, found = load(
        [read_yaml((NODE + "edges:\n  Relates_To: {from: Note, to: Note}\n").encode(), "config.yaml")]
    )
    assert not found and ontology.edges["Relates_To"].table == "relates_to" and ontology.nodes["Note"].table == "note"


def test_dk_03_two_types_with_one_table_name_both_places() -> None:
    one = "{table: t, identity: i, schema: {properties: {i: {type: string}}}}"
    found = problems(f"nodes:\n  A: {one}\n", f"nodes:\n  B: {one}\n")
    assert found[0][:2] == ("ontology/1.yaml:2", "/nodes/B/table")
    assert "A (config.yaml:2)" in found[0][2]
    assert len(found) == 1


def test_dk_03_a_table_and_a_label_that_coincide_are_refused() -> None:
    found = problems(NODE + "edges:\n  note: {from: Note, to: Note}\n")
    assert any("is that of Note" in message for _, _, message in found)


def test_a_table_that_is_the_name_of_another_type_is_refused() -> None:
    one = "{{table: {}, identity: i, schema: {{properties: {{i: {{type: string}}}}}}}}"
    found = problems(f"nodes:\n  Person: {one.format('people')}\n  Human: {one.format('person')}\n")
    assert [(place, field) for place, field, _ in found] == [("config.yaml:3", "/nodes/Human/table")]
    assert "config.yaml:2" in found[0][2]


def test_types_whose_names_differ_in_case_alone_are_refused() -> None:
    one = "{{table: {}, identity: i, schema: {{properties: {{i: {{type: string}}}}}}}}"
    found = problems(f"nodes:\n  Note: {one.format('a')}\n  NOTE: {one.format('b')}\n")
    assert [(place, field) for place, field, _ in found] == [("config.yaml:3", "/nodes/NOTE")]


def test_a_type_declared_in_two_files_names_both() -> None:
    found = problems(NODE, NODE)
    assert found == [("ontology/1.yaml:2", "/nodes/Note", '"Note" is declared already at config.yaml:2')]


def test_a_file_that_does_not_parse_causes_no_findings_about_its_types() -> None:
    found = problems("edges:\n  e: {from: Note, to: Note, policy: p}\n", "nodes: [\n")
    assert [place for place, _, _ in found] == ["ontology/1.yaml:2"]


def test_dk_03_all_problems_of_all_files_come_at_once_in_order() -> None:
    found = problems(
        "nodes:\n  A: {identity: x}\n  B: {table: B, identity: i, schema: {properties: {i: {type: strin}}}}\n",
        "edges:\n  e: {from: Aa, to: C}\nunknown: 1\n",
        "nodes:\n  C: {identity: 010}\n",
    )
    places = [place for place, _, _ in found]
    assert places == sorted(places)
    assert {(place, field) for place, field, _ in found} >= {
        ("config.yaml:2", "/nodes/A/identity"),
        ("config.yaml:3", "/nodes/B/table"),
        ("config.yaml:3", "/nodes/B/schema/properties/i/type"),
        ("ontology/1.yaml:2", "/edges/e/from"),
        ("ontology/1.yaml:3", "/unknown"),
        ("ontology/2.yaml:2", "/nodes/C/identity"),
    }


def test_an_unknown_name_comes_with_the_nearest_or_with_what_there_is() -> None:
    remedies = [finding.remedy for finding in loaded(NODE + "edges:\n  e: {from: Nota, to: Zzz, froom: Note}\n")[1]]
    assert remedies == ["did you mean `from`?", "did you mean `Note`?", "known here: Note"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("person", True),
        ("a1_b", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("Person", False),
        ("1a", False),
    ]
    + [("_a", False), ("a-b", False), ("a.b", False), ("人", False), ("a\n", False), ("../etc", False), (".git", False)]
    + [(name, False) for name in ("con", "prn", "aux", "nul", "com1", "lpt9", "search_index", "search_cache")]
    + [("com0", True), ("console", True)],
)
def test_a_table_name_is_a_safe_folder_and_no_runtime_table(name: str, safe: bool) -> None:
    assert is_table_name(name) is safe


@pytest.mark.parametrize(
    ("name", "fine"), [("Person", True), ("概念", True), ("_x", False), ("a b", False), ("ALL", False)]
)
def test_a_type_name_is_a_word_of_any_script(name: str, fine: bool) -> None:
    assert is_type_name(name) is fine


def test_the_nearest_name_ignores_case_and_may_be_none() -> None:
    assert nearest("CHUNKSIZE", ["tokenizer", "chunk_size"]) == "chunk_size"
    assert nearest("xyz", ["tokenizer"]) is None
    assert did_you_mean("xyz", []) == ""


def test_questions_are_kept_as_they_stand_and_checked_lightly() -> None:
    good = "questions:\n- {question: 什么是内存？, type: Note, mode: hybrid, expected: {a: 2, b: 1}}\n- {question: x, type: note, expected: [a]}\n"
    document = read_yaml((NODE + good).encode(), "config.yaml")
    kept, findings = questions([document], load([document])[0])
    assert findings == []
    assert [item["question"] for item in kept] == ["什么是内存？", "x"]
    bad = "questions:\n- 7\n- {type: Nota, mode: fuzzy, expected: {a: best}}\n- {question: '', type: Note, expected: []}\n"
    document = read_yaml((NODE + bad).encode(), "config.yaml")
    _, findings = questions([document], load([document])[0])
    assert [(finding.line, finding.field) for finding in findings] == [
        (4, "/questions/0"),
        (5, "/questions/1"),
        (5, "/questions/1/mode"),
        (5, "/questions/1/type"),
        (5, "/questions/1/expected/a"),
        (6, "/questions/2/question"),
        (6, "/questions/2/expected"),
    ]
