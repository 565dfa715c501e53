"""The tool loop against a scripted model: what it tells, what the model is told, what stands in the harness (AX-04 to AX-08)."""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from duckkb.llm import chat_model
from duckkb.llm.loop import (
    Compaction,
    ExecutionEnd,
    ExecutionStart,
    Harness,
    LoopEnd,
    LoopEvent,
    LoopResult,
    Ticket,
    Tool,
    ToolContext,
    ToolError,
    ToolLoop,
    ToolResult,
    TurnEnd,
    TurnStart,
    TwoSided,
    tool_execution,
)
from duckkb.types.chat_messages import (
    ChatRequest,
    ContentDelta,
    Finish,
    Message,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
    Usage,
)
from duckkb.types.errors import NotFound, Unavailable, UsageError
from tests.fake_chat import FakeChat, call, chunks, delta, finish
from tests.fakes import ScriptedChat, calling
from tests.harness.waiting import HANG_S

ASKED = (Message("system", "be brief"), Message("user", "数一数"))
ANY: Mapping[str, Any] = {"type": "object"}


def tool(name: str, execute: Any = lambda args, context: args, **more: Any) -> Tool:
    return Tool(name, f"does {name}", more.pop("parameters", ANY), execute, **more)


def loop(*script: Any, tools: Sequence[Tool] = (), **more: Any) -> ToolLoop:
    return ToolLoop(ScriptedChat(*script), tuple(tools), **more)


def statuses(result: LoopResult) -> dict[str, str]:
    return {one.call.call_id: one.status for one in result.harness.records}


def said(result: LoopResult, call_id: str) -> str:
    """What the model was told of a call."""
    (found,) = [one.content for one in result.messages if one.tool_call_id == call_id]
    return found


def sound(messages: Sequence[Message]) -> bool:
    """Whether each call is answered once, right behind it and in its order: an oracle that shares no code."""
    at = 0
    while at < len(messages):
        calls = [one.id for one in messages[at].tool_calls]
        answers = messages[at + 1 : at + 1 + len(calls)]
        if [one.tool_call_id for one in answers] != calls:
            return False
        at += 1 + len(calls)
        if at < len(messages) and messages[at].role == "tool":
            return False
    return True


def test_ax_04_calls_of_one_turn_run_side_by_side_and_results_stand_in_call_order() -> None:
    meet = threading.Barrier(3, timeout=HANG_S)
    first_may_end = threading.Event()

    def work(args: Mapping[str, Any], context: ToolContext) -> Any:
        meet.wait()  # none ends before all have begun
        if args["n"] == 1:
            assert first_may_end.wait(HANG_S)
        elif args["n"] == 3:
            first_may_end.set()
        return {"n": args["n"]}

    asked = [calling("work", f"c{n}", n=n) for n in (1, 2, 3)]
    result = loop(asked, "three", tools=[tool("work", work)]).run(ASKED)
    assert (result.ended, result.content, result.turns) == ("answered", "three", 2)
    assert [one.tool_call_id for one in result.messages if one.role == "tool"] == ["c1", "c2", "c3"]
    assert [json.loads(said(result, one.id)) for one in asked] == [{"n": 1}, {"n": 2}, {"n": 3}]
    ended = [one.call.call_id for one in result.harness.records]
    assert ended.index("c3") < ended.index("c1"), "the first was the last to end"
    assert [one.sequence for one in result.harness.records] == [0, 1, 2]
    assert result.total_usage == Usage(20, 10, 30) and result.usage_history == (Usage(10, 5, 15),) * 2


