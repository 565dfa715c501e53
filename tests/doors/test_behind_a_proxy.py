"""A server below a path of a proxy, and pages of other origins that ask it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from starlette.testclient import TestClient

from duckkb.server.application import BelowPath
from duckkb.server.web import site
from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.reading_room import ADDRESS, OWN, Room, proof, room
from tests.harness.servers import Server, ask, served

PATH, ORIGIN = "/kb", "https://app.example.org"
_ADDRESS = re.compile(r'(?:href|src|action|data-part|data-report|content)="(?:0;url=)?(/[^"]*)"')


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("proxy") / "kb", NOTES)
    told = "\n".join(json.dumps({"id": f"n{at}", "title": f"Ducks {at}"}) for at in range(12))
    assert run_in(root, ["put", "Note"], stdin=told).code == 0
    assert run_in(root, ["put", "cites", '{"from": "n1", "to": "n2"}']).code == 0
    commit(root)
    assert run_in(root, ["propose", "--branch", "topic", "put", "Note", '{"id": "n1", "title": "Geese"}']).code == 0
    return root


def proxy(opened: Room, *, takes_away: bool) -> Any:
    """What stands before a server: it has nothing but what lies below the path."""
    server = BelowPath(opened.app, PATH)

    async def pass_on(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(f"{PATH}/"), scope["path"]
            scope = {**scope, "path": scope["path"].removeprefix(PATH)} if takes_away else scope
        await server(scope, receive, send)

    return pass_on


@pytest.mark.long
@pytest.mark.parametrize("takes_away", [True, False])
def test_every_address_of_a_page_lies_below_the_path_of_the_proxy(base: Path, takes_away: bool) -> None:
    with room(base, edits=True) as opened:
        client = TestClient(proxy(opened, takes_away=takes_away), base_url=ADDRESS, follow_redirects=False)
        asked = client.get(f"{PATH}/web/records")
        assert asked.headers["location"] == f"{PATH}/web/sign-in?next=%2Fkb%2Fweb%2Frecords"
        given = {
            "token": opened.token,
            "proof": proof(client, asked.headers["location"]),
            "next": f"{PATH}/web/records",
        }
        entered = client.post(f"{PATH}/web/sign-in", data=given, headers=OWN)
        assert (
            entered.headers["location"] == f"{PATH}/web/records"
            and f"Path={PATH}/web;" in entered.headers["set-cookie"]
        )
        assert client.get(f"{PATH}/").headers["location"] == f"{PATH}/web/search"
        query = {"type": "Note", "id": "n1", "name": "title", "q": "ducks", "branch": "topic"}
        seen: set[str] = set()
        for page in (*site.PAGES, *site._EDITING):
            answer = client.get(f"{PATH}/web/{page.address}", params=query)
            assert answer.status_code < 500, (page.address, answer.text)
            seen.update(_ADDRESS.findall(answer.text))
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        seen.update(_ADDRESS.findall(client.get(f"{PATH}/web/search", headers=link).text))
        assert len(seen) > 50 and [one for one in seen if not one.startswith(f"{PATH}/web/")] == []
        for address in seen:
            assert client.get(address.replace("&amp;", "&")).status_code in (200, 303, 404, 405), address
        sent = {"theme": "dark", "next": f"{PATH}/web/health", "proof": proof(client, f"{PATH}/web/search")}
        chosen = client.post(f"{PATH}/web/preferences", data=sent, headers=OWN)
        assert (
            chosen.headers["location"] == f"{PATH}/web/health" and f"Path={PATH}/web;" in chosen.headers["set-cookie"]
        )


@pytest.fixture(scope="module")
def server(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "log"
    with served(base, "serve", "--root-path", f"{PATH}/", "--allow-origin", ORIGIN, log=log) as found:
        yield found


def test_programs_find_the_server_below_the_path_and_at_its_root(server: Server) -> None:
    assert server.told["url"] == f"http://127.0.0.1:{server.port}{PATH}"
    token = Path(str(server.told["token"])).read_text("utf-8").strip()
    connection = server.connection()
    for path in (PATH, ""):
        _, document = ask(connection, "GET", f"{path}/openapi.json")
        assert json.loads(document)["servers"] == [{"url": PATH}]
        found, body = ask(connection, "POST", f"{path}/actions/find", token, {"type": "Note", "query": "ducks"})
        assert found.status == 200 and len(json.loads(body)["results"]) == 10
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        found, body = ask(connection, "POST", f"{path}/mcp", token, call)
        assert found.status == 200 and b'"find"' in body
    _, measures = ask(connection, "GET", f"{PATH}/metrics", token)
    assert b'duckkb_http_requests_total{method="POST",route="/mcp",status="200"} 2.0' in measures


def test_a_request_that_is_refused_counts_under_its_route(server: Server) -> None:
    token = Path(str(server.told["token"])).read_text("utf-8").strip()
    refused, _ = ask(server.connection(), "POST", f"{PATH}/actions/types", "", {})
    _, measures = ask(server.connection(), "GET", f"{PATH}/metrics", token)
    assert refused.status == 401
    assert b'duckkb_http_requests_total{method="POST",route="/actions",status="401"} 1.0' in measures


def test_pages_of_an_origin_that_is_allowed_read_answers_and_those_of_others_do_not(
    server: Server, base: Path, tmp_path: Path
) -> None:
    token = Path(str(server.told["token"])).read_text("utf-8").strip()
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}

    def answered(at: Server, origin: str, route: str, method: str = "OPTIONS") -> tuple[int, str | None]:
        given = {"origin": origin, **(asks if method == "OPTIONS" else {})}
        body = {"type": "Note", "query": "ducks"} if method == "POST" else None
        found, _ = ask(at.connection(), method, route, token if method == "POST" else "", body, given)
        return found.status, found.getheader("access-control-allow-origin")

    for route in ("/actions/find", "/mcp", "/query"):
        assert answered(server, ORIGIN, PATH + route) == (200, ORIGIN)
        assert answered(server, "https://evil.example", PATH + route)[1] is None
    assert answered(server, ORIGIN, f"{PATH}/actions/find", "POST") == (200, ORIGIN)
    assert answered(server, "https://evil.example", f"{PATH}/actions/find", "POST") == (403, None)
    assert answered(server, f"{ORIGIN}.evil.example", f"{PATH}/actions/find", "POST") == (403, None)
    assert answered(server, ORIGIN, f"{PATH}/web/search", "GET") == (403, None), "what people are shown is theirs"
    with served(base, "serve", log=tmp_path / "log") as closed:
        assert answered(closed, ORIGIN, "/actions/find")[1] is None
        assert answered(closed, ORIGIN, "/actions/find", "POST") == (403, None)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("--root-path", one) for one in ("kb", "/kb?x", "/a b", "//kb", "/web", "/mcp/kb", "https://example.org/kb")]
    + [
        ("--allow-origin", one)
        for one in ("*", "null", "app.example.org", "https://app.example.org/x", "ftp://a.example")
    ],
)
def test_what_is_no_path_and_no_origin_is_refused(base: Path, option: str, wrong: str) -> None:
    ran = run_in(base, ["serve", "--port", "0", option, wrong])
    assert ran.code == 2 and option in ran.err and wrong in ran.err
