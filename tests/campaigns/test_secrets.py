"""A configuration that came with a clone reaches no host and reads no key until trusted, and a key is never shown."""

import os
import shutil
import socket
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import pytest

import duckkb
from duckkb.operations import lifecycle
from tests.conftest import NOTES, commit, make_base
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.harness.campaign import Campaign
from tests.harness.forks import Forks, weakened
from tests.harness.hostile.run import Runner, Said, every_line

KEY = "sk-MARKED-7f3a9c1e5b8d2046-not-to-be-seen"
SETTINGS = '{{base_url: "{url}", api_key_env: {variable}, dimensions: 16, max_retries: 0, timeout_s: 5}}'
ASKING = [
    ("put", "Note", '{"id":"x","text":"a fox"}'),
    ("find", "Note", "fox", "-s"),
    ("index", "build"),
    ("embed", "fox"),
]


class Listener:
    """Counts who connects, and hangs up."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()


def base_of(root: Path, url: str, variable: str = "SOME_KEY", extra: str = "") -> Path:
    """A base whose vectors come from an endpoint."""
    settings = SETTINGS.format(url=url, variable=variable)
    config = NOTES.replace(
        "{embedding_model: none}", f"{{embedding_model: some-model, {extra}embedding: {settings}}}"
    ).replace("full_text: [title, text]}", "full_text: [title, text], vectors: [text]}")
    return make_base(root, config)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return state | {
        "SOME_KEY": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "HOME": str(tmp_path / "home"),
    }


def test_nothing_is_asked_before_trust(campaign: Campaign, runner: Runner, env: dict[str, str], tmp_path: Path) -> None:
    lines = [line for line in every_line() if line != ("trust",)]
    with Listener() as listener:
        base = base_of(tmp_path / "kb", listener.url, "AWS_SECRET_ACCESS_KEY")
        said = runner.run(base, [*ASKING, *lines[: campaign.pick(8, 1000)]], env)
        assert listener.connections == 0
        assert not [one for one in said if KEY in one.all]
        campaign.count("command lines before trust", len(said))
        runner.run(base, [("trust",), ("embed", "fox")], env)
        assert listener.connections > 0, "the listener would notice"


def test_trust_is_for_these_values_in_this_place(runner: Runner, env: dict[str, str], tmp_path: Path) -> None:
    with Listener() as listener, Listener() as other:
        base = base_of(tmp_path / "kb", listener.url)
        (accepted,) = runner.run(base, [("trust", "--json")], env)
        assert not any(base in path.parents for path in (tmp_path / "state").rglob("*"))
        copy, moved = shutil.copytree(base, tmp_path / "copy"), tmp_path / "moved"
        assert _asked(runner, copy, env, listener) == 0, "a copy is another base"
        assert _asked(runner, base, env, listener) > 0
        text = (base / "config.yaml").read_text("utf-8")
        (base / "config.yaml").write_text(text.replace("global: {", "global: {chunk_size: 300, "), "utf-8")
        assert _asked(runner, base, env, listener) > 0, "a chunk size concerns nobody"
        for old, new in ((listener.url, other.url), ("SOME_KEY", "AWS_SECRET_ACCESS_KEY"), ("/v1", "/v2")):
            (base / "config.yaml").write_text(text.replace(old, new), "utf-8")
            assert _asked(runner, base, env, listener) == _asked(runner, base, env, other) == 0, new
        (base / "config.yaml").write_text(text, "utf-8")
        base.rename(moved)
        assert _asked(runner, moved, env, listener) == 0, "moved"
        digest = accepted.out.split('"hash":"')[1].split('"')[0]
        assert _asked(runner, moved, {**env, "DUCKKB_TRUST": digest}, listener) > 0
        assert _asked(runner, moved, {**env, "DUCKKB_TRUST": digest[:-1] + "0" * (digest[-1] != "0")}, listener) == 0
        for nonsense in ("1", "true", "*", "", digest.upper()):
            assert _asked(runner, moved, {**env, "DUCKKB_TRUST": nonsense}, listener) == 0


def _asked(runner: Runner, base: Path, env: Mapping[str, str], listener: Listener) -> int:
    """How many connections a question makes."""
    before = listener.connections
    runner.run(base, [("embed", "fox")], env)
    return listener.connections - before


def test_the_key_goes_to_the_accepted_host_alone(runner: Runner, env: dict[str, str], tmp_path: Path) -> None:
    """Redirects are not followed, nothing of ~/.netrc or of OpenAI's own variables is sent."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.netrc").write_text("machine 127.0.0.1\nlogin me\npassword from-netrc\n", "utf-8")
    (tmp_path / "home/.netrc").chmod(0o600)
    more = {
        "OPENAI_ORG_ID": "my-organisation",
        "OPENAI_BASE_URL": "http://127.0.0.1:9",
        "OPENAI_CUSTOM_HEADERS": "X-A: b",
    }
    with FakeEndpoint() as endpoint, Listener() as elsewhere:
        base = base_of(tmp_path / "kb", endpoint.url)
        runner.run(base, [("trust",)], env)
        for status in (301, 302, 303, 307, 308):
            endpoint.next(Reply(status, b"", {"Location": elsewhere.url + "/embeddings"}))
            (said,) = runner.run(base, [("embed", "fox", "--json")], {**env, **more})
            assert (said.code, said.error["code"]) == (1, "E_MODEL")
        assert elsewhere.connections == 0
        assert {asked.headers["Authorization"] for asked in endpoint.asked} == {f"Bearer {KEY}"}
        sent = {name.lower() for asked in endpoint.asked for name in asked.headers}
        assert not sent & {"x-a", "openai-organization", "openai-project"}
        assert "netrc" not in str([asked.headers for asked in endpoint.asked])


