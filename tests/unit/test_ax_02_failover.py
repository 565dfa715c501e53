"""AX-02: providers are asked in the order of the registry until one answers. Against real servers on this machine."""

import threading
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from duckkb.llm import chat_model, predict, stream
from duckkb.llm.providers import json_endpoint, make_chat_model
from duckkb.types.chat_messages import ContentDelta
from duckkb.types.errors import Unavailable
from duckkb.types.settings import ChatModelSettings
from tests.fake_chat import FakeChat, chunks, delta, event
from tests.fake_endpoint import Reply
from tests.harness.waiting import HANG_S

KEY, QUESTION = "sk-secret-of-the-test", "where is the memory 内存"
SAID = b'{"error": {"message": "SAID BY THE SERVER to sk-secret-of-the-test"}}'


def both(first: FakeChat, second: FakeChat, **changes: Any) -> ChatModelSettings:
    one = first.provider(model="one", api_key_env="FAKE_KEY", **changes)
    return first.row(providers=(one, second.provider(model="two")))


def refusal(row: ChatModelSettings, key: str | None = KEY) -> Unavailable:
    """The error of a question; no key is in it, nor what a server said."""
    with pytest.raises(Unavailable) as caught:
        predict(chat_model(row, lambda _: key), QUESTION)
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert KEY not in told and QUESTION not in told
    return caught.value


