"""Who has no right token: counted, sampled in a log of its own, and kept waiting, while everybody else is answered as ever."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.server.authentication import BearerTokens, Denial, Noted
from duckkb.server.server_log import Strangers
from duckkb.server.tenant_files import TenantFiles
from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.servers import Server, ask, served

_WRONG = "0" * 64


def _base(root: Path) -> str:
    """A base, and the token of a viewer."""
    make_base(root, NOTES)
    assert run_in(root, ["put", "Note", '{"id": "n1", "title": "ducks"}']).code == 0
    commit(root)
    token: str = run_in(root, ["tenant", "add", "ann", "Note", "--json"]).line["token"]
    return token


def _requests(log: Path) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "request"]


@pytest.mark.long
def test_requests_without_a_token_push_no_decision_out_and_are_counted_by_address(tmp_path: Path) -> None:
    root, log = tmp_path / "kb", tmp_path / "log"
    token = _base(root)
    with served(root, "serve", "--metrics-open", log=log) as server:
        connection, given = server.connection(), {"type": "Note", "identity": "n1"}
        assert ask(connection, "POST", "/actions/get", token, given)[0].status == 200
        for _ in range(200):
            assert ask(connection, "POST", "/actions/get", "", given)[0].status == 401
        behind_a_proxy = {"x-forwarded-for": "203.0.113.9, 198.51.100.7"}
        assert ask(connection, "POST", "/actions/get", token, given, behind_a_proxy)[0].status == 200
        measures = ask(connection, "GET", "/metrics")[1].decode()
    assert 'duckkb_refusals_total{code="E_TOKEN"} 200.0' in measures.splitlines()
    told = run_in(root, ["tenant", "status", "--audit", "1000", "--json"]).line
    decided = [(one["tenant"], one["outcome"], one["address"]) for one in told["decisions"]]
    assert decided[-2:] == [("ann", "allowed", "127.0.0.1"), ("ann", "allowed", "198.51.100.7")]
    assert "E_TOKEN" not in {outcome for _, outcome, _ in decided}
    assert {(one["outcome"], one["address"]) for one in told["refusals"]} == {("E_TOKEN", "127.0.0.1")}
    assert 0 < len(told["refusals"]) < 200
    assert {line["address"] for line in _requests(log)} == {"127.0.0.1", "198.51.100.7"}


def test_a_client_that_is_no_proxy_is_not_believed_about_its_address(tmp_path: Path) -> None:
    root, log = tmp_path / "kb", tmp_path / "log"
    token = _base(root)
    with served(root, "serve", "--forwarded-allow-ips", "10.0.0.0/8", log=log) as server:
        forged = {"x-forwarded-for": "198.51.100.7"}
        assert ask(server.connection(), "POST", "/actions/types", token, {}, forged)[0].status == 200
    assert {line["address"] for line in _requests(log)} == {"127.0.0.1"}
    wrong = run_in(root, ["serve", "--port", "0", "--forwarded-allow-ips", "proxy.example.org", "--json"])
    assert wrong.code == 2 and "proxy.example.org" in str(wrong.error)


@pytest.mark.long
@pytest.mark.parametrize("verb", [["serve"], ["mcp", "--http"]], ids=" ".join)
def test_a_proxy_names_the_tenant_that_asks_and_nobody_else_does(tmp_path: Path, verb: list[str]) -> None:
    root, log = tmp_path / "kb", tmp_path / "log"
    token = _base(root)
    run_in(root, ["tenant", "add", "off"])
    run_in(root, ["tenant", "disable", "off"])

    def status(server: Any, token: str = "", path: str = "/actions/types", **headers: str) -> int:
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        return ask(server.connection(), "POST", path, token, {}, headers)[0].status

    with served(root, *verb, "--auth-header", "X-User", log=log) as server:
        assert status(server, x_user="ann", x_forwarded_for="198.51.100.7") == 200
        assert [status(server, x_user=name) for name in ("nobody", "off", "", "ann,ann")] == [403] * 4
        assert [status(server), status(server, token)] == [401, 200]
    with served(root, *verb, "--auth-header", "X-User", "--forwarded-allow-ips", "10.0.0.0/8", log=log) as server:
        assert [status(server, token, x_user="ann"), status(server, token)] == [403, 200]
        assert status(server, x_user="ann", x_forwarded_for="10.0.0.7") == 403
    with served(root, *verb, log=log) as server:
        assert status(server, x_user="ann") == 401
    assert run_in(root, ["serve", "--port", "0", "--auth-header", "Authorization", "--json"]).code == 2


_PROOF = re.compile(rb'data-proof="([0-9a-f]{64})"')
_SESSION = re.compile("(duckkb-session-[^=]+)=([^;]+)")


class _Browser:
    """Asks for pages with the cookies that it was given, through a proxy that says who its user is: by one header, or by several."""

    def __init__(self, server: Server, *users: str) -> None:
        self._server, self.users, self.cookies = server, users, dict[str, str]()

    def ask(self, method: str, path: str, form: Mapping[str, str] = {}) -> tuple[int, bytes, str]:
        """The status of the answer, its body and where it leads."""
        connection, body = self._server.connection(), urlencode(form).encode()
        connection.putrequest(method, path)
        for user in self.users:
            connection.putheader("X-User", user)
        if self.cookies:
            connection.putheader("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        if method == "POST":
            connection.putheader("Sec-Fetch-Site", "same-origin")
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body if method == "POST" else None)
        answer = connection.getresponse()
        self.cookies.update(_SESSION.findall(answer.getheader("set-cookie") or ""))
        return answer.status, answer.read(), answer.getheader("location") or ""

    def proof(self, path: str) -> str:
        found = _PROOF.search(self.ask("GET", path)[1])
        assert found is not None
        return found[1].decode()

    def sends(self, proof: str) -> int:
        """The status of a form with that proof."""
        return self.ask("POST", "/web/preferences", {"proof": proof, "theme": "dark"})[0]


def _signed_in(server: Server, token: str) -> _Browser:
    browser = _Browser(server)
    proof = browser.proof("/web/sign-in")
    assert browser.ask("POST", "/web/sign-in", {"proof": proof, "token": token})[0] == 303
    return browser


def test_whom_a_proxy_names_sees_pages_without_signing_in_and_nobody_else_does(tmp_path: Path) -> None:
    root, log = tmp_path / "kb", tmp_path / "log"
    _base(root)
    token = run_in(root, ["tenant", "add", "boss", "--role", "admin", "--json"]).line["token"]
    run_in(root, ["tenant", "add", "off"])
    run_in(root, ["tenant", "disable", "off"])
    until = run_in(root, ["tenant", "add", "old", "--expires", "90d", "--json"]).line["expires"]
    tenants = TenantFiles.from_root(root).tenants
    tenants.write_text(tenants.read_text().replace(until, "2026-01-01T00:00:00Z"))
    record = "/web/record?type=Note&id=n1"
    with served(root, "serve", "--auth-header", "X-User", log=log) as server:
        status, page, _ = _Browser(server, "ann").ask("GET", record)
        assert status == 200 and b"ducks" in page and b"ann, signed in by the proxy" in page
        assert b"/web/sign-out" not in page
        assert _Browser(server, "ann").ask("GET", "/web/sign-in?next=/web/records")[::2] == (303, "/web/records")
        for users in (["nobody"], ["off"], ["old"], [""], ["ann", "ann"], ["ann,boss"], ["ann", "boss"]):
            status, page, _ = _Browser(server, *users).ask("GET", record)
            assert status == 403 and b"ducks" not in page and b"<h1>That did not work</h1>" in page, users
        assert _Browser(server).ask("GET", record)[2].startswith("/web/sign-in?")
        assert _signed_in(server, token).ask("GET", record)[0] == 200
    with served(root, "serve", "--auth-header", "X-User", "--forwarded-allow-ips", "10.0.0.0/8", log=log) as server:
        assert _Browser(server, "ann").ask("GET", record)[2].startswith("/web/sign-in?")
        forging = _signed_in(server, token)
        forging.users = ("ann",)
        assert b"ann, signed in" not in forging.ask("GET", record)[1]


def test_a_form_is_taken_from_the_tenant_whom_the_proxy_names_with_a_page_of_that_tenant_alone(tmp_path: Path) -> None:
    root, log = tmp_path / "kb", tmp_path / "log"
    token = _base(root)
    run_in(root, ["tenant", "add", "bob", "Note"])
    with served(root, "serve", "--auth-header", "X-User", log=log) as server:
        ann, bob, both = _Browser(server, "ann"), _Browser(server, "bob"), _Browser(server, "ann")
        proof, of_bob = ann.proof("/web/search"), bob.proof("/web/search")
        assert [ann.sends(proof), ann.sends(of_bob), bob.sends(of_bob)] == [303, 403, 303]
        assert [ann.proof("/web/search"), _Browser(server, "ann").sends(proof)] == [proof, 403]
        both.cookies = dict(bob.cookies)  # as where bob used this browser before
        assert both.sends(of_bob) == 403 and both.proof("/web/search") != of_bob
        assert both.cookies != bob.cookies and both.sends(both.proof("/web/search")) == 303
        signed_in = _signed_in(server, token)
        names, own = dict(signed_in.cookies), signed_in.proof("/web/search")
        signed_in.users = ("bob",)
        assert signed_in.sends(own) == 403 and signed_in.cookies != names
        assert b"bob, signed in by the proxy" in signed_in.ask("GET", "/web/search")[1]
        signed_in.users = ()  # what a browser holds of a proxy's user signs nobody in
        assert signed_in.ask("GET", "/web/search")[2].startswith("/web/sign-in?")
        status, page, _ = ann.ask("POST", "/web/sign-out", {"proof": proof})
        assert status == 403 and b"a proxy signed you in" in page and ann.sends(proof) == 303


class _Waiting:
    """Strangers whose time passes when they wait, and by hand."""

    def __init__(self, root: Path) -> None:
        self.now, self.waited = 1_000.0, list[float]()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.strangers = Strangers(BearerTokens(root), clock=lambda: self.now, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        await self.goes_on.wait()

    async def refuse(self, address: str, status: Any = 403) -> bool:
        """Whether the refusal is told as it is."""
        denial = Denial(status, "E_DENIED", "no")
        return await self.strangers.refuse(denial, "http /query", Noted(address=address)) is None


def _played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(play())


def test_wrong_tokens_of_an_address_are_answered_ever_later_until_it_was_quiet(tmp_path: Path) -> None:
    async def play() -> None:
        waiting = _Waiting(make_base(tmp_path / "kb", NOTES))
        for _ in range(10):
            assert await waiting.refuse("203.0.113.9") and await waiting.refuse("203.0.113.9", 401)
        assert waiting.waited == []
        for _ in range(8):
            assert await waiting.refuse("203.0.113.9")
        assert waiting.waited == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]
        assert await waiting.refuse("198.51.100.7") and len(waiting.waited) == 8
        waiting.now += 601
        assert await waiting.refuse("203.0.113.9") and len(waiting.waited) == 8

    _played(play)


def test_few_answers_are_held_back_at_once_and_addresses_of_one_network_count_as_one(tmp_path: Path) -> None:
    async def play() -> None:
        waiting = _Waiting(make_base(tmp_path / "kb", NOTES))
        for number in range(10):
            assert await waiting.refuse(f"2001:db8::{number:x}")
        waiting.goes_on.clear()
        held = [asyncio.ensure_future(waiting.refuse(f"2001:db8::{number:x}")) for number in range(20, 24)]
        while len(waiting.waited) < 4:
            await asyncio.sleep(0)
        assert not await waiting.refuse("2001:db8::ff"), "told to come again"
        waiting.goes_on.set()
        assert await asyncio.gather(*held) == [True] * 4

    _played(play)


def test_what_is_kept_of_addresses_and_written_of_refusals_is_bounded(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)

    async def play() -> None:
        waiting = _Waiting(root)
        for number in range(5_000):
            assert await waiting.refuse(f"10.0.{number // 250}.{number % 250}")
        assert len(vars(waiting.strangers)["_addresses"]) == 4_096

    _played(play)
    refusals = run_in(root, ["tenant", "status", "--audit", "10000", "--json"]).line["refusals"]
    assert len(refusals) == 60
