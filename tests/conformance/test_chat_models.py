"""What every chat model promises, checked on each of them: the fake, one endpoint on this machine, and one behind another that fails."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from duckkb.llm import chat_model
from duckkb.ports import ChatModel
from duckkb.types.chat_messages import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finish,
    Message,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
    ToolSpec,
)
from duckkb.types.errors import Unavailable, UsageError
from tests.fake_chat import FakeChat, call, chunks, delta, finish
from tests.fake_endpoint import Reply
from tests.fakes import ScriptedChat, calling
from tests.harness.waiting import HANG_S

Step = str | ToolCall | Event | None
"""Words, a call, something to wait for; None breaks off."""
ASKED = ChatRequest((Message("system", "be brief"), Message("user", "记忆 in memory?")))
TOOLS = (ToolSpec("find", "Searches.", {"type": "object"}), ToolSpec("get", "Gets.", {"type": "object"}))
CALLS = (calling("find", "a", query="鸭子"), calling("get", "b", identity=1))


class Stage:
    """A model with what it will answer, and how often it was asked."""

    def __init__(
        self, model: ChatModel, answer: Callable[[tuple[Step, ...]], object], asked: Callable[[], int]
    ) -> None:
        self.model, self._answer, self._asked = model, answer, asked

    @property
    def asked(self) -> int:
        return self._asked()

    def answers(self, *steps: Step) -> None:
        self._answer(steps)

    def says(self, *steps: Step, **wanted: Any) -> list[ChatEvent]:
        self.answers(*steps)
        return list(self.model.stream(replace(ASKED, **wanted)))


def scripted(**settings: Any) -> Stage:
    model = ScriptedChat(**settings)

    def answer(steps: tuple[Step, ...]) -> None:
        has_calls = any(isinstance(one, ToolCall) for one in steps)
        events = [_scripted(one) for one in steps]
        model.script.append([*events, Finish("tool_calls" if has_calls else "stop", model.usage, "scripted")])

    return Stage(model, answer, lambda: len(model.asked))


def _scripted(step: Step) -> ChatEvent | Exception | Callable[[], object]:
    match step:
        case str():
            return ContentDelta(step)
        case ToolCall():
            return ToolCallDone(step)
        case None:
            return Unavailable("broke off", code="E_MODEL", details={"reason": "unreachable"})
        case waited:
            return lambda: waited.wait(HANG_S)


def served(stack: ExitStack, *, behind_another: bool, **settings: Any) -> Stage:
    endpoint = stack.enter_context(FakeChat())
    row = endpoint.row(**settings)
    if behind_another:
        broken = stack.enter_context(FakeChat())
        broken.always = Reply(503)
        row = replace(row, providers=(broken.provider(), *row.providers))
    return Stage(chat_model(row, {}.get), lambda steps: endpoint.next(_sent(steps)), lambda: len(endpoint.asked))


def _sent(steps: tuple[Step, ...]) -> Reply:
    """Words and calls as pieces, a call in two."""
    sent: list[Any] = [delta(role="assistant", content="")]
    number = -1
    for step in steps:
        if isinstance(step, ToolCall):
            number += 1
            half = len(step.arguments) // 2
            sent += [
                call(number, step.id, step.name, step.arguments[:half]),
                call(number, arguments=step.arguments[half:]),
            ]
        else:
            sent.append(delta(content=step) if isinstance(step, str) else step)
    end = [] if None in steps else [finish("tool_calls" if number >= 0 else "stop")]
    return chunks(*sent, *end, done=bool(end))


Make = Callable[..., Stage]


@pytest.fixture(params=["fake", "endpoint", "failover"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with ExitStack() as stack:
        if request.param == "fake":
            yield scripted
        else:
            yield lambda **settings: served(stack, behind_another=request.param == "failover", **settings)


def test_ax_03_an_answer_ends_with_one_finish_and_no_piece_is_empty(make: Make) -> None:
    *said, last = make().says("Ducks ", "游泳", " swim.")
    assert "".join(one.text for one in said if isinstance(one, ContentDelta)) == "Ducks 游泳 swim."
    assert all(isinstance(one, ContentDelta | ReasoningDelta) and one.text for one in said)
    assert isinstance(last, Finish) and last.reason == "stop" and last.provider
    assert last.usage is None or last.usage.total >= last.usage.prompt + last.usage.completion > 0


def test_ax_03_calls_come_whole_behind_what_is_said(make: Make) -> None:
    *said, last = make().says("I look. ", *CALLS, tools=TOOLS)
    assert said == [ContentDelta("I look. "), *map(ToolCallDone, CALLS)]
    assert isinstance(last, Finish) and last.reason == "tool_calls"


def test_ax_02_what_breaks_off_is_an_error_behind_which_nothing_comes(make: Make) -> None:
    stage = make()
    for steps in (("Ducks ", None), (*CALLS, None)):
        stage.answers(*steps)
        events = stage.model.stream(replace(ASKED, tools=TOOLS))
        come: list[ChatEvent] = []
        with pytest.raises(Unavailable) as caught:
            come.extend(events)
        assert caught.value.code == "E_MODEL" and not any(isinstance(one, Finish) for one in come)
        assert next(events, None) is None
    assert stage.says("Again.")[0] == ContentDelta("Again."), "the next question is another one"


def test_ax_08_who_cancels_before_hears_nothing(make: Make) -> None:
    stage, cancel = make(), Event()
    stage.answers("Ducks.")
    cancel.set()
    events = stage.model.stream(ASKED, cancel)
    with pytest.raises(Unavailable) as caught:
        next(events)
    assert caught.value.code == "E_CANCELLED" and next(events, None) is None


def test_ax_08_who_cancels_in_the_middle_hears_no_more(make: Make) -> None:
    stage, cancel = make(), Event()
    stage.answers("Ducks ", cancel, "swim.")
    events = stage.model.stream(ASKED, cancel)
    assert next(events) == ContentDelta("Ducks ")
    cancel.set()
    with pytest.raises(Unavailable) as caught:
        next(events)
    assert caught.value.code == "E_CANCELLED" and next(events, None) is None


def test_ax_08_who_stops_reading_may_ask_again(make: Make) -> None:
    stage, never = make(), Event()
    stage.answers("Ducks ", never)
    events = stage.model.stream(ASKED)
    assert next(events) == ContentDelta("Ducks ")
    events.close()  # type: ignore[attr-defined]
    assert stage.says("Again.")[0] == ContentDelta("Again.")
    never.set()


def test_ax_03_two_answers_at_once_are_not_mixed(make: Make) -> None:
    stage, go = make(), Event()
    stage.answers("Ducks ", go, "swim.")
    first = stage.model.stream(ASKED)
    assert next(first) == ContentDelta("Ducks ")
    assert stage.says("Geese.")[0] == ContentDelta("Geese.")
    go.set()
    second, last = first
    assert (second, type(last)) == (ContentDelta("swim."), Finish)


@pytest.mark.parametrize(
    ("cannot", "wanted"),
    [
        ({"json_mode": False}, {"response_format": "json"}),
        ({"tools": False}, {"tools": TOOLS}),
        ({"reasoning": "none"}, {"reasoning_effort": "low"}),
    ],
)
def test_ax_01_what_a_model_cannot_do_is_refused_before_anybody_is_asked(
    make: Make, cannot: dict[str, Any], wanted: dict[str, Any]
) -> None:
    stage = make(**cannot)
    with pytest.raises(UsageError) as caught:
        list(stage.model.stream(replace(ASKED, **wanted)))
    assert caught.value.code == "E_MODEL_CANNOT" and stage.asked == 0
    assert stage.says("Ducks.")[0] == ContentDelta("Ducks."), "what it can do it does"
