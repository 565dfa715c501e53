"""Tenants who see a part of a base that is served: what they write where a review is wanted, and what they ask of the process that
runs SQL, which has the tables of all."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.server.mcp_answers import shorten_answer
from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes
from tests.harness.servers import Server, ask, served

_HIDDEN = (
    "  Secret:\n    table: secret\n    identity: id\n    schema: {type: object, properties: {id: {type: string}}}\n"
)
_EDGE = "  knows: {from: Note, to: Secret}\n"


def base_of(root: Path, config: str, *tenants: tuple[str, str, list[str]]) -> dict[str, str]:
    """A base, and the tokens of its tenants."""
    make_base(root, config)
    for kind, records in (
        ("Note", [{"id": f"n{n}", "title": f"ducks {n}", "text": "swim"} for n in range(9)]),
        ("Person", [{"country": "cn", "number": n, "name": "Ann"} for n in range(3)]),
    ):
        assert run_in(root, ["put", kind, "--batch", "-"], stdin="\n".join(map(json.dumps, records))).code == 0
    commit(root)
    told = [run_in(root, ["tenant", "add", name, *types, "--role", role, "--json"]) for name, role, types in tenants]
    return {one.line["tenant"]: one.line["token"] for one in told}


def asked(server: Server, token: str, name: str, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(server.connection(), "POST", f"/actions/{name}", token, given)[1])
    return found


def called(server: Server, token: str, name: str, **given: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}
    found: dict[str, Any] = json.loads(ask(server.connection(), "POST", "/mcp", token, body)[1])["result"]
    return dict(found["structuredContent"])


@pytest.mark.long
def test_kx_10_who_sees_a_part_proposes_of_it_and_is_told_the_branch_alone(tmp_path: Path) -> None:
    """A commit is a hash over the whole base. A line of another type that cannot be read is no matter of this caller's."""
    root = tmp_path / "kb"
    reviewed = NOTES.replace("    table: note\n", "    table: note\n    review: required\n")
    tokens = base_of(root, reviewed, ("ann", "editor", ["Note"]), ("boss", "admin", []))
    torn = next((root / "data" / "nodes" / "person").rglob("*.jsonl"))
    torn.write_bytes(torn.read_bytes() + b"{torn")
    commit(root)
    before = tree_bytes(root)
    note = {"type": "Note", "records": {"id": "new", "title": "x"}}
    with served(root, log=tmp_path / "log") as server:
        told = asked(server, tokens["ann"], "put", **note)
        assert told["inserted"] == 1 and told.keys().isdisjoint({"commit", "base", "push", "open"})
        more = called(server, tokens["ann"], "put", type="Note", records={"id": "n1", "title": "y", "text": "z"})
        assert more["branch"] == told["branch"] and more["updated"] == 1
        assert "commit" not in called(server, tokens["ann"], "put", **note, dry_run=True)
        assert tree_bytes(root) == before
        changed = git(root, "diff", "--name-only", "HEAD", str(told["branch"])).split()
        assert changed and all("/note/" in path for path in changed)
        assert "error" in called(server, tokens["boss"], "put", **note), "who sees the torn line has it mended first"


@pytest.mark.long
def test_kx_10_the_process_that_runs_sql_shows_a_tenant_its_tables_alone(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    config = NOTES.replace("nodes:\n", f"nodes:\n{_HIDDEN}").replace("edges:\n", f"edges:\n{_EDGE}")
    assert _HIDDEN in config and _EDGE in config
    tokens = base_of(root, config, ("ann", "viewer", ["Note"]), ("boss", "admin", []))
    assert (
        run_in(root, ["put", "Secret", '{"id":"s1"}']).code
        == run_in(root, ["put", "knows", '{"from":"n1","to":"s1"}']).code
        == 0
    )
    every = {
        "sql": {"statement": "SELECT s.id, k.* FROM secret s, knows k"},
        "find": {"type": "Secret", "where": "length(id) > 1", "mode": "where"},
    }
    own: list[tuple[str, dict[str, Any]]] = [
        ("find", {"type": "Note", "where": "length(title) > 6 AND id <> 'n3'", "mode": "where"}),
        ("find", {"type": "Note", "where": "id IN (SELECT id FROM secret)", "mode": "where"}),
        ("sql", {"statement": "SELECT count(*) AS n, max(id) AS last FROM note"}),
        *(("sql", {"statement": f"SELECT * FROM {name}"}) for name in ("secret", "knows", "person", "nowhere")),
        *(("sql", {"statement": one}) for one in ("SHOW TABLES", "SELECT * FROM duckdb_views()", "DESCRIBE secret")),
    ]
    with served(root, log=tmp_path / "first") as server:
        first = [asked(server, tokens["ann"], name, **given) for name, given in own]  # of a process that has just begun
    with served(root, log=tmp_path / "second") as server:
        for name, given in every.items():
            assert asked(server, tokens["boss"], name, **given).get("rows", [1])
        with ThreadPoolExecutor(4) as pool:
            boss = [pool.submit(asked, server, tokens["boss"], name, **given) for name, given in [*every.items()] * 10]
            ann = [pool.submit(asked, server, tokens["ann"], name, **given) for name, given in own * 4]
            told = [one.result() for one in ann]
            assert not [one.result() for one in boss if "error" in one.result()]
    assert told == first * 4, "whatever else that process holds, and whoever asks it meanwhile"
    assert first[2]["rows"] == [{"n": 9, "last": "n8"}] and len(first[0]["results"]) == 8
    refused = [
        json.dumps(one).replace(name, "X")
        for one, name in zip(first[3:7], ("secret", "knows", "person", "nowhere"), strict=True)
    ]
    assert len(set(refused)) == 1 and "error" in first[3], "what is hidden is what there is not"
    assert "s1" not in json.dumps(first) and "knows" not in json.dumps([first[7], first[8]])


@pytest.mark.long
def test_kx_10_an_operator_sees_what_a_tenant_sees(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    tokens = base_of(root, NOTES, ("ann", "viewer", ["Note"]), ("boss", "admin", []))
    questions: list[tuple[str, dict[str, Any]]] = [
        ("types", {}),
        ("find", {"type": "all", "query": "ducks ann", "mode": "match"}),
        ("get", {"type": "Person", "identity": ["cn", 1]}),
        ("get", {"type": "Note", "bogus": 1}),
        ("put", {"type": "Note", "records": {}}),
        ("nowhere", {}),
    ]
    before = tree_bytes(root)
    with served(root, log=tmp_path / "log") as server:
        for name in tokens:
            for action, given in questions:
                ran = run_in(root, ["tenant", "ask", name, action, json.dumps(given), "--json"])
                if action in ("put", "nowhere"):
                    assert ran.error["code"] in ("E_REFUSED", "E_ARGUMENT")
                    continue
                told = called(server, tokens[name], action, **given)
                if "error" not in told:
                    assert (ran.code, shorten_answer(action, given, ran.line)) == (0, told), (name, action)
                else:
                    assert ran.error["code"] == told["error"]["code"], (name, action)
                    assert told["error"]["message"] in ran.error.values()
    assert tree_bytes(root) == before
    assert run_in(root, ["tenant", "ask", "ann", "types", "[", "--json"]).error["code"] == "E_ARGUMENT"
    assert run_in(root, ["tenant", "ask", "nobody", "types", "--json"]).error["code"] == "E_TENANT"
