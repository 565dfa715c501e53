"""Looking for the base, reading the environment, and trusting what a clone asks for."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from duckkb import config
from duckkb.config import machine_memory
from duckkb.config.setting_keys import KEYS, SETTING_VARIABLES, VARIABLES
from duckkb.storage import base_lock
from duckkb.types.errors import OntologyError, StateError, Unavailable
from duckkb.types.settings import ChatModelSettings, EmbeddingSettings, Environment, ProviderSettings, Settings

REMOTE = Settings(embedding=EmbeddingSettings("bge", "https://models.example/v1", "MODEL_KEY"))


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("")
    return path


def env(tmp_path: Path, **variables: str) -> Environment:
    return config.environment({"HOME": str(tmp_path / "home"), **variables})


def test_the_named_base_comes_before_the_variable_and_that_before_the_nearest(tmp_path: Path) -> None:
    near, named, other = folder(tmp_path / "near"), folder(tmp_path / "named"), folder(tmp_path / "概念 库")
    inside = near / "a" / "b"
    inside.mkdir(parents=True)
    assert config.find_root(inside, None, Environment()) == near
    assert config.find_root(inside, None, Environment(kb=str(other))) == other
    assert config.find_root(inside, str(named), Environment(kb=str(other))) == named
    assert config.find_root(near, "../named", Environment()) == named


def test_the_nearest_of_nested_bases_is_meant(tmp_path: Path) -> None:
    inner = folder(folder(tmp_path / "outer") / "inner")
    assert config.find_root(inner, None, Environment()) == inner


@pytest.mark.parametrize("name", ["missing", "", "a\x00b", "~nobody-of-this-name/x", "x" * 5_000])
def test_a_named_base_that_is_none_is_an_error_and_not_searched_for_above(tmp_path: Path, name: str) -> None:
    start = tmp_path / "sub"
    start.mkdir()
    (tmp_path / "config.yaml").write_text("")
    for explicit, variable in ((name, None), (None, name)):
        with pytest.raises(StateError) as caught:
            config.find_root(start, explicit, Environment(kb=variable))
        assert (caught.value.code, caught.value.exit_code) == ("E_NO_KB", 1)
        assert "duckkb init" in caught.value.suggestion


def test_without_any_base_the_error_suggests_init(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        config.find_root(tmp_path, None, Environment())
    assert caught.value.suggestion.startswith("`duckkb init`")


def test_an_empty_environment_has_defaults_in_the_home_folder(tmp_path: Path) -> None:
    found = env(tmp_path)
    assert (found.kb, found.writer, found.trust, found.sandbox) == (None, None, None, False)
    assert found.cache_home == tmp_path / "home" / ".cache" / "duckkb"
    assert found.state_home == tmp_path / "home" / ".local" / "state" / "duckkb"


OF_SEALED_STATE = {"DUCKKB_ENCRYPTION_KEY", "DUCKKB_ENCRYPTION_KEY_FILE", "XDG_RUNTIME_DIR"}
"""Which tests/paths/test_sealed.py sets."""


def test_every_variable_that_is_listed_is_read(tmp_path: Path) -> None:
    default = env(tmp_path)
    for variable in VARIABLES.keys() - OF_SEALED_STATE:
        assert env(tmp_path, **{variable: "/somewhere"}) != default, variable
        assert env(tmp_path, **{variable: ""}) == default, variable


@pytest.mark.parametrize("variable", SETTING_VARIABLES)
def test_a_variable_stands_over_its_setting_for_one_process(tmp_path: Path, variable: str) -> None:
    key, root = SETTING_VARIABLES[variable], folder(tmp_path / "kb")
    (root / "config.yaml").write_text(
        "global: {rerank: {model: m}, expand: {model: m}, models: {chat: {providers: [{}]}}}"
    )
    plain = config.load(root, env(tmp_path)).settings
    options = getattr(key.rule, "options", ())
    values = [*options, "true", "http://127.0.0.1:1/v1", "3", "5", "0.4", "A_NAME", "none", "german", "1024", "chat"]
    text = next(one for one in values if one != str(key.get_value(plain)) and _is_taken(root, tmp_path, variable, one))
    settings = config.load(root, env(tmp_path, **{variable: text})).settings
    value = key.get_value(settings)
    assert str(value).lower() in (text, f"{text}.0") and settings.origins[key.name] == variable
    assert config.load(root, env(tmp_path, **{variable: ""})).settings == plain
    if type(key.rule).__name__ in ("Choice", "Flag", "Whole", "Number"):
        with pytest.raises(OntologyError) as refused:
            config.load(root, env(tmp_path, **{variable: "no such value"}))
        (finding,) = (one for one in refused.value.findings if one.message.startswith(variable))
        assert (finding.path, finding.field) == ("", key.name) and "in the environment" in refused.value.message
        assert f"unset {variable}" in refused.value.suggestion


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("DUCKKB_EMBEDDING_MODEL", "其他模型", "global.embedding_model"),
        ("DUCKKB_RERANK_METHOD", "http", "global.rerank.method"),
        ("DUCKKB_ASK_MODEL", "nobody", "global.ask.model"),
    ],
)
def test_what_a_variable_has_that_other_settings_do_not_fit_is_said_of_the_variable_and_of_no_line(
    tmp_path: Path, variable: str, value: str, name: str
) -> None:
    with pytest.raises(OntologyError) as refused:
        config.load(folder(tmp_path / "kb"), env(tmp_path, **{variable: value}))
    (finding,) = refused.value.findings
    assert (finding.path, finding.line, finding.field) == ("", 0, name) and finding.message.startswith(variable)
    assert f"unset {variable}" in refused.value.suggestion


def _is_taken(root: Path, tmp_path: Path, variable: str, text: str) -> bool:
    """Whether it loads: alone, or beside what it needs."""
    with suppress(OntologyError):
        return bool(config.load(root, env(tmp_path, **{variable: text})))
    return False


def test_variables_of_settings_have_names_of_their_own_and_leave_out_what_is_the_base_s(tmp_path: Path) -> None:
    assert not SETTING_VARIABLES.keys() & VARIABLES.keys() and len(SETTING_VARIABLES) == len(KEYS) - 4
    root = folder(tmp_path / "kb")
    left = config.load(root, env(tmp_path, DUCKKB_MERGE_GRANULARITY="record", DUCKKB_LAYOUT_PART="none")).settings
    assert left == config.load(root, env(tmp_path)).settings


def test_an_address_of_the_environment_needs_trust_as_one_of_the_file_does(tmp_path: Path) -> None:
    root, around = folder(tmp_path / "kb"), env(tmp_path, DUCKKB_EMBEDDING_BASE_URL="http://127.0.0.1:1/v1")
    assert not config.is_trusted(root, config.load(root, around).settings, around)


def test_the_user_s_folders_move_with_their_variables(tmp_path: Path) -> None:
    found = env(tmp_path, XDG_CACHE_HOME="/cache", XDG_STATE_HOME="/state")
    assert (found.cache_home, found.state_home) == (Path("/cache/duckkb"), Path("/state/duckkb"))
    assert env(tmp_path, DUCKKB_CACHE_HOME="/own", XDG_CACHE_HOME="/cache").cache_home == Path("/own")
    assert env(tmp_path, XDG_STATE_HOME="relative") == env(tmp_path)


@pytest.mark.parametrize(
    ("word", "on"), [("1", True), ("true", True), ("yes please", True), ("0", False), ("off", False)]
)
def test_the_sandbox_is_on_unless_it_is_clearly_off(tmp_path: Path, word: str, on: bool) -> None:
    assert env(tmp_path, DUCKKB_SANDBOX=word).sandbox is on


def test_a_secret_is_asked_for_by_name() -> None:
    assert config.secret("MODEL_KEY", {"MODEL_KEY": " abc\n"}) == "abc"
    assert config.secret("MODEL_KEY", {"MODEL_KEY": ""}) is None
    assert config.secret("MODEL_KEY", {}) is None


def test_a_base_that_demands_nothing_is_trusted(tmp_path: Path) -> None:
    assert config.demands(Settings()) == {}
    assert config.is_trusted(tmp_path, Settings(), env(tmp_path))


def test_a_host_or_a_key_variable_needs_trust_until_it_is_accepted(tmp_path: Path) -> None:
    around = env(tmp_path)
    assert not config.is_trusted(tmp_path, REMOTE, around)
    digest = config.accept(tmp_path, REMOTE, around)
    assert digest == config.trust_hash(config.demands(REMOTE))
    assert config.is_trusted(tmp_path, REMOTE, around)


def test_other_settings_do_not_revoke_trust_and_demands_do(tmp_path: Path) -> None:
    around = env(tmp_path)
    config.accept(tmp_path, REMOTE, around)
    assert config.is_trusted(tmp_path, replace(REMOTE, chunk_size=100), around)
    for change in ({"base_url": "https://evil.example/v1"}, {"api_key_env": "AWS_SECRET"}, {"api_key_env": None}):
        assert not config.is_trusted(tmp_path, replace(REMOTE, embedding=replace(REMOTE.embedding, **change)), around)


def test_ax_02_each_provider_of_a_chat_model_is_a_demand_and_its_other_settings_are_none(tmp_path: Path) -> None:
    around, local = env(tmp_path), ProviderSettings(model="a")
    far = ProviderSettings("https://models.example/v1", "b", "FAR_KEY")
    settings = Settings(models={"m": ChatModelSettings("m", (local, far))})
    assert config.demands(settings) == {
        "global.models.m.providers.0.base_url": local.base_url,
        "global.models.m.providers.1.base_url": far.base_url,
        "global.models.m.providers.1.api_key_env": "FAR_KEY",
    }
    config.accept(tmp_path, settings, around)
    assert config.is_trusted(
        tmp_path, replace(settings, models={"m": ChatModelSettings("m", (local, far), False)}), around
    )
    assert not config.is_trusted(
        tmp_path, replace(settings, models={"m": ChatModelSettings("m", (far, local))}), around
    )


def test_trust_belongs_to_one_folder_however_it_is_reached(tmp_path: Path) -> None:
    around, root, other = env(tmp_path), folder(tmp_path / "kb"), folder(tmp_path / "copy")
    (tmp_path / "link").symlink_to(root)
    config.accept(tmp_path / "link", REMOTE, around)
    assert config.is_trusted(root, REMOTE, around)
    assert not config.is_trusted(other, REMOTE, around)
    config.accept(other, REMOTE, around)
    assert config.is_trusted(root, REMOTE, around) and config.is_trusted(other, REMOTE, around)


def test_a_run_may_be_given_the_hash_and_only_the_right_one_counts(tmp_path: Path) -> None:
    digest = config.trust_hash(config.demands(REMOTE))
    assert config.is_trusted(tmp_path, REMOTE, env(tmp_path, DUCKKB_TRUST=digest))
    assert not config.is_trusted(tmp_path, REMOTE, env(tmp_path, DUCKKB_TRUST=digest[:-1] + "x"))
    assert not config.is_trusted(tmp_path, REMOTE, env(tmp_path, DUCKKB_TRUST="1"))


def test_the_record_of_trust_lies_outside_the_clone_for_the_user_alone(tmp_path: Path) -> None:
    around, root = env(tmp_path), folder(tmp_path / "kb")
    config.accept(root, REMOTE, around)
    target = around.state_home / "trust.json"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert json.loads(target.read_text()) == {str(root): config.trust_hash(config.demands(REMOTE))}
    assert sorted(path.name for path in target.parent.iterdir()) == ["remembered.lock", "trust.json"]
    assert [path.name for path in root.iterdir()] == ["config.yaml"]


def test_bases_that_are_trusted_at_once_all_are(tmp_path: Path) -> None:
    around, bases = env(tmp_path), [folder(tmp_path / f"kb{number}") for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda root: config.accept(root, REMOTE, around), bases))
    assert [root for root in bases if not config.is_trusted(root, REMOTE, around)] == []


def test_who_waits_for_the_record_of_trust_is_told_who_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_memory, "_WAIT_S", 0.0)
    around, root = env(tmp_path), folder(tmp_path / "kb")
    around.state_home.mkdir(parents=True)
    with (
        base_lock.hold_lock_beside(around.state_home / "remembered", "exclusive", 0.0),
        pytest.raises(Unavailable) as caught,
    ):
        config.accept(root, REMOTE, around)
    assert caught.value.code == "E_LOCKED" and f"process {os.getpid()}" in caught.value.message


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '{"a": {"b": 1}}', "\x00"])
def test_a_broken_record_of_trust_means_no_trust_and_can_be_replaced(tmp_path: Path, content: str) -> None:
    around = env(tmp_path)
    around.state_home.mkdir(parents=True)
    (around.state_home / "trust.json").write_text(content)
    assert not config.is_trusted(tmp_path, REMOTE, around)
    config.accept(tmp_path, REMOTE, around)
    assert config.is_trusted(tmp_path, REMOTE, around)


def test_a_state_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(Unavailable) as caught:
        config.accept(tmp_path, REMOTE, env(tmp_path))
    assert caught.value.code == "E_IO" and "XDG_STATE_HOME" in caught.value.suggestion
