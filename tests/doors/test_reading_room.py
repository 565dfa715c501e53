"""The pages of `duckkb serve`: who is let in and from where, that they show what actions answer and no more, and that records change
nothing outside of their box."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from duckkb.server import tenant_changes
from duckkb.server.web import site, templates
from duckkb.server.web.templates import LANGUAGES, words
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.reading_room import OWN, Elements, Room, harmless, hits, proof, room, told

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> ‮drawkcab⁦ \"'`${1+1}{{7*7}}"
MARKDOWN = (
    "# head\n\n[click](javascript:alert(1)) [data](data:text/html;base64,PHNjcmlwdD4=) [fine](https://example.org/a?b=1&c=2)\n\n"
    "![picture](https://tracker.example/x.png) <b onclick=alert(1)>raw</b>\n\n<javascript:alert(1)> [ref]\n\n[ref]: vbscript:x\n\n"
    "| a | b |\n|---|---|\n| <script>1</script> | **bold** |\n"
)
ODD = ["../../etc/passwd", "a/b?c=d&e#f", "q\"'<>", "%2e%2e", "零 一", "-rf"]
NEVER = "the tenant never sees this"
SECRET = """\
  Secret:
    table: secret
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}, required: [id]}
    search: {full_text: [text]}
"""
CONFIG = NOTES.replace("edges:\n", SECRET + "edges:\n")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("room") / "kb", CONFIG)
    notes: list[dict[str, Any]] = [
        {"id": "n1", "title": "Ducks swim", "text": "Ducks swim in ponds. 鸭子会游泳。", "status": "draft", "size": 3, "tags": ["bird", "水"]},
        {"id": "n2", "title": "Geese fly", "text": "Geese fly far; ducks less so. See duckkb://Note/n1@HEAD.", "status": "final", "size": 9},
        {"id": "evil", "title": EVIL, "text": MARKDOWN + EVIL, "tags": [EVIL]},
        {"id": "long", "title": "Long", "text": "word " * 100_000},
        {"id": "deep", "title": "Deep", "text": "x", "more": {"a": [{"b": {"c": [[[[[[[[EVIL]]]]]]]]}}], EVIL: EVIL}},
        *({"id": one, "title": f"odd {at}"} for at, one in enumerate(ODD)),
    ]  # fmt: skip
    edges = [{"from": "n2", "to": "n1", "why": "both swim"}, {"from": "evil", "to": "n1", "why": EVIL}]
    for type, records in (("Note", notes), ("cites", edges), ("Secret", [{"id": "s1", "text": f"ducks {NEVER}"}])):
        assert run_in(root, ["put", type], stdin="\n".join(map(json.dumps, records))).code == 0
    commit(root, "all of it")
    assert run_in(root, ["put", "Note", json.dumps({"id": "n1", "text": "Ducks swim in lakes."}), "--merge"]).code == 0
    commit(root, "lakes")
    return root


@pytest.fixture(scope="module")
def open_room(base: Path) -> Iterator[Room]:
    with room(base) as opened:
        yield opened


def record(id: str, page: str = "record", **more: str) -> tuple[str, dict[str, str]]:
    return f"/web/{page}", {"type": "Note", "id": id, **more}


def test_who_is_not_signed_in_sees_the_page_that_asks_for_a_token_and_no_other(open_room: Room) -> None:
    client = open_room.visitor()
    for page in site.PAGES:
        answer = client.get(f"/web/{page.address}", params={"type": "Note", "id": "n1", "q": "ducks"})
        assert answer.status_code == 303 and answer.headers["location"].startswith("/web/sign-in?next=")
        assert "Ducks" not in answer.text
    assert client.get("/").headers["location"] == "/web/search"  # signed in or not: no cookie comes to `/`
    assert client.post("/web/search").status_code == 403
    asked = client.get("/web/sign-in")
    assert asked.status_code == 200 and harmless(asked.text).of("input")


def test_a_token_becomes_a_cookie_that_scripts_cannot_read_and_that_is_not_the_token(open_room: Room) -> None:
    client = open_room.visitor()
    given = {"token": open_room.token, "proof": proof(client), "next": "/web/search?q=ducks"}
    answer = client.post("/web/sign-in", data=given, headers=OWN)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303 and answer.headers["location"] == "/web/search?q=ducks"
    assert all(one in cookie for one in ("HttpOnly", "SameSite=strict", "Path=/web")) and "Secure" not in cookie
    assert open_room.token not in cookie and open_room.token not in repr(vars(open_room.sessions))
    assert "Ducks swim" in client.get("/web/search", params={"q": "ducks"}).text
    followed = client.get("/web/sign-out")  # as by a link in a record
    assert followed.headers["location"] == "/web/search" and "set-cookie" not in followed.headers
    assert client.get("/web/search").status_code == 200
    assert client.post("/web/sign-out", data={"proof": proof(client)}, headers=OWN).status_code == 303
    assert client.get("/web/search").status_code == 303
    behind = client.post(
        "/web/sign-in", data=given | {"proof": proof(client)}, headers=OWN | {"x-forwarded-proto": "https"}
    )
    assert "Secure" in behind.headers["set-cookie"]


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/", "/web/../x", "\\\\evil", "/mcp", "/web/sign-out", ""]
)
def test_signing_in_leads_to_a_page_of_this_server(open_room: Room, target: str) -> None:
    client = open_room.visitor()
    given = {"token": open_room.token, "proof": proof(client), "next": target}
    location = client.post("/web/sign-in", data=given, headers=OWN).headers["location"]
    assert location.startswith("/web/") and "evil" not in location


def test_a_wrong_token_begins_no_session_and_is_written_down(base: Path, open_room: Room) -> None:
    client = open_room.visitor()
    for token, status in (("no-such-token", 403), ("", 401), ("with blanks in it", 401)):
        answer = client.post("/web/sign-in", data={"token": token, "proof": proof(client)}, headers=OWN)
        assert answer.status_code == status and "set-cookie" not in answer.headers
        assert not token or token not in answer.text
        assert client.get("/web/search").status_code == 303
    refusals = run_in(base, ["tenant", "status", "--audit", "50", "--json"]).line["refusals"]
    assert {("web sign-in", "E_DENIED"), ("web sign-in", "E_TOKEN")} <= {
        (one["action"], one["outcome"]) for one in refusals
    }


def test_pages_of_other_servers_may_ask_for_nothing_and_send_nothing(open_room: Room) -> None:
    client = open_room.signed_in()
    good = proof(client, "/web/search")
    sent = {"theme": "dark", "proof": good, "next": "/web/search"}
    assert client.post("/web/preferences", data=sent, headers=OWN).status_code == 303
    assert client.post("/web/preferences", data=sent | {"proof": ""}, headers=OWN).status_code == 403
    of_nobody = sent | {"proof": open_room.sessions.proof("")}
    assert open_room.visitor().post("/web/preferences", data=of_nobody, headers=OWN).status_code == 403
    assert (
        client.post("/web/preferences", data=sent | {"proof": proof(open_room.visitor())}, headers=OWN).status_code
        == 403
    )
    foreign: list[dict[str, str]] = [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this machine
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ]
    for headers in foreign:
        assert client.post("/web/preferences", data=sent, headers=headers).status_code == 403, headers
    for site_ in ("cross-site", "same-site"):
        fetched = client.get("/web/search?q=ducks", headers={"sec-fetch-site": site_, "sec-fetch-dest": "empty"})
        framed = client.get("/web/search?q=ducks", headers={"sec-fetch-site": site_, "sec-fetch-dest": "iframe"})
        assert (fetched.status_code, framed.status_code) == (403, 403)
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    followed = client.get('/web/search?q=du"cks', headers=link)
    assert (
        followed.status_code == 200 and "Ducks" not in followed.text
    )  # it asks again by itself, and says nothing before
    (again,) = [given for given in Elements(followed.text).of("meta") if "http-equiv" in given]
    assert str(again["content"]) in ("0;url=/web/search?q=du%22cks", '0;url=/web/search?q=du"cks')


def test_a_session_ends_with_its_token_by_the_next_request(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", CONFIG)
    assert run_in(root, ["put", "Note", json.dumps({"id": "n1", "title": "ducks"})]).code == 0
    tokens = {one: tenant_changes.add(root, one, ["Note"])["token"] for one in ("ann", "bo", "cy", "di")}
    with room(root) as opened:
        clients = {one: opened.signed_in(token) for one, token in tokens.items()}
        assert all("ducks" in one.get("/web/search?q=ducks").text for one in clients.values())
        tenant_changes.rotate(root, "ann")
        tenant_changes.switch(root, "bo", disabled=True)
        tenant_changes.remove(root, "cy")
        tenant_changes.revoke(root, "di", ["Note"])
        assert [clients[one].get("/web/search?q=ducks").status_code for one in ("ann", "bo", "cy")] == [303] * 3
        seen = clients["di"].get("/web/records")
        assert seen.status_code == 200 and "Note" not in Elements(seen.text).text
        tenant_changes.switch(root, "bo", disabled=False)  # the session ended; it does not come back
        assert clients["bo"].get("/web/search").status_code == 303
        assert opened.visitor().get("/web/open", params={"code": opened.sessions.code()}).status_code == 303


def test_an_address_signs_in_once(open_room: Room) -> None:
    code, client = open_room.sessions.code(), open_room.visitor()
    assert client.get("/web/open", params={"code": code}).headers["location"] == "/web/search"
    assert client.get("/web/search").status_code == 200
    other = open_room.visitor()
    again = other.get("/web/open", params={"code": code})
    assert again.headers["location"] == "/web/sign-in?problem=code" and other.get("/web/search").status_code == 303
    assert "alert" in other.get("/web/sign-in?problem=code").text


def test_every_answer_has_the_policy_and_no_page_is_kept(open_room: Room) -> None:
    client = open_room.signed_in()
    paths = [
        "/web/search?q=ducks",
        "/web/record?type=Note&id=none",
        "/web/nowhere",
        "/",
        "/web/static/x/page.css",
        "/web/sign-in",
    ]
    for path in paths:
        headers = client.get(path).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff" and headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store", path
    for name in templates.files():
        answer = client.get(templates.static("/web", name))
        assert "immutable" in answer.headers["cache-control"] and answer.content == templates.files()[name]
        held = client.get(templates.static("/web", name), headers={"if-none-match": answer.headers["etag"]})
        assert held.status_code == 304 and not held.content
    assert client.get(templates.static("/web", "..%2Fsite.py")).status_code == 404


def test_search_shows_what_the_action_answers(base: Path, open_room: Room) -> None:
    client = open_room.signed_in()
    with duckkb.open(base) as kb:
        for given in (
            {"type": "all", "query": "ducks"},
            {"type": "Note", "query": "ducks swim", "mode": "match", "where": "size > 2"},
            {"type": "Note", "where": "status = 'final'"},
        ):
            found = kb.run("find", given | {"limit": 10})["results"]
            asked = {"q": given.get("query", ""), **{name: one for name, one in given.items() if name != "query"}}
            page = client.get("/web/search", params=asked).text
            assert len(found) > 0
            assert hits(page) == [f"/web/record?type={one['_type']}&id={one['id']}" for one in found]
    page = client.get("/web/search?q=swimming&type=Note").text
    assert "<mark>swim</mark>" in page and 'class="lane"' in page
    assert "find Note swimming --limit 10 --explain" in Elements(page).text


def test_the_fields_of_a_type_are_a_filter(base: Path, open_room: Room) -> None:
    client = open_room.signed_in()
    form = harmless(client.get("/web/search?type=Note").text)
    names = [given.get("name") for tag in ("select", "input") for given in form.of(tag)]
    assert {"f.status", "f.size", "f.size.to", "f.title", "f.tags"} <= set(names)
    for asked, wanted in (
        ({"f.status": "final"}, ["n2"]),
        ({"f.size": "2", "f.size.to": "4"}, ["n1"]),
        ({"f.title": "DUCKS"}, ["n1"]),
        ({"f.tags": "水"}, ["n1"]),
        ({"f.title": "O'Hara' OR '1'='1"}, []),
        ({"f.status": "final", "where": "size < 5 OR size > 8"}, ["n2"]),
    ):
        page = client.get("/web/search", params={"type": "Note", **asked})
        assert page.status_code == 200, page.text
        assert [one.rpartition("=")[2] for one in hits(page.text)] == wanted, asked


def test_what_is_wrong_with_a_question_stands_on_the_page(open_room: Room) -> None:
    client = open_room.signed_in()
    for asked, code, status in (
        ({"q": "x", "type": "Nota"}, "E_UNKNOWN_TYPE", 404),
        ({"q": "x", "where": "nonsense ("}, "E_FILTER", 400),
        ({"q": "x", "mode": "similar", "type": "Note"}, "E_INTENT", 400),
        ({"q": "x", "type": "Note", "f.size": "three"}, "three", 400),
        ({"q": "x", "type": "Note", "f.size.to": "1,000"}, "1,000", 400),
        ({"q": "x", "type": "Note", "f.status": "finished"}, "finished", 400),
    ):
        answer = client.get("/web/search", params=asked)
        assert (answer.status_code, code in harmless(answer.text).text) == (status, True), asked
        inputs = {given.get("name"): given.get("value") for given in Elements(answer.text).of("input")}
        typed = {name: value for name, value in asked.items() if name not in ("type", "mode", "f.status")}
        assert code == "E_UNKNOWN_TYPE" or {name: inputs[name] for name in typed} == typed, (
            "the form keeps what was typed"
        )
        part = client.get("/web/search", params=asked | {"part": "1"})
        assert code in part.text and "<html" not in part.text


def test_hits_are_paged(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    lines = [json.dumps({"id": f"n{at:03}", "title": f"duck {at}"}) for at in range(57)]
    assert run_in(root, ["put", "Note"], stdin="\n".join(lines)).code == 0
    with room(root) as opened:
        client = opened.signed_in()
        seen, path = [], "/web/search?q=duck&limit=20"
        while path:
            page = Elements(client.get(path).text)
            seen += [str(one["href"]) for one in page.of("a") if "data-open" in one]
            path = next((str(one["href"]) for one in page.of("a") if one.get("rel") == "next"), "")
        assert len(seen) == len(set(seen)) == 57
        listed, path = [], "/web/records?type=Note"
        while path:
            page = Elements(client.get(path).text)
            listed += [str(one["href"]) for one in page.of("a") if "data-open" in one]
            path = next((str(one["href"]) for one in page.of("a") if one.get("rel") == "next"), "")
        assert listed == [f"/web/record?type=Note&id=n{at:03}" for at in range(57)]


def test_a_record_shows_its_fields_and_what_it_is_joined_to(base: Path, open_room: Room) -> None:
    client = open_room.signed_in()
    path, given = record("n1")
    page = harmless(client.get(path, params=given).text)
    for said in ("Ducks swim", "lakes", "draft", "bird", "水", "n1"):
        assert said in page.text
    edges = harmless(client.get("/web/record/edges", params=given).text)
    assert "both swim" in edges.text and [one["href"] for one in edges.of("a") if "data-open" in one] == [
        "/web/record?type=Note&id=evil",
        "/web/record?type=Note&id=n2",
    ]
    drawn = client.get("/web/record/picture", params=given).json()
    assert {(drawn["nodes"][one["from"]]["id"], drawn["nodes"][one["to"]]["id"]) for one in drawn["edges"]} == {
        ("n2", "n1"),
        ("evil", "n1"),
    }
    citing = harmless(client.get("/web/record/citing", params=given).text)
    assert [one["href"] for one in citing.of("a") if "data-open" in one] == ["/web/record?type=Note&id=n2"]
    edge = client.get("/web/record", params={"type": "cites", "id": '["n2","n1"]'})
    assert edge.status_code == 200 and "both swim" in edge.text and "/web/record?type=Note&amp;id=n2" in edge.text


def test_a_record_is_called_the_same_on_every_page(tmp_path: Path) -> None:
    config = NOTES.replace("    identity: id\n", "    identity: id\n    display: [status, title]\n", 1)
    root = make_base(tmp_path / "kb", config)
    commit(root)
    notes = [
        {"id": "n1", "title": "ducks", "text": "See duckkb://Note/n2.", "status": "draft"},
        {"id": "n2", "title": "ducks", "text": "x", "status": "final"},
        {"id": "n3", "title": "鸭子", "text": "ducks"},
    ]
    for type, records in (("Note", notes), ("cites", [{"from": "n1", "to": "n2"}])):
        assert run_in(root, ["put", type], stdin="\n".join(map(json.dumps, records))).code == 0
    with room(root) as opened:
        client = opened.signed_in()

        def titles(path: str, **given: str) -> dict[str, str]:
            pattern = r'data-open href="[^"]*id=(\w+)"[^>]*>([^<]*)</a>'
            return dict(re.findall(pattern, client.get(path, params={"type": "Note", **given}).text))

        known = {"n1": "draft", "n2": "final", "n3": "鸭子"}
        changes = [one for one in run_in(root, ["diff", "--json"]).line["changes"] if one["type"] == "Note"]
        assert {one["identity"]: next(iter(one["display"].values())) for one in changes} == known
        assert titles("/web/search", q="ducks") == titles("/web/records") == known
        assert titles("/web/record/edges", id="n1") == {"n2": "final"}
        assert titles("/web/record/citing", id="n2") == {"n1": "draft"}
        for id, title in known.items():
            page = client.get("/web/record", params={"type": "Note", "id": id}).text
            assert f"<title>{title}" in page and f'<h1 dir="auto">{title}</h1>' in page
        drawn = client.get("/web/record/picture", params={"type": "Note", "id": "n1"}).json()
        assert {one["id"]: one["title"] for one in drawn["nodes"]} == {"n1": "draft", "n2": "final"}


@pytest.mark.long
def test_history_says_who_changed_what_and_two_versions_stand_side_by_side(base: Path, open_room: Room) -> None:
    client = open_room.signed_in()
    _, given = record("n1")
    page = harmless(client.get("/web/record/history", params=given).text)
    assert "lakes" in page.text and "all of it" in page.text
    sides = harmless(client.get("/web/record/compare", params=given).text)
    assert "ponds" in sides.text and "lakes" in sides.text and sides.of("del") and sides.of("ins")
    first = run_in(base, ["log", "Note", "n1", "--json"]).line["changes"][-1]
    past = client.get("/web/record", params=given | {"at": first["commit"]})
    assert "ponds" in past.text and "lakes" not in Elements(past.text).text and first["commit"] in past.text
    found = client.get("/web/search", params={"q": "ponds", "type": "Note", "at": first["commit"]})
    assert f"/web/record?at={first['commit']}&type=Note&id=n1" in hits(found.text)
    origin = client.get("/web/record/origin", params=given | {"part": "1"})
    assert "part_" in origin.text and "<html" not in origin.text


def test_the_address_of_two_versions_stays_true_when_others_come(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    _, given = record("n1")

    def written(text: str) -> None:
        assert run_in(root, ["put", "Note", json.dumps({"id": "n1", "title": text})]).code == 0

    for text in ("first", "second"):
        written(text)
        commit(root, text)
    written("in the files")
    with room(root) as opened:
        client = opened.signed_in()

        def titles(address: str) -> list[str]:
            told = Elements(client.get(address).text).text
            return sorted((one for one in ("first", "second", "in the files", "last") if one in told), key=told.index)

        history = Elements(client.get("/web/record/history", params=given).text)
        links = [str(one["href"]) for one in history.of("a") if "record/compare" in str(one["href"])]
        shown = [titles(link) for link in links]
        assert shown == [["second", "in the files"], ["first", "second"]]
        choices = list(dict.fromkeys(str(one["value"]) for one in history.of("option")))
        older, newer = choices[2], choices[1]
        for sides in ({"old": older, "new": newer}, {"old": newer, "new": older}, {"old": older[:9], "new": newer}):
            assert titles(f"/web/record/compare?{urlencode(given | sides)}") == ["first", "second"], (
                "the older one stands left"
            )
        commit(root, "files")
        written("last")
        commit(root, "last")
        assert titles(links[1]) == shown[1]
        for wrong in ("99", "2", "0" * 40, "uncommitted", older[:6]):
            answer = client.get("/web/record/compare", params=given | {"old": wrong, "new": newer})
            assert answer.status_code == 404 and wrong in answer.text
            assert client.get("/web/record/compare", params=given | {"new": wrong}).status_code == 404


@pytest.mark.long
@pytest.mark.parametrize("id", ["evil", "deep", *ODD])
def test_hostile_records_change_nothing_outside_of_their_box(open_room: Room, id: str) -> None:
    client = open_room.signed_in()
    for page in ("record", "record/edges", "record/history", "record/citing", "record/origin", "record/compare"):
        answer = client.get(*record(id, page)[:1], params=record(id, page)[1])
        found = harmless(answer.text)
        assert answer.status_code == 200, (page, answer.text[-900:])
        assert not any("tracker.example" in (one.get("src") or "") for _, one in found.tags)
    whole = client.get("/web/record/field", params=record(id, name="title")[1])
    assert whole.status_code == 200 and harmless(whole.text).of("pre")
    found = harmless(client.get("/web/search", params={"q": "odd owned deep", "type": "Note"}).text)
    assert any(one.get("href") == f"/web/record?{_query(id)}" for one in found.of("a"))
    title = re.search(r"<title>.*?</title>", client.get("/web/record", params=record("evil")[1]).text, re.DOTALL)
    assert title is not None and "\u202e" not in title[0]


def _query(id: str) -> str:
    return urlencode({"type": "Note", "id": id})


def test_a_long_field_is_shown_in_pieces(open_room: Room) -> None:
    client = open_room.signed_in()
    for page in (client.get("/web/record", params=record("long")[1]), client.get("/web/search?q=word&type=Note")):
        assert page.status_code == 200 and len(page.content) < 300_000
    piece = client.get("/web/record/field", params=record("long", name="text", piece="2")[1])
    assert piece.status_code == 200 and len(piece.content) < 400_000
    assert any(one.get("rel") == "next" for one in Elements(piece.text).of("a"))


def test_a_page_without_its_data_has_at_most_300_kb(open_room: Room) -> None:
    page = len(open_room.signed_in().get("/web/search?type=Note").content)
    assert page + sum(map(len, templates.files().values())) < 300_000


@pytest.mark.long
def test_what_a_tenant_may_not_see_and_what_there_is_not_are_the_same_page(tmp_path: Path) -> None:
    """One base has the hidden type, with records and an edge; the other has it not. A viewer is answered the same bytes."""
    answers = []
    for has_secret in (True, False):
        root = make_base(tmp_path / str(has_secret) / "kb", CONFIG if has_secret else NOTES)
        assert run_in(
            root, ["put", "Note", json.dumps({"id": "n1", "title": "ducks", "_etag": None} | {"text": "t"})]
        ).code in (0, 2)
        assert (
            run_in(
                root,
                [
                    "put",
                    "Note",
                    json.dumps(
                        {
                            "id": "n1",
                            "title": "ducks",
                            "__created_at": "2026-01-01T00:00:00.000000Z",
                            "__updated_at": "2026-01-01T00:00:00.000000Z",
                        }
                    ),
                ],
            ).code
            == 0
        )
        if has_secret:
            assert run_in(root, ["put", "Secret", json.dumps({"id": "s1", "text": f"ducks {NEVER}"})]).code == 0
        commit(root)
        token = tenant_changes.add(root, "ann", ["Note"])["token"]
        with room(root) as opened:
            client = opened.signed_in(token)
            given = {"type": "Secret", "id": "s1", "q": "ducks", "name": "text"}
            pages = [client.get(f"/web/{page.address}", params=given) for page in site.PAGES]
            pages += [
                client.get(f"/web/{page.address}", params=given | {"type": kind})
                for page in site.PAGES
                for kind in ("", "all")
            ]
            pages += [
                client.get("/web/search", params={"q": "ducks", "at": "HEAD"}),
                client.get("/web/record/history", params={"type": "Note", "id": "n1"}),
            ]
            answers.append([told(one) for one in pages])
    assert [_timeless(one) for one in answers[0]] == [_timeless(one) for one in answers[1]]
    assert (
        NEVER not in repr(answers)
        and any(status == 404 for status, _ in answers[0])
        and any(status == 403 for status, _ in answers[0])
    )


def _timeless(answer: tuple[int, str]) -> tuple[int, str]:
    return answer[0], re.sub(r'name="proof" value="\w+"|\d{4}-\d\d-\d\dT[\d:.]+Z|\b[0-9a-f]{16}\b', "", answer[1])


def test_a_viewer_asks_as_a_viewer(base: Path, open_room: Room) -> None:
    """What is shown is what the action answers for the caller, whatever else the base has."""
    with duckkb.open(base) as kb:
        caller = Caller("ann", "viewer", frozenset({"Note"}))
        assert NEVER not in json.dumps(kb.run("find", {"type": "all", "query": "ducks"}, caller))
    assert NEVER in open_room.signed_in().get("/web/search?q=ducks").text


def test_the_interface_speaks_the_language_that_is_wanted(open_room: Room) -> None:
    client = open_room.signed_in()
    chinese = client.get("/web/search", headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"}).text
    assert '<html lang="zh"' in chinese and "检索" in chinese
    assert '<html lang="en"' in client.get("/web/search", headers={"accept-language": "de"}).text
    sent = {"language": "zh", "theme": "dark", "next": "/web/search?q=a", "proof": proof(client, "/web/search")}
    assert client.post("/web/preferences", data=sent, headers=OWN).headers["location"] == "/web/search?q=a"
    assert '<html lang="zh" data-theme="dark">' in client.get("/web/search").text


def test_a_browser_keeps_nothing_of_a_base_under_a_key_that_another_base_has(open_room: Room) -> None:
    client = open_room.signed_in()
    sent = {"language": "en", "theme": "dark", "next": "/web/search", "proof": proof(client, "/web/search")}
    client.post("/web/preferences", data=sent, headers=OWN)
    assert len(client.cookies) == 3 and all(open_room.sessions.base in name for name in client.cookies)


def test_every_catalogue_has_every_word_and_every_word_is_said() -> None:
    first, *others = (words(one).entries for one in LANGUAGES)
    places = re.compile(r"{(\w+)}")

    def of(entry: Any) -> set[str]:
        return {
            name for text in ([entry] if isinstance(entry, str) else entry.values()) for name in places.findall(text)
        }

    for other in others:
        assert list(first) == list(other)
        assert {key: of(entry) for key, entry in first.items()} == {key: of(entry) for key, entry in other.items()}
        assert all(
            entry and all(entry.values()) if isinstance(entry, dict) else entry.strip() for entry in other.values()
        )
    home = Path(templates.__file__).parent
    source = "\n".join(
        path.read_text("utf-8") for path in sorted(home.rglob("*")) if path.suffix in (".html", ".py", ".js")
    )
    said = set(re.findall(r"""say\(\s*["']([\w.]+)["']\s*[,)]""", source)) | {f"bar.{one}" for one in site.BAR}
    said |= {f"js.{one}" for one in re.findall(r"""words\.(\w+)|words\["([\w.]+)"\]""", source) for one in one if one}
    begun = set(re.findall(r"""(?:say|has)\(\s*["']([\w.]+\.)["'] ~""", source))
    assert said <= {*first}
    assert {key for key in first if key not in said and not key.startswith(tuple(begun))} == set()
