"""AX-01 to AX-08 against a real model on a real server of llama.cpp, without network. What is asserted is protocol, never words."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import duckkb
from duckkb.llm import chat_model, predict, read_registry, stream
from duckkb.llm.loop import Harness, LoopResult, ToolLoop
from duckkb.ports import ChatModel
from duckkb.types.chat_messages import ChatRequest, ContentDelta, Finish, Message, ToolSpec
from duckkb.types.errors import Unavailable
from tests.conftest import NOTES, make_base
from tests.fakes import calling
from tests.harness.real_chat import CONTEXT, IS_HERE, TOOLS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not IS_HERE, reason="no real chat model here: make test-models"),
]
ROOT = Path(__file__).resolve().parents[2]
FIXED = ChatRequest((), temperature=0, max_tokens=60)
LOOKED = (
    Message("user", "Look for geese."),
    Message("assistant", "", (calling("find", "before", type="Note", query="geese", mode="match"),)),
    Message("tool", '{"hits": []}', tool_call_id="before"),
    Message("assistant", "There is nothing on geese."),
)
"""What a model of this size needs to have seen, to do it."""


@contextmanager
def served(template: str) -> Iterator[ChatModel]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.harness.real_chat", template],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdout and server.stdin
        address = server.stdout.readline().strip()
        rows = {"small": {"providers": [{"base_url": f"{address}/v1", "timeout_s": 600}]}}
        yield chat_model(read_registry(rows)["small"], {}.get)
        server.stdin.close()
        server.kill()


@pytest.fixture(scope="module")
def model() -> Iterator[ChatModel]:
    with served(TOOLS) as found:
        yield found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("real") / "kb", NOTES)
    with duckkb.open(root) as kb:
        kb.put("Note", {"id": "n1", "title": "Ducks", "text": "ducks swim"})
    return root


def refuse_unsound(result: LoopResult) -> None:
    """Each call is answered once, right behind it and in order; a record of the harness is what its answer says."""
    waiting: list[str] = []
    for one in result.messages:
        assert (one.role == "tool") == bool(waiting), "answers follow calls, and nothing else does"
        if one.role == "tool":
            assert one.tool_call_id == waiting.pop(0)
        waiting += [call.id for call in one.tool_calls]
    assert not waiting
    told = {one.tool_call_id: one.content for one in result.messages if one.role == "tool"}
    assert [told[one.call.call_id] for one in result.harness.records] == [one.text for one in result.harness.records]


def test_ax_01_a_real_model_answers_within_the_limit_and_counts_what_it_had_read(model: ChatModel) -> None:
    asked = "你好, what is a river?"
    found = predict(model, asked, max_tokens=8, temperature=0)
    assert found.finish.reason in ("length", "stop") and found.content
    usage = found.finish.usage
    assert usage and 0 < usage.completion <= 8 and usage.prompt > 0 and usage.total == usage.prompt + usage.completion
    again = predict(model, asked, max_tokens=8, temperature=0).finish.usage
    assert again and again.cached is not None and 0 < again.cached <= again.prompt == usage.prompt


def test_ax_01_json_is_a_value_or_an_error(model: ChatModel) -> None:
    try:
        found = predict(model, 'JSON, please, such as {"a": 1}', response_format="json", max_tokens=60, temperature=0)
        assert isinstance(found.parsed, (dict, list))
    except Unavailable as problem:
        assert problem.code == "E_MODEL" and problem.details["raw"]


def test_ax_01_a_provider_that_does_not_heed_a_required_call_is_reported() -> None:
    tool = ToolSpec("now", "Tells the time.", {"type": "object", "properties": {}})
    with served("") as model:
        try:
            found = predict(model, "Say yes.", tools=[tool], tool_choice="required", max_tokens=200, temperature=0)
            assert found.finish.reason == "length", "it may not end without a call"
        except Unavailable as problem:
            assert (problem.code, problem.details["reason"]) == ("E_MODEL", "ignored")


def test_ax_02_what_is_too_long_is_refused_with_the_servers_reason(model: ChatModel) -> None:
    with pytest.raises(Unavailable) as caught:
        predict(model, "x " * CONTEXT * 3)
    assert caught.value.details["reason"] == "http_400" and "context" in caught.value.message


def test_ax_03_a_real_stream_comes_in_pieces_can_be_cancelled_and_the_next_question_is_answered(
    model: ChatModel,
) -> None:
    cancel = threading.Event()
    events = stream(model, "Tell a long story of a river.", cancel=cancel)
    assert isinstance(next(events), ContentDelta)
    cancel.set()
    with pytest.raises(Unavailable) as caught:
        list(events)
    assert caught.value.code == "E_CANCELLED"
    *said, last = stream(model, "Again.", max_tokens=4)
    assert isinstance(last, Finish) and said and all(isinstance(one, ContentDelta) and one.text for one in said)


def test_ax_04_a_real_model_calls_a_tool_of_a_base_and_is_told_what_it_gave(
    model: ChatModel, base: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run.harness.jsonl"
    with duckkb.open(base) as kb, Harness.open(path) as harness:
        tools = tuple(one for one in kb.tools() if one.name in ("find", "get"))
        loop = ToolLoop(model, tools, max_turns=4, request=FIXED)
        result = loop.run([*LOOKED, Message("user", "Look for ducks.")], harness)
        assert result.ended in ("answered", "limit") and 1 < result.turns <= 4
        refuse_unsound(result)
        first = result.harness.records[0]
        assert (first.call.tool, first.status, first.call.turn) == ("find", "success", 1), first.text
        assert json.loads(first.text) == kb.run("find", first.call.args)
        assert len([one for one in result.usage_history if one and one.prompt]) == result.turns
        assert Harness.read(path).records == result.harness.records


def test_ax_07_a_run_of_a_model_that_means_nothing_ends_by_itself_or_at_its_limit(model: ChatModel, base: Path) -> None:
    with duckkb.open(base) as kb:
        tools = tuple(one for one in kb.tools() if one.name in ("types", "find", "sql"))
        asked = [Message("system", "Call tools."), Message("user", "数一数 the records.")]
        result = ToolLoop(model, tools, max_turns=2, request=FIXED).run(asked)
    assert result.ended in ("answered", "limit") and result.turns <= 2 and result.error is None
    refuse_unsound(result)


def test_ax_08_a_run_that_is_cancelled_in_the_middle_of_an_answer_keeps_what_was_said(model: ChatModel) -> None:
    cancel, said = threading.Event(), list[str]()

    def listen(event: object) -> None:
        if isinstance(event, ContentDelta):
            said.append(event.text)
            cancel.set()

    result = ToolLoop(model).run([Message("user", "Tell a long story.")], cancel=cancel, on_event=listen)
    assert (result.ended, result.messages[-1].content) == ("cancelled", "".join(said)) and said
