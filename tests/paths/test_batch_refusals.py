"""Many records of which some are refused only under the lock: the others are stored, and each one's place is told."""

import json
from pathlib import Path

import pytest

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.types.errors import InvalidRecord, Refused

LONGEST = 4096
CONFIG = f"""
global: {{embedding_model: none}}
limits: {{max_record_bytes: {LONGEST}}}
nodes:
  Note: {{table: note, identity: id, schema: {{type: object, properties: {{id: {{type: string}}}}, required: [id]}}}}
  Two: {{table: two, identity: id, schema: {{type: object, properties: {{id: {{type: string}}}}, required: [id]}}}}
edges:
  links: {{from: [Note, Two], to: Note, schema: {{type: object, properties: {{weight: {{type: integer}}}}}}}}
  one: {{from: Note, to: Note, cardinality: "1:1", schema: {{type: object, properties: {{weight: {{type: integer}}}}}}}}
"""


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    (tmp_path / "config.yaml").write_text(CONFIG, "utf-8")
    opened = duckkb.open(tmp_path)
    opened.put("Note", [{"id": f"n{number}"} for number in range(1, 4)])
    return opened


def jsonl(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.mark.parametrize("end", ["nope", {"type": "Note", "id": "nope"}])
def test_an_edge_that_dangles_keeps_no_other_line_from_being_stored(kb: KnowledgeBase, end: object) -> None:
    good = {"from": "n1", "to": "n3"}, {"from": {"type": "Note", "id": "n2"}, "to": "n3"}
    receipt = kb.put_batch("links", jsonl(good[0], {"from": end, "to": "n2"}, good[1]))
    assert receipt.inserted == 2
    (((finding,),),) = (receipt.errors,)
    assert (finding.path, finding.line, finding.code) == ("stdin", 2, "E_DANGLING_EDGE")


def test_an_edge_with_a_typed_end_that_is_not_at_the_version_named_is_refused_alone(kb: KnowledgeBase) -> None:
    typed = {"from": {"type": "Note", "id": "n1"}, "to": "n2"}
    kb.put("links", typed)
    receipt = kb.put_batch("links", jsonl({**typed, "weight": 2, "_etag": "0" * 16}, {"from": "n2", "to": "n3"}))
    assert receipt.inserted == 1 and [one.code for (one,) in receipt.errors] == ["E_STALE"]
    assert not any("weight" in one for one in kb.list("links").records)


def test_import_names_the_line_of_each_record_that_is_refused_under_the_lock(kb: KnowledgeBase, tmp_path: Path) -> None:
    file = tmp_path / "links.jsonl"
    typed = {"type": "Two", "id": "gone"}
    file.write_bytes(jsonl({"from": "n1", "to": "n2"}, {"from": "gone", "to": "n2"}, {"from": typed, "to": "n1"}))
    with pytest.raises(Refused) as refused:
        kb.import_files("links", file)
    assert [(Path(one.path).name, one.line) for one in refused.value.findings] == [
        ("links.jsonl", 2),
        ("links.jsonl", 3),
    ]
    assert not kb.list("links").records


def test_all_records_that_would_be_too_long_as_lines_are_named_at_once(kb: KnowledgeBase, tmp_path: Path) -> None:
    """A line within the limit that its id and times take past it."""
    long = [{"id": f"l{number}", "t": "x" * (LONGEST - 40)} for number in range(3)]
    file = tmp_path / "long.jsonl"
    file.write_bytes(jsonl(long[0], {"id": "fits"}, long[1], long[2]))
    with pytest.raises(InvalidRecord) as refused:
        kb.import_files("Note", file)
    assert [(one.line, one.code) for one in refused.value.findings] == [(at, "E_TOO_LARGE") for at in (1, 3, 4)]
    assert len(kb.list("Note").records) == 3
    receipt = kb.put_batch("Note", file.read_bytes())
    assert receipt.inserted == 1 and [one.line for (one,) in receipt.errors] == [1, 3, 4]


@pytest.mark.parametrize("odd", [[["x"]], [{"a": 1}], [None, 5], "text", {"id": 1}])
def test_what_is_left_out_of_a_line_may_be_told_in_any_way_and_nothing_fails(kb: KnowledgeBase, odd: object) -> None:
    receipt = kb.put_batch("Note", jsonl({"id": "n1", "_partial": odd, "more": 1}, {"id": "n9"}), merge=True)
    assert receipt.inserted == 1 and receipt.updated == 1 and not receipt.errors


@pytest.mark.parametrize(
    "lines, stored",
    [
        ([{"from": "n1", "to": "n5"}, {"from": "n4", "to": "n5"}], [("n1", "n2"), ("n4", "n5")]),
        ([{"from": "n1", "to": "n6"}, {"from": "n1", "to": "n2", "weight": 1}], [("n1", "n2", 1)]),
        ([{"from": "n3", "to": "gone"}, {"from": "n3", "to": "n4"}], [("n1", "n2"), ("n3", "n4")]),
    ],
)
def test_what_is_refused_stands_in_no_other_lines_way(
    kb: KnowledgeBase, lines: list[dict[str, object]], stored: list[tuple[object, ...]]
) -> None:
    kb.put("Note", [{"id": f"n{number}"} for number in range(4, 7)])
    kb.put("one", {"from": "n1", "to": "n2"})
    receipt = kb.put_batch("one", jsonl(*lines))
    assert [one.line for (one,) in receipt.errors] == [1]
    names = ("from", "to", "weight")
    assert [tuple(one[name] for name in names if name in one) for one in kb.list("one").records] == stored


def test_of_versions_that_are_merged_the_one_with_the_bad_field_is_blamed(kb: KnowledgeBase, tmp_path: Path) -> None:
    kb.put("links", {"from": "n1", "to": "n2"})
    bad, good = {"from": "n1", "to": "n2", "weight": "x"}, {"from": "n1", "to": "n2", "more": 1}
    receipt = kb.put_batch("links", jsonl(bad, good), merge=True)
    assert [one.line for (one,) in receipt.errors] == [1] and kb.list("links").records[0]["more"] == 1
    file = tmp_path / "links.jsonl"
    file.write_bytes(jsonl(bad, good))
    with pytest.raises(InvalidRecord) as refused:
        kb.import_files("links", file, merge=True)
    assert [one.line for one in refused.value.findings] == [1]


def test_errors_in_an_array_come_in_its_order(kb: KnowledgeBase) -> None:
    array = [{"from": "n1", "to": "gone"}, {"from": "n1", "to": "n2", "weight": "x"}, {"from": "n2", "to": "gone"}]
    receipt = kb.put_batch("links", json.dumps(array).encode())
    assert [one.path for (one,) in receipt.errors] == [f"stdin, record {number}" for number in (1, 2, 3)]
