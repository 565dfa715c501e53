"""AX-03: answers piece by piece, in every form in which providers send them. Against a real server on this machine."""

import json
import threading
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.llm import chat_model, predict, stream
from duckkb.llm.providers import json_endpoint
from duckkb.llm.providers.chat_endpoint import ChatAnswer, WrongAnswer
from duckkb.types.chat_messages import ChatEvent, ContentDelta, Finish, ReasoningDelta, ToolCall, ToolSpec, Usage
from duckkb.types.errors import Unavailable
from tests.fake_chat import DONE, USAGE, FakeChat, call, chunks, delta, event, finish
from tests.fake_endpoint import Reply
from tests.harness.waiting import HANG_S

TOOLS = [ToolSpec("find", "Finds.", {"type": "object"}), ToolSpec("get", "Gets.", {"type": "object"})]


def answered(*sent: dict[str, Any]) -> list[ChatEvent]:
    """The events of an answer with these chunks, without a server."""
    answer = ChatAnswer("fake")
    return [*(one for chunk in sent for one in answer.read(chunk)), *answer.end()]


def calls(*sent: dict[str, Any]) -> list[ToolCall]:
    return [one.call for one in answered(*sent, finish("tool_calls")) if hasattr(one, "call")]


def test_ax_03_reasoning_and_content_come_as_they_are_sent_and_the_finish_once_and_last() -> None:
    with FakeChat() as endpoint:
        gate = threading.Event()
        endpoint.next(
            chunks(delta(role="assistant", content=None), delta(reasoning_content="内"), delta(reasoning="存"), gate,
                   delta(content="Yes"), delta(content=""), delta(content="."), finish(), {"choices": [], "usage": USAGE})
        )  # fmt: skip
        events = stream(chat_model(endpoint.row(), {}.get), "q")
        assert (next(events), next(events)) == (ReasoningDelta("内"), ReasoningDelta("存"))
        gate.set()  # the rest is sent once the beginning has been read
        (provider,) = endpoint.row().providers
        assert list(events) == [
            ContentDelta("Yes"),
            ContentDelta("."),
            Finish("stop", Usage(7, 3, 10), provider.name),
        ]


WORDS = [delta(reasoning="think"), delta(content="知识库\n"), delta(content="\u2028data: x"), finish(usage=USAGE)]
WHOLE = b"".join(
    [b": hello\r\n\r\n", *(event(one).replace(b"\n", b"\r\n") for one in WORDS[:2]), *map(event, WORDS[2:]), DONE]
)


@given(cuts=st.lists(st.integers(1, len(WHOLE) - 1), max_size=12))
@settings(max_examples=40)
def test_ax_03_how_bytes_are_cut_on_the_way_changes_nothing(cuts: list[int]) -> None:
    places = [0, *sorted(set(cuts)), len(WHOLE)]
    with FakeChat() as endpoint:
        endpoint.next(Reply(pieces=[WHOLE[a:b] for a, b in pairwise(places)]))
        found = predict(chat_model(endpoint.row(), {}.get), "q")
    assert (found.reasoning, found.content) == ("think", "知识库\n\u2028data: x") and found.finish.usage == Usage(
        7, 3, 10
    )


CALLS = {
    "in pieces, by index": [
        call(0, "a", "find", ""), call(1, "b", "get", ""), call(0, arguments='{"q":'), call(1, arguments='{"id":'),
        call(0, arguments=" 1}"), call(1, arguments="2}")],
    "whole": [delta(tool_calls=[
        {"index": 0, "id": "a", "function": {"name": "find", "arguments": '{"q": 1}'}},
        {"index": 1, "id": "b", "function": {"name": "get", "arguments": '{"id":2}'}}])],
    "whole, without index": [call(None, "a", "find", '{"q": 1}'), call(None, "b", "get", '{"id":2}')],
    "whole, all of one index": [call(0, "a", "find", '{"q": 1}'), call(0, "b", "get", '{"id":2}')],
    "pieces without index": [
        call(None, "a", "find", '{"q":'), call(arguments=" 1}"), call(None, "b", "get"), call(arguments='{"id":2}')],
    "id and name in each piece": [
        call(0, "a", "find", '{"q":'), call(0, "a", "find", " 1}"), call(1, "b", "get", '{"id"'), call(1, "b", "get", ":2}")],
    "empty ids behind the first piece": [
        call(0, "a", "find", '{"q":'), call(0, "", "", " 1}"), call(1, "b", "get", '{"id"'), call(1, "", None, ":2}")],
    "the id late": [call(0, None, "find", '{"q":'), call(0, "a", None, " 1}"), call(1, None, "get", '{"id":2}'), call(1, "b")],
}  # fmt: skip


