"""The nightly workflow of `init --github`, step by step, on bases of several kinds: what was made is pushed, and the end says what is left."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, run_in
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.harness.forge_stage import Ended, Forge

PARQUET = "data/indices/search_cache.parquet"
ENDPOINT = """\
global:
  embedding_model: some-model
  embedding: {{base_url: "{url}", api_key_env: TEAM_KEY, dimensions: 16, max_retries: 0, batch_size: 8, concurrency: 1}}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""
DOCUMENTS = (
    NOTES
    + """\
  read_in:
    from: Note
    to: docs
    schema: {type: object, properties: {}}
"""
)
STEPS = ["Check every record", "Build the index", "Push", "Round trip", "Build it twice from nothing and compare"]


def _at_night(forge: Forge, cache: str = "cache") -> Ended:
    """The nightly job on a machine with a cache folder of its own, in which nothing was accepted."""
    own = {"XDG_CACHE_HOME": str(forge.folder / cache), "XDG_STATE_HOME": str(forge.folder / f"{cache}-state")}
    return forge.run("index", {}, name="schedule", env={**own, "PAUSE": "0"})


def _pushed(forge: Forge) -> list[str]:
    return git(forge.origin, "log", "--format=%s", "main").splitlines()


def _plain(folder: Path, place: str = ".") -> Forge:
    forge = Forge(folder, place)
    forge.begin(NOTES)
    forge.put({"id": "n1", "title": "storm", "text": "备注"}, {"id": "n2", "title": "tide"}, {"id": "n3", "text": ""})
    assert run_in(forge.kb, ["put", "cites", '{"from":"n1","to":"n2"}']).code == 0
    return forge


def test_a_base_of_records_gets_its_index_and_nothing_is_pushed_twice(tmp_path: Path) -> None:
    forge = _plain(tmp_path)
    forge.host()
    ended = _at_night(forge)
    assert not ended.failed and set(STEPS) <= set(ended.codes), ended.out + ended.err
    assert _pushed(forge) == ["Index of tokens and vectors", "The base"]
    assert not _at_night(forge).failed and len(_pushed(forge)) == 2


def test_where_somebody_pushes_while_the_index_is_built_it_is_built_on_that(tmp_path: Path) -> None:
    forge = _plain(tmp_path, "kb")
    forge.host()
    git(forge.work, "switch", "-q", "main")
    forge.put({"id": "n4", "title": "更快"})
    commit(forge.work, "faster")
    hook = forge.origin / "hooks/pre-receive"
    push = f'env -i PATH="$PATH" git --git-dir={forge.work}/.git push -q {forge.origin} main'
    hook.write_text(f"#!/bin/sh\nrm $0\nexec {push}\n", "utf-8")
    hook.chmod(0o755)
    ended = _at_night(forge)
    assert not ended.failed, ended.out + ended.err
    assert _pushed(forge) == ["Index of tokens and vectors", "faster", "The base"]
    git(forge.work, "pull", "-q", "origin", "main")
    assert run_in(forge.kb, ["index", "build"]).line["files"] == []


def test_a_base_with_documents_links_and_collections_gets_its_index(tmp_path: Path) -> None:
    forge = Forge(tmp_path, ".")
    forge.begin(NOTES)
    (forge.kb / "docs").mkdir()
    (forge.kb / "docs/a.md").write_text("# A\n\nSee [b](b.md) and [[B]].\n", "utf-8")
    (forge.kb / "docs/b.md").write_text("# B\n\n备份是数据的副本。\n", "utf-8")
    for args in (["collection", "add", "docs"], ["col", "init", "facts", "--policy", "knowledge-base"]):
        assert run_in(forge.kb, args).code == 0
    (forge.kb / "config.yaml").write_text(DOCUMENTS, "utf-8")
    forge.put({"id": "n1", "title": "storm"})
    assert run_in(forge.kb, ["put", "facts", "--no-embed", '{"content":"no id"}']).code == 0
    assert run_in(forge.kb, ["put", "read_in", '{"from":"n1","to":"b.md"}']).code == 0
    forge.host()
    ended = _at_night(forge)
    assert not ended.failed and set(STEPS) <= set(ended.codes), ended.out + ended.err
    assert _pushed(forge) == ["Index of tokens and vectors", "The base"]
    (forge.work / "engine.py").write_text("print('other code of the repository')\n", "utf-8")
    event = forge.open()
    for workflow in ("review", "check"):
        assert forge.run(workflow, event).codes == {"See whether the base differs": 0}
    (forge.work / "docs/a.md").write_text("# A\n\nSee nothing.\n", "utf-8")
    assert "Compare" in forge.run("review", forge.open()).codes


