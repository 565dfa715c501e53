"""What of a record is printed: the default form of a hit, --fields, and that a part never replaces the whole."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from tests.conftest import make_base, run_in

EDGES = """
nodes:
  Note:
    table: note
    identity: id
    schema: {type: object, properties: {id: {type: string}, title: {type: string}}}
    search: {full_text: [title]}
edges:
  cites: {from: Note, to: Note, schema: {type: object, properties: {why: {type: string}}}}
"""
LONG = " ".join(f"sentence {number} tells of rivers." for number in range(200)) + " The last one names a kestrel."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = make_base(tmp_path_factory.mktemp("fields") / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="knowledge-base")
        kb.collections.init("features", policy="feature-store")
        short = [
            {"id": f"n{n}", "content": f"note {n} on the fox 备份", "meta": {"by": "ann", "n": n}} for n in range(9)
        ]
        kb.put("notes", [*short, {"id": "long", "content": LONG, "author": "bo"}])
        kb.put("features", [{"id": "a", "label": "x", "tensor": [n / 7 for n in range(384)]}])
    return root


def stored(root: Path, collection: str) -> dict[str, int]:
    """The bytes of each record's line in data/."""
    lines = [line for part in (root / "data/nodes" / collection).rglob("*.jsonl") for line in part.open("rb")]
    return {json.loads(line)["id"]: len(line) for line in lines}


def test_a_hit_of_default_form_is_at_most_a_third_longer_than_its_record(base: Path) -> None:
    """But for the account of a hybrid score, which a collection's line has."""
    vector = json.dumps([1] * 384)
    for collection, question in (("notes", ["fox"]), ("notes", ["kestrel", "-m"]), ("features", ["--vector", "-"])):
        ran = run_in(base, ["find", collection, *question], stdin=vector)
        sizes = stored(base, collection)
        hits = [
            (len(text.encode()) - len(json.dumps(line.get("_scores", ""))), sizes[line["id"]])
            for text, line in zip(ran.out.splitlines(), ran.lines, strict=True)
        ]
        assert hits and all(hit <= 1.3 * record for hit, record in hits)


def test_a_chunk_is_printed_where_it_is_a_part_of_a_longer_text(base: Path) -> None:
    (short,) = run_in(base, ["find", "notes", "备份", "-m", "-l", "1"]).lines
    assert "_chunk" not in short
    (found,) = run_in(base, ["find", "notes", "kestrel", "-m"]).lines
    assert found["_chunk"] == {"field": "content", "chunk_seq": found["_chunk"]["chunk_seq"]}
    assert found["_chunk"]["chunk_seq"] > 0 and "kestrel" in found["content"] and found["_partial"] == ["content"]
    whole = run_in(base, ["find", "notes", "kestrel", "-m", "--full"]).line
    assert "kestrel" in whole["_chunk"]["text"] and whole["content"] == LONG and "_partial" not in whole
    assert "_chunk" not in run_in(base, ["find", "notes", "kestrel", "-m", "--no-chunk"]).line
    asked = run_in(base, ["find", "notes", "备份", "-m", "-l", "1", "--fields", "+_chunk"]).line
    assert asked["_chunk"] == {"field": "content", "chunk_seq": 0, "text": short["content"]}
    assert {name: value for name, value in asked.items() if name != "_chunk"} == short


def test_fields_are_those_that_are_named_in_every_verb_and_form(base: Path) -> None:
    named = ["--fields", "_etag,meta.by,id"]
    got = run_in(base, ["get", "notes", "n1", *named]).line
    assert list(got) == ["_etag", "meta", "id", "_partial"] and got["meta"] == {"by": "ann"}
    found = run_in(base, ["find", "notes", "-w", "id = 'n1'", *named]).line
    listed = run_in(base, ["list", "notes", "--json", *named]).line["records"]
    assert got == found and got in listed and listed[0] == {"_etag": listed[0]["_etag"], "id": "long", "_partial": []}
    for form, row in (("csv", f"{got['_etag']},ann,n1"), ("md", f"| `{got['_etag']}` | `ann` | `n1` |")):
        out = run_in(base, ["get", "notes", "n1", *named, "--format", form]).out.splitlines()
        assert out[-1] == row and "_partial" not in out[0]
    assert run_in(base, ["find", "notes", "fox", "-m", "-l", "1", "--fields", "_score"]).line["_score"] > 0


