"""`duckkb models list` and `duckkb models test`, and what a base knows of its chat models."""

import json
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.app import wiring
from duckkb.llm import predict
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.errors import Unavailable, UsageError
from tests.conftest import NOTES, make_base, run_in
from tests.fake_chat import USAGE, FakeChat
from tests.fake_endpoint import Reply

KEY = "sk-secret-of-the-test"


def base(tmp_path: Path, settings: dict[str, Any]) -> Path:
    settings = {"embedding_model": "none", **settings}
    return make_base(tmp_path / "kb", NOTES.replace("{embedding_model: none}", json.dumps(settings)))


def two(first: FakeChat, second: FakeChat) -> dict[str, Any]:
    one = {"base_url": first.url, "model": "a", "api_key_env": "AX_TEST_KEY"}
    fast = {"providers": [one, {"base_url": second.url, "model": "b"}], "json_mode": False}
    return {"fast": fast, "slow": {"providers": [{"base_url": second.url}], "reasoning": "native"}}


def lines(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_ax_02_models_list_says_what_each_can_do_and_never_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeChat() as first, FakeChat() as second:
        rerank = {"method": "http", "model": "judge", "base_url": second.url}
        settings = {"models": two(first, second), "ask": {"model": "fast"}, "rerank": rerank}
        root = base(tmp_path, settings | {"embedding_model": "multilingual-e5-small"})
        monkeypatch.setenv("AX_TEST_KEY", KEY)
        done = run_in(root, ["models", "list"])
        assert (done.code, first.asked, second.asked) == (0, [], []) and KEY not in done.out + done.err
        embedding, judge, fast, slow = lines(done)
        assert embedding == {"kind": "embedding", "name": "multilingual-e5-small", "providers": [], "trusted": True}
        assert (judge["kind"], judge["name"], judge["trusted"]) == ("rerank", "judge", False)
        assert fast == {
            "kind": "chat", "name": "fast", "json_mode": False, "tools": True, "reasoning": "none", "context_tokens": 8192,
            "answers": True, "trusted": False, "providers": [
                {"model": "a", "host": first.url[7:-3], "api_key_env": "AX_TEST_KEY", "is_set": True},
                {"model": "b", "host": second.url[7:-3], "api_key_env": None, "is_set": None}],
        }  # fmt: skip
        assert (slow["providers"][0]["model"], slow["reasoning"], slow["answers"]) == ("slow", "native", False)
        assert run_in(root, ["trust"]).code == 0
        assert [one["trusted"] for one in lines(run_in(root, ["models", "list"]))] == [True] * 4
        assert json.loads(run_in(root, ["models", "list", "--json"]).out)["models"][2]["trusted"] is True


def test_ax_02_models_test_asks_each_provider_in_order_once_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeChat() as first, FakeChat() as second:
        root = base(tmp_path, {"models": two(first, second)})
        monkeypatch.setenv("AX_TEST_KEY", KEY)
        refused = run_in(root, ["models", "test"])
        assert refused.code == 1 and "duckkb trust" in refused.err and not first.asked and not second.asked
        assert run_in(root, ["trust"]).code == 0
        done = run_in(root, ["models", "test"])
        found = lines(done)
        assert done.code == 0, done.err
        assert [(one["model"], one["provider"][:5]) for one in found] == [
            ("fast", "a@127"),
            ("fast", "b@127"),
            ("slow", "slow@"),
        ]
        usage = {key.removesuffix("_tokens"): value for key, value in USAGE.items()} | {"cached": None}
        assert all(one["ok"] and one["ms"] >= 0 and one["usage"] == usage for one in found)
        assert first.asked[0].headers["Authorization"] == f"Bearer {KEY}"
        second.next(Reply(503))
        done = run_in(root, ["models", "test", "fast"])
        good, bad = lines(done)
        assert (done.code, good["ok"], bad["ok"], bad["reason"]) == (1, True, False, "http_503") and KEY not in done.out
        monkeypatch.delenv("AX_TEST_KEY")
        unset = lines(run_in(root, ["models", "test", "fast"]))[0]
        assert unset["reason"] == "no_key" and "AX_TEST_KEY" in unset["error"]
        unknown = run_in(root, ["models", "test", "fats"])
        assert unknown.code == 2 and "No chat model" in unknown.err and "fast" in unknown.err


def test_ax_02_a_base_gives_the_model_that_is_named_or_says_how_to_have_one(tmp_path: Path) -> None:
    with FakeChat() as first, FakeChat() as second:
        root = base(tmp_path, {"models": two(first, second)})
        _, wired = wiring.wire(root, OpenOptions())
        with pytest.raises(Unavailable) as untrusted:
            predict(wired.chat("slow"), "q")
        assert untrusted.value.code == "E_UNTRUSTED" and not second.asked
        assert run_in(root, ["trust"]).code == 0
        assert predict(wired.chat("slow"), "q").finish.provider.startswith("slow@")
        for name, said in ((None, "none is chosen"), ("slwo", "No chat model")):
            with pytest.raises(UsageError) as caught:
                wired.chat(name)
            assert caught.value.code == "E_NO_MODEL" and said in caught.value.message and caught.value.suggestion
        (root / "config.yaml").write_text(NOTES, "utf-8")
        with pytest.raises(UsageError) as caught:
            wiring.wire(root, OpenOptions())[1].chat(None)
        assert caught.value.code == "E_NO_MODEL" and "global.models" in caught.value.suggestion


def test_ax_02_a_row_that_is_wrong_names_its_line(tmp_path: Path) -> None:
    root = base(tmp_path, {})
    text = "global:\n  embedding_model: none\n  models:\n    fast:\n      providers:\n      - base_url: nowhere\n"
    (root / "config.yaml").write_text(text + NOTES.partition("\n")[2], "utf-8")
    done = run_in(root, ["models", "list"])
    assert done.code == 2 and "config.yaml:6" in done.err and "E_CONFIG" in done.err
    with pytest.raises(UsageError):
        duckkb.open(root)