@pytest.fixture
def paid(tmp_path: Path, endpoint: FakeEndpoint) -> Forge:
    """A base of 40 texts whose vectors come from an endpoint; the repository has neither variable nor secret yet."""
    forge = Forge(tmp_path, ".")
    forge.begin(ENDPOINT.format(url=endpoint.url))
    lines = "\n".join(json.dumps({"id": f"n{number}", "text": f"subject {number}"}) for number in range(40))
    assert run_in(forge.kb, ["put", "Note", "--no-embed"], stdin=lines).code == 0
    forge.host()
    return forge


def _allow(forge: Forge) -> None:
    forge.settings["vars.DUCKKB_TRUST"] = run_in(forge.kb, ["trust", "--show"]).line["hash"]
    forge.settings["secrets.TEAM_KEY"] = "k-123"


def test_what_a_model_needs_and_the_forge_has_not_is_said_before_anything_is_done(
    paid: Forge, endpoint: FakeEndpoint
) -> None:
    ended = _at_night(paid)
    hash_of_demands = run_in(paid.kb, ["trust", "--show"]).line["hash"]
    problems = [line for line in ended.out.splitlines() if line.startswith("::error::")]
    assert ended.failed and "Build the index" not in ended.codes and not endpoint.asked
    assert len(problems) == 2 and f"DUCKKB_TRUST to {hash_of_demands}" in problems[0] and "TEAM_KEY" in problems[1]
    assert f"global.embedding.base_url: {endpoint.url}" in ended.out
    _allow(paid)
    assert not _at_night(paid).failed
    assert {asked.headers["Authorization"] for asked in endpoint.asked} == {"Bearer k-123"}


def test_what_a_model_made_before_it_died_is_pushed_and_never_paid_for_again(
    paid: Forge, endpoint: FakeEndpoint
) -> None:
    _allow(paid)
    endpoint.next(Reply(body=None), Reply(body=None))
    endpoint.always = Reply(status=500)
    ended = _at_night(paid)
    assert (ended.codes["Build the index"], ended.codes["Push"], ended.codes["Say what is left"]) == (0, 0, 1)
    assert "Build it twice from nothing and compare" not in ended.codes
    assert "::error::The model stopped answering; what it had made is pushed." in ended.out
    assert _pushed(paid) == ["Index of tokens and vectors", "The base"]
    seen, endpoint.always = len(endpoint.asked), None
    again = _at_night(paid, "another machine")
    assert not again.failed, again.out + again.err
    asked = [text for request in endpoint.asked[seen:] for text in request.texts]
    assert len(asked) == 24 + 16, "the rest, and a sample of what was pushed"


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="needs git-lfs; CI installs it")
def test_a_cache_in_git_lfs_in_a_folder_of_a_repository_is_kept_up_to_date(tmp_path: Path) -> None:
    forge = _plain(tmp_path, "kb")
    git(forge.work, "lfs", "install", "--local")
    assert run_in(forge.kb, ["init", "--lfs"]).code == 0
    assert run_in(forge.kb, ["index", "build"]).code == 0
    forge.host()
    git(forge.work, "lfs", "push", "--all", f"file://{forge.origin}", "main")
    ended = _at_night(forge)
    assert not ended.failed and len(_pushed(forge)) == 1, ended.out + ended.err
    git(forge.work, "switch", "-q", "main")
    forge.put({"id": "n4", "title": "更多"})
    commit(forge.work, "more")
    git(forge.work, "push", "-q", "origin", "main")
    ended = _at_night(forge)
    assert not ended.failed, ended.out + ended.err
    assert _pushed(forge) == ["Index of tokens and vectors", "more", "The base"], ended.out + ended.err
    assert git(forge.origin, "show", f"main:kb/{PARQUET}").startswith("version https://git-lfs.github.com/spec/v1\n")


def test_a_pull_request_is_judged_without_the_key_of_the_model(paid: Forge, endpoint: FakeEndpoint) -> None:
    _allow(paid)
    (paid.work / "engine.py").write_text("print('other code of the repository')\n", "utf-8")
    unrelated = paid.open()
    for workflow in ("review", "check"):
        assert paid.run(workflow, unrelated).codes == {"See whether the base differs": 0}
    paid.put({"id": "n1", "text": "another subject"})
    endpoint.asked.clear()
    event = paid.open()
    reviewed, checked = paid.run("review", event), paid.run("check", event)
    assert not checked.failed and not reviewed.failed, reviewed.err
    assert not endpoint.asked
