"""AX-01: one question, one answer with what it took; JSON that is held to its word. Against a real server on this machine."""

import json
import logging
import subprocess
import sys
import traceback
from typing import Any

import pytest

from duckkb.llm import chat_model, predict, read_registry
from duckkb.types.chat_messages import Message, ToolCall, ToolSpec, Usage
from duckkb.types.errors import DuckkbError, Unavailable, UsageError
from duckkb.types.settings import ChatModelSettings
from tests.fake_chat import USAGE, FakeChat, call, chunks, delta, finish
from tests.fake_endpoint import Reply

KEY, QUESTION = "sk-secret-of-the-test", "where is the memory 内存"
ANSWER = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
LOOK_UP = ToolSpec("look_up", "Looks up.", {"type": "object", "properties": {}})


def fault(endpoint: FakeChat, row: ChatModelSettings | None = None, **how: Any) -> DuckkbError:
    """The error of a question, which repeats neither the key nor the question."""
    model = chat_model(row or endpoint.row(), {"FAKE_KEY": KEY}.get)
    with pytest.raises(DuckkbError) as caught:
        predict(model, QUESTION, **how)
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert KEY not in told and QUESTION not in told
    return caught.value


def test_ax_01_predict_gives_content_and_usage() -> None:
    with FakeChat() as endpoint:
        found = predict(chat_model(endpoint.row(), {}.get), QUESTION)
        (asked,) = endpoint.asked
    assert (found.content, found.parsed, found.tool_calls) == ("Hello there.", None, ())
    assert found.finish.usage == Usage(7, 3, 10) and found.finish.reason == "stop"
    assert found.message == Message("assistant", "Hello there.")
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {
        "model": "fake-chat", "messages": [{"role": "user", "content": QUESTION}],
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_ax_01_a_request_holds_what_was_asked_for_and_the_key_and_nothing_about_the_machine() -> None:
    messages: list[Message | dict[str, str]] = [{"role": "system", "content": "Be brief."}, Message("user", "你好")]
    with FakeChat() as endpoint:
        row = endpoint.row(
            providers=(endpoint.provider(api_key_env="FAKE_KEY", stream_usage=False),), reasoning="native"
        )
        model = chat_model(row, {"FAKE_KEY": f" {KEY}\n"}.get)
        endpoint.next(chunks(call(0, "c1", "look_up", "{}"), finish("tool_calls")))
        how: Any = {"temperature": 0.5, "top_p": 1, "max_tokens": 9, "reasoning_effort": "low"}
        found = predict(model, messages, tools=[LOOK_UP], tool_choice="required", **how)
        (asked,) = endpoint.asked
    assert found.tool_calls == (ToolCall("c1", "look_up", "{}"),) and found.finish.reason == "tool_calls"
    assert asked.body == {
        "model": "fake-chat", "stream": True, "temperature": 0.5, "top_p": 1, "max_completion_tokens": 9, "reasoning_effort": "low",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "你好"}], "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "look_up", "description": "Looks up.", "parameters": dict(LOOK_UP.parameters)}}],
    }  # fmt: skip
    assert asked.headers.pop("Authorization") == f"Bearer {KEY}"  # type: ignore[attr-defined]
    known = {"host", "accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent"}
    assert {name.lower() for name in asked.headers} == known


def test_ax_01_no_log_has_the_conversation_or_the_key(caplog: pytest.LogCaptureFixture) -> None:
    """Not even that of the client, which has the request at DEBUG in some versions."""
    caplog.set_level(logging.DEBUG)
    with FakeChat() as endpoint:
        row = endpoint.row(providers=(endpoint.provider(api_key_env="FAKE_KEY"),))
        predict(chat_model(row, {"FAKE_KEY": KEY}.get), QUESTION)
    assert {"httpx", "httpx2"} & {one.name for one in caplog.records}, "somebody logs"
    assert "openai._base_client" not in {one.name for one in caplog.records}
    assert not any(word in caplog.text for word in (KEY, QUESTION, "Hello"))


