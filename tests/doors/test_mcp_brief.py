"""Answers over MCP say a thing once, and nothing that is empty or that the call said: an agent pays for each of their bytes twice."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from tests.conftest import CopyOf, commit, run_in
from tests.doors.test_mcp import Pipe, make_ducks, piped

_READS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("types", {}),
    ("settings", {"type": "Note"}),
    ("find", {"type": "all", "query": "ducks", "mode": "match"}),
    ("find", {"type": "Note", "query": "nothing of the sort", "mode": "match"}),
    ("query", {"question": "install"}),
    ("search", {"question": "install"}),
    ("multi_get", {"pattern": "guide/*.md"}),
    ("pack", {"question": "ducks"}),
    ("pack", {"question": "ducks", "form": "markdown"}),
    ("list", {"type": "Note"}),
    ("sql", {"statement": "SELECT id, title FROM note WHERE id = 'nobody'"}),
    ("neighbors", {"type": "Note", "identity": "n1"}),
    ("path", {"start": ["Note", "n1"], "end": ["Note", "n2"]}),
    ("citing", {"type": "Note", "identity": "n1"}),
    ("blame", {"type": "Note", "identity": "n1"}),
    ("log", {"type": "Note", "identity": "n1"}),
    ("why", {"type": "Note", "identity": "n1", "query": "ducks"}),
    ("check", {}),
    ("diff", {}),
    ("branches", {}),
    ("status", {}),
    ("arch_status", {}),
    ("growth", {}),
    ("memory_stats", {}),
)


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ([], {}, "")


@pytest.fixture
def pipe(tmp_path: Path, copy_of: CopyOf) -> Iterator[Pipe]:
    with piped(copy_of(make_ducks, tmp_path / "kb"), "--tools", "all") as pipe:
        yield pipe


def test_answers_fit_the_schemas_of_their_tools_and_have_no_member_that_is_null_false_or_empty(pipe: Pipe) -> None:
    schemas = {tool["name"]: tool["outputSchema"] for tool in pipe.ask("tools/list")["result"]["tools"]}
    for name, given in _READS:
        answer = pipe.call(name, **given)
        assert "error" not in answer, (name, answer)
        jsonschema.validate(answer, schemas[name])
        empty = [member for member, value in answer.items() if _is_empty(value)]
        assert len(empty) <= 1, (name, empty)  # what was asked for, of which there is nothing
    for name, given in (
        ("put", {"type": "Note", "records": {"title": "no id", "id": "n9"}}),
        ("put", {"type": "Note", "records": {"id": "n9", "title": "trial"}, "dry_run": True}),
        ("rename", {"type": "Note", "old": "n9", "new": "n8"}),
        ("delete", {"type": "Note", "identities": ["n8"]}),
    ):
        answer = pipe.call(name, **given)
        jsonschema.validate(answer, schemas[name])
        assert not [member for member, value in answer.items() if _is_empty(value) or value == 0], (name, answer)


def test_a_receipt_does_not_repeat_the_identities_that_were_sent(pipe: Pipe) -> None:
    records = [{"id": f"r{number}", "title": "new"} for number in range(30)]
    receipt = pipe.call("put", type="Note", records=records)
    assert receipt.keys() == {"inserted", "files"} and receipt["inserted"] == 30
    few = pipe.call("put", type="Note", records=[{"id": "r0", "title": "other"}, {"id": "r1", "title": "other"}])
    assert few["updated"] == 2 and len(few["etags"]) == 2, "what changes these again needs their versions"
    edge = pipe.call("put", type="cites", records={"from": "r0", "to": "r1"})
    assert edge["inserted"] == 1 and "identities" not in edge
    gone = pipe.call(
        "delete", type="Note", identities=[record["id"] for record in records], cascade=True, allow_shrink=True
    )
    assert gone["deleted"] == 31 and gone.keys() == {"deleted", "files"}


def test_a_receipt_names_what_duckkb_named(tmp_path: Path, copy_of: CopyOf) -> None:
    root = copy_of(make_ducks, tmp_path / "kb")
    assert run_in(root, ["col", "init", "facts", "--policy", "knowledge-base"]).code == 0
    with piped(root) as pipe:
        receipt = pipe.call("put", type="facts", records=[{"content": "ducks swim"}, {"id": "b", "content": "geese"}])
        made, given = receipt["identities"]
        assert given == "b" and pipe.call("get", type="facts", identity=made)["content"] == "ducks swim"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_receipt_names_the_members_that_a_merged_object_lost(pipe: Pipe, dry_run: bool) -> None:
    record = {"id": "m", "title": "ducks", "meta": {"by": "ann", "at": {"place": "湖", "depth": 3}}}
    assert "notices" not in pipe.call("put", type="Note", records=record)
    change = {"id": "m", "meta": {"at": {"depth": 4}}}
    receipt = pipe.call("put", type="Note", records=change, merge=True, dry_run=dry_run)
    (notice,) = receipt["notices"]
    assert notice["code"] == "W_DROPPED" and "meta.at.place, meta.by were dropped" in notice["message"]
    refused = pipe.call("put", type="Note", records={"id": "m", "meta.by": "bo"}, merge=True)
    assert refused["error"]["code"] == "E_NAME" if isinstance(refused["error"], dict) else refused["code"] == "E_NAME"


def test_a_dry_run_says_what_changes_of_the_first_records_and_counts_the_others(pipe: Pipe) -> None:
    long = "".join(f"Line {number}.\n" for number in range(200))
    pipe.call("put", type="Note", records={"id": "n0", "title": "ducks 0", "text": long})
    changed = {"id": "n0", "title": "ducks 0", "text": long.replace("Line 150.", "Line CL.")}
    trial = pipe.call("put", type="Note", records=[changed, *({"id": f"t{n}"} for n in range(14))], dry_run=True)
    assert (trial["updated"], trial["inserted"], trial["changes_left_out"]) == (1, 14, 5)
    assert "patch" not in trial and trial["dry_run"] is True
    (update,) = (change for change in trial["changes"] if change["op"] == "update")
    (name,) = update["fields"]
    before, after = update["fields"][name]["before"], update["fields"][name]["after"]
    assert (update["type"], update["identity"], name) == ("Note", "n0", "text")
    assert "Line 150." in before and "Line CL." in after and len(before) + len(after) < 700 < len(long)
    assert {"op": "insert", "type": "Note", "identity": "t0"} in trial["changes"]


def test_a_refusal_says_what_is_wrong_once_and_still_names_its_places(pipe: Pipe) -> None:
    stale = pipe.call("put", type="Note", records={"id": "n1", "title": "鸭子", "_etag": "0" * 16})["error"]
    assert stale["code"] == "E_STALE" and "not at 0000" in stale["message"]
    assert stale["details"] == {"findings": [{"type": "Note", "identity": "n1"}]}
    wrong = pipe.call("list", type="Note", limit="many", full="鸭子")["error"]["details"]["findings"]
    assert [finding["field"] for finding in wrong] == ["/limit", "/full"]
    assert [set(finding) for finding in wrong] == [{"field"}, {"field", "message"}], "the first is the message"


def test_blame_and_log_name_a_commit_once(tmp_path: Path, copy_of: CopyOf) -> None:
    root = copy_of(make_ducks, tmp_path / "kb")
    assert run_in(root, ["put", "Note", '{"id": "n1", "title": "geese"}', "--merge"]).code == 0
    commit(root)
    with piped(root) as pipe:
        blame, log = pipe.call("blame", type="Note", identity="n1"), pipe.call("log", type="Note", identity="n1")
        commits = [entry["commit"] for entry in blame["commits"]]
        assert len(commits) == len({*commits}) == 2
        assert sorted(change["commit"] for change in log["changes"]) == sorted(commits)
        assert {name for entry in blame["commits"] for name in entry["fields"]} == {"id", "title", "text"}
        (newest,) = (entry for entry in blame["commits"] if "title" in entry["fields"])
        assert newest["fields"] == {"title": "geese"} and log["changes"][0]["commit"] == newest["commit"]
        assert pipe.call("get", citation=newest["uri"])["title"] == "geese"
        for entry in blame["commits"]:
            assert json.dumps(blame).count(f'"{entry["commit"]}"') == 1


def test_records_of_one_type_say_it_once_and_hits_no_engine_that_is_that_of_the_answer(pipe: Pipe) -> None:
    found = pipe.call("find", type="Note", query="ducks", mode="match")
    assert found["type"] == "Note" and len(found["results"]) == 3
    for hit in found["results"]:
        assert hit.keys() == {"id", "title", "text", "_etag", "_score"}
    assert pipe.call("list", type="Note", limit=1)["type"] == "Note"
    (cited,) = pipe.call("find", type="Note", query="ducks", mode="match", limit=1, provenance=True)["results"]
    assert cited["_provenance"].keys() == {"author", "date", "uri"}
    assert pipe.call("get", citation=cited["_provenance"]["uri"])["title"] == cited["title"]
    mixed = pipe.call("find", type="all", query="ducks install", mode="match")
    assert {hit["_type"] for hit in mixed["results"]} == {"Note", "guide"} and "type" not in mixed
    asked = pipe.call("find", type="Note", query="ducks", mode="match", fields=["_type", "_engine", "_scores"])
    assert [hit.keys() >= {"_type", "_engine"} for hit in asked["results"]] == [True] * 3


def test_an_edge_on_a_walk_names_its_other_end_and_a_document_its_title_once(pipe: Pipe) -> None:
    (step,) = pipe.call("neighbors", type="Note", identity="n1")["records"]
    assert step["id"] == "n2" and step["_edge"] == {"from": "n1", "_type": "cites"}
    (back,) = pipe.call("neighbors", type="Note", identity="n2")["records"]
    assert back["id"] == "n1" and back["_edge"] == {"to": "n2", "_type": "cites"}
    (hit,) = pipe.call("search", question="ducks")["results"]
    assert hit["title"] == "Install" and hit["snippet"] == "How to install ducks." and "where" not in hit
    page = pipe.call("get", document=f"{hit['file'].removeprefix('duckkb://')}:{hit['line']}", lines=1)
    assert page["text"].strip() == hit["snippet"]


def test_a_record_comes_whole_whatever_its_fields_are_called(tmp_path: Path, copy_of: CopyOf) -> None:
    root = copy_of(make_ducks, tmp_path / "kb")
    own = {"id": "own", "content": "x", "warnings": [], "notices": [], "degraded": False, "identities": {}, "path": ""}
    assert run_in(root, ["col", "init", "facts", "--policy", "knowledge-base"]).code == 0
    assert run_in(root, ["put", "facts", json.dumps(own)]).code == 0
    with piped(root) as pipe:
        got = pipe.call("get", type="facts", identity="own")
        (hit,) = pipe.call("find", type="facts", where="id = 'own'")["results"]
        (line,) = pipe.call("list", type="facts")["records"]
        (row,) = pipe.call("sql", statement="SELECT warnings, degraded FROM facts")["rows"]
        for record in (got, hit, line):
            assert {name: value for name, value in record.items() if not name.startswith("_")} == own
        assert row == {"warnings": [], "degraded": False}
