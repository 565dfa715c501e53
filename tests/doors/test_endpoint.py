"""A base whose vectors come from an endpoint: nothing is asked before trust, keys stay out of everything, faults degrade."""

from pathlib import Path

import pytest

from tests.conftest import make_base, run_in
from tests.fake_endpoint import FakeEndpoint, Reply

KEY = "sk-not-to-be-seen-anywhere-0123456789"
CONFIG = """\
global:
  embedding_model: some-model
  embedding: {{base_url: "{url}", api_key_env: SOME_KEY, dimensions: 16, max_retries: 0, timeout_s: 60}}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "SOME_KEY": KEY}


def test_an_endpoint_is_asked_only_after_trust_and_its_key_is_never_shown(tmp_path: Path, env: dict[str, str]) -> None:
    with FakeEndpoint() as endpoint:
        root = make_base(tmp_path / "kb", CONFIG.format(url=endpoint.settings().base_url))
        seen = [run_in(root, ["put", "Note", '{"id": "a", "text": "内存 fox"}'], env=env)]
        seen.append(run_in(root, ["find", "Note", "fox"], env=env))
        assert endpoint.asked == [], "nothing before trust"
        assert seen[0].line["pending"] == 1 and seen[1].line["_degraded"] is True
        assert run_in(root, ["find", "Note", "fox", "-s", "--json"], env=env).error["code"] == "E_UNTRUSTED"
        seen.append(run_in(root, ["trust"], env=env))
        seen.append(run_in(root, ["find", "Note", "fox", "-s"], env=env))
        assert seen[-1].line["id"] == "a" and "_degraded" not in seen[-1].line
        assert endpoint.asked and all(KEY in dict(asked.headers)["Authorization"] for asked in endpoint.asked)
        seen.append(run_in(root, ["config", "show", "--json"], env=env))
        seen.append(run_in(root, ["status", "--json"], env=env))
    assert not any(KEY in ran.out + ran.err for ran in seen)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.long
def test_a_failing_endpoint_stores_the_record_and_degrades_the_search(tmp_path: Path, env: dict[str, str]) -> None:
    with FakeEndpoint() as endpoint:
        root = make_base(tmp_path / "kb", CONFIG.format(url=endpoint.settings().base_url))
        run_in(root, ["trust"], env=env)
        endpoint.next(Reply(status=500), Reply(status=200, body=b"<html>"))
        stored = run_in(root, ["put", "Note", '{"id": "a", "text": "fox"}'], env=env)
        assert (stored.code, stored.line["inserted"], stored.line["pending"]) == (0, 1, 1)
        degraded = run_in(root, ["find", "Note", "fox", "-H"], env=env)
        assert degraded.code == 0 and degraded.line["_degraded"] is True
        healed = run_in(root, ["find", "Note", "fox", "-H"], env=env)
        assert "_degraded" not in healed.line
    down = run_in(root, ["find", "Note", "fox", "-s", "--json"], env=env)
    assert (down.code, down.error["code"]) == (1, "E_MODEL")


def test_a_key_that_is_not_set_is_named_and_nothing_is_asked(tmp_path: Path, env: dict[str, str]) -> None:
    with FakeEndpoint() as endpoint:
        root = make_base(tmp_path / "kb", CONFIG.format(url=endpoint.settings().base_url))
        run_in(root, ["trust"], env=env)
        ran = run_in(root, ["find", "Note", "x", "-s", "--json"], env={"XDG_STATE_HOME": env["XDG_STATE_HOME"]})
        assert "SOME_KEY" in ran.error["error"] and endpoint.asked == []


MIXED = """\
global: {{embedding: {{{own}}}}}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""


def collection(root: Path, env: dict[str, str], embedding: str) -> None:
    made = run_in(
        root, ["col", "init", "odd", "--policy", "knowledge-base", "--params", f'{{"embedding": {embedding}}}'], env=env
    )
    assert made.code == 0, made.err


@pytest.mark.model
def test_a_model_that_cannot_be_used_takes_the_vectors_from_its_own_type_alone(
    tmp_path: Path, env: dict[str, str]
) -> None:
    root = make_base(tmp_path / "kb", MIXED.format(own=""))
    run_in(root, ["put", "Note", '{"id": "a", "text": "Stocks lost a tenth of their value."}'], env=env)
    collection(root, env, '{"model": "text-embedding-3-small"}')
    for mode in ([], ["-s"]):
        ran = run_in(root, ["find", "all", "falling share prices", *mode], env=env)
        assert [line["id"] for line in ran.lines] == ["a"], ran.err
        assert "without vectors of odd: The embedding endpoint api.openai.com has not been accepted" in ran.err
    alone = run_in(root, ["find", "odd", "falling share prices", "-s", "--json"], env=env)
    assert (alone.code, alone.error["code"]) == (1, "E_UNTRUSTED")
    run_in(root, ["put", "odd", '{"id": "b", "content": "Stocks"}'], env=env)
    ran = run_in(root, ["find", "all", "falling share prices", "-s"], env=env)
    assert [line["id"] for line in ran.lines] == ["a"], ran.err


