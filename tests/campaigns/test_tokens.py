"""Tokens of a served base: one that lets nobody in any longer does so from the very next request on, whatever else is asked
meanwhile; and no token, and no hash of one, is told or stored anywhere but where it is kept."""

import base64
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.server import tenant_changes
from duckkb.server.tenant_files import TenantFiles
from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.servers import Server, ask, served

PIECE = 12
GIVEN = "server-token-9b1f0c77-not-to-be-seen-in-any-place-at-all"
NOTE = {"type": "Note", "identity": "n1"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get", "arguments": NOTE}}
DOORS = (("/actions/get", NOTE), ("/mcp", CALL))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["put", "Note", '{"id":"n1","title":"ducks"}']).code == 0
    assert run_in(root, ["put", "Person", '{"country":"cn","number":1,"name":"Ann"}']).code == 0
    commit(root)
    return root


class Load:
    """Clients that ask all the time, with tokens that count and with those that do no longer."""

    def __init__(self, server: Server, good: list[str]) -> None:
        self.good, self.retired, self.wrong = good, list[str](), list[tuple[str, int]]()
        self.asked, self._server, self._over = 0, server, threading.Event()

    @contextmanager
    def running(self, clients: int) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._over.set()
            for one in threads:
                one.join()

    def _ask(self, number: int) -> None:
        connection = self._server.connection()
        while not self._over.is_set():
            self.asked += 1
            retired = [*self.retired]  # before the request begins
            token = retired[-1 - self.asked % len(retired)] if retired and self.asked % 2 else self.good[number]
            expected = 403 if token in retired else 200
            status = ask(connection, "POST", *_with(token, self.asked))[0].status
            if status not in (expected, 429):
                self.wrong.append((token[:6], status))


def _with(token: str, number: int) -> tuple[str, str, object]:
    route, body = DOORS[number % len(DOORS)]
    return route, token, body


def test_kx_10_what_is_taken_away_is_gone_from_the_next_request_on_under_load(
    campaign: Campaign, base: Path, tmp_path: Path
) -> None:
    good = [tenant_changes.add(base, f"load{number}", ["Note"])["token"] for number in range(4)]
    chance, token = campaign.random("tokens"), tenant_changes.add(base, "ann", ["Note"])["token"]
    rounds = campaign.pick(25, 400)
    with served(base, log=tmp_path / "log") as server:
        load = Load(server, good)
        with load.running(len(good)):
            connection = server.connection()
            for number in range(rounds):
                door = DOORS[number % len(DOORS)][0]
                match chance.choice(["rotate", "disable", "remove", "revoke"]):
                    case "rotate":
                        other = tenant_changes.rotate(base, "ann")["token"]
                        load.retired.append(token)
                        assert _statuses(connection, number, token, other) in ([403, 200], [429, 200]), door
                        token = other
                    case "disable":
                        tenant_changes.switch(base, "ann", disabled=True)
                        assert _statuses(connection, number, token) in ([403], [429]), door
                        tenant_changes.switch(base, "ann", disabled=False)
                        assert _statuses(connection, number, token) == [200], door
                    case "remove":
                        tenant_changes.remove(base, "ann")
                        load.retired.append(token)
                        assert _statuses(connection, number, token) in ([403], [429]), door
                        token = tenant_changes.add(base, "ann", ["Note"])["token"]
                    case "revoke":
                        tenant_changes.revoke(base, "ann", ["Note"])
                        assert b"E_UNKNOWN_TYPE" in ask(connection, "POST", *_with(token, number))[1], door
                        tenant_changes.grant(base, "ann", ["Note"])
                        assert b"ducks" in ask(connection, "POST", *_with(token, number))[1], door
        assert load.wrong == []
        assert load.asked > rounds
    campaign.count("changes of tokens under load", rounds)
    campaign.count("requests beside them", load.asked)


def _statuses(connection: HTTPConnection, number: int, *tokens: str) -> list[int]:
    return [ask(connection, "POST", *_with(token, number))[0].status for token in tokens]


def _pieces(*secrets: str) -> set[bytes]:
    """Each long enough that nobody else says it, of the secret as it is and in other spellings."""
    spelled = {
        form
        for one in secrets
        for form in (one, one.upper(), one[::-1], base64.b64encode(one.encode()).decode(), quote(one, safe=""))
    }
    return {one[at : at + PIECE].encode() for one in spelled for at in range(len(one) - PIECE + 1)}