def test_a_proxy_of_the_environment_is_the_users_own_choice(
    runner: Runner, env: dict[str, str], tmp_path: Path
) -> None:
    """What the machine's user set for every program holds here too; a clone cannot set it."""
    with FakeEndpoint() as proxy:
        base = base_of(tmp_path / "kb", "http://embeddings.invalid/v1")
        proxied = {**env, "HTTP_PROXY": proxy.url.removesuffix("/v1"), "http_proxy": proxy.url.removesuffix("/v1")}
        runner.run(base, [("embed", "fox")], proxied)
        assert proxy.asked == []
        runner.run(base, [("trust",), ("embed", "fox")], proxied)
        assert [asked.path for asked in proxy.asked] == ["http://embeddings.invalid/v1/embeddings"]
        runner.run(base, [("embed", "fox")], {**proxied, "NO_PROXY": "embeddings.invalid", "no_proxy": "*"})
        assert len(proxy.asked) == 1


def _echoes() -> list[Reply]:
    """What a careless or unkind server may answer with a key that it was sent."""
    shapes = (KEY, KEY.upper(), KEY[::-1], KEY[:20], KEY[-12:], quote(KEY, safe=""), f"Bearer {KEY}", "\n".join(KEY[at : at + 9] for at in range(0, 36, 9)))  # fmt: skip
    bodies = [f'{{"error": {{"message": "wrong: {shape}"}}}}'.replace("\n", "\\n") for shape in shapes]
    bodies += [f'{{"message": "{KEY}", "detail": "{KEY}"}}', f"<html><title>{KEY}</title></html>", KEY, f'"{KEY}"']
    bodies += [f'{{"data": [{{"index": "{KEY}", "embedding": "{KEY}"}}]}}', f'{{"data": "{KEY}", "model": "{KEY}"}}']
    statuses = (200, 400, 401, 403, 404, 413, 418, 422, 429, 500, 503)
    headers = {"X-Echo": KEY, "WWW-Authenticate": f"Bearer {KEY}", "Retry-After": KEY}
    return [Reply(status, body.encode(), headers) for status in statuses for body in bodies]


