"""What a client of MCP is told between its requests: log messages of its own calls, and changes of resources that it subscribed to."""

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import httpx2
from mcp.server.connection import Connection

from duckkb.operations.lifecycle import OpenOptions
from duckkb.server import mcp_resources
from duckkb.server.authentication import Denial, Noted
from duckkb.server.dispatcher import Asked, Front, Served
from duckkb.server.mcp_resources import lifespan_of
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, make_base, run_in
from tests.doors.test_mcp import Pipe, piped
from tests.harness.servers import Server, served
from tests.harness.waiting import HANG_S

_START = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
_N1 = "duckkb://Note/n1"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    lines = "\n".join(json.dumps({"id": f"n{number}", "title": f"ducks {number}"}) for number in range(120))
    assert run_in(root, ["put", "Note"], stdin=lines).code == 0
    assert run_in(root, ["put", "Person", '{"country": "cn", "number": 1, "name": "Ann"}']).code == 0
    commit(root)
    return root


def _next(pipe: Pipe, method: str) -> dict[str, Any]:
    """The params of the next notification of this kind."""
    while line := pipe.process.stdout.readline():
        message = json.loads(line)
        if message.get("method") == method:
            params: dict[str, Any] = message["params"]
            return params
    raise AssertionError("the server ended")


def _messages(pipe: Pipe, method: str, **params: Any) -> list[dict[str, Any]]:
    """The log messages that come before the answer of a request."""
    id, found = pipe.send(method, **params), list[dict[str, Any]]()
    while line := pipe.process.stdout.readline():
        message = json.loads(line)
        if message.get("method") == "notifications/message":
            found.append(message["params"])
        if message.get("id") == id:
            assert "error" not in message, message
            return found
    raise AssertionError("the server ended")


def _change(root: Path, id: str, title: str) -> None:
    assert run_in(root, ["put", "Note", json.dumps({"id": id, "title": title})]).code == 0


def test_a_client_is_sent_messages_of_its_calls_from_the_level_on_that_it_set(base: Path) -> None:
    call = {"name": "find", "arguments": {"type": "Note", "query": "ducks", "mode": "hybrid"}}
    wrong = {"name": "get", "arguments": {"type": "Note", "identity": "n999"}}
    with piped(base) as pipe:
        assert _messages(pipe, "tools/call", **wrong) == []
        assert "error" in pipe.ask("logging/setLevel", level="loud") and "error" in pipe.ask("logging/setLevel")
        assert pipe.ask("logging/setLevel", level="debug")["result"] == {}
        missing, took = _messages(pipe, "tools/call", **wrong)
        assert (missing["level"], missing["data"]["code"], missing["data"]["tool"]) == ("info", "E_NOT_FOUND", "get")
        assert took["level"] in ("debug", "notice") and took["logger"] == "duckkb" and took["data"]["ms"] >= 0
        pipe.ask("logging/setLevel", level="warning")
        assert _messages(pipe, "tools/call", **wrong) == []
        notices = pipe.call("find", **call["arguments"])["notices"]  # there are no vectors to search by
        told = _messages(pipe, "tools/call", **call)
        assert notices and [one["level"] for one in told] == ["warning"] * len(notices)
        assert [one["data"]["code"] for one in told] == [one["code"] for one in notices]
        own = {"id": "own", "notices": [{"code": "W_MODE", "message": "of whoever wrote the record"}]}
        assert "error" not in pipe.call("put", type="Note", records=[own])
        read = {"name": "get", "arguments": {"type": "Note", "identity": "own"}}
        assert _messages(pipe, "tools/call", **read) == []