def _found(pieces: set[bytes], data: bytes) -> bool:
    return any(data[at : at + PIECE] in pieces for at in range(len(data) - PIECE + 1))


def _hostile(token: str) -> list[tuple[str, str, object, dict[str, str]]]:
    """Requests with a token where none belongs: method, route, body and headers."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    names = [
        "x-request-id",
        "traceparent",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "cookie",
    ]
    names += ["x-timeout-ms", "host", "origin", "accept", "content-type", "x-forwarded-for", "user-agent", "referer"]
    sent: list[tuple[str, str, object, dict[str, str]]] = [("POST", "/mcp", call, {name: token}) for name in names]
    sent += [("POST", "/mcp", call, {name: token[:40]}) for name in names[1:]]  # a name of a request is as long
    for header in (f"Basic {token}", f"Bearer {token} ", f"Bearer {token[:-1]}", f"Bearer {token.upper()}", token):
        sent += [("POST", route, body, {"authorization": header}) for route, body in DOORS]
    sent += [
        ("POST", f"/mcp?token={token}", call, {}),
        ("GET", f"/{token}", None, {}),
        (token[:30].upper(), "/mcp", None, {}),
    ]
    sent += [("POST", f"/actions/{token}", {}, {}), ("GET", f"/actions/get?{token}={token}", None, {})]
    sent += [("POST", "/actions/find", {"type": token, "query": token}, {}), ("POST", "/actions/get", {token: 1}, {})]
    sent += [("POST", "/actions/get", {**NOTE, "identity": token}, {}), ("POST", "/query", token.encode(), {})]
    sent += [("POST", "/mcp", {**call, "id": token}, {}), ("POST", "/mcp", {**call, "method": token}, {})]
    sent += [("POST", "/actions/sql", {"statement": f"SELECT '{token}' FROM {token[:20]}"}, {})]
    return sent


def test_kx_10_no_token_and_no_hash_is_told_or_stored(
    campaign: Campaign, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what a client itself sent in a body its own answer may speak; of nothing else, and nothing that is written down."""
    monkeypatch.setenv("DUCKKB_MCP_TOKEN", GIVEN)
    secrets, answers = [GIVEN], list[bytes]()

    def use(server: Server, token: str) -> None:
        connection = server.connection()
        for route, body in DOORS:
            answers.append(ask(connection, "POST", route, token, body)[1])
        for method, route, body, headers in _hostile(token):
            found, told = ask(
                server.connection(), method, route, "" if "authorization" in headers else token, body, headers
            )
            answers.append(str(found.getheaders()).encode())
            if not (isinstance(body, dict | bytes) and token in str(body)):
                answers.append(told)
            campaign.count("requests with a token where none belongs")
        for address in ("/metrics", "/openapi.json"):  # wrong tokens wait: the first connection has been idle too long
            answers.append(ask(server.connection(), "GET", address, token)[1])

    with served(base, log=tmp_path / "log-of-server") as server:
        use(server, GIVEN)
        for name, args in (("ann", ["Note"]), ("boss", ["--role", "admin"])):
            secrets.append(run_in(base, ["tenant", "add", name, *args, "--json"]).line["token"])
            use(server, secrets[-1])
        secrets.append(run_in(base, ["tenant", "rotate", "ann", "--json"]).line["token"])
        use(server, secrets[-1])
        use(server, secrets[1])
        command_line = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        answers += [
            command_line,
            *(
                one.encode()
                for args in (["status", "--audit", "99"], ["list"], ["show", "ann"])
                for one in _said(base, args)
            ),
        ]
    hashes = [hashlib.sha256(one.encode()).hexdigest() for one in secrets]
    pieces, kept = _pieces(*secrets, *hashes), TenantFiles.from_root(base)
    assert [one for one in answers if _found(pieces, one)] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    holding = {path for path in files if _found(pieces, path.read_bytes())}
    assert (tmp_path / "log-of-server").read_text().count("\n") > 100, "requests are logged"
    assert holding == {kept.tenants}, "the hashes that count, and the control: what is kept is found"
    assert not _found(_pieces(*secrets, hashes[1]), kept.tenants.read_bytes()), (
        "no token, and no hash of one that is gone"
    )


def _said(base: Path, args: list[str]) -> tuple[str, str]:
    ran = run_in(base, ["tenant", *args, "--json"])
    assert ran.code == 0, ran.err
    return ran.out, ran.err
