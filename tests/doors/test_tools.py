"""A model works on a base: actions as tools of the loop, what it puts as proposals, and what it did as records (AX-04 to AX-06)."""

import json
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.app import KnowledgeBase
from duckkb.llm.loop import Harness, LoopResult, Ticket, Tool, ToolLoop
from duckkb.operations.agent_knowledge import READS, shorten_answer
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.chat_messages import Message, ToolCall
from duckkb.types.errors import Refused, StateError, UsageError
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes
from tests.fakes import ScriptedChat, calling

ASKED = (Message("user", "what is there on ducks?"),)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    for record in (
        {"id": "n1", "title": "Ducks", "text": "ducks swim"}, {"id": "n2", "title": "鸭子", "text": "鸭子会游泳"}, {"id": "n3", "title": "Geese", "text": "x" * 5_000},
    ):  # fmt: skip
        assert run_in(root, ["put", "Note", json.dumps(record)]).code == 0
    assert run_in(root, ["put", "cites", '{"from": "n1", "to": "n2"}']).code == 0
    commit(root)
    return root


def asked(root: Path, *calls: Any, caller: Caller | None = None, **more: Any) -> LoopResult:
    """What comes of these calls, in one turn."""
    with duckkb.open(root) as kb:
        model = ScriptedChat([calling(name, f"c{at}", **args) for at, (name, args) in enumerate(calls)], "done")
        return ToolLoop(model, kb.tools(caller, **more)).run(ASKED)


def answers(result: LoopResult) -> list[Any]:
    return [json.loads(one.content) for one in result.messages if one.role == "tool"]


def test_ax_04_tools_over_a_base_answer_as_its_actions_do(base: Path) -> None:
    calls = [
        ("types", {}),
        ("find", {"type": "Note", "query": "ducks", "mode": "match"}),
        ("find", {"type": "all", "query": "鸭子", "mode": "match"}),
        ("get", {"type": "Note", "identity": "n2"}),
        ("neighbors", {"type": "Note", "identity": "n1"}),
        ("path", {"start": ["Note", "n1"], "end": ["Note", "n2"]}),
        ("sql", {"statement": "SELECT id FROM note ORDER BY id"}),
        ("schema", {"type": "Note"}),
    ]
    result = asked(base, *calls)
    assert {one.status for one in result.harness.records} == {"success"}
    with duckkb.open(base) as kb:
        assert answers(result) == [kb.run(name, args) for name, args in calls]
    assert [row["id"] for row in answers(result)[6]["rows"]] == ["n1", "n2", "n3"]


def test_ax_06_tools_have_the_rights_of_their_caller(base: Path) -> None:
    with duckkb.open(base) as kb:
        names = {role: [one.name for one in kb.tools(Caller(role=role))] for role in ("viewer", "editor", "admin")}
        for one in kb.tools(Caller(role="editor")):
            assert (
                "allow_shrink" not in one.parameters["properties"] and one.parameters["additionalProperties"] is False
            )
    assert names == {"viewer": [*READS], "editor": [*READS, "propose_put"], "admin": [*READS, "propose_put"]}
    part = Caller("ann", "viewer", frozenset({"Person"}))
    result = asked(
        base,
        ("types", {}),
        ("find", {"type": "Note", "query": "ducks", "mode": "match"}),
        ("sql", {"statement": "SELECT * FROM note"}),
        ("propose_put", {"type": "Note", "records": {"id": "x"}}),
        caller=part,
    )
    assert [one.status for one in sorted(result.harness.records, key=lambda one: one.call.id)] == [
        "success",
        *["error"] * 3,
    ]
    assert [one["name"] for one in answers(result)[0]["types"]] == ["Person"]
    assert "ducks swim" not in repr(result.messages)
    missing = asked(base, ("find", {"type": "Nothing", "query": "x"}), ("get", {"type": "Note"}), caller=part)
    assert all("E_" in one["error"] for one in answers(missing))


def test_ax_05_what_a_model_puts_is_a_proposal_that_somebody_reviews(base: Path) -> None:
    before = tree_bytes(base), git(base, "rev-parse", "HEAD")
    puts = [("propose_put", {"type": "Note", "records": {"id": f"p{n}", "text": f"new {n}"}}) for n in (1, 2)]
    result = asked(base, *puts, ("find", {"type": "Note", "query": "new", "mode": "match"}))
    assert (tree_bytes(base), git(base, "rev-parse", "HEAD")) == before, "nothing is changed"
    first, second, found = answers(result)
    assert (
        first["inserted"] == second["inserted"] == 1 and first["branch"] == second["branch"] and found["results"] == []
    )
    log = git(base, "log", "--format=%s", f"HEAD..{first['branch']}").split("\n")[:-1]
    assert log == ["put Note"] * 2
    assert '"p1"' in git(base, "diff", f"HEAD...{first['branch']}")
    wrong = asked(base, ("propose_put", {"type": "Note", "records": {"title": "no id"}}))
    assert "E_IDENTITY" in answers(wrong)[0]["error"]