@pytest.mark.long
def test_who_subscribed_over_stdio_is_told_of_writes_and_of_what_changes_on_disk(base: Path) -> None:
    with piped(base) as pipe:
        assert pipe.ask("resources/subscribe", uri=_N1)["result"] == {}
        pipe.call("put", type="Note", records=[{"id": "n2", "title": "geese"}])
        pipe.send("tools/call", name="put", arguments={"type": "Note", "records": [{"id": "n1", "title": "geese"}]})
        assert _next(pipe, "notifications/resources/updated") == {"uri": _N1}
        _change(base, "n1", "swans")
        assert _next(pipe, "notifications/resources/updated") == {"uri": _N1}
        assert pipe.ask("resources/subscribe", uri="duckkb://Note/n3")["result"] == {}
        assert pipe.ask("resources/unsubscribe", uri=_N1)["result"] == {}
        assert pipe.ask("resources/unsubscribe", uri="duckkb://Note/none")["result"] == {}
        for id in ("n1", "n3"):
            pipe.send("tools/call", name="put", arguments={"type": "Note", "records": [{"id": id, "title": "cranes"}]})
        assert _next(pipe, "notifications/resources/updated") == {"uri": "duckkb://Note/n3"}
        pipe.send("tools/call", name="delete", arguments={"type": "Note", "identities": ["n3"]})
        assert _next(pipe, "notifications/resources/updated") == {"uri": "duckkb://Note/n3"}


def test_subscriptions_are_to_what_can_be_read_now_and_not_to_any_number(base: Path) -> None:
    with piped(base) as pipe:
        reading, subscribing = (
            pipe.ask(f"resources/{verb}", uri="duckkb://Note/n999") for verb in ("read", "subscribe")
        )
        assert reading["error"] == subscribing["error"]
        for uri in ("http://127.0.0.1/", "file:///etc/passwd", "", f"{_N1}@HEAD"):
            assert "error" in pipe.ask("resources/subscribe", uri=uri), uri
        answers = [pipe.ask("resources/subscribe", uri=f"duckkb://Note/n{number}") for number in range(102)]
        assert ["error" in answer for answer in answers] == [False] * 100 + [True] * 2
        assert "at most 100" in answers[-1]["error"]["message"]
        assert "error" not in pipe.ask("resources/subscribe", uri=_N1)
        pipe.ask("resources/unsubscribe", uri=_N1)
        assert "error" not in pipe.ask("resources/subscribe", uri="duckkb://Note/n101")


