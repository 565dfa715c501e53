"""`true` and `false` are schemas, wherever JSON Schema has one: of a field, of items, of a definition."""

import json
from pathlib import Path

import pytest

from tests.conftest import commit, git, make_base, run_in

CONFIG = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      $defs: {anything: true, nothing: false}
      properties:
        id: {type: string}
        title: {type: string}
        extra: true
        never: false
        aside: {$ref: "#/$defs/anything"}
        gone: {$ref: "#/$defs/nothing"}
        list: {type: array, items: true}
        none: {type: array, items: false}
        pair: {type: array, prefixItems: [true, {type: string}], items: false}
        some: {type: array, contains: true}
        map: {type: object, additionalProperties: true, properties: {x: true, y: false}}
        shut: {type: object, additionalProperties: false, properties: {x: true}}
        either: {anyOf: [true, {type: string}], not: false, if: true, then: true, else: false}
      required: [id]
      additionalProperties: true
    search: {full_text: [title]}
  Pattern:
    table: pattern
    identity: id
    schema: {type: object, properties: {id: {type: string}}, patternProperties: {"^p": true, "^n": false}, required: [id]}
edges:
  cites: {from: Note, to: Note, schema: {type: object, properties: {why: true, never: false}, additionalProperties: false}}
"""
WHOLE = {
    "id": "甲", "title": "quick fox", "extra": {"x": [1]}, "aside": 5, "list": [1, "a", None], "none": [], "pair": [{}, ""],
    "some": [0], "map": {"x": 1, "z": 2}, "shut": {"x": 1}, "either": [1], "unknown": "",
}  # fmt: skip
READS = [
    ["list", "Note"],
    ["get", "Note", "甲"],
    ["find", "Note", "fox"],
    ["find", "Note", "-w", "extra = 7"],
    ["sql", "SELECT extra, list, map, never FROM note"],
    ["schema"],
    ["schema", "Note"],
    ["schema", "Note", "--settings"],
    ["export", "Note"],
    ["status"],
    ["check"],
    ["check", "--since", "HEAD~1"],
    ["diff", "HEAD~1..HEAD"],
    ["impact", "HEAD~1..HEAD"],
    ["log", "Note", "甲"],
    ["blame", "Note", "甲"],
    ["why", "Note", "甲", "fox"],
    ["fmt", "--check"],
    ["doctor"],
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("booleans") / "kb", CONFIG)
    assert run_in(root, ["put", "Note", '{"id":"b","title":"","extra":7}']).code == 0
    commit(root)
    for kind, record in (
        ("Note", WHOLE),
        ("cites", {"from": "甲", "to": "b", "why": [1]}),
        ("Pattern", {"id": "p", "p1": 1}),
    ):
        ran = run_in(root, ["put", kind, json.dumps(record)])
        assert ran.code == 0, ran.err
    commit(root)
    return root


@pytest.mark.long
@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_a_base_whose_schemas_are_true_or_false_is_read(base: Path, args: list[str]) -> None:
    ran = run_in(base, args)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("kind", "wrong", "field"),
    [
        ("Note", {"never": 1}, "/never"),
        ("Note", {"gone": 1}, "/gone"),
        ("Note", {"none": [1]}, "/none"),
        ("Note", {"pair": [1, "a", 2]}, "/pair"),
        ("Note", {"some": []}, "/some"),
        ("Note", {"map": {"y": 1}}, "/map/y"),
        ("Note", {"shut": {"y": 1}}, "/shut/y"),
        ("Pattern", {"n1": 1}, "/n1"),
        ("cites", {"from": "b", "to": "b", "never": ""}, "/never"),
    ],
)
def test_what_false_keeps_out_is_refused_by_its_place(
    base: Path, kind: str, wrong: dict[str, object], field: str
) -> None:
    record = wrong if kind == "cites" else {"id": "c", **wrong}
    error = run_in(base, ["--json", "put", kind, json.dumps(record), "--dry-run"]).error
    (problem,) = error["details"]["findings"]
    assert problem["field"] == field and "(rule: None)" not in problem["message"], error


def test_a_merge_knows_fields_of_any_kind(base: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(base), "kb")
    root = tmp_path / "kb"
    git(root, "checkout", "-q", "-b", "topic")
    assert run_in(root, ["put", "Note", '{"id":"b","title":"theirs"}', "--merge"]).code == 0
    commit(root)
    git(root, "checkout", "-q", "main")
    assert run_in(root, ["put", "Note", '{"id":"b","extra":[8]}', "--merge"]).code == 0
    commit(root)
    assert run_in(root, ["merge", "topic"]).code == 0
    record = run_in(root, ["get", "Note", "b"]).line
    assert (record["title"], record["extra"]) == ("theirs", [8])


def test_a_field_of_any_kind_names_no_record_and_is_not_searched(tmp_path: Path) -> None:
    for number, (old, new) in enumerate([("identity: id", "identity: extra"), ("[title]", "[extra]")]):
        root = make_base(tmp_path / str(number), CONFIG.replace(old, new, 1))
        ran = run_in(root, ["status"])
        assert ran.code != 0 and "extra" in ran.err, ran.err


def test_pages_show_records_and_types_of_any_kind(base: Path) -> None:
    pytest.importorskip("mcp", reason="serving needs the extra `serve`")
    from tests.harness.reading_room import room

    with room(base, edits=True) as opened:
        client = opened.signed_in()
        for page in ("records", "record", "edit", "ontology/type", "record/history"):
            answer = client.get(f"/web/{page}", params={"type": "Note", "id": "甲"})
            assert answer.status_code == 200, (page, answer.text[:400])
