"""A server that is asked thousands of times, by who reads slowly, goes away in the middle or never ends its request: it answers the
others, and its memory stays level."""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.servers import Server, ask, served

_GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
_STREAM = {"accept": "text/event-stream"}
LARGE = b'{"a":"' + b"x" * (5 << 20) + b'"}'


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    lines = "\n".join(json.dumps({"id": f"n{n}", "title": f"ducks {n}", "text": "swim " * 200}) for n in range(200))
    assert run_in(root, ["put", "Note", "--batch", "-"], stdin=lines).code == 0
    commit(root)
    return root


def rpc(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(name: str, **given: object) -> dict[str, object]:
    return rpc("tools/call", name=name, arguments=given)


ASKED = [
    ("POST", "/mcp", call("get", type="Note", identity="n7")),
    ("POST", "/mcp", call("find", type="Note", query="ducks swim", mode="match", limit=3)),
    ("POST", "/mcp", call("get", type="Note", identity="nowhere")),
    ("POST", "/mcp", call("get", type="Note", bogus=1)),
    ("POST", "/mcp", rpc("tools/list")),
    ("POST", "/mcp", rpc("no/such")),
    ("POST", "/actions/list", {"type": "Note", "limit": 5}),
    ("POST", "/actions/nowhere", {}),
    ("POST", "/mcp", b"{"),
    ("POST", "/mcp?session=1", rpc("initialize", **_GREETING)),
]


@contextmanager
def left_behind(server: Server, token: str) -> Iterator[None]:
    """Clients that stay without doing what they should: each kind several times."""
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    )
    head += "accept: application/json, text/event-stream\r\n"
    begun = [b"", b"POST /mc", head.encode(), f"{head}content-length: 1000\r\n\r\n{{".encode()]
    whole = json.dumps(call("list", type="Note", limit=200)).encode()
    begun.append(f"{head}content-length: {len(whole)}\r\n\r\n".encode() + whole)  # whose answer nobody reads
    with ExitStack() as stack:
        for text in begun * 5:
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            one.connect(("127.0.0.1", server.port))
            one.sendall(text)
        for _ in range(5):
            stream = server.connection()
            while (
                found := ask(stream, "POST", "/mcp?session=1", token, rpc("initialize", **_GREETING))[0]
            ).status == 503:
                time.sleep(0.1)  # others are idle, and end soon
            session = {**_STREAM, "mcp-session-id": found.headers["mcp-session-id"]}
            stream.request("GET", "/mcp", headers={**session, "authorization": f"Bearer {token}"})
            stack.callback(stream.close)
        yield


def test_kx_14_a_server_answers_thousands_and_its_memory_stays_level(
    campaign: Campaign, base: Path, tmp_path: Path
) -> None:
    calls, statuses = campaign.pick(1_500, 10_000), Counter[tuple[str, int]]()
    chance = campaign.random("load")
    with served(base, "serve", "--max-sessions", "40", "--session-idle", "1", log=tmp_path / "log") as server:
        token = Path(server.told["token"]).read_text().strip()
        connection = server.connection()

        def use(count: int) -> None:
            nonlocal connection
            for number in range(count):
                method, route, body = chance.choice(ASKED)
                statuses[route, ask(connection, method, route, token, body)[0].status] += 1
                if number % 97 == 0:  # some go before they are answered, and some send too much
                    connection.request("POST", "/mcp", json.dumps(call("list", type="Note")), {"authorization": token})
                    connection.close()
                    connection = server.connection()
                if number % 301 == 0:
                    assert large(server, token) == 413

        with left_behind(server, token):
            use(calls // 3)
        before = server.memory_kib
        with left_behind(server, token):
            use(calls // 3)
        between = server.memory_kib
        with left_behind(server, token):
            use(calls - 2 * (calls // 3))
            assert (
                ask(connection, "POST", *("/actions/get", token, {"type": "Note", "identity": "n7"}))[0].status == 200
            )
        after = server.memory_kib
        # Allocators give back late, once; what stays of each call adds up in every third.
        assert min(between - before, after - between) <= before / 20, (before, between, after)
    assert statuses["/mcp", 200] > calls / 4 and statuses["/actions/list", 200] > calls / 20
    assert not [one for one in statuses if one[1] >= 500 and one != ("/mcp?session=1", 503)], statuses
    campaign.count("calls of a server beside clients that hang", calls)
    campaign.count("memory of the server in KiB, after a third of them", before)
    campaign.count("memory of the server in KiB, at the end", after)


def large(server: Server, token: str) -> int:
    """The status of a body that is too large, which the server need not read to its end."""
    connection = server.connection()
    try:
        return ask(connection, "POST", "/mcp", token, LARGE)[0].status
    except (BrokenPipeError, ConnectionResetError):
        return 413
    finally:
        connection.close()