@pytest.mark.model
def test_an_address_for_other_models_leaves_the_offline_model_where_it_is(tmp_path: Path, env: dict[str, str]) -> None:
    with FakeEndpoint() as endpoint:
        own = f'base_url: "{endpoint.url}", dimensions: 16, max_retries: 0'
        root = make_base(tmp_path / "kb", MIXED.format(own=own))
        run_in(root, ["trust"], env=env)
        stored = run_in(root, ["put", "Note", '{"id": "a", "text": "Stocks lost a tenth of their value."}'], env=env)
        assert stored.line["pending"] == 0 and endpoint.asked == []
        collection(root, env, '{"model": "far"}')
        run_in(root, ["put", "odd", '{"id": "b", "content": "fox"}'], env=env)
        assert {asked.body["model"] for asked in endpoint.asked} == {"far"}
        assert run_in(root, ["find", "odd", "fox", "-s"], env=env).line["id"] == "b"


def test_the_model_of_a_type_has_its_own_address_and_key_and_needs_trust_of_its_own(
    tmp_path: Path, env: dict[str, str]
) -> None:
    with FakeEndpoint() as common, FakeEndpoint() as own:
        config = f'embedding_model: far, embedding: {{base_url: "{common.url}", api_key_env: SOME_KEY, max_retries: 0}}'
        text = MIXED.replace("embedding: {{{own}}}", config.replace("{", "{{").replace("}", "}}"))
        root = make_base(tmp_path / "kb", text.format())
        run_in(root, ["trust"], env=env)
        collection(root, env, f'{{"model": "near", "base_url": "{own.url}", "dimensions": 16}}')
        run_in(root, ["put", "odd", '{"id": "b", "content": "fox"}'], env=env)
        assert own.asked == [], "what was accepted before it was named says nothing of it"
        shown = run_in(root, ["trust", "--json"], env=env).line["demands"]
        assert shown["odd.embedding.base_url"] == own.url and "odd.embedding.api_key_env" not in shown
        assert run_in(root, ["find", "odd", "fox", "-s"], env=env).line["id"] == "b"
    assert own.asked and not any("SOME_KEY" in str(one.headers) or KEY in str(one.headers) for one in own.asked)
    assert not any("fox" in asked.texts for asked in common.asked), "texts of the type go to its own endpoint alone"


def test_an_address_without_a_model_that_is_asked_there_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    root = make_base(tmp_path / "kb", MIXED.format(own=""))
    params = '{"embedding": {"base_url": "https://models.example.org/v1"}}'
    made = run_in(root, ["col", "init", "odd", "--policy", "knowledge-base", "--params", params], env=env)
    assert made.code == 2 and "needs a `model` beside it" in made.err


SEEDS_OWN = """\
global:
  chunk_size: 800
  embedding_model: text-embedding-3-small
  tokenizer: jieba
nodes:
  Note:
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}}
    search: {full_text: [text], vectors: [text]}
"""


def test_a_model_known_to_have_an_endpoint_needs_no_address_but_trust_and_a_key_like_any(
    tmp_path: Path, env: dict[str, str]
) -> None:
    root = make_base(tmp_path / "kb", SEEDS_OWN)
    env |= {"OPENAI_API_KEY": KEY}
    stored = run_in(root, ["put", "Note", '{"id": "a", "text": "内存 fox"}'], env=env)
    assert (stored.code, stored.line["pending"]) == (0, 1)
    found = run_in(root, ["find", "Note", "内存"], env=env)
    assert (found.line["id"], found.line["_degraded"]) == ("a", True)
    assert "api.openai.com has not been accepted" in found.err and "duckkb trust" in found.err
    assert run_in(root, ["find", "Note", "fox", "-s", "--json"], env=env).error["code"] == "E_UNTRUSTED"
    assert run_in(root, ["check"], env=env).code == 0
    shown = run_in(root, ["trust", "--show", "--json"], env=env).line
    assert (sorted(shown["demands"].values()), shown["trusted"]) == (
        ["OPENAI_API_KEY", "https://api.openai.com/v1"],
        False,
    )
    run_in(root, ["trust"], env=env)
    lacking = run_in(root, ["find", "Note", "fox", "-s", "--json"], env=env | {"OPENAI_API_KEY": ""})
    assert lacking.code == 1 and "OPENAI_API_KEY" in lacking.error["error"]


def test_an_address_or_key_variable_that_is_given_stands_for_the_known_one(tmp_path: Path, env: dict[str, str]) -> None:
    with FakeEndpoint() as endpoint:
        own = f'{{base_url: "{endpoint.settings().base_url}", dimensions: 16, max_retries: 0}}'
        text = SEEDS_OWN.replace("  tokenizer", f"  embedding: {own}\n  tokenizer")
        root = make_base(tmp_path / "kb", text)
        assert list(run_in(root, ["trust", "--json"], env=env).line["demands"]) == ["global.embedding.base_url"]
        assert run_in(root, ["put", "Note", '{"id": "a", "text": "fox"}'], env=env).line["pending"] == 0
        assert run_in(root, ["find", "Note", "fox", "-s"], env=env).line["id"] == "a"
    (root / "config.yaml").write_text(text.replace(own, "{api_key_env: SOME_KEY}"), "utf-8")
    demands = run_in(root, ["trust", "--show", "--json"], env=env).line["demands"]
    assert sorted(demands.values()) == ["SOME_KEY", "https://api.openai.com/v1"]
