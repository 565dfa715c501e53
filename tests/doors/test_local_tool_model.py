"""AX-04 to AX-07 with a model that was made to call tools, over a knowledge base, without network. What is asserted is protocol."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.llm.loop import LoopResult, ToolLoop
from duckkb.types.chat_messages import Message
from tests.conftest import NOTES, make_base
from tests.harness.needle_model import IS_HERE, NeedleChat

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not IS_HERE, reason="no model that calls tools here: make test-models"),
]
ASKED_OUT: list[str] = []
_WATCHING: list[bool] = []


def _watch(event: str, _: object) -> None:
    if _WATCHING and event.startswith("socket."):
        ASKED_OUT.append(event)


@pytest.fixture
def no_socket() -> Iterator[None]:
    """Python opens none meanwhile; the engine itself cannot, as it imports no such call."""
    if not ASKED_OUT:
        sys.addaudithook(_watch)
    _WATCHING.append(True)
    yield
    _WATCHING.clear()
    assert ASKED_OUT == []


def run(tmp_path: Path, asked: str, *names: str) -> LoopResult:
    """What comes of a question, with these tools over a small base."""
    root = make_base(tmp_path / "kb", NOTES)
    with duckkb.open(root) as kb:
        kb.put("Note", {"id": "n1", "title": "Ducks", "text": "ducks swim"})
        tools = tuple(one for one in kb.tools() if one.name in names)
        result = ToolLoop(NeedleChat(), tools, max_turns=4).run([Message("user", asked)])
        for one in result.harness.records:
            assert one.status == "success" and json.loads(one.text) == kb.run(one.call.tool, one.call.args)
    answers = [one for one in result.messages if one.role == "tool"]
    assert [one.text for one in result.harness.records] == [one.content for one in answers]
    return result


def test_ax_04_a_real_model_finds_is_told_and_answers(no_socket: None, tmp_path: Path) -> None:
    result = run(tmp_path, "Search Note by words: ducks", "find", "get")
    assert (result.ended, result.turns) == ("answered", 2) and result.content
    (found,) = result.harness.records
    assert (found.call.tool, found.call.args["type"]) == ("find", "Note") and "ducks swim" in found.text
    assert [one.role for one in result.messages] == ["user", "assistant", "tool", "assistant"]


def test_ax_04_a_real_model_gets_what_is_named(no_socket: None, tmp_path: Path) -> None:
    result = run(tmp_path, "get Note n1", "find", "get")
    assert result.harness.records[0].call.tool == "get" and result.ended in ("answered", "limit")
    assert result.harness.records[0].call.args == {"type": "Note", "identity": "n1"}


def test_ax_04_a_question_for_no_tool_calls_none(no_socket: None, tmp_path: Path) -> None:
    result = run(tmp_path, "How are you today?", "find", "get")
    assert (result.ended, result.turns, result.harness.records) == ("answered", 1, ())
