"""What agents may not do over MCP, and what one of them does not do to another."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.operations.lifecycle import OpenOptions
from duckkb.server.dispatcher import Served
from duckkb.types.errors import Refused
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes
from tests.doors.test_mcp import _START, Http, http
from tests.doors.test_mcp import base as base
from tests.doors.test_serve import audited, question, serving, waiting
from tests.doors.test_serve import remote as remote
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.harness.waiting import HANG_S, wait_until

_NEWEST = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _NEWEST,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def test_kx_14_a_value_that_an_agent_gives_in_a_merge_is_refused_where_changes_are_reviewed(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES.replace("    table: note\n", "    table: note\n    review: required\n"))

    def committed(title: str) -> None:
        assert run_in(root, ["put", "Note", json.dumps({"id": "n1", "title": title})]).code == 0
        commit(root, title)

    committed("before")
    main = git(root, "branch", "--show-current").strip()
    git(root, "checkout", "-q", "-b", "topic")
    committed("theirs")
    git(root, "checkout", "-q", main)
    committed("ours")
    assert run_in(root, ["merge", "topic"]).code == 1
    before, branches = tree_bytes(root), git(root, "branch")
    with closing(Served(root, OpenOptions())) as served:
        (one,) = served.run("conflicts", {}, Caller())["conflicts"]
        named = {key: one[key] for key in ("type", "identity", "field", "etag")}
        with pytest.raises(Refused) as refused:
            served.run("resolve", {"answers": [{**named, "value": "reviewed by nobody"}]}, Caller())
        assert refused.value.code == "E_REVIEW"
        own = json.dumps({**named, "value": "reviewed by nobody"})
        ran = run_in(root, ["resolve", "--with-file", "-", "--json"], stdin=own, env={"DUCKKB_AGENT": "1"})
        assert (ran.code, ran.error["code"]) == (1, "E_REVIEW")
        assert tree_bytes(root) == before and git(root, "branch") == branches
        assert served.run("resolve", {"answers": [{**named, "choose": "theirs"}]}, Caller())["total"] == 0


def test_kx_14_a_tool_whose_name_is_no_text_is_a_wrong_request_and_no_defect(base: Path) -> None:
    with http(base) as server:
        for name in ([], {}, 5):
            told = server.ask("tools/call", name=name, arguments={}).json()["error"]
            assert told["code"] == -32602 and "unhashable" not in told["message"]
        assert server.ask("tools/list").status_code == 200
    assert [one for _, *one in audited(base)].count(["mcp tools/call", "allowed"]) == 3


def test_kx_14_a_tenant_with_many_sessions_keeps_nobody_out(base: Path) -> None:
    tokens = [run_in(base, ["tenant", "add", name, "Note", "--json"]).line["token"] for name in ("ann", "bo")]
    with http(base, "--max-sessions", "2") as server:
        ann, bo = (Http(server.url, token) for token in tokens)
        told = [one.ask("initialize", query="?session=1", **_START).status_code for one in (ann, ann, ann, bo)]
        assert told == [200, 200, 503, 200]


@pytest.mark.long
def test_kx_19_a_write_over_mcp_whose_client_goes_before_its_turn_is_not_carried_out(
    remote: tuple[Path, FakeEndpoint],
) -> None:
    root, endpoint = remote

    def call(name: str) -> dict[str, Any]:
        put = {"type": "Note", "records": {"id": name, "text": "hen"}}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "put", "arguments": put}}

    old, new = call("old"), call("new")
    new["params"]["_meta"] = _META
    newest = {"mcp-protocol-version": _NEWEST, "mcp-method": "tools/call", "mcp-name": "put"}
    with (
        serving(root, "--concurrency", "1", "--metrics-open", SOME_KEY="key") as server,
        ThreadPoolExecutor(1) as threads,
    ):
        held = threading.Event()
        endpoint.always = Reply(held=held, body=None)
        first = threads.submit(server.ask, "/actions/find", question(1))
        wait_until(lambda: waiting(server) == (0, 1))
        given = {"authorization": f"Bearer {server.token}", "accept": "application/json, text/event-stream"}
        for body, more in ((old, {}), (new, newest)):
            line = HTTPConnection("127.0.0.1", server.port)
            line.request("POST", "/mcp", json.dumps(body), {**given, "content-type": "application/json", **more})
            wait_until(lambda: waiting(server) == (1, 1))
            line.close()
            wait_until(lambda: waiting(server) == (0, 1))
        held.set()
        assert first.result(HANG_S).status_code == 200
        wait_until(lambda: waiting(server) == (0, 0))
    assert [one["id"] for one in run_in(root, ["list", "Note"]).lines] == ["a"]