@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        (finish(usage=USAGE), Usage(7, 3, 10)),
        ({"choices": [], "usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 4}}}, Usage(7, 3, 10, 4)),
        ({"choices": [], "usage": USAGE | {"prompt_cache_hit_tokens": 5}}, Usage(7, 3, 10, 5)),
        ({"choices": [], "usage": USAGE | {"cached_tokens": 0}}, Usage(7, 3, 10, 0)),
        ({"choices": [], "usage": {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 6}}},
         Usage(7, 3, 10, 6)),
        ({"choices": None, "x_groq": {"usage": USAGE}}, Usage(7, 3, 10)),
        ({"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}, Usage(7, 3, 10)),
        ({"choices": [], "usage": {"prompt_tokens": "7", "completion_tokens": -3}}, None),
        ({"choices": [], "usage": {"prompt_tokens": True, "completion_tokens": 1.5}}, None),
        ({"choices": [], "usage": [7, 3]}, None),
        ({"choices": [], "usage": None}, None),
        ({"choices": [], "usage": USAGE | {"prompt_tokens_details": 4, "total_tokens": None}}, Usage(7, 3, 10)),
    ],
    ids=str,
)  # fmt: skip
def test_ax_01_usage_counts_in_whatever_form_it_arrives(sent: dict[str, Any], usage: Usage | None) -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(delta(content="Hi", role="assistant"), {**finish(), "usage": None}, sent))
        assert predict(chat_model(endpoint.row(), {}.get), "q").finish.usage == usage


def test_ax_01_the_last_count_stands_where_each_chunk_has_one() -> None:
    with FakeChat() as endpoint:
        counted = [{**delta(content="x"), "usage": {"prompt_tokens": 7, "completion_tokens": n}} for n in range(3)]
        endpoint.next(chunks(*counted, finish(usage={"prompt_tokens": 7, "completion_tokens": 3})))
        assert predict(chat_model(endpoint.row(), {}.get), "q").finish.usage == Usage(7, 3, 10)


@pytest.mark.parametrize("value", [{}, {"age": 7, "姓": "王"}, [1, None], []], ids=str)
def test_ax_01_json_comes_as_its_value(value: object) -> None:
    with FakeChat() as endpoint:
        endpoint.said = f" {json.dumps(value, ensure_ascii=False)}\n"
        found = predict(chat_model(endpoint.row(), {}.get), "q", response_format="json")
        assert endpoint.asked[0].body["response_format"] == {"type": "json_object"}
    assert found.parsed == value and found.content == endpoint.said


@pytest.mark.long
@pytest.mark.parametrize(
    "said", ["", "Sure!", '{"age": ', "{'age': 7}", '```json\n{"age": 7}\n```', '{"age": NaN}', "7", '"prose"', "null", "[" * 9_000]
)  # fmt: skip
def test_ax_01_what_is_no_json_is_an_error_with_the_text_as_it_came(said: str) -> None:
    with FakeChat() as endpoint:
        endpoint.said = said
        problem = fault(endpoint, response_format="json")
        endpoint.next(chunks(delta(content='{"age"'), finish("length")))
        cut = fault(endpoint, response_format="json")
    assert isinstance(problem, Unavailable)
    assert (problem.code, problem.details["reason"], problem.details["raw"]) == ("E_MODEL", "not_json", said)
    assert "cut off" in cut.message and cut.details["raw"] == '{"age"'