GOES_ON: dict[str, tuple[Reply, str]] = {
    **{str(status): (Reply(status, SAID), f"http_{status}") for status in (401, 403, 404, 408, 429, 500, 502, 503, 529)},
    "a lost connection": (Reply(reset=True), "unreachable"),
    "a silent server": (Reply(silent=True), "timeout"),
    "slow headers": (Reply(slow_headers=True), "timeout"),
    "a dripping body": (Reply(dripping=True), "timeout"),
    "comments alone": (Reply(pieces=[b": wait\n\n"] * 3, silent=True), "timeout"),
    "a page": (Reply(body=b"<html>SAID BY THE SERVER", headers={"Content-Type": "text/html"}), "bad_answer"),
    "garbage": (Reply(body=b"SAID BY THE SERVER {"), "bad_answer"),
    "a broken event": (Reply(pieces=[b"data: {SAID BY THE SERVER\n\n"]), "bad_answer"),
    "an error as an event": (chunks({"error": {"message": "SAID BY THE SERVER"}}), "bad_answer"),
    "an error as an answer": (Reply(body=SAID), "bad_answer"),
    "nothing": (Reply(pieces=[]), "unreachable"),
    "a promise": (chunks(delta(role="assistant", content="")), "unreachable"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("fault", GOES_ON)
def test_ax_02_the_next_provider_is_asked_where_one_cannot_answer(fault: str) -> None:
    reply, reason = GOES_ON[fault]
    with FakeChat() as first, FakeChat() as second:
        row = both(first, second, timeout_s=0.3 if reason == "timeout" else 10.0)
        first.always = reply
        found = predict(chat_model(row, {"FAKE_KEY": KEY}.get), "q")
        assert len(second.asked) == 1 and len(first.asked) <= 1, "nobody is asked twice"
        assert first.asked or reason == "timeout", "a busy machine may take longer to read than it is waited for"
        assert found.finish.provider == row.providers[1].name
        assert "Authorization" not in second.asked[0].headers, "each has a key of its own"
        second.always = Reply(500)
        error = refusal(row)
    assert (error.code, error.details["reason"]) == ("E_MODEL", "all_failed")
    told = [(one["provider"], one["reason"]) for one in error.details["tries"]]
    assert told == [(row.providers[0].name, reason), (row.providers[1].name, "http_500")]
    assert all(f"{provider.name}: " in error.message for provider in row.providers)
    assert "SAID BY THE SERVER" not in str(vars(error))


@pytest.mark.parametrize("status", [307, 400, 409, 413, 422])
def test_ax_02_what_speaks_of_the_request_ends_it(status: int) -> None:
    with FakeChat() as first, FakeChat() as second:
        said = b'{"error": {"message": "temperature is not known"}}'
        first.always = Reply(status, said, {"Location": f"{second.url}/chat/completions"})
        error = refusal(both(first, second))
        assert (len(first.asked), second.asked) == (1, [])
    assert error.details["reason"] == f"http_{status}"
    assert ("temperature is not known" in error.message) == (status in (400, 413, 422))


def test_ax_02_what_was_begun_is_not_begun_anew_elsewhere() -> None:
    with FakeChat() as first, FakeChat() as second:
        for end in (None, event({"error": {"message": "SAID BY THE SERVER"}}), b""):
            first.next(chunks(delta(content="The first"), end, done=False))
            events = stream(chat_model(both(first, second), {"FAKE_KEY": KEY}.get), "q")
            assert next(events) == ContentDelta("The first")
            with pytest.raises(Unavailable) as caught:
                list(events)
            assert caught.value.details["provider"].startswith("one@") and "SAID" not in str(caught.value.details)
        assert second.asked == []


def test_ax_02_a_late_provider_is_given_up_also_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(json_endpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with FakeChat() as first, FakeChat() as second:
        first.next(chunks(delta(content="The first"), done=False, silent=True))
        events = stream(chat_model(both(first, second), {"FAKE_KEY": KEY}.get), "q")
        assert next(events) == ContentDelta("The first")
        now[0] += 1_000.0
        with pytest.raises(Unavailable) as caught:
            list(events)
        assert caught.value.details["reason"] == "timeout" and second.asked == []
        assert first.hung_up.wait(HANG_S), "the server is told"


def test_ax_02_nobody_there_is_found_at_once() -> None:
    with FakeChat() as second:
        with FakeChat() as first:
            row = both(first, second)
        assert predict(chat_model(row, {"FAKE_KEY": KEY}.get), "q").content == "Hello there."


def test_ax_02_a_missing_key_is_named_and_the_next_provider_asked() -> None:
    with FakeChat() as first, FakeChat() as second:
        row = both(first, second)
        assert predict(chat_model(row, {}.get), "q").finish.provider.startswith("two@")
        assert first.asked == []
        error = refusal(first.row(providers=row.providers[:1]), None)
        assert "FAKE_KEY is not set" in error.message and error.suggestion == "export FAKE_KEY=KEY"
        odd = refusal(first.row(providers=row.providers[:1]), KEY + "\nü")
        assert "FAKE_KEY" in odd.suggestion and odd.details["tries"][0]["reason"] == "no_key"
        assert first.asked == []


@pytest.mark.parametrize(
    "said", [KEY, KEY[::-1], KEY.upper(), f"x{KEY[3:12]}x", "\x1b[2J\x07", "x" * 5_000, ["a list"], {"a": "mapping"}]
)
def test_ax_02_of_what_a_server_says_one_line_is_told_and_never_a_piece_of_the_key(said: object) -> None:
    with FakeChat() as first, FakeChat() as second:
        first.always = Reply(400, event({"error": {"message": said}}).removeprefix(b"data: "))
        message = refusal(both(first, second)).message
    assert message.isprintable() and len(message) < 400 and KEY[3:12] not in message


def test_ax_02_a_huge_answer_is_not_read_to_its_end() -> None:
    from duckkb.llm.providers import chat_endpoint

    assert chat_endpoint._MOST_BYTES == 64 << 20
    with FakeChat() as first, FakeChat() as second:
        first.always = Reply(endless=True)
        assert predict(chat_model(both(first, second), {"FAKE_KEY": KEY}.get), "q").finish.provider.startswith("two@")
        assert first.sent_bytes < 90 << 20


def test_ax_02_no_host_is_asked_and_no_key_read_before_it_is_trusted() -> None:
    read: list[str] = []
    with FakeChat() as first, FakeChat() as second:
        model = make_chat_model(both(first, second), trusted=False, secret=read.append)  # type: ignore[arg-type]
        with pytest.raises(Unavailable) as caught:
            predict(model, "q")
        assert (first.asked, second.asked, read) == ([], [], [])
    assert caught.value.code == "E_UNTRUSTED" and "duckkb trust" in caught.value.suggestion


def test_ax_02_two_threads_ask_one_model_side_by_side() -> None:
    with FakeChat() as endpoint:
        endpoint.together = threading.Barrier(4)
        model, found = chat_model(endpoint.row(), {}.get), list[str]()
        threads = [threading.Thread(target=lambda: found.append(predict(model, "q").content)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(HANG_S)
    assert found == ["Hello there."] * 4 and endpoint.most_at_once == 4
