"""What agents remember: by the command line, MCP and Python; each scope by itself; history is git's; counts are this machine's."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.app.use_cases import Proposals
from duckkb.operations.dispatch import failure
from duckkb.store import store_database
from duckkb.types.errors import DuckkbError, NotFound, Unavailable
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, CopyOf, commit, git, make_base, run_in, tree_bytes
from tests.fakes import HashEmbedder
from tests.harness.waiting import HANG_S

START = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
ANN = Caller("ann", "editor", frozenset({"Note"}))


def scope(root: Path, *scopes: str) -> None:
    for name in scopes:
        made = ["col", "init", f"memory-{name.replace('/', '-')}", "--policy", "memory", "--params"]
        assert run_in(root, [*made, json.dumps({"scope": name})]).code == 0


def make_scopes(root: Path) -> None:
    make_base(root, NOTES)
    scope(root, "ann", "ann/work", "bo")
    commit(root)


@pytest.fixture
def base(tmp_path: Path, copy_of: CopyOf) -> Path:
    return copy_of(make_scopes, tmp_path / "kb")


def memory(root: Path, *args: str, scope: str = "ann") -> Any:
    return run_in(root, ["memory", *args, "--scope", scope])


def refused(root: Path, *args: str) -> dict[str, Any]:
    """The error that a command ends with."""
    return run_in(root, [*args, "--json"]).error


def test_kx_14_what_is_put_is_found_replaced_and_a_record_like_any_other(base: Path) -> None:
    link = "duckkb://Note/n1"
    put = memory(base, "put", "deploy", "make release", "--tag", "ci", "--link", link, "--source", "a talk").line
    assert (put["inserted"], put["identities"]) == (1, [["ann", "deploy"]])
    assert memory(base, "put", "部署", "部署之前先看日志").line["inserted"] == 1
    for question, key in (("release", "deploy"), ("日志", "部署"), ("ci", "deploy")):
        found = memory(base, "search", question, "-m").lines
        assert [one["key"] for one in found] == [key] and found[0]["_accessed"] == 0, question
    stored = run_in(base, ["get", "memory-ann", '["ann","deploy"]']).line
    assert {name: one for name, one in stored.items() if not name.startswith("_")} == {
        "scope": "ann", "key": "deploy", "text": "make release", "tags": ["ci"], "links": [link], "source": "a talk",
    }  # fmt: skip
    again = memory(base, "put", "deploy", "make ship").line
    assert again["updated"] == 1
    assert "tags" not in run_in(base, ["get", "memory-ann", '["ann","deploy"]']).line, "it was replaced"
    assert refused(base, "memory", "search", "release", "-m")["code"] == "E_USAGE", "ann and bo"
    assert refused(base, "memory", "search", "release", "-m", "--scope", "ann")["code"] == "E_NO_RESULTS"
    assert refused(base, "memory", "search", "ship", "-m", "--scope", "ann/work")["code"] == "E_NO_RESULTS", (
        "it is no part of ann"
    )
    before = tree_bytes(base)
    stale = refused(base, "memory", "put", "deploy", "other", "--if-match", put["etags"][0], "--scope", "ann")
    assert (stale["code"], tree_bytes(base)) == ("E_STALE", before)
    assert "make other" in memory(base, "put", "deploy", "make other", "--dry-run").out and tree_bytes(base) == before
    assert run_in(base, ["check"]).code == 0


WRONG: Mapping[str, tuple[list[str], str, str]] = {
    "no text": (["put", "k", ""], "E_SCHEMA", "/text"),
    "too long a text": (["put", "k", "x" * 20_001], "E_SCHEMA", "/text"),
    "too long a key": (["put", "k" * 201, "text"], "E_SCHEMA", "/key"),
    "what is no link": (["put", "k", "text", "--link", "there"], "E_SCHEMA", "/links/0"),
    "no key of that name": (["history", "deplyo"], "E_NOT_FOUND", "did you mean `deploy`?"),
    "one of several": (["mark-accessed", "deploy", "deplyo"], "E_NOT_FOUND", "did you mean `deploy`?"),
    "no question": (["search", " "], "E_USAGE", "question"),
    "no limit": (["search", "x", "-l", "0"], "E_USAGE", "limit"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", WRONG)
def test_kx_14_what_is_wrong_is_said_and_changes_nothing(base: Path, what: str) -> None:
    args, code, said = WRONG[what]
    assert memory(base, "put", "deploy", "make release").code == 0
    before = tree_bytes(base)
    ran = memory(base, *args, "--json")
    assert ran.code in (1, 2) and ran.error["code"] == code and said in json.dumps(ran.error), ran.err
    assert tree_bytes(base) == before
    assert run_in(base, ["memory", "stats", "--scope", "ann"]).line["accessed"] == 0


def test_kx_14_a_scope_that_there_is_not_names_the_near_one_and_the_command_that_makes_it(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    told = refused(root, "memory", "put", "k", "text", "--scope", "dora's/work")
    assert told["code"] == "E_SCOPE"
    command = told["suggestion"]
    subprocess.run(["sh", "-c", command.replace("duckkb", f"{sys.executable} -m duckkb", 1)], cwd=root, check=True)
    assert run_in(root, ["memory", "put", "k", "text"]).line["identities"] == [["dora's/work", "k"]], "the only one"
    assert "did you mean `dora's/work`" in refused(root, "memory", "stats", "--scope", "dora/work")["error"]
    for params in ("{}", '{"scope": 5}', '{"scope": null}'):
        made = refused(root, "col", "init", "more", "--policy", "memory", "--params", params)
        assert made["code"] == "E_PARAMS", params
    twice = ["col", "init", "more", "--policy", "memory", "--params", '{"scope": "dora\'s/work"}']
    (name,) = [line["name"] for line in run_in(root, ["col", "list"]).lines]
    assert f"are already in {name}" in run_in(root, twice).err
    wrong = refused(root, "put", name, '{"scope": "ann", "key": "k", "text": "x"}')
    assert wrong["code"] == "E_SCHEMA", "no other way puts another's memory there"


def _git_versions(root: Path, key: str) -> list[tuple[str, str, str | None]]:
    """By git alone: the commits that changed the line of a key, the newest first, with their author and the text then."""
    found: list[tuple[str, str, str | None]] = []
    before: str | None = None
    for line in git(root, "log", "--reverse", "--format=%H %an").splitlines():
        hash, _, author = line.partition(" ")
        held = subprocess.run(
            ["git", "-C", str(root), "grep", "-h", f'"key":"{key}"', hash, "--", "data/nodes/memory_ann"],
            capture_output=True, check=False,
        ).stdout.decode()  # fmt: skip
        now = json.loads(held)["text"] if held else None
        if now != before:
            found.append((hash, author, now))
        before = now
    return found[::-1]


def test_kx_14_the_history_of_a_memory_is_what_git_log_says(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (key, text) in enumerate(
        [
            ("deploy", "one"),
            ("other", "x"),
            ("deploy", "two"),
            ("deploy", "二"),
            ("other", "y"),
            ("deploy", None),
            ("deploy", "back"),
        ]
    ):
        monkeypatch.setenv("GIT_AUTHOR_NAME", f"author {number}")
        if text is None:
            assert run_in(base, ["delete", "memory-ann", f'["ann","{key}"]']).code == 0
        else:
            assert memory(base, "put", key, text).code == 0
        commit(base)
    told = memory(base, "history", "deploy").lines
    wanted = _git_versions(base, "deploy")
    assert len(wanted) == 5
    assert [(one["commit"], one["author"], one.get("text")) for one in told] == wanted
    assert [one["op"] for one in told] == ["insert", "delete", "update", "update", "insert"]
    assert run_in(base, ["delete", "memory-ann", '["ann","deploy"]']).code == 0
    gone = memory(base, "history", "deploy", "-l", "1", "--json").line
    assert gone["versions"] == [{"commit": None, "uncommitted": True, "op": "delete"}] and gone["truncated"]
    with duckkb.open(base) as kb:
        seen = kb.run("memory_history", {"key": "deploy", "scope": "ann"}, ANN)["versions"]
        assert [one.get("text") for one in seen] == [None, *(text for *_, text in wanted)]
        assert not {"commit", "author", "email", "date", "summary"} & {name for one in seen for name in one}


@pytest.mark.long
def test_kx_14_accesses_are_counted_on_this_machine_alone_and_none_is_lost(base: Path) -> None:
    for key in ("a", "b"):
        assert memory(base, "put", key, f"text of {key}").code == 0
    commit(base)
    before = tree_bytes(base)
    marking = [sys.executable, "-m", "duckkb", "--kb", str(base), "memory", "mark-accessed", "a", "b", "--scope", "ann"]
    running = [subprocess.Popen(marking, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(20)]
    for process in running:
        _, said = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, said
    assert memory(base, "mark-accessed", "b").line == {"key": "b", "accessed": 21}
    told = run_in(base, ["memory", "stats", "--scope", "ann"]).line
    assert told["accessed"] == 41
    assert told["most_accessed"] == [{"key": "b", "accessed": 21}, {"key": "a", "accessed": 20}]
    assert {one["key"]: one["_accessed"] for one in memory(base, "search", "text", "-m").lines} == {"a": 20, "b": 21}
    assert run_in(base, ["memory", "stats", "--scope", "bo"]).line["accessed"] == 0
    assert git(base, "status", "--porcelain") == "" and tree_bytes(base) == before


def test_kx_14_counts_that_cannot_be_kept_stop_no_search(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory(base, "put", "a", "text").code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert memory(base, "mark-accessed", "a").line["accessed"] == 1
    (kept,) = (tmp_path / "state").rglob("*.sqlite3")
    assert b"ann" not in kept.read_bytes(), "hashes alone"
    monkeypatch.setattr(store_database, "_BUSY_S", 0.1)
    with closing(sqlite3.connect(kept, isolation_level=None)) as other, duckkb.open(base) as kb:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="cannot be counted"):
            kb.memory.mark_accessed(["a"], scope="ann")
        assert [one["_accessed"] for one in kb.memory.search("text", scope="ann", mode="match")["results"]] == [None]
        assert kb.memory.stats(scope="ann")["scopes"][0]["accessed"] is None
    shutil.rmtree(kept.parent)
    kept.parent.touch()
    kept_out = refused(base, "memory", "mark-accessed", "a", "--scope", "ann")
    assert kept_out["code"] == "E_IO" and str(kept.parent) in kept_out["error"]
    assert [one["_accessed"] for one in memory(base, "search", "text", "-m").lines] == [0]


def test_kx_14_stats_say_what_there_is(base: Path) -> None:
    with duckkb.open(base) as kb:
        for number in range(7):
            kb.memory.put(f"k{number}", "text", scope="ann", tags=["odd" if number % 2 else "even", "all"])
        found = kb.memory.stats()["scopes"]
        assert [(one["scope"], one["memories"]) for one in found] == [("ann", 7), ("ann/work", 0), ("bo", 0)]
        assert [one["key"] for one in found[0]["newest"]] == ["k6", "k5", "k4", "k3", "k2"]
        assert [one["key"] for one in found[0]["oldest"]] == ["k0"]
        assert list(found[0]["tags"].items()) == [("all", 7), ("even", 4), ("odd", 3)]
        assert kb.memory.search("text", scope="ann", mode="match", limit=3)["results"][0]["_type"] == "memory-ann"


# Tenants


def told(kb: KnowledgeBase, name: str, given: Mapping[str, Any], caller: Caller = ANN) -> str:
    try:
        return json.dumps(kb.run(name, given, caller), ensure_ascii=False)
    except DuckkbError as problem:
        return json.dumps(failure(problem), ensure_ascii=False)


def test_kx_14_a_tenant_has_its_own_scopes_and_no_grant_gives_it_another(base: Path) -> None:
    with duckkb.open(base) as kb:
        for name in ("ann", "ann/work", "bo"):
            kb.memory.put("deploy", f"secret of {name}", scope=name)
        assert (
            json.loads(told(kb, "memory_search", {"query": "secret", "mode": "match"}))["results"][0]["scope"] == "ann"
        )
        assert [one["scope"] for one in json.loads(told(kb, "memory_stats", {}))["scopes"]] == ["ann", "ann/work"]
        granted = Caller("ann", "editor", frozenset({"Note", "memory-bo"}))
        asked: list[tuple[str, dict[str, Any]]] = [
            ("memory_search", {"query": "secret"}), ("memory_history", {"key": "deploy"}), ("memory_stats", {}),
            ("memory_put", {"key": "deploy", "text": "mine"}), ("memory_mark_accessed", {"keys": ["deploy"]}),
        ]  # fmt: skip
        before = tree_bytes(base)
        for name, given in asked:
            for caller in (ANN, granted):
                hidden, unknown = (told(kb, name, {**given, "scope": one}, caller) for one in ("bo", "cy"))
                assert hidden.replace("bo", "cy") == unknown and "E_SCOPE" in unknown
                assert "secret" not in hidden and "memory-bo" not in hidden.replace("init memory-bo", "")
        for caller in (ANN, granted):
            for name, given in (
                ("get", {"type": "memory-bo", "identity": ["bo", "deploy"]}),
                ("list", {"type": "memory_bo"}),
            ):
                assert "E_UNKNOWN_TYPE" in told(kb, name, given, caller)
            assert "secret of bo" not in told(kb, "find", {"type": "all", "query": "secret", "mode": "match"}, caller)
        assert tree_bytes(base) == before
        assert kb.memory.stats(scope="bo")["scopes"][0]["accessed"] == 0
        stranger = Caller("an", "editor", frozenset({"Note"}))
        assert json.loads(told(kb, "memory_stats", {}, stranger)) == {"scopes": []}, "ann is not below an"
        assert "E_FORBIDDEN" in told(kb, "memory_put", {"key": "k", "text": "x"}, Caller("ann", "viewer", frozenset()))
    assert refused(base, "tenant", "add", "ann", "memory-bo")["code"] == "E_USAGE"
    assert run_in(base, ["tenant", "add", "ann", "Note"]).code == 0
    assert run_in(base, ["tenant", "show", "ann"]).line["memories"] == ["memory-ann", "memory-ann-work"]


WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "内存", "delta"]), min_size=1, max_size=6).map(" ".join)
memories = st.dictionaries(st.sampled_from([f"k{n}" for n in range(8)]), WORDS, max_size=6)
QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("memory_search", {"query": "alpha 内存", "mode": mode, "scope": "ann"}) for mode in ("match", "similar", "hybrid")),
    ("memory_stats", {}), ("memory_stats", {"scope": "ann"}), ("memory_history", {"key": "k1", "scope": "ann"}),
    ("memory_history", {"key": "k9"}), ("memory_search", {"query": "beta", "scope": "bo"}), ("types", {}),
    ("find", {"type": "all", "query": "alpha beta"}), ("memory_mark_accessed", {"keys": ["k1"], "scope": "ann"}),
)  # fmt: skip


class _Clock:
    def now(self) -> str:
        return "2026-01-01T00:00:00.000000Z"


def _answers(root: Path, own: Mapping[str, str], others: Mapping[str, str], *, apart: bool) -> list[str]:
    """What ann is told, where others remember this; with all in one collection, and a filter, where scopes are not `apart`."""
    make_base(root, "search: {embed_wait_s: 600}\n")
    with duckkb.open(root, embedder=HashEmbedder(), clock=_Clock(), sql_in_process=True) as kb:
        if apart:
            for name, held in (("ann", own), *((name, others) for name in ("bo", "ann2") if others)):
                kb.collections.init(f"memory-{name.replace('/', '-')}", policy="memory", params={"scope": name})
                kb.put(
                    f"memory-{name.replace('/', '-')}",
                    [{"scope": name, "key": key, "text": text} for key, text in held.items()],
                )
                kb.memory.mark_accessed([*held], scope=name)
            kb.find("all", "alpha")
            commit(root)
            return [told(kb, name, given) for name, given in QUESTIONS]
        kb.collections.init("all-in-one", policy="knowledge-base", params={"content": "text"})
        kb.put(
            "all-in-one",
            [
                {"id": f"{name} {key}", "scope": name, "text": text}
                for name, held in (("ann", own), ("bo", others))
                for key, text in held.items()
            ],
        )
        found = kb.find("all-in-one", "alpha 内存", mode="match", where="scope = 'ann'")
        return [json.dumps([(hit.identity, hit.score) for hit in found])]


@settings(max_examples=32, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(own=memories, one=memories, other=memories)
@pytest.mark.long
def test_kx_14_no_score_and_no_count_of_a_scope_depends_on_another(
    tmp_path_factory: pytest.TempPathFactory, own: dict[str, str], one: dict[str, str], other: dict[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DUCKKB_WRITER", "one")
        home = tmp_path_factory.mktemp("scopes")
        first, second = (
            _answers(home / name, own, held, apart=True) for name, held in (("one", one), ("other", other))
        )
        for question, here, there in zip(QUESTIONS, first, second, strict=True):
            assert here == there, question


@pytest.mark.long
def test_kx_14_in_one_collection_the_scores_of_a_scope_would_tell_of_the_others(tmp_path: Path) -> None:
    """The control."""
    own = {"k0": "alpha beta", "k1": "gamma 内存", "k2": "alpha alpha delta"}
    others = {f"k{n}": "alpha" for n in range(6)}
    for apart, same in ((True, True), (False, False)):
        alone, beside = (_answers(tmp_path / f"{apart}{len(held)}", own, held, apart=apart) for held in ({}, others))
        assert (alone == beside) is same
        assert alone[0].count("k0") and alone[0].count("k1")


# MCP


def test_kx_14_agents_remember_over_mcp_each_its_own(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp", reason="serving needs the extra `serve`")
    from tests.doors.test_mcp import Http, client, http

    tokens = {
        name: run_in(base, ["tenant", "add", name, "Note", "--role", "editor", "--json"]).line["token"]
        for name in ("ann", "bo")
    }

    async def use(server: Http, name: str, others: str) -> None:
        reached = Http(server.url, tokens[name])
        async with client(reached, "2025-11-25", monkeypatch) as asked:
            tools = {one.name: one for one in (await asked.list_tools()).tools}
            assert {
                "memory_put",
                "memory_search",
                "memory_history",
                "memory_stats",
                "memory_mark_accessed",
            } <= tools.keys()
            counting = tools["memory_mark_accessed"].annotations
            assert (counting.read_only_hint, counting.destructive_hint, counting.idempotent_hint) == (
                False,
                False,
                False,
            )

            async def call(tool: str, **given: Any) -> dict[str, Any]:
                found: dict[str, Any] = (await asked.call_tool(tool, given)).structured_content
                return found

            put = await call(
                "memory_put", key=f"likes of {name}", text=f"{name} likes ducks", scope=name, tags=["likes"]
            )
            assert put["inserted"] == 1
            await call("memory_mark_accessed", keys=[f"likes of {name}"], scope=name)
            (hit,) = (await call("memory_search", query="ducks", scope=name))["results"]
            assert (hit["text"], hit["_accessed"]) == (f"{name} likes ducks", 1)
            assert (await call("memory_history", key=f"likes of {name}", scope=name))["versions"][0]["uncommitted"]
            assert (await call("memory_search", query="ducks", scope=others))["error"]["code"] == "E_SCOPE"
            assert f"likes of {others}" not in json.dumps(await call("memory_stats"))
        greeting = reached.ask("initialize", **START).json()["result"]["instructions"]
        assert f"{name}: 1, the newest likes of {name}." in greeting and f"likes of {others}" not in greeting

    with http(base, "--tools", "all") as server:
        asyncio.run(use(server, "ann", "bo"))
        asyncio.run(use(server, "bo", "ann"))


def test_an_agent_begins_to_remember_without_a_shell(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    everybody, viewer = Caller(), Caller("ann", "viewer", frozenset({"Note"}))
    memory: dict[str, Any] = {"key": "deploy", "text": "make release"}
    with duckkb.open(root) as kb:
        before = tree_bytes(root)
        for given, caller, code in (
            (memory, everybody, "E_SCOPE"),  # whose it is nobody says
            (memory, viewer, "E_FORBIDDEN"),
            ({**memory, "scope": "bo"}, ANN, "E_SCOPE"),
            ({**memory, "scope": "ann2"}, ANN, "E_SCOPE"),
            ({**memory, "dry_run": True}, ANN, "E_SCOPE"),
            ({**memory, "key": "k" * 201}, ANN, "E_SCHEMA"),
            ({**memory, "scope": "bo", "key": ""}, everybody, "E_SCHEMA"),
        ):
            assert json.loads(told(kb, "memory_put", given, caller))["error"]["code"] == code, given
        made = list(root.glob("ontology/collections/*"))
        assert (tree_bytes(root), made) == (before, []), "what is refused makes nothing"
        assert kb.run("memory_put", memory, ANN)["identities"] == [["ann", "deploy"]]
        assert kb.run("memory_put", {**memory, "scope": "ann/x"}, ANN)["identities"] == [["ann/x", "deploy"]]
        assert kb.run("memory_put", {**memory, "scope": "ann-x"}, everybody)["identities"] == [["ann-x", "deploy"]]
        assert kb.run("memory_put", {**memory, "text": "make all"}, ANN)["updated"] == 1, "the one that there is by now"
        told_of = [line["scope"] for line in kb.run("memory_stats", {}, ANN)["scopes"]]
        assert told_of == ["ann", "ann/x"]
        for number in range(3, 33):
            assert kb.run("memory_put", {**memory, "scope": f"ann/{number}"}, ANN)["inserted"] == 1
        assert json.loads(told(kb, "memory_put", {**memory, "scope": "ann/33"}, ANN))["error"]["code"] == "E_SCOPE"
    assert run_in(root, ["check"]).code == 0


def test_the_first_memory_of_a_tenant_does_not_tell_that_another_ones_cannot_be_read(base: Path) -> None:
    assert memory(base, "put", "deploy", "hidden", scope="bo").code == 0
    (part,) = base.glob("data/nodes/*bo/**/*.jsonl")
    part.with_name("part_999.jsonl").symlink_to("/etc/passwd")
    newcomer, everybody = Caller("cy", "editor", frozenset({"Note"})), Caller()
    with duckkb.open(base, lenient=True) as kb:
        given = {"key": "deploy", "text": "make release"}
        assert "E_UNREADABLE" in told(kb, "memory_put", {**given, "scope": "di"}, everybody), "who sees all is told"
        assert kb.run("memory_put", given, newcomer)["identities"] == [["cy", "deploy"]]


def test_a_proposal_makes_no_scope_behind_the_back_of_its_reviewers(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    commit(root)
    before = tree_bytes(root)
    for caller in (ANN, Caller()):
        with pytest.raises(NotFound, match="no scope 'ann'"):
            Proposals(KnowledgeBase).run(root, "memory_put", {"key": "deploy", "text": "make", "scope": "ann"}, caller)
    assert tree_bytes(root) == before and not (root / "ontology").exists()


@pytest.mark.long
def test_kx_14_the_greeting_is_bounded_however_much_is_remembered(base: Path) -> None:
    pytest.importorskip("mcp", reason="serving needs the extra `serve`")
    from tests.doors.test_mcp import Pipe

    scope(base, *(f"cy/{n}" for n in range(8)))
    lines = "".join(json.dumps({"scope": "ann", "key": f"{n} " + "k" * 190, "text": "x"}) + "\n" for n in range(9))
    assert run_in(base, ["put", "memory-ann"], stdin=lines).code == 0
    for n in range(8):
        assert memory(base, "put", f"{n} " + "k" * 190, "x", scope=f"cy/{n}").code == 0
    pipe = Pipe(base)
    said = pipe.ask("initialize", **START)["result"]["instructions"]
    pipe.close()
    told = said[said.index("Memories") :]
    assert len(told) < 1_100 and "ann: 9" in told and told.endswith("`memory_stats` lists the others.")


def test_kx_14_a_memory_that_is_reviewed_becomes_a_proposal(base: Path) -> None:
    pytest.importorskip("mcp", reason="serving needs the extra `serve`")
    from tests.doors.test_mcp import piped

    definition = base / "ontology/collections/memory-ann.yaml"
    definition.write_text(definition.read_text("utf-8") + "    review: required\n", "utf-8")
    commit(base)
    before = tree_bytes(base)
    with piped(base) as pipe:
        put = pipe.call("memory_put", key="deploy", text="make release", scope="ann")
        assert put["inserted"] == 1 and tree_bytes(base) == before
        assert pipe.call("memory_stats", scope="ann")["scopes"][0]["memories"] == 0
    shown = run_in(base, ["get", "memory-ann", '["ann","deploy"]', "--at", put["branch"]])
    assert shown.line["text"] == "make release"