@pytest.mark.parametrize("form", CALLS)
def test_ax_03_calls_are_put_together_from_whatever_comes(form: str) -> None:
    assert calls(*CALLS[form]) == [ToolCall("a", "find", '{"q": 1}'), ToolCall("b", "get", '{"id":2}')]


@pytest.mark.parametrize(
    "sent",
    [
        [call(0, "", "find", '{"q": 1}'), call(1, "", "find", '{"q": 2}')],
        [call(None, None, "find", '{"q": 1}'), call(None, None, "find", '{"q": 2}')],
        [call(0, "", "find", '{"q": 1}'), call(0, "", "find", '{"q": 2}')],
        [call(0, "same", "find", '{"q": 1}'), call(1, "same", "find", '{"q": 2}')],
        [call(0, None, "find", {"q": 1}), call(1, None, "find", {"q": 2})],
    ],
)
def test_ax_03_calls_without_ids_of_their_own_get_some(sent: list[dict[str, Any]]) -> None:
    first, second = calls(*sent)
    assert (json.loads(first.arguments), json.loads(second.arguments)) == ({"q": 1}, {"q": 2})
    assert first.id and second.id and first.id != second.id


def test_ax_03_a_call_without_arguments_has_an_empty_object_and_a_stop_that_follows_calls_is_theirs() -> None:
    events = answered(call(0, "a", "find"), finish("stop"))
    assert events[0].call == ToolCall("a", "find", "{}")  # type: ignore[union-attr]
    assert events[1] == Finish("tool_calls", None, "fake")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
    ],
)
def test_ax_03_the_finish_says_why_in_the_words_of_the_protocol(said: str, reason: str) -> None:
    assert answered(delta(content="x"), finish(said))[-1] == Finish(reason, None, "fake")  # type: ignore[arg-type]


HOSTILE: dict[str, Any] = {
    "a number": 7, "a list": [], "a text": "x", "nothing": None, "choices as a text": {"choices": "x"},
    "a choice as a text": {"choices": ["x"]}, "a delta as a list": {"choices": [{"delta": [1]}]},
    "content as a number": delta(content=7), "content as a list": delta(content=["x"]),
    "reasoning as an object": delta(reasoning_content={}), "calls as an object": delta(tool_calls={"0": 1}),
    "a call as a text": delta(tool_calls=["find"]), "a function as a text": delta(tool_calls=[{"function": "find"}]),
    "a name as a list": call(0, "a", ["find"]), "an id as an object": call(0, {"id": 1}, "find"),
    "an unknown end": finish("insufficient_system_resource"), "an end as an object": finish({"why": "x"}),
    "an error": {"error": "SAID BY THE SERVER"}, "calls without end": delta(tool_calls=[{"index": n} for n in range(200)]),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("fault", HOSTILE)
def test_ax_03_what_does_not_fit_the_protocol_is_refused_and_not_repeated(fault: str) -> None:
    with FakeChat() as endpoint:
        endpoint.next(Reply(pieces=[event(delta(content="x")), event(HOSTILE[fault]), event(finish()), DONE]))
        with pytest.raises(Unavailable) as caught:
            predict(chat_model(endpoint.row(), {}.get), "q", tools=TOOLS)
    assert caught.value.details["reason"] == "bad_answer" and "SAID BY THE SERVER" not in str(vars(caught.value))


def test_ax_03_a_call_without_a_name_and_an_end_for_calls_without_one_are_refused() -> None:
    for sent in ([call(0, "a", "", "{}"), finish("tool_calls")], [delta(content="x"), finish("tool_calls")]):
        with pytest.raises(WrongAnswer):
            answered(*sent)


_leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
_value = st.recursive(_leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
    ["choices", "delta", "message", "content", "tool_calls", "function", "index", "id", "name", "arguments", "usage", "finish_reason",
     "prompt_tokens", "prompt_tokens_details", "cached_tokens", "error", "reasoning", "x_groq"]), inner, max_size=4), max_leaves=12)  # fmt: skip