def test_a_walk_along_edges_prints_no_given_vectors_but_where_they_are_asked_for(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("features", policy="feature-store", params={"dimension": 2})
    (root / "ontology" / "near.yaml").write_text("edges:\n  near: {from: features, to: features}\n", "utf-8")
    with duckkb.open(root) as kb:
        kb.put("features", [{"id": "a", "tensor": [1, 0]}, {"id": "b", "tensor": [0, 1]}])
        kb.put("near", {"from": "a", "to": "b"})
    for walk in (["graph", "neighbors", "features", "a"], ["graph", "path", "features", "a", "features", "b"]):
        ran = run_in(root, walk)
        assert "tensor" not in ran.out and "--fields +tensor" in ran.err and ran.lines[-1]["_edge"]["to"] == "b"
        asked = run_in(root, [*walk, "--fields", "+tensor"])
        assert asked.lines[-1]["tensor"] == [0, 1] and asked.err == ""
        step = {"_type": "features", "id": "b", "_depth": 1, "_partial": []}
        assert run_in(root, [*walk, "--fields", "id,_depth"]).lines[-1] == step


def test_a_line_of_some_fields_says_which_record_it_is_of(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", f"global: {{embedding_model: none}}\n{EDGES}")
    (root / "guide").mkdir()
    (root / "guide/install.md").write_text("# Install\n\nducks\n", "utf-8")
    with duckkb.open(root) as kb:
        kb.documents.add(root / "guide")
        kb.put("Note", [{"id": "n1", "title": "ducks"}, {"id": "n2", "title": "geese"}])
        kb.put("cites", {"from": "n1", "to": "n2", "why": "ducks"})
    lines = run_in(root, ["find", "all", "ducks", "-m", "--fields", "id"]).lines
    assert {(line["_type"], line.get("path", line.get("id"))) for line in lines} >= {
        ("guide", "install.md"),
        ("Note", "n1"),
    }
    document = {"path": "install.md", "title": "Install", "_partial": []}
    assert run_in(root, ["list", "guide", "--fields", "title"]).lines == [document]
    assert run_in(root, ["find", "guide", "ducks", "-m", "--fields", "title"]).lines == [document]
    assert run_in(root, ["get", "Note", "n1", "--fields", "title"]).line == {"id": "n1", "title": "ducks"}
    edge = {"from": "n1", "to": "n2", "why": "ducks"}
    assert run_in(root, ["list", "cites", "--fields", "why"]).lines == [edge]
    assert run_in(root, ["list", "guide", "--fields", "title", "--format", "csv"]).out.split() == ["title", "Install"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["get", "notes", "n1", "--fields", "id,contant"], "content"),
        (["list", "notes", "--fields", "_score"], "duckkb find"),
        (["find", "notes", "-w", "id = 'n1'", "--fields", "_explain"], "--explain"),
        (["list", "notes", "--fields", "a,+b"], "duckkb list notes --json"),
        (["find", "all", "fox", "-m", "--fields", "lable"], "label"),
    ],
)
def test_a_name_that_is_no_field_is_refused_with_the_nearest(base: Path, args: list[str], said: str) -> None:
    ran = run_in(base, [*args, "--json"])
    assert (ran.code, ran.out) == (2, "") and said in ran.error["suggestion"]


def test_given_vectors_are_printed_by_get_and_where_they_are_named(base: Path) -> None:
    for verb in (["list", "features"], ["find", "features", "-w", "label = 'x'"]):
        ran = run_in(base, verb)
        assert "tensor" not in ran.line and "--fields +tensor" in ran.err
        whole = run_in(base, [*verb, "--fields", "+tensor"])
        assert len(whole.line["tensor"]) == 384 and "_partial" not in whole.line and whole.err == ""
    assert len(run_in(base, ["get", "features", "a"]).line["tensor"]) == 384


@pytest.mark.long
def test_what_is_printed_whole_can_be_put_back_and_a_part_never_replaces_the_whole(base: Path) -> None:
    whole = run_in(base, ["get", "notes", "n2"]).line
    for verb in (
        ["get", "notes", "n2"],
        ["find", "notes", "-w", "id = 'n2'"],
        ["list", "notes", "--after", "n1", "-l", "1"],
    ):
        assert run_in(base, ["put", "notes"], stdin=run_in(base, verb).out).line["unchanged"] == 1
    parts = [["get", "notes", "n2", "--fields", "id,content"], ["get", "notes", "n2", "--fields", "id,meta.by"]]
    for verb in (*parts, ["list", "features"]):
        line = run_in(base, verb).out
        for put in (["put", verb[1]], ["put", verb[1], line], ["import", verb[1], "-"], ["put", verb[1], "--batch"]):
            ran = run_in(base, put, stdin=line)
            assert (ran.code > 0 and "E_PARTIAL" in ran.err + ran.out) or "lacks some" in ran.err, ran.err
    refused = run_in(base, ["put", "notes", "--merge"], stdin=run_in(base, parts[1]).out)
    assert refused.code == 1 and "--fields meta" in refused.err
    edited = json.dumps(run_in(base, parts[0]).line | {"content": "new"})
    assert run_in(base, ["put", "notes", "--merge"], stdin=edited).line["updated"] == 1
    now = run_in(base, ["get", "notes", "n2"]).line
    assert now["content"] == "new" and now["meta"] == whole["meta"]