def test_a_key_is_never_shown_or_stored(
    campaign: Campaign, runner: Runner, env: dict[str, str], tmp_path: Path
) -> None:
    replies = _echoes()
    with FakeEndpoint() as endpoint:
        base = base_of(tmp_path / "kb", endpoint.url)
        runner.run(base, [("trust",)], env)
        commit(base)
        said = []
        for reply in campaign.random("echo").sample(replies, campaign.pick(5, 60)):
            endpoint.next(*[reply] * 20)
            said += runner.run(base, ASKING[1:] if said else ASKING, env)
            endpoint.forget()
        said += runner.run(base, every_line()[: campaign.pick(8, 1000)], env)
        commit(base)
    _hold_no_key(said, tmp_path)
    campaign.count("command lines with a key in the environment", len(said))
    assert any(KEY in str(asked.headers) for asked in endpoint.asked), "the key was in use"


def test_an_error_of_the_library_holds_no_key(env: dict[str, str], tmp_path: Path) -> None:
    """Not in its text, its details, nor in the whole traceback with all causes."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        with FakeEndpoint() as endpoint:
            base = base_of(tmp_path / "kb", endpoint.url)
            with duckkb.open(base) as kb:
                lifecycle.trust(base)
            for reply in (*_echoes()[::9], Reply(silent=False, body=KEY.encode())):
                endpoint.forget()
                endpoint.next(reply)
                with duckkb.open(base) as kb, pytest.raises(duckkb.DuckkbError) as caught:
                    kb.embed("fox")
                text = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)) + repr(kb)
                assert not _parts_of_key(text), text
    finally:
        os.environ.clear()
        os.environ.update(before)


def _hold_no_key(said: list[Said], folder: Path) -> None:
    for one in said:
        assert not _parts_of_key(one.all), one
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert not _parts_of_key(path.read_bytes().decode("latin-1")), path


def _parts_of_key(text: str) -> list[str]:
    """Pieces of the key that stand in a text, forwards, backwards, in capitals."""
    folded = text.casefold()
    pieces = [KEY[at : at + 8].casefold() for at in range(len(KEY) - 7)]
    return [piece for piece in pieces if piece in folded or piece[::-1] in folded]


@pytest.mark.parametrize(
    "change",
    [
        ("api_key_env: SOME_KEY", f"api_key: {KEY}"),
        ("api_key_env: SOME_KEY", f"api_key_env: {KEY}"),
        ("api_key_env: SOME_KEY", f"headers: {{Authorization: 'Bearer {KEY}'}}"),
        ("some-model", KEY),
        ("127.0.0.1", f"user:{KEY}@127.0.0.1"),
        ("/v1", f"/v1?key={KEY}"),
        ("/v1", f"/v1#{KEY}"),
        ("max_retries: 0", f"max_retries: {KEY}"),
        ("nodes:", f"{KEY}: 1\nnodes:"),
    ],
)
def test_a_key_in_the_configuration_is_refused_and_not_repeated(
    runner: Runner, env: dict[str, str], tmp_path: Path, change: tuple[str, str]
) -> None:
    with Listener() as listener:
        base = base_of(tmp_path / "kb", listener.url)
        text = (base / "config.yaml").read_text("utf-8")
        assert change[0] in text
        (base / "config.yaml").write_text(text.replace(*change), "utf-8")
        for line in (("status",), ("config", "show", "--json"), ("trust", "--show", "--json"), ("check", "--json")):
            (said,) = runner.run(base, [line], env)
            assert said.code == 2, said
            assert KEY not in said.all, said
        assert listener.connections == 0


def test_without_trust_and_without_care_it_would_be_told(env: dict[str, str], tmp_path: Path) -> None:
    """The negative control: the listener and the search for the key notice a product that is careless."""
    sources = weakened(
        tmp_path / "weak",
        {
            "llm/providers/__init__": (
                "(embedding, key)\n    if not has_trust:",
                "(embedding, key)\n    if False:",
                "key = secret(variable) if variable and has_trust else",
                "key = secret(variable) if variable else",
            ),
            "llm/providers/embedding_endpoint": ("if key and _has_key_piece(line, key):", "if False:"),
        },
    )
    with Forks(sources) as warm, FakeEndpoint() as endpoint:
        weak = Runner(warm)
        base = base_of(tmp_path / "kb", endpoint.url)
        endpoint.next(Reply(404, f'{{"error": {{"message": "no model for {KEY}"}}}}'.encode()))
        (said,) = weak.run(base, [("embed", "fox")], env)
        assert endpoint.asked
        assert _parts_of_key(said.all)
