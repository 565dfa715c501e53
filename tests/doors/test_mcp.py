"""`duckkb mcp` as a process, asked by the official SDK's client in every revision of the protocol that it speaks, and by whoever
means it ill."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import httpx2
import mcp.client.session
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS

from duckkb.operations.catalog import ACTIONS
from duckkb.server.mcp_answers import COMMON, shorten_answer
from tests.conftest import NOTES, CopyOf, commit, git, make_base, run_in, tree_bytes
from tests.harness.servers import PATIENT
from tests.harness.waiting import HANG_S

_START = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
_DEAF = "SELECT count(*) FROM range(100000000000) a, range(1000) b"
ASKED: Sequence[tuple[str, dict[str, Any], Sequence[str]]] = (
    (
        "find",
        {"type": "Note", "query": "ducks", "mode": "match", "limit": 2},
        ["find", "Note", "ducks", "-m", "-l", "2"],
    ),
    ("find", {"type": "all", "query": "鸭子", "mode": "match"}, ["find", "all", "鸭子", "-m"]),
    ("get", {"type": "Note", "identity": "n1"}, ["get", "Note", "n1"]),
    ("get", {"type": "Person", "identity": ["cn", 1]}, ["get", "Person", '["cn",1]']),
    ("get", {"document": "guide/install.md"}, ["get", "guide/install.md"]),
    ("list", {"type": "Note", "limit": 1}, ["list", "Note", "-l", "1"]),
    ("types", {}, ["schema"]),
    ("schema", {"type": "Note"}, ["schema", "Note"]),
    (
        "sql",
        {"statement": "SELECT id, 1.5 AS x FROM note ORDER BY id"},
        ["sql", "SELECT id, 1.5 AS x FROM note ORDER BY id"],
    ),
    ("neighbors", {"type": "Note", "identity": "n1"}, ["graph", "neighbors", "Note", "n1"]),
    ("search", {"question": "install"}, ["search", "install"]),
    ("check", {}, ["check"]),
    ("diff", {}, ["diff"]),
)


def make_ducks(root: Path) -> None:
    """Notes of ducks, a person, a citation and a document, committed."""
    make_base(root, NOTES)
    (root / "guide").mkdir()
    (root / "guide/install.md").write_text("# Install\n\nHow to install ducks.\n", "utf-8")
    put = [("Note", {"id": f"n{n}", "title": f"ducks {n}", "text": "鸭子 swim"}) for n in range(3)]
    put += [("Person", {"country": "cn", "number": 1, "name": "Ann"}), ("cites", {"from": "n1", "to": "n2"})]
    for kind, record in put:
        assert run_in(root, ["put", kind, json.dumps(record)]).code == 0
    assert run_in(root, ["collection", "add", "guide"]).code == 0
    assert run_in(root, ["update"]).code == 0
    commit(root)


@pytest.fixture
def base(tmp_path: Path, copy_of: CopyOf) -> Path:
    root = copy_of(make_ducks, tmp_path / "kb")
    (root / "guide/install.md").write_text("# Install\n\nHow to install ducks and geese.\n", "utf-8")
    return root


def command(root: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "duckkb", "--kb", str(root), "mcp", *args]


class Pipe:
    """A server behind its pipes, and what it wrote to them."""

    def __init__(self, root: Path, *args: str, **env: str) -> None:
        given = {**os.environ, "PYTHONUTF8": "1", **env}
        pipe = subprocess.PIPE
        started = command(root, *args)
        self.process = subprocess.Popen(started, env=given, cwd=root.parent, stdin=pipe, stdout=pipe, stderr=pipe)
        self._last = 0

    def write(self, *lines: bytes) -> None:
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        self.process.stdin.flush()

    def send(self, method: str, **params: Any) -> int:
        self._last += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}).encode())
        return self._last

    def answer(self, id: int) -> dict[str, Any]:
        """What was answered to a request; everything before it has to be a message too."""
        while line := self.process.stdout.readline():
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0", line
            if message.get("id") == id:
                return message
        raise AssertionError(self.process.stderr.read())

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(self.send(method, **params))

    def close(self) -> tuple[bytes, bytes]:
        """End stdin; what comes on stdout and stderr until the process has ended, which is no failure."""
        told = self.process.communicate(timeout=HANG_S)
        assert self.process.returncode == 0, told[1]
        return told

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        assert result["isError"] is ("error" in result["structuredContent"])
        found: dict[str, Any] = result["structuredContent"]
        return found


@contextmanager
def piped(root: Path, *args: str, **env: str) -> Iterator[Pipe]:
    pipe = Pipe(root, *args, **env)
    try:
        pipe.ask("initialize", **_START)
        pipe.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield pipe
    finally:
        pipe.process.kill()
        pipe.process.wait()


class Http:
    """A server behind its URL."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def post(self, body: Any, *, query: str = "", method: str = "POST", **headers: str) -> httpx2.Response:
        given = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {self.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        return httpx2.request(method, self.url + query, headers=given, timeout=HANG_S, **(sent if body else {}))

    def ask(
        self, method: str, *, query: str = "", headers: dict[str, str] | None = None, **params: Any
    ) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.post(body, query=query, **(headers or {}))

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("tools/call", name=name, arguments=arguments).json()["result"][
            "structuredContent"
        ]
        return found


@contextmanager
def http(root: Path, *args: str) -> Iterator[Http]:
    process = subprocess.Popen(
        command(root, "--http", "--port", "0", *args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **PATIENT},
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        found = json.loads(line)
        yield Http(found["url"], Path(found["token"]).read_text().strip() if found["token"] else "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0
        assert b"E_INTERNAL" not in (said := process.stderr.read()), said
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def client(reached: Path | Http, revision: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """The SDK's client, which offers the newest revision of its kind: here another one."""
    mode = "legacy" if revision in HANDSHAKE_PROTOCOL_VERSIONS else "auto"
    monkeypatch.setattr(mcp.client.session, "LATEST_HANDSHAKE_VERSION", revision)
    if isinstance(reached, Path):
        program, *args = command(reached)
        transport = stdio_client(StdioServerParameters(command=program, args=args, env=dict(os.environ)))
        async with Client(transport, mode=mode) as found:
            yield found
        return
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {reached.token}"}, timeout=HANG_S) as web,
        Client(streamable_http_client(reached.url, http_client=web), mode=mode) as found,
    ):
        yield found


async def use(reached: Path | Http, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(reached, revision, monkeypatch) as asked:
        assert asked.protocol_version == revision
        assert [tool.name for tool in (await asked.list_tools()).tools] == [name for name in ACTIONS if name in COMMON]
        got = await asked.call_tool("get", {"type": "Note", "identity": "n1"})
        assert not got.is_error and json.loads(got.content[0].text)["title"] == "ducks 1"
        wrong = await asked.call_tool("get", {"type": "Note", "identity": "n1", "bogus": 1})
        assert wrong.is_error and json.loads(wrong.content[0].text)["error"]["code"] == "E_ARGUMENT"
        assert "duckkb:schema/Note" in [one.uri for one in (await asked.list_resources()).resources]
        read = (await asked.read_resource("duckkb://Note/n1")).contents[0]
        assert json.loads(read.text)["_etag"] == json.loads(got.content[0].text)["_etag"]
        packed = await asked.call_tool("pack", {"question": "ducks", "types": ["Note"], "form": "json"})
        entry = json.loads(packed.content[0].text)["entries"][0]
        cited = json.loads((await asked.call_tool("get", {"citation": entry["uri"]})).content[0].text)
        assert json.loads(entry["text"]).items() <= cited.items() and "_since" not in cited
        piece = (await asked.read_resource(entry["uri"] + "#text/0")).contents[0]
        assert json.loads(piece.text)["_chunk"]["text"] == cited["text"]
        assert "geese" in (await asked.read_resource("duckkb://guide/install.md")).contents[0].text
        with pytest.raises(MCPError, match="n99"):
            await asked.read_resource("duckkb://Note/n99")
        prompt = await asked.get_prompt("ask", {"question": "Do ducks swim?"})
        assert "Do ducks swim?" in prompt.messages[0].content.text
        assert "Note" in (asked.instructions or "")


@pytest.mark.long
@pytest.mark.parametrize("revision", KNOWN_PROTOCOL_VERSIONS)
def test_kx_14_the_official_client_is_served_over_stdio(
    base: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(asyncio.wait_for(use(base, revision, monkeypatch), HANG_S))


@pytest.mark.long
def test_kx_14_the_official_client_is_served_over_http(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http(base) as server:
        for revision in KNOWN_PROTOCOL_VERSIONS:
            asyncio.run(asyncio.wait_for(use(server, revision, monkeypatch), HANG_S))


@pytest.mark.long
def test_kx_14_answers_are_those_of_the_command_line_without_what_an_agent_has_already(base: Path) -> None:
    with piped(base) as pipe:
        for name, given, args in ASKED:
            told = pipe.call(name, **given)
            ran = run_in(base, [*args, "--json"])
            notices = told.pop("notices", ()) if "notices" not in ran.line else ()
            assert all(one["code"] in ran.err for one in notices)
            whole = {"results": ran.line} if isinstance(ran.line, list) else ran.line
            assert told == shorten_answer(name, given, whole), (name, given)


_MISTAKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get", {"type": "Note", "identity": "nobody"}),
    ("get", {"type": "Nota", "identity": "n1"}),
    ("get", {"document": "Note/n1"}),
    ("get", {"document": "guide/instal.md"}),
    ("find", {"type": "Nota", "query": "ducks"}),
    ("find", {"type": "Note", "where": "title = ducks"}),
    ("find", {"type": "Note", "where": "nothing = 1"}),
    ("list", {"type": "guides"}),
    ("put", {"type": "Note", "records": {"id": "n1", "_etag": "0" * 16}}),
    ("delete", {"type": "Note", "identities": ["n1"]}),
    ("sql", {"statement": "SELECT * FROM nothing"}),
    ("sql", {"statement": "DELETE FROM note"}),
)


_ONE_ARGUMENT_WRONG: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("find", {"type": "Nota", "query": "ducks", "limit": 2, "mode": "match"}, {"type": "Note"}),
    ("find", {"type": "Note", "query": "ducks", "where": "titel = 'x'", "limit": 2}, {"where": "title = 'x'"}),
    ("list", {"type": "Note", "fields": ["id", "titel"], "limit": 1}, {"fields": ["id", "title"]}),
)


def test_over_mcp_an_error_names_the_next_call_and_that_call_works(base: Path) -> None:
    with piped(base) as pipe:
        for name, given in _MISTAKEN:
            suggestion = pipe.call(name, **given)["error"]["suggestion"]
            tool, _, arguments = suggestion.partition(" ")
            assert "error" not in pipe.call(tool, **json.loads(arguments)), (name, given, suggestion)
        for name, given, better in _ONE_ARGUMENT_WRONG:
            suggestion = pipe.call(name, **given)["error"]["suggestion"]
            assert suggestion == f"{name} {json.dumps(given | better)}", "all others stay"
            assert "error" not in pipe.call(name, **(given | better))
        assert pipe.call("put", type="new", records={})["error"]["suggestion"].startswith("at a shell: duckkb col init")


def _wrong(rule: dict[str, Any]) -> Any:
    """A value that is of none of the types that a parameter takes."""
    given = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    kinds = {one.get("type") for one in rule.get("anyOf", [rule])} | (
        {"number"} if rule.get("type") == "integer" else set()
    )
    kinds |= {"integer"} if "number" in kinds else set()
    return next(value for kind, value in given.items() if kind not in kinds)


def test_kx_14_every_tool_refuses_what_it_does_not_know_and_what_is_mistyped(base: Path) -> None:
    before = tree_bytes(base)
    with piped(base, "--tools", "all") as pipe:
        tools = pipe.ask("tools/list")["result"]["tools"]
        assert [one["name"] for one in tools] == list(ACTIONS)
        assert {prompt["name"] for prompt in pipe.ask("prompts/list")["result"]["prompts"]} == {"ask", "review"}
        for tool in tools:
            rules = tool["inputSchema"]["properties"]
            told = pipe.call(tool["name"], bogus="secret")["error"]
            assert told["code"] == "E_ARGUMENT" and "bogus" in json.dumps(told) and "secret" not in json.dumps(told)
            for name, rule in rules.items():
                told = pipe.call(tool["name"], **{name: _wrong(rule)})["error"]
                found = [one.get("field", "") for one in told["details"]["findings"]]
                assert told["code"] == "E_ARGUMENT" and any(one.startswith(f"/{name}") for one in found), (
                    tool["name"],
                    name,
                )
            assert tool["annotations"]["readOnlyHint"] is not ACTIONS[tool["name"]].writes
        assert "unknown tool" in pipe.ask("tools/call", name="drop", arguments={})["error"]["message"]
    assert tree_bytes(base) == before


def test_an_agent_is_listed_at_most_twelve_tools_in_25_kb_and_can_call_every_other(base: Path) -> None:
    with piped(base) as pipe:
        listed = pipe.ask("tools/list")["result"]["tools"]
        assert len(json.dumps(listed, ensure_ascii=False, separators=(",", ":")).encode()) <= 25_000
        names = [tool["name"] for tool in listed]
        assert len(names) <= 12 and {"find", "get", "put", "memory_put"} <= {*names} < {*ACTIONS}
        assert pipe.call("count", type="Note")["count"] == 3 and "count" not in names
        prompts = pipe.ask("prompts/list")["result"]["prompts"]
        assert [prompt["name"] for prompt in prompts] == ["ask"], "a review needs tools that are not listed"


def _hostile(count: int) -> Iterator[bytes]:
    """Lines that no client means well."""
    chance = random.Random(14)
    call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}'
    fixed = (
        b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}', b'{"jsonrpc":"2.0","id":{},"method":"ping"}', b"x" * (5 << 20),
        b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]', b'{"jsonrpc":"2.0","id":-1,"result":{}}',
        b'{"jsonrpc":"2.0","id":-2,"method":"tools/call","params":[1]}', b'{"jsonrpc":"2.0","id":-3,"method":"sampling/createMessage"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
        call % (-4, b'{"name":"find","arguments":"x"}'), call % (-5, b'{"name":"find","arguments":{"type":"\\ud800","query":"\\ud800"}}'),
        call % (-6, b'{"name":"get","arguments":{"type":"Note","identity":"' + b"n" * 100_000 + b'"}}'),
        call % (-7, b'{"name":"find","arguments":{"type":"Note","where":"' + b"(" * 5_000 + b'"}}'),
    )  # fmt: skip
    yield from fixed
    sound = call % (-8, b'{"name":"find","arguments":{"type":"Note","query":"ducks","limit":1}}')
    for _ in range(count - len(fixed)):
        torn = bytearray(sound)
        for _ in range(chance.randint(1, 6)):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        yield bytes(torn).replace(b"\n", b" ")


@pytest.mark.long
def test_kx_14_hostile_frames_and_noisy_libraries_leave_stdout_to_messages(base: Path, tmp_path: Path) -> None:
    noise, begin = tmp_path / "noise", tmp_path / "begin"
    noise.mkdir()
    (noise / "sitecustomize.py").write_text(
        "import os, threading, time\n"
        "def noise():\n"
        f"    while not os.path.exists({str(begin)!r}): time.sleep(.01)\n"
        "    while True:\n"
        "        print('noise', flush=True); os.write(1, b'noise\\n'); time.sleep(.005)\n"
        "threading.Thread(target=noise, daemon=True).start()\n",
        "utf-8",
    )
    with piped(base, PYTHONPATH=os.pathsep.join([str(noise), str(Path.cwd())])) as pipe:
        begin.touch()
        for line in _hostile(100):
            pipe.write(line)
        assert pipe.call("get", type="Note", identity="n1")["title"] == "ducks 1"
        rest, said = pipe.close()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert b"noise" in said and b"Traceback" not in said and b"E_INTERNAL" not in said, said[:2_000]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_kx_14_a_signal_ends_it_at_once_whatever_it_does(base: Path, number: int) -> None:
    with piped(base) as pipe:
        pipe.call("sql", statement="SELECT 1")
        pipe.send("tools/call", name="sql", arguments={"statement": _DEAF, "timeout": 3600})
        assert pipe.ask("ping")["result"] == {}
        pipe.process.send_signal(number)
        assert pipe.process.wait(HANG_S) == 0, "the statement has an hour"
        assert pipe.process.stderr.read() == b""


def test_kx_14_the_end_of_stdin_ends_it_once_all_is_answered(base: Path) -> None:
    with piped(base) as pipe:
        asked = [
            pipe.send("tools/call", name="get", arguments={"type": "Note", "identity": f"n{n % 3}"}) for n in range(30)
        ]
        told, _ = pipe.close()
        assert sorted(json.loads(line)["id"] for line in told.splitlines()) == asked


def test_kx_14_a_base_that_does_not_load_says_so_until_it_does(base: Path) -> None:
    sound = (base / "config.yaml").read_text("utf-8")
    (base / "config.yaml").write_text("nodes: {Note: {table: 5}}\n", "utf-8")
    with piped(base) as pipe:
        assert pipe.call("get", type="Note", identity="n1")["error"]["code"] == "E_ONTOLOGY"
        (base / "config.yaml").write_text(sound, "utf-8")
        assert pipe.call("get", type="Note", identity="n1")["title"] == "ducks 1"
        (base / "config.yaml").write_text("nodes: [", "utf-8")
        assert "error" in pipe.call("get", type="Note", identity="n1")
        assert pipe.ask("ping")["result"] == {}


def test_kx_14_what_is_reviewed_becomes_a_proposal(base: Path) -> None:
    reviewed = NOTES.replace("    table: note\n", "    table: note\n    review: required\n")
    (base / "config.yaml").write_text(reviewed, "utf-8")
    commit(base)
    before = tree_bytes(base)
    with piped(base) as pipe:
        first = pipe.call("put", type="Note", records={"id": "n7", "title": "proposed"})
        second = pipe.call("delete", type="Note", identities=["n0"])
        assert first["inserted"] == second["deleted"] == 1 and first["branch"] == second["branch"]
        assert pipe.call("get", type="Note", identity="n7")["error"]["code"] == "E_NOT_FOUND"
        assert tree_bytes(base) == before and git(base, "status", "--porcelain", "data") == ""
        assert pipe.call("put", type="Person", records={"country": "de", "number": 2, "name": "Bo"})["inserted"] == 1
    listed = run_in(base, ["list", "Note", "--at", first["branch"]])
    assert [one["id"] for one in listed.lines] == ["n1", "n2", "n7"]


def test_kx_14_http_lets_in_whom_it_knows_and_takes_what_is_sound(base: Path) -> None:
    with http(base, "--max-sessions", "2") as server:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert server.post(ping).status_code == 200
        refused: list[tuple[int, Callable[[], httpx2.Response]]] = [
            (401, lambda: server.post(ping, authorization="")),
            (401, lambda: server.post(ping, authorization="Basic YTpi")),
            (403, lambda: server.post(ping, authorization="Bearer " + "0" * 64)),
            (421, lambda: server.post(ping, host="evil.example")),
            (403, lambda: server.post(ping, origin="http://evil.example")),
            (413, lambda: server.post(b" " * (5 << 20), content_type="application/json")),
            (400, lambda: server.post(b"{", content_type="application/json")),
            (405, lambda: server.post(None, method="GET")),
            (404, lambda: server.post(ping, mcp_session_id="made-up")),
        ]
        assert [ask().status_code for _, ask in refused] == [code for code, _ in refused]
        assert "mcp-session-id" not in server.ask("initialize", **_START).headers
        opened = [server.ask("initialize", query="?session=1", **_START) for _ in range(3)]
        assert [one.status_code for one in opened] == [200, 200, 503]
        session = {"mcp_session_id": opened[0].headers["mcp-session-id"]}
        assert server.post(ping, **session).status_code == 200
        assert server.post(None, method="DELETE", **session).status_code == 200
        assert server.post(ping, **session).status_code == 404
        assert server.ask("initialize", query="?session=1", **_START).status_code == 200


_OF_THE_WHOLE: dict[str, dict[str, Any]] = {
    "blame": {"type": "Note", "identity": "n1"},
    "log": {"type": "Note", "identity": "n1"},
    "conflicts": {},
    "resolve": {"answers": []},
    "arch_status": {},
}


def test_a_batch_is_refused_in_words_that_say_so(base: Path) -> None:
    with http(base) as server:
        session = server.ask("initialize", query="?session=1", **_START).headers["mcp-session-id"]
        batch = b' [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]'
        for headers in ({}, {"mcp_session_id": session}):
            answer = server.post(batch, content_type="application/json", **headers)
            assert answer.status_code == 400
            assert answer.json()["error"] == {
                "code": -32600,
                "message": "MCP has no batches: send each request by itself",
            }


@pytest.mark.long
def test_kx_14_a_tenant_sees_the_tools_of_its_role_and_keeps_its_session_to_itself(base: Path) -> None:
    tokens = {
        name: run_in(base, ["tenant", "add", name, "Note", "--role", role, "--json"]).line["token"]
        for name, role in (("ann", "viewer"), ("bo", "editor"))
    }
    with http(base, "--tools", "all") as server:
        ann, bo = (Http(server.url, tokens[name]) for name in ("ann", "bo"))
        told = ann.ask("tools/list").json()["result"]["tools"]
        assert {one["name"] for one in told} == {
            name for name, one in ACTIONS.items() if one.role == "viewer" and not one.needs_whole
        }, "all of its role"
        for name, given in _OF_THE_WHOLE.items():
            assert bo.call(name, **given)["error"]["code"] == "E_FORBIDDEN", name
        assert {*_OF_THE_WHOLE} == {name for name, one in ACTIONS.items() if one.needs_whole}
        assert ann.call("delete", type="Note", identities=["n1"])["error"]["code"] == "E_FORBIDDEN"
        session = {"mcp_session_id": ann.ask("initialize", query="?session=1", **_START).headers["mcp-session-id"]}
        assert ann.ask("ping", headers=session).status_code == 200
        assert bo.ask("ping", headers=session).status_code == 404
        assert run_in(base, ["tenant", "disable", "ann"]).code == 0
        assert ann.ask("ping", headers=session).status_code == 403
        assert bo.ask("ping").status_code == 200


@pytest.mark.long
def test_kx_14_a_line_that_cannot_be_read_stops_those_alone_who_see_its_type(base: Path) -> None:
    tokens = {
        name: run_in(base, ["tenant", "add", name, *granted, "--json"]).line["token"]
        for name, granted in (("ann", ["Note"]), ("bo", ["Note", "Person"]), ("cy", ["--role", "admin"]))
    }
    (torn,) = (base / "data/nodes/person").rglob("*.jsonl")
    with http(base) as server:
        ann, bo, cy = (Http(server.url, tokens[name]) for name in ("ann", "bo", "cy"))
        before = [one.call("get", type="Note", identity="n1") for one in (ann, bo, cy)]
        assert before[0] == before[1] == before[2] and before[0]["title"] == "ducks 1"
        torn.write_bytes(torn.read_bytes()[:-9])
        assert ann.call("get", type="Note", identity="n1") == before[0]
        for one in (bo, cy):
            problem = one.call("get", type="Note", identity="n1")["error"]
            assert torn.name in json.dumps(problem["details"])
            found = one.call("check")
            assert torn.name in json.dumps(found)
        assert torn.name not in json.dumps(ann.call("check"))


@pytest.mark.long
def test_kx_14_a_server_in_the_background_is_ended_and_no_other_process(base: Path) -> None:
    def kept() -> Path:
        own = sha256(os.fsencode(base.resolve())).hexdigest()[:32]  # others may have been served from this home
        (found,) = Path(os.environ["XDG_STATE_HOME"]).rglob(f"mcp/{own}.pid")
        return found

    started = run_in(base, ["mcp", "--http", "--port", "0", "--daemon", "--json"])
    assert started.code == 0, started.err
    found = started.line
    try:
        assert kept().stat().st_mode & 0o777 == 0o600
        assert httpx2.post(found["url"]).status_code == 401
        again = run_in(base, ["mcp", "--http", "--port", "0", "--daemon", "--json"])
        assert again.code == 1 and again.error["code"] == "E_SERVING"
        for words in (["status"], ["scheduler", "status"]):
            assert run_in(base, words).line["server"] == found
        kept().chmod(0o644)
        assert "can be written or read by others" in run_in(base, ["status"]).line["server"]["error"]
        kept().chmod(0o600)
        assert run_in(base, ["mcp", "stop"]).line == found
        assert run_in(base, ["status"]).line["server"] is None
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(found["url"].split(":")[2].split("/")[0])))
    finally:
        run_in(base, ["mcp", "stop"])
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        kept().write_text(json.dumps({**found, "pid": sleeper.pid}), "utf-8")  # its number has gone to another
        assert run_in(base, ["mcp", "stop"]).code == 1
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
