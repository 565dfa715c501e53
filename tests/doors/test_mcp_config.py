"""`mcp config`: what it prints is of the client's form, and starts, or finds, a server of this base."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.server.serving import CLIENTS
from tests.conftest import NOTES, make_base, run_in
from tests.harness.waiting import HANG_S

_GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
}
_URL = "http://127.0.0.1:8181/mcp"


def _printed(root: Path, client: str, *args: str) -> dict[str, Any]:
    ran = run_in(root, ["mcp", "config", client, *args])
    assert ran.code == 0 and "put this into" in ran.err, ran.err
    return tomllib.loads(ran.out) if client == "codex" else yaml.safe_load(ran.out)  # of which JSON is a part


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / 'my "kb" 鸭', NOTES)


def test_each_client_starts_the_same_server_which_answers(base: Path) -> None:
    started = []
    for client, known in CLIENTS.items():
        entry = _printed(base, client, "--name", 'my "notes"')[known.key]['my "notes"']
        assert entry.pop("type", "stdio") == "stdio"
        if client == "goose":
            assert (entry.pop("enabled"), entry.pop("name")) == (True, 'my "notes"')
            entry["command"] = entry.pop("cmd")
        started.append(entry)
    assert all(one == started[0] for one in started) and sorted(started[0]) == ["args", "command"]
    told = subprocess.run(
        [started[0]["command"], *started[0]["args"]],
        input=json.dumps(_GREETING) + "\n",
        capture_output=True,
        text=True,
        cwd="/",
        timeout=HANG_S,
    )
    assert json.loads(told.stdout)["result"]["serverInfo"]["name"] == "duckkb", told.stderr


def test_each_client_that_can_asks_a_server_with_a_token_from_elsewhere(base: Path) -> None:
    addresses = {"url": 0, "httpUrl": 0, "serverUrl": 0, "uri": 0}
    for client in CLIENTS:
        if client == "claude-desktop":
            assert run_in(base, ["mcp", "config", client, "--url", _URL]).code == 2
            continue
        told = _printed(base, client, "--url", _URL)
        entry = told[CLIENTS[client].key]["duckkb"]
        (key,) = addresses.keys() & entry.keys()
        addresses[key] += 1
        assert entry[key] == _URL
        if client == "codex":
            assert entry["bearer_token_env_var"] == "DUCKKB_MCP_TOKEN"
            continue
        token = entry["headers"]["Authorization"]
        asked = told.get("inputs", [{"id": "none"}])[0]["id"]
        assert token in ("Bearer TOKEN", f"Bearer ${{input:{asked}}}") or "DUCKKB_MCP_TOKEN" in token
    assert addresses == {"url": 6, "httpUrl": 1, "serverUrl": 1, "uri": 1}


def test_without_a_client_the_error_names_them_all_in_one_line(base: Path) -> None:
    ran = run_in(base, ["mcp", "config"])
    assert ran.code == 2 and ran.err.splitlines()[0].endswith(", ".join(sorted(CLIENTS)))