class _Session:
    """A session of a tenant over HTTP, with the stream on which a server tells what nobody asked for."""

    def __init__(self, server: Server, token: str) -> None:
        self._url, self._last = f"http://127.0.0.1:{server.port}/mcp", 0
        self._headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}
        begun = self._post(f"{self._url}?session=1", "initialize", _START)
        self._headers |= {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        self.capabilities = _of(begun)["result"]["capabilities"]
        httpx2.post(self._url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=self._headers)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return _of(self._post(self._url, method, params))

    @contextmanager
    def stream(self) -> Iterator["queue.Queue[dict[str, Any]]"]:
        """What is told on it, as it comes."""
        told: queue.Queue[dict[str, Any]] = queue.Queue()
        with httpx2.stream("GET", self._url, headers=self._headers, timeout=HANG_S) as answer:
            assert answer.status_code == 200

            def listen() -> None:
                try:
                    for line in answer.iter_lines():
                        if line.startswith("data: {"):
                            told.put(json.loads(line.removeprefix("data: ")))
                except httpx2.HTTPError:
                    pass

            threading.Thread(target=listen, daemon=True).start()
            yield told

    def _post(self, url: str, method: str, params: dict[str, Any]) -> httpx2.Response:
        self._last += 1
        body = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        return httpx2.post(url, json=body, headers=self._headers, timeout=HANG_S)


def _of(answer: httpx2.Response) -> dict[str, Any]:
    """The last message of an answer: a stream has others before it."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    message: dict[str, Any] = json.loads(lines[-1] if lines else answer.text)
    return message


def _token(root: Path, *words: str) -> str:
    token: str = run_in(root, ["tenant", "add", *words, "--json"]).line["token"]
    return token


@pytest.mark.long
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_session_is_told_of_what_its_tenant_may_read_and_of_nothing_else(
    base: Path, tmp_path: Path, workers: str
) -> None:
    of_notes, of_people = _token(base, "ann", "Note", "--role", "editor"), _token(base, "bob", "Person")
    with served(base, "serve", "--workers", workers, log=tmp_path / "log") as server:
        ann, bob = _Session(server, of_notes), _Session(server, of_people)
        assert ann.capabilities["logging"] == {} and ann.capabilities["resources"]["subscribe"]
        person = 'duckkb://Person/["cn",1]'
        assert "error" not in ann.ask("resources/subscribe", uri=_N1)
        assert "error" not in bob.ask("resources/subscribe", uri=person)
        hidden, missing = (bob.ask("resources/subscribe", uri=f"duckkb://{kind}/n1") for kind in ("Note", "Nothing"))
        assert hidden["error"]["code"] == missing["error"]["code"]
        assert hidden["error"]["message"].replace("Note", "Nothing") == missing["error"]["message"]
        with ann.stream() as of_ann, bob.stream() as of_bob:
            _change(base, "n1", "geese")
            assert run_in(base, ["put", "Person", '{"country": "cn", "number": 1, "name": "Bo"}']).code == 0
            assert of_ann.get(timeout=HANG_S)["params"] == {"uri": _N1}
            assert of_bob.get(timeout=HANG_S)["params"] == {"uri": person}
            put = ann.ask("tools/call", name="put", arguments={"type": "Note", "records": [{"id": "n1", "title": "x"}]})
            assert not put["result"]["isError"]
            assert of_ann.get(timeout=HANG_S)["params"] == {"uri": _N1}
            assert of_bob.empty()


def test_without_a_session_neither_levels_nor_subscriptions_are_offered(base: Path, tmp_path: Path) -> None:
    with served(base, "serve", log=tmp_path / "log") as server:
        token = Path(server.told["token"]).read_text().strip()
        headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}

        def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return _of(httpx2.post(f"http://127.0.0.1:{server.port}/mcp", json=body, headers=headers))

        capabilities = ask("initialize", _START)["result"]["capabilities"]
        assert "logging" not in capabilities and not capabilities["resources"]["subscribe"]
        for method, params in (("logging/setLevel", {"level": "info"}), ("resources/subscribe", {"uri": _N1})):
            assert ask(method, params)["error"]["code"] == -32601


class _Outbound:
    """A client's end of a connection: what it was told, or one that takes nothing."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.uris: asyncio.Queue[str] = asyncio.Queue()
        self._is_stuck = is_stuck

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        raise NotImplementedError

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        if self._is_stuck:
            await asyncio.Event().wait()
        await self.uris.put(params["uri"])


@pytest.mark.long
def test_who_is_let_in_no_longer_is_told_nothing_and_who_reads_nothing_holds_nobody_up(base: Path) -> None:
    async def play(front: Front) -> None:
        told, stuck, gone = _Outbound(), _Outbound(is_stuck=True), _Outbound()
        tenants: dict[_Outbound, Caller | Denial] = dict.fromkeys((gone, stuck, told), Caller("ann"))
        async with lifespan_of(front)(None) as subscriptions:
            for outbound in tenants:
                asked = Asked(Caller("ann"), Noted(), again=lambda outbound=outbound: tenants[outbound])  # type: ignore[misc]
                connection = Connection.for_loop(outbound)
                for id in ("n1", "n2"):
                    uri = f"duckkb://Note/{id}"
                    subscriptions.add(
                        connection, uri, asked, mcp_resources.read_current_text(front.served, uri, Caller("ann"))
                    )
            tenants[gone] = Denial(403, "E_DENIED", "disabled")
            for title in ("geese", "swans"):
                records = [{"id": id, "title": title} for id in ("n1", "n2")]
                await front.run(Asked(Caller("ann"), Noted()), "put", {"type": "Note", "records": records})
                uris = [await asyncio.wait_for(told.uris.get(), HANG_S) for _ in records]
                # A look that began before the write may see the second record new and the first as it was.
                assert sorted(uris) == ["duckkb://Note/n1", "duckkb://Note/n2"]
                tenants[gone] = Caller("ann")  # who was let in again has to subscribe again
            assert gone.uris.empty() and told.uris.empty()
            await connection.exit_stack.aclose()  # of the one that is told: the client has gone
            assert len(subscriptions) == 0

    served_base = Served(base, OpenOptions())
    try:
        asyncio.run(play(Front(served_base)))
    finally:
        served_base.close()