def test_ax_04_each_tool_sees_the_harness_as_it_was_before_the_turn() -> None:
    seen: dict[str, list[str]] = {}

    def look(args: Mapping[str, Any], context: ToolContext) -> str:
        seen[context.call_id] = [one.call.call_id for one in context.harness]
        return str(context.metadata["who"])

    script = [calling("look", "a"), calling("look", "b")], [calling("look", "c")], [calling("look", "d")], "done"
    result = loop(*script, tools=[tool("look", look)], metadata={"who": "ann"}).run(ASKED)
    assert {name: sorted(before) for name, before in seen.items()} == {
        "a": [], "b": [], "c": ["a", "b"], "d": ["a", "b", "c"],
    }  # fmt: skip
    assert said(result, "a") == "ann"
    many = [calling("look", f"m{n}") for n in range(40)]  # more than run at once: some begin when others have ended
    loop(many, "done", tools=[tool("look", look)], metadata={"who": "ann"}).run(result.messages[:2], result.harness)
    assert all(sorted(seen[one.id]) == ["a", "b", "c", "d"] for one in many)


def _fail(problem: BaseException) -> Any:
    def execute(args: Mapping[str, Any], context: ToolContext) -> Any:
        raise problem

    return execute


WRONG_CALLS: Mapping[str, tuple[ToolCall, str]] = {
    "no JSON": (ToolCall("bad", "add", '{"a": 1'), "not JSON"),
    "no object": (ToolCall("bad", "add", "[1]"), "one JSON object"),
    "no number": (ToolCall("bad", "add", '{"a": NaN}'), "not JSON"),
    "half a surrogate": (ToolCall("bad", "add", '{"a": "\\ud800"}'), "surrogate"),
    "too deep": (ToolCall("bad", "add", '{"a":' * 100_000), "not JSON"),
    "another type": (calling("add", "bad", a="secret"), "/a"),
    "one is missing": (ToolCall("bad", "add", ""), "required"),
    "one too many": (calling("add", "bad", a=1, z=2), "z"),
    "no such tool": (calling("sub", "bad", a=1), "unknown tool 'sub'; tools: add, "),
}


@pytest.mark.parametrize("what", WRONG_CALLS)
def test_ax_04_a_call_that_does_not_fit_is_told_to_the_model_and_not_executed(what: str) -> None:
    bad, why = WRONG_CALLS[what]
    ran: list[str] = []
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    add = tool("add", lambda args, context: ran.append(context.call_id) or "fine", parameters=schema)
    events: list[LoopEvent] = []
    good = calling("add", "good", a=1)
    result = loop([bad, good], "ok", tools=[add, tool("other")]).run(ASKED, on_event=events.append)
    assert ran == ["good"] and statuses(result) == {"bad": "error", "good": "success"}
    assert why in said(result, "bad") and "secret" not in said(result, "bad")
    assert [one.call.call_id for one in events if isinstance(one, ExecutionStart)] == ["good"]
    assert [one.record.call.call_id for one in events if isinstance(one, ToolResult)] == ["bad", "good"]
    assert sound(result.messages)


def test_ax_04_one_failure_stops_no_other_and_says_no_secret() -> None:
    tools = [
        tool("works", lambda args, context: "fine"),
        tool("says", _fail(ToolError("no such city"))),
        tool("knows", _fail(NotFound("there is no note 7", suggestion="duckkb list Note"))),
        tool("breaks", _fail(RuntimeError("key=hunter2"))),
        tool("exits", _fail(SystemExit(3))),
        tool("odd", lambda args, context: object()),
        tool("text", lambda args, context: "\ud800 half"),
    ]
    calls = [calling(one.name, one.name) for one in tools]
    result = loop(calls, "done", tools=tools).run(ASKED)
    assert statuses(result) == {"works": "success", "text": "success"} | dict.fromkeys(
        ("says", "knows", "breaks", "exits", "odd"), "error"
    )
    assert "no such city" in said(result, "says") and "duckkb list Note" in said(result, "knows")
    assert "RuntimeError" in said(result, "breaks") and "hunter2" not in repr(result.harness.records)
    assert "was executed" in said(result, "odd") and said(result, "text") == "? half"
    assert result.content == "done"