def test_ax_07_results_have_a_bound_and_say_what_was_left_out(base: Path) -> None:
    result = asked(
        base,
        ("sql", {"statement": "SELECT a.id, b.title FROM note a, note b, note c, note d, note e"}),
        ("get", {"type": "Note", "identity": "n3"}),
        ("get", {"type": "Note", "identity": "n1"}),
        longest=2_000,
    )
    rows, cut, whole = answers(result)
    assert 10 < len(rows["rows"]) < 243 and f"{243 - len(rows['rows'])} of 243 rows left out" in rows["note"]
    assert len(cut["beginning"]) == 2_000 and "cut at 2000 of" in cut["note"]
    assert whole["id"] == "n1" and "note" not in whole
    assert all(len(one.content) < 2_500 for one in result.messages if one.role == "tool")
    exact = {"rows": [1, 2, 3]}
    assert shorten_answer(exact, len(json.dumps(exact))) == exact
    assert shorten_answer(exact, len(json.dumps(exact)) - 1)["rows"] != exact["rows"]


def test_ax_04_a_harness_is_kept_in_git_as_records(base: Path) -> None:
    result = asked(
        base, ("find", {"type": "Note", "query": "ducks", "mode": "match"}), ("sql", {"statement": "DROP TABLE x"})
    )
    assert run_in(base, ["col", "init", "runs", "--policy", "harness"]).code == 0
    with duckkb.open(base) as kb:
        receipt = kb.keep_harness("runs", result.harness, run="on ducks")
        assert (receipt.inserted, kb.keep_harness("runs", result.harness, run="on ducks").unchanged) == (2, 2)
        kept = kb.sql("SELECT tool, status, args FROM runs ORDER BY tool").rows
        assert [row[:2] for row in kept] == [("find", "success"), ("sql", "error")]
        assert json.loads(kept[0][2]) == {"mode": "match", "query": "ducks", "type": "Note"}
        assert [hit.record["tool"] for hit in kb.find("runs", "swim")] == ["find"], "what was found is found"
        with pytest.raises(UsageError, match="not a collection with the policy"):
            kb.keep_harness("Note", result.harness)
        with pytest.raises(StateError, match="this harness has nothing"):
            kb.keep_harness("runs", Harness())
    assert run_in(base, ["check"]).code == 0


def test_ax_05_a_harness_that_waits_is_not_kept_and_one_that_is_reviewed_is_proposed(base: Path) -> None:
    held = Tool(
        "pay", "pays", {"type": "object"}, lambda args, context: "x", create_ticket=lambda args, context: Ticket("t")
    )
    waiting = ToolLoop(ScriptedChat([calling("pay")]), (held,)).run(ASKED)
    assert run_in(base, ["col", "init", "runs", "--policy", "harness"]).code == 0
    with duckkb.open(base) as kb:
        with pytest.raises(StateError, match="not finished"):
            kb.keep_harness("runs", waiting.harness)
        done = ToolLoop(ScriptedChat("paid"), (held,)).run(
            None, waiting.harness, [waiting.pending_approval[0].approve()]
        )
        path = base / "ontology/collections/runs.yaml"
        text = path.read_text("utf-8")
        path.write_text(text.replace("    table: runs\n", "    table: runs\n    review: required\n", 1), "utf-8")
        assert kb.keep_harness("runs", done.harness, dry_run=True).inserted == 1
    with KnowledgeBase(base, OpenOptions(agent=True)) as kb, pytest.raises(Refused) as refused:
        kb.keep_harness("runs", done.harness)
    assert refused.value.code == "E_REVIEW"


def test_ax_04_whatever_a_model_wrote_can_be_kept(base: Path) -> None:
    odd = [
        ToolCall("a", "t", "not JSON \ud800 \0"), ToolCall("b", "nö", '{"__id": 1e999, "_x": 123456789012345678901234567890}'),
        ToolCall("c", "t", '{"n": 123456789012345678901234567890, "_x": {"_y": null}}'),
    ]  # fmt: skip
    tool = Tool("t", "t", {"type": "object"}, lambda args, context: args)
    result = ToolLoop(ScriptedChat(odd, "done"), (tool,)).run(ASKED)
    assert run_in(base, ["col", "init", "runs", "--policy", "harness"]).code == 0
    with duckkb.open(base) as kb:
        assert kb.keep_harness("runs", result.harness).inserted == 3
    assert run_in(base, ["check"]).code == 0