def test_ax_01_json_is_held_against_a_schema() -> None:
    with FakeChat() as endpoint:
        model = chat_model(endpoint.row(), {}.get)
        endpoint.said = '{"age": 7}'
        assert predict(model, "q", schema=ANSWER).parsed == {"age": 7}
        assert endpoint.asked[0].body["response_format"] == {"type": "json_object"}
        endpoint.said = '{"age": "seven"}'
        problem = fault(endpoint, schema=ANSWER)
        assert (problem.details["reason"], problem.details["raw"]) == ("schema", endpoint.said)
        assert problem.details["problems"][0]["field"] == "/age" and "seven" not in problem.message
        before = len(endpoint.asked)
        for schema in ({"type": "thing"}, {"$ref": "http://127.0.0.1:9/x"}):
            assert isinstance(fault(endpoint, schema=schema), UsageError)
        assert len(endpoint.asked) == before, "nobody is asked for what could not be judged"


@pytest.mark.parametrize(
    ("row", "how", "said"),
    [
        ({"json_mode": False}, {"response_format": "json"}, "has no JSON"),
        ({"json_mode": False}, {"schema": ANSWER}, "has no JSON"),
        ({"tools": False}, {"tools": [LOOK_UP]}, "has no calls of tools"),
        ({"reasoning": "none"}, {"reasoning_effort": "high"}, "has no reasoning"),
    ],
)
def test_ax_01_a_model_that_cannot_is_refused_before_anybody_is_asked(
    row: dict[str, Any], how: dict[str, Any], said: str
) -> None:
    with FakeChat() as endpoint:
        problem = fault(endpoint, endpoint.row(**row), **how)
        assert endpoint.asked == []
    assert isinstance(problem, UsageError) and problem.code == "E_MODEL_CANNOT" and said in problem.message


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 2.1}, {"temperature": float("nan")}, {"top_p": -0.1}, {"max_tokens": 0}, {"max_tokens": 1.5},
        {"tool_choice": "required"}, {"tool_choice": "maybe"}, {"response_format": "xml"}, {"reasoning_effort": "huge"},
        {"temprature": 0},
    ],
    ids=str,
)  # fmt: skip
def test_ax_01_settings_out_of_range_are_refused(how: dict[str, Any]) -> None:
    with FakeChat() as endpoint:
        assert isinstance(fault(endpoint, endpoint.row(reasoning="native"), **how), UsageError)
        model = chat_model(endpoint.row(), {}.get)
        for prompt in ([], [{"role": "user"}, {"role": "nobody", "content": ""}]):
            with pytest.raises(UsageError):
                predict(model, prompt)
        assert endpoint.asked == []


@pytest.mark.parametrize(
    ("reasoning", "sent"),
    [("native", {"reasoning_effort": "high"}), ("mapped", {"thinking": {"type": "enabled"}}), ("fixed", {})],
)
def test_ax_01_reasoning_is_asked_for_as_the_row_says(reasoning: str, sent: dict[str, Any]) -> None:
    with FakeChat() as endpoint:
        provider = endpoint.provider(reasoning_body={"thinking": {"type": "enabled"}})
        model = chat_model(endpoint.row(reasoning=reasoning, providers=(provider,)), {}.get)
        predict(model, "q", reasoning_effort="high")
        predict(model, "q")
        first, second = (asked.body for asked in endpoint.asked)
    assert {name: value for name, value in first.items() if name not in second} == sent


@pytest.mark.parametrize(
    ("row", "low"),
    [
        ({"reasoning_body": {"enable_thinking": True, "budget": 9}}, {"enable_thinking": False}),
        ({"reasoning_body": {"a": True}, "reasoning_off": {"thinking": {"type": "disabled"}}}, {"thinking": {"type": "disabled"}}),
    ],
)  # fmt: skip
def test_ax_01_mapped_reasoning_is_off_for_low_effort_and_on_for_more(row: dict[str, Any], low: dict[str, Any]) -> None:
    with FakeChat() as endpoint:
        model = chat_model(endpoint.row(reasoning="mapped", providers=(endpoint.provider(**row),)), {}.get)
        for effort in ("low", "medium", "high", None):
            predict(model, "q", **({"reasoning_effort": effort} if effort else {}))
        bodies = [asked.body for asked in endpoint.asked]
    sent = [{name: value for name, value in body.items() if name not in bodies[-1]} for body in bodies]
    assert sent == [low, row["reasoning_body"], row["reasoning_body"], {}]