def test_ax_04_a_tool_has_its_time_and_others_are_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now, let_go = [100.0], threading.Event()
    told: list[bool] = []
    monkeypatch.setattr(tool_execution, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(args: Mapping[str, Any], context: ToolContext) -> str:
        now[0] += 5.0  # its time passes once it has begun, however late that is
        told.append(context.cancelled.wait(HANG_S))
        assert let_go.wait(HANG_S)
        return "too late"

    events: list[LoopEvent] = []
    tools = [tool("slow", slow, timeout_s=5.0), tool("quick", lambda args, context: "fine")]
    asked = loop([calling("slow", "s"), calling("quick", "q")], "done", tools=tools)
    result = asked.run(ASKED, on_event=events.append, cancel=threading.Event())  # with which it looks at the clock
    assert statuses(result) == {"s": "timeout", "q": "success"}
    assert "within 5 s" in said(result, "s") and "may have been executed" in said(result, "s")
    (ended,) = [one.record for one in events if isinstance(one, ExecutionEnd) and one.record.call.call_id == "s"]
    assert ended.duration_ms == 5_000 and ended.start.endswith("Z")
    let_go.set()
    for thread in threading.enumerate():
        if thread.name == "tool slow":
            thread.join(HANG_S)
    assert told == [True], "it was told that nobody waits"
    assert len(result.harness.records) == 2 and "too late" not in repr(result.harness.records), "nor is it heard later"


def test_ax_04_a_hundred_calls_run_but_not_all_at_once() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def count(args: Mapping[str, Any], context: ToolContext) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        with lock:
            now -= 1
        return str(args["n"])

    calls = [calling("count", f"c{n}", n=n) for n in range(100)]
    result = loop(calls, "done", tools=[tool("count", count)]).run(ASKED)
    assert [one.content for one in result.messages if one.role == "tool"] == [str(n) for n in range(100)]
    assert most <= 16


def test_ax_04_the_harness_only_grows() -> None:
    seen: list[tuple[Any, ...]] = []

    def spoil(args: dict[str, Any], context: ToolContext) -> str:
        args["n"].append("mine")
        with pytest.raises(TypeError):
            context.metadata["x"] = 1  # type: ignore[index]
        return "x"

    running = loop(
        [calling("t", "a", n=[1]), calling("t", "b", n=[2])], [calling("t", "c", n=[3])], "d", tools=[tool("t", spoil)]
    )
    harness = Harness()
    result = running.run(ASKED, harness, on_event=lambda _: seen.append(harness.records))
    for before, after in pairwise(seen):
        assert after[: len(before)] == before
    assert {one.call.call_id: one.call.args for one in harness.records} == {
        "a": {"n": [1]},
        "b": {"n": [2]},
        "c": {"n": [3]},
    }
    with pytest.raises(AttributeError, match="immutable"):
        result.harness.records[0].status = "error"  # type: ignore[misc]
    assert isinstance(harness.records, tuple)
    verbs = {name for name in dir(harness) if not name.startswith("_")}
    assert not verbs & {"remove", "pop", "clear", "delete", "update", "set", "insert", "replace"}


def test_ax_04_events_tell_what_happens_in_its_order() -> None:
    script = [
        [ReasoningDelta("hm "), ReasoningDelta("add"), ContentDelta("I add"), ToolCallDone(calling("add", "c", a=1)), Finish("tool_calls", Usage(1, 2, 3, 1), "p")],
        "2",
    ]  # fmt: skip
    running = loop(*script, tools=[tool("add", lambda args, context: TwoSided(args["a"] + 1, {"chart": [2]}))])
    events = list(running.stream(ASKED))
    assert [type(one).__name__ for one in events] == [
        "TurnStart", "ReasoningDelta", "ReasoningDelta", "ContentDelta", "ToolCallDone", "ExecutionStart", "ExecutionEnd", "ToolResult",
        "TurnEnd", "TurnStart", "ContentDelta", "TurnEnd", "LoopEnd",
    ]  # fmt: skip
    assert events[0] == TurnStart(1, ("add",)) and events[8] == TurnEnd(1, Usage(1, 2, 3, 1))
    assert isinstance(events[5], ExecutionStart) and events[5].call.args == {"a": 1} and events[5].call.turn == 1
    assert isinstance(events[6], ExecutionEnd) and (events[6].record.status, events[6].record.result) == (
        "success",
        "2",
    )
    end = events[-1]
    assert isinstance(end, LoopEnd)
    drained = loop(*script, tools=running.tools).run(ASKED)
    assert (drained.messages, drained.content, drained.usage_history) == (
        end.result.messages, end.result.content, end.result.usage_history,
    )  # fmt: skip


def test_ax_04_reasoning_stays_beside_the_answer_and_is_given_to_the_model_again() -> None:
    model = ScriptedChat(
        [ReasoningDelta("think"), ToolCallDone(calling("t", "c")), Finish("tool_calls", None, "p")], "done"
    )
    result = ToolLoop(model, (tool("t"),)).run(ASKED)
    assert [one.reasoning for one in result.messages if one.role == "assistant"] == ["think", None]
    assert model.asked[1].messages[2].reasoning == "think", "what of it is sent on, the provider knows"
    assert result.usage_history == (None, Usage(10, 5, 15)) and result.total_usage == Usage(10, 5, 15)


def test_ax_04_calls_without_an_id_of_their_own_get_one() -> None:
    same = [ToolCall("call_1_2", "t", '{"n": 1}'), ToolCall("", "t", '{"n": 2}')]
    result = loop(same, [calling("t", "x", n=3)], [calling("t", "x", n=4)], "done", tools=[tool("t")]).run(ASKED)
    assert sound(result.messages)
    ids = [call.id for one in result.messages for call in one.tool_calls]
    assert len(set(ids)) == 4 and len(result.harness.records) == 4
    assert [json.loads(one.content)["n"] for one in result.messages if one.role == "tool"] == [1, 2, 3, 4]


def test_ax_04_what_the_model_says_at_the_end_of_its_strength_is_not_lost() -> None:
    broken = [ContentDelta("so far"), Unavailable("nobody answers", code="E_MODEL")]
    result = loop([calling("t", "c")], broken, tools=[tool("t")]).run(ASKED)
    assert (result.ended, result.content) == ("failed", None)
    assert result.error is not None and result.error.code == "E_MODEL"
    assert result.messages[-1] == Message("assistant", "so far") and sound(result.messages)
    silent = loop([ContentDelta("cut")]).run(ASKED)
    assert silent.ended == "failed" and silent.error is not None and "broke off" in silent.error.message
    short = loop([ContentDelta("cut"), Finish("length", None, "p")]).run(ASKED)
    assert (short.ended, short.content, short.finish_reason) == ("answered", "cut", "length")


def test_ax_04_what_cannot_be_run_is_said_before_anybody_is_asked() -> None:
    with pytest.raises(UsageError, match="two tools are called 't'"):
        loop(tools=[tool("t"), tool("t")]).run(ASKED)
    with pytest.raises(UsageError, match="not a JSON Schema"):
        loop(tools=[tool("t", parameters={"type": "objekt"})]).run(ASKED)
    with pytest.raises(UsageError, match="not a JSON Schema"):  # nor is anybody asked for a part of one
        loop(tools=[tool("t", parameters={"$ref": "http://127.0.0.1:9/schema.json"})]).run(ASKED)
    with pytest.raises(UsageError, match="max_turns"):
        loop(max_turns=0).run(ASKED)
    with pytest.raises(UsageError, match="messages"):
        loop().run()
    with pytest.raises(UsageError) as refused:
        ToolLoop(ScriptedChat("x", tools=False), (tool("t"),)).run(ASKED)
    assert refused.value.code == "E_MODEL_CANNOT"


def test_ax_04_two_runs_do_not_go_on_with_one_harness() -> None:
    harness = Harness()
    first = loop("one", "two").stream(ASKED, harness)
    next(first)
    with pytest.raises(Unavailable) as refused:
        loop("three").run(ASKED, harness)
    assert refused.value.code == "E_LOCKED"
    first.close()
    assert loop("three").run(ASKED, harness).content == "three"


# Compaction

ROUNDS = [[calling("t", f"c{n}", n=n)] for n in range(1, 6)]


def test_ax_04_older_rounds_are_shortened_and_first_messages_and_last_rounds_stay_whole() -> None:
    given: list[tuple[Message, ...]] = []

    def compress(messages: Sequence[Message]) -> Sequence[Message]:
        given.append(tuple(messages))
        return [Message("user", f"before: {len(given)}")]

    model = ScriptedChat(*ROUNDS, "done")
    result = ToolLoop(model, (tool("t"),), compaction=Compaction(2, compress)).run(ASKED)
    whole = result.messages
    assert len(whole) == 2 + 5 * 2 + 1 and sound(whole), "the conversation itself is not shortened"
    for request in model.asked:
        assert request.messages[:2] == ASKED and sound(request.messages)
    assert [len(one.messages) for one in model.asked] == [2, 4, 6, 7, 7, 7]
    assert model.asked[5].messages == (*ASKED, Message("user", "before: 3"), *whole[8:12])
    assert given == [
        whole[2:4],
        (Message("user", "before: 1"), *whole[4:6]),
        (Message("user", "before: 2"), *whole[6:8]),
    ]


def _cut_off(messages: Sequence[Message]) -> Sequence[Message]:
    return [one for one in messages if one.role == "assistant"]


def _raise(messages: Sequence[Message]) -> Sequence[Message]:
    raise RuntimeError("no memory")


def _nothing_of_it(messages: Any) -> Any:
    return ["text"]


@pytest.mark.parametrize("compress", [_cut_off, _raise, _nothing_of_it])
def test_ax_06_what_fails_to_shorten_leaves_the_conversation_whole(compress: Any) -> None:
    model = ScriptedChat(*ROUNDS, "done")
    result = ToolLoop(model, (tool("t"),), compaction=Compaction(1, compress)).run(ASKED)
    assert model.asked[-1].messages == result.messages[:-1] and result.content == "done"


def test_ax_04_the_users_later_questions_stay_while_rounds_between_them_are_shortened() -> None:
    first = loop(*ROUNDS[:3], "first", tools=[tool("t")]).run(ASKED)
    again = (*first.messages, Message("system", "now in English"), Message("user", "and now?"))
    model = ScriptedChat([calling("t", "d1")], [calling("t", "d2")], "second")
    shorter = Compaction(1, lambda messages: [Message("user", "shorter")])
    ToolLoop(model, (tool("t"),), compaction=shorter).run(again)
    assert model.asked[-1].messages[:5] == (*ASKED, *again[-2:], Message("user", "shorter"))


# Discovery, policies, two sides


def test_ax_06_discovery_that_fails_or_says_no_hides_a_tool() -> None:
    seen: list[tuple[int, Any]] = []

    def later(records: Any, metadata: Mapping[str, Any]) -> bool:
        seen.append((len(records), metadata["who"]))
        return len(records) > 0

    ran: list[str] = []
    tools = [
        tool("plain"),
        tool("later", discover=later),
        tool("hidden", lambda args, context: ran.append("hidden"), discover=lambda records, metadata: False),
        tool("broken", lambda args, context: ran.append("broken"), discover=lambda records, metadata: 1 / 0),
        tool("odd", lambda args, context: ran.append("odd"), discover=lambda records, metadata: "yes"),
    ]
    model = ScriptedChat(
        [calling("hidden", "h"), calling("broken", "b"), calling("odd", "o"), calling("plain", "p")], "done"
    )
    result = ToolLoop(model, tuple(tools), metadata={"who": "ann"}).run(ASKED)
    assert [[one.name for one in request.tools] for request in model.asked] == [["plain"], ["plain", "later"]]
    assert seen == [(0, "ann"), (4, "ann")] and ran == []
    assert statuses(result) == {"h": "error", "b": "error", "o": "error", "p": "success"}
    assert "tools: plain" in said(result, "h"), "nor is it told what there is else"
    alone = ScriptedChat("hello")
    ToolLoop(alone, tools[2:3] and (tools[2],)).run(ASKED)
    assert alone.asked[0].tools == ()


def test_ax_06_a_turn_policy_injects_one_message_and_its_failure_is_ignored() -> None:
    def policy(turn: int, records: Any, metadata: Mapping[str, Any]) -> Any:
        return {1: f"{metadata['who']}: {len(records)} so far", 2: None, 3: 5}.get(turn) if turn != 4 else 1 / 0

    model = ScriptedChat(*ROUNDS[:4], "done")
    result = ToolLoop(model, (tool("t"),), turn_policy=policy, metadata={"who": "ann"}).run(ASKED)
    injected = [one.content for one in result.messages if one.role == "system"]
    assert injected == ["be brief", "ann: 0 so far"] and result.content == "done"
    assert model.asked[0].messages[-1] == Message("system", "ann: 0 so far")


def test_ax_06_discovery_and_policy_may_answer_with_objects() -> None:
    tools = (
        tool("shown", discover=lambda records, metadata: {"visible": True}),
        tool("hidden", discover=lambda records, metadata: {"visible": False}),
        tool("silent", discover=lambda records, metadata: {}),
    )
    said: dict[int, Any] = {1: {"content": "one"}, 2: Message("system", "two"), 3: Message("user", "three")}
    model = ScriptedChat(*ROUNDS[:3], "done")
    result = ToolLoop(model, tools, turn_policy=lambda turn, records, metadata: said.get(turn)).run(ASKED)
    assert [one.name for one in model.asked[0].tools] == ["shown"]
    assert [one.content for one in result.messages if one.role == "system"] == ["be brief", "one", "two"]


def test_ax_04_what_is_written_as_async_def_is_awaited_on_one_event_loop() -> None:
    loops, met = list[Any](), list[str]()

    def here(name: str) -> None:
        loops.append(asyncio.get_running_loop())
        met.append(name)

    async def execute(args: Mapping[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(0)
        here("execute")
        return "given"

    async def create_ticket(args: Mapping[str, Any], context: ToolContext) -> Ticket:
        here("create_ticket")
        return Ticket(f"t-{context.call_id}", approved=True)

    async def discover(records: Any, metadata: Mapping[str, Any]) -> Any:
        here("discover")
        return {"visible": metadata["who"] == "ann"}

    async def policy(turn: int, records: Any, metadata: Mapping[str, Any]) -> str | None:
        here("policy")
        return "go on" if turn == 2 else None

    async def compress(messages: Sequence[Message]) -> Sequence[Message]:
        here("compress")
        return (Message("user", "shorter"),)

    asked = tool("t", execute, create_ticket=create_ticket, discover=discover)
    model = ScriptedChat([calling("t", "a")], [calling("t", "b")], [calling("t", "c")], "done")
    more: dict[str, Any] = {"turn_policy": policy, "compaction": Compaction(1, compress), "metadata": {"who": "ann"}}
    result = ToolLoop(model, (asked,), **more).run(ASKED)
    assert result.content == "done" and statuses(result) == dict.fromkeys("abc", "success")
    assert said(result, "a") == "given" and "shorter" in [one.content for one in model.asked[-1].messages]
    assert {"execute", "create_ticket", "discover", "policy", "compress"} == set(met) and len(set(loops)) == 1
    assert Message("system", "go on") in result.messages


def test_ax_08_a_coroutine_is_cancelled_with_the_run() -> None:
    cancel, ended = threading.Event(), threading.Event()

    async def wait(args: Mapping[str, Any], context: ToolContext) -> None:
        cancel.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    result = loop([calling("wait", "a")], tools=[tool("wait", wait)]).run(ASKED, cancel=cancel)
    assert (result.ended, statuses(result)) == ("cancelled", {"a": "cancelled"}) and ended.wait(HANG_S)


def test_ax_04_a_function_that_cannot_work_is_refused_when_the_tool_is_made() -> None:
    async def stream(args: Any, context: Any) -> Any:
        yield 1

    def pieces(args: Any, context: Any) -> Any:
        yield 1

    for given, why in (
        (stream, "yields"),
        (pieces, "yields"),
        (lambda args: args, "does not take 2"),
        (5, "not a function"),
    ):
        with pytest.raises(UsageError, match=why):
            tool("t", given)
        for name in ("create_ticket", "discover"):
            with pytest.raises(UsageError, match=why):
                tool("t", **{name: given})
        with pytest.raises(UsageError, match="turn_policy"):
            loop("done", turn_policy=given).run(ASKED)
    for given in (stream, lambda: (), 5):
        with pytest.raises(UsageError, match="compress"):
            loop("done", compaction=Compaction(1, given)).run(ASKED)  # type: ignore[arg-type]


def test_ax_04_messages_may_be_plain_objects_and_what_is_none_is_refused() -> None:
    model = ScriptedChat("hello")
    result = ToolLoop(model).run([one.as_object() for one in ASKED])
    assert result.messages[:2] == ASKED and result.content == "hello"
    for wrong in ({"role": "user", "content": [{"type": "text"}]}, {"content": "hello"}, "hello", None):
        with pytest.raises(UsageError, match="not a conversation"):
            ToolLoop(model).run([wrong])  # type: ignore[list-item]


def test_ax_07_the_model_gets_one_side_and_the_front_end_the_other() -> None:
    model = ScriptedChat([calling("draw", "c"), calling("text", "d"), calling("data", "e")], "done")
    tools = (
        tool("draw", lambda args, context: TwoSided({"rows": 3}, {"png": "secret-of-front-end"})),
        tool("text", lambda args, context: "as it is: 数"),
        tool("data", lambda args, context: [1, None, "数"]),
    )
    events: list[LoopEvent] = []
    result = ToolLoop(model, tools).run(ASKED, on_event=events.append)
    assert (
        said(result, "c") == '{"rows": 3}'
        and said(result, "d") == "as it is: 数"
        and said(result, "e") == '[1, null, "数"]'
    )
    shown = {one.record.call.call_id: one.frontend_data for one in events if isinstance(one, ToolResult)}
    assert shown == {"c": {"png": "secret-of-front-end"}, "d": None, "e": None}
    assert "secret-of-front-end" not in repr((result.messages, result.harness.records, model.asked))


# Limits and cancellation


def test_ax_08_a_warning_before_the_last_turn_and_a_hard_stop_in_it() -> None:
    ran: list[str] = []
    count = tool("t", lambda args, context: ran.append(context.call_id) or "x")
    model = ScriptedChat(*ROUNDS)
    running = ToolLoop(model, (count,), max_turns=3, warning_message="one left", terminate_message="stop now")
    result = running.run(ASKED)
    assert (result.ended, result.turns, len(model.asked)) == ("limit", 3, 3)
    assert [one.messages[-1].content for one in model.asked[1:]] == ["one left", "stop now"]
    assert [one.tool_choice for one in model.asked] == ["auto", "auto", "none"]
    assert ran == ["c1", "c2"], "what is called in the last turn is not executed"
    assert statuses(result)["c3"] == "error" and "limit" in said(result, "c3") and sound(result.messages)
    obedient = ScriptedChat(*ROUNDS[:2], "what I have")
    told = ToolLoop(obedient, (count,), max_turns=3).run(ASKED)
    assert (told.ended, told.content) == ("answered", "what I have")


def test_ax_08_a_provider_that_calls_in_the_last_turn_all_the_same_is_stopped_and_nothing_is_lost() -> None:
    ran: list[str] = []
    with FakeChat() as endpoint:
        for name in ("c1", "c2"):
            endpoint.next(chunks(call(0, name, "t", "{}"), finish("tool_calls")))
        counted = tool("t", lambda args, context: ran.append(context.call_id) or "x")
        result = ToolLoop(chat_model(endpoint.row(), {}.get), (counted,), max_turns=2).run(ASKED)
    assert (result.ended, result.turns, result.error, ran) == ("limit", 2, None, ["c1"])
    assert statuses(result) == {"c1": "success", "c2": "error"} and sound(result.messages)


def test_ax_06_a_call_where_every_tool_is_hidden_is_an_error_record_and_the_run_goes_on() -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(call(0, "h", "hidden", "{}"), finish("tool_calls")))
        endpoint.next(chunks(delta(content="done"), finish()))
        hidden = tool("hidden", discover=lambda records, metadata: False)
        result = ToolLoop(chat_model(endpoint.row(), {}.get), (hidden,)).run(ASKED)
    assert (result.ended, result.content, statuses(result)) == ("answered", "done", {"h": "error"})


def test_ax_08_there_are_twenty_turns_unless_told_otherwise_and_a_new_question_has_its_own() -> None:
    model = ScriptedChat(*([calling("t", f"c{n}")] for n in range(40)))
    first = ToolLoop(model, (tool("t"),)).run(ASKED)
    assert (first.ended, first.turns) == ("limit", 20)
    more = ToolLoop(model, (tool("t"),)).run((*first.messages, Message("user", "go on")), first.harness)
    assert (more.ended, more.turns, first.harness.turn) == ("limit", 20, 40)
    assert sound(more.messages)


def test_ax_08_cancelling_ends_what_runs_and_returns_what_there_is() -> None:
    cancel, let_go = threading.Event(), threading.Event()
    told: list[bool] = []

    def stubborn(args: Mapping[str, Any], context: ToolContext) -> str:
        cancel.set()
        told.append(context.cancelled.wait(HANG_S))
        let_go.wait(HANG_S)
        return "nobody hears"

    def polite(args: Mapping[str, Any], context: ToolContext) -> str:
        assert context.cancelled.wait(HANG_S)
        return "stopped"

    tools = [tool("first"), tool("stubborn", stubborn), tool("polite", polite)]
    model = ScriptedChat([calling("first", "f")], [calling("stubborn", "s"), calling("polite", "p")], "never asked")
    result = ToolLoop(model, tuple(tools)).run(ASKED, cancel=cancel)
    assert (result.ended, result.content, len(model.asked)) == ("cancelled", None, 2)
    assert statuses(result) == {"f": "success", "s": "cancelled", "p": "cancelled"}
    assert "may have been executed" in said(result, "s") and sound(result.messages)
    let_go.set()
    again = ToolLoop(ScriptedChat("still there"), tuple(tools)).run(result.messages, result.harness)
    assert again.content == "still there", "what was cancelled can be gone on with"


def test_ax_08_cancelling_stops_the_request_and_keeps_what_was_said() -> None:
    cancel = threading.Event()
    script = [ContentDelta("half"), cancel.set, ContentDelta(" more"), Finish("stop", None, "p")]
    result = loop(script).run(ASKED, cancel=cancel)
    assert (result.ended, result.content, result.messages[-1]) == ("cancelled", None, Message("assistant", "half"))
    before = loop("never").run(ASKED, cancel=cancel)
    assert (before.ended, before.turns, before.messages) == ("cancelled", 0, ASKED)


def test_ax_08_whoever_stops_reading_cancels_what_runs() -> None:
    begun, told = threading.Event(), threading.Event()

    def wait(args: Mapping[str, Any], context: ToolContext) -> str:
        begun.set()
        if context.cancelled.wait(HANG_S):
            told.set()
        return "x"

    harness = Harness()
    stream = loop([calling("wait", "c")], "never", tools=[tool("wait", wait)]).stream(ASKED, harness)
    for event in stream:
        if isinstance(event, ExecutionStart):
            break
    assert begun.wait(HANG_S)
    stream.close()  # type: ignore[attr-defined]
    assert told.wait(HANG_S)
    assert [one.status for one in harness.records] == ["cancelled"]
    on = loop("then", tools=[tool("wait", wait)]).run(None, harness)
    assert on.content == "then" and sound(on.messages), "the call has its answer"


def test_ax_04_the_settings_of_requests_are_passed_on() -> None:
    model = ScriptedChat("x", reasoning="native")
    asked = ChatRequest((), temperature=0.5, max_tokens=7, reasoning_effort="low")
    ToolLoop(model, (), request=asked).run(ASKED)
    assert model.asked == [replace(asked, messages=ASKED)]