@given(sent=st.lists(_value | st.builds(lambda value: {"choices": [value]}, _value) | st.builds(lambda value: delta(tool_calls=[value]), _value), max_size=4))  # fmt: skip
@settings(max_examples=400)
def test_ax_03_whatever_is_sent_is_events_of_the_right_kinds_or_refused(sent: list[Any]) -> None:
    try:
        events = answered(*sent, finish())
    except WrongAnswer as error:
        assert error.args[0].isprintable()
        return
    texts = [one.text for one in events if isinstance(one, (ContentDelta, ReasoningDelta))]
    made = [one.call for one in events if hasattr(one, "call")]
    assert all(isinstance(one, str) and one for one in texts)
    assert all(isinstance(one, str) for each in made for one in (each.id, each.name, each.arguments))
    assert len({each.id for each in made}) == len(made)
    assert isinstance(events[-1], Finish) and sum(isinstance(one, Finish) for one in events) == 1


@pytest.mark.parametrize("end", [None, b"", b'data: {"choices": [', b"data: {\n\n"], ids=str)
def test_ax_03_a_stream_that_is_cut_before_its_end_is_an_error(end: bytes | None) -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(delta(content="half"), end, done=False))
        with pytest.raises(Unavailable) as caught:
            predict(chat_model(endpoint.row(), {}.get), "q")
    assert caught.value.details["reason"] in ("unreachable", "bad_answer")


@pytest.mark.parametrize("end", [None, b"", b"data: {\n\n", event({"error": "late"})], ids=str)
def test_ax_03_what_goes_wrong_behind_the_end_takes_no_answer_back(end: bytes | None) -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(delta(content="whole"), finish(usage=USAGE), end, done=False))
        found = predict(chat_model(endpoint.row(), {}.get), "q")
    assert (found.content, found.finish.usage) == ("whole", Usage(7, 3, 10))


def test_ax_03_a_server_that_does_not_hang_up_behind_the_end_is_not_waited_for() -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(delta(content="whole"), finish(), done=False, silent=True))
        begun = time.monotonic()
        row = endpoint.row(providers=(endpoint.provider(timeout_s=240.0),))
        assert predict(chat_model(row, {}.get), "q").content == "whole"
        assert time.monotonic() - begun < 120.0


@pytest.mark.parametrize(
    "reply",
    [
        Reply(silent=True), Reply(slow_headers=True), Reply(dripping=True), Reply(held=threading.Event()),
        chunks(delta(content="half"), done=False, silent=True),
    ],
    ids=["silent", "slow headers", "dripping", "held", "in the middle"],
)  # fmt: skip
def test_ax_03_a_cancelled_question_ends_at_once_and_its_connection_with_it(reply: Reply) -> None:
    cancel = threading.Event()
    with FakeChat() as endpoint:
        endpoint.next(reply)
        row = endpoint.row(providers=(endpoint.provider(timeout_s=240.0),))
        model, came = chat_model(row, {}.get), threading.Event()

        def when_asked() -> None:
            while not endpoint.asked and not endpoint.closing.wait(0.01):
                pass
            came.set()
            cancel.set()

        threading.Thread(target=when_asked, daemon=True).start()
        begun = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            list(stream(model, "q", cancel=cancel))
        assert came.is_set() and time.monotonic() - begun < 120.0
        assert caught.value.code == "E_CANCELLED"
        if reply.held:
            reply.held.set()
        assert not reply.silent or endpoint.hung_up.wait(HANG_S)


def test_ax_03_who_has_cancelled_already_asks_nobody_further_and_no_other_provider() -> None:
    cancel = threading.Event()
    cancel.set()
    with FakeChat() as first, FakeChat() as second:
        row = first.row(providers=(first.provider(), second.provider()))
        with pytest.raises(Unavailable) as caught:
            predict(chat_model(row, {}.get), "q", cancel=cancel)
        assert caught.value.code == "E_CANCELLED" and second.asked == []


def test_ax_03_what_arrived_in_time_is_read_however_slowly_and_what_did_not_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who shows an answer may be stopped for longer than it may take, by a pager or a person."""
    now = [100.0]
    monkeypatch.setattr(json_endpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    slow, late = json_endpoint.OpenCall(10.0), json_endpoint.OpenCall(10.0)
    slow.arrive(b"one")
    slow.arrive(None)
    now[0] += 60.0
    late.arrive(b"one")
    assert [*slow.rest()] == [b"one"]
    for _ in range(2):
        with pytest.raises(json_endpoint.AnswerLate):
            late.take()


def test_ax_03_who_reads_no_further_cuts_the_connection() -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(delta(content="one"), done=False, silent=True))
        events = stream(chat_model(endpoint.row(), {}.get), "q")
        assert next(events) == ContentDelta("one")
        events.close()  # type: ignore[attr-defined]
        assert endpoint.hung_up.wait(HANG_S)