def test_ax_01_a_key_that_is_set_later_or_changes_is_read_at_the_next_call() -> None:
    keys: dict[str, str] = {}
    with FakeChat() as endpoint:
        model = chat_model(endpoint.row(providers=(endpoint.provider(api_key_env="LATER"),)), keys.get)
        with pytest.raises(Unavailable, match="LATER is not set"):
            predict(model, "q")
        for key in ("first", "second"):
            keys["LATER"] = key
            predict(model, "q")
        assert [asked.headers["Authorization"] for asked in endpoint.asked] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("wants", [False, True])
def test_ax_01_what_a_model_thought_is_sent_back_to_providers_that_ask_for_it_alone(wants: bool) -> None:
    with FakeChat() as endpoint:
        model = chat_model(endpoint.row(providers=(endpoint.provider(returns_reasoning=wants),)), {}.get)
        endpoint.next(chunks(delta(reasoning_content="hm"), delta(content="Yes."), finish()))
        answer = predict(model, "q")
        predict(model, [Message("user", "q"), answer.message, Message("user", "again")])
        sent = endpoint.asked[1].body["messages"][1]
    assert answer.reasoning == "hm" and answer.message.reasoning == "hm"
    assert sent == {"role": "assistant", "content": "Yes."} | ({"reasoning_content": "hm"} if wants else {})


@pytest.mark.parametrize(
    ("sent", "how"),
    [
        ([delta(content="I would rather not."), finish()], {"tools": [LOOK_UP], "tool_choice": "required"}),
        ([call(0, "c", "look_up", "{}"), finish("tool_calls")], {"tools": [LOOK_UP], "tool_choice": "none"}),
        ([call(0, "c", "look_up", "{}"), finish("tool_calls")], {}),
    ],
)
def test_ax_01_a_provider_that_ignores_what_was_asked_is_an_error_that_says_so(
    sent: list[dict[str, Any]], how: dict[str, Any]
) -> None:
    with FakeChat() as endpoint:
        endpoint.next(chunks(*sent))
        problem = fault(endpoint, **how)
        assert len(endpoint.asked) == 1
    assert problem.details["reason"] == "ignored" and "but the request" in problem.message


def test_ax_01_models_of_plain_data_need_no_knowledge_base() -> None:
    with FakeChat() as endpoint:
        models = read_registry({"small": {"providers": [{"base_url": endpoint.url, "api_key_env": "FAKE_KEY"}]}})
        assert predict(chat_model(models["small"], {"FAKE_KEY": KEY}.get), "q").content == "Hello there."
        assert endpoint.asked[0].body["model"] == "small"
    with pytest.raises(UsageError) as caught:
        read_registry({"a": {"providers": [{"base_url": "x", "url": 1}]}, "b": {}})
    assert [one.field for one in caught.value.findings] == ["/a/providers/0/url", "/a/providers/0/base_url", "/b"]


def test_ax_01_the_library_imports_neither_openai_nor_numpy_before_it_asks() -> None:
    script = """
import sys
from duckkb.llm import chat_model, predict, read_registry
model = chat_model(read_registry({"a": {"providers": [{}]}})["a"], {}.get)
print([name for name in ("openai", "httpx2", "httpx", "numpy", "duckdb") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_ax_01_a_server_that_does_not_stream_is_understood_too() -> None:
    whole = {"choices": [{"message": {"content": "Hi.", "reasoning": "hm"}, "finish_reason": "stop"}], "usage": USAGE}
    with FakeChat() as endpoint:
        endpoint.next(Reply(body=json.dumps(whole).encode()))
        found = predict(chat_model(endpoint.row(), {}.get), "q")
    assert (found.content, found.reasoning, found.finish.usage) == ("Hi.", "hm", Usage(7, 3, 10))
