"""The pages of changes, conflicts and edits: that they show what actions answer and no more, that nothing is written but by `resolve` and
as a proposal, that nothing typed is lost, and that what stands in a change stays in its box."""

import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from duckkb.server import tenant_changes
from tests.conftest import NOTES, commit, make_base, run_in
from tests.doors.test_reading_room import EVIL, MARKDOWN
from tests.harness.reading_room import OWN, Elements, Room, harmless, proof, room

MANY = 600
NEVER = "nobody else sees this"
_TYPES = """\
  Secret:
    table: secret
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}, required: [id]}
  Rule:
    table: rule
    identity: id
    schema:
      type: object
      properties:
        id: {type: string, description: What it is called.}
        text: {type: string, minLength: 3}
        grade: {type: integer, minimum: 1}
        kind: {enum: [must, may]}
        day: {type: string, format: date}
        is_old: {type: boolean}
        tags: {type: array, items: {type: string}}
        more: {type: object}
      required: [id, text]
"""
_QUESTIONS = "questions:\n  - {question: ducks swim, type: Note, expected: {n1: 2}}\n"
CONFIG = NOTES.replace("edges:\n", _TYPES + "edges:\n") + _QUESTIONS.replace("questions:\n", "questions:\n")
RULE = {
    "id": "r1",
    "text": "be kind",
    "grade": 3,
    "kind": "must",
    "tags": ["a", "b"],
    "more": {"x": [1]},
    "odd": "kept",
}


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout.strip()


def put(root: Path, type: str, *records: dict[str, Any], merge: bool = False) -> None:
    lines = "\n".join(map(json.dumps, records))
    assert run_in(root, ["put", type, *(["--merge"] if merge else [])], stdin=lines).code == 0


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A branch with hostile records, one with many, a proposal, and something that is not committed."""
    root = make_base(tmp_path_factory.mktemp("changes") / "kb", CONFIG)
    put(
        root,
        "Note",
        {"id": "n1", "title": "Ducks", "text": "Ducks swim in ponds."},
        {"id": "n2", "title": "Geese"},
        {"id": "gone"},
    )
    put(root, "Rule", RULE)
    put(root, "Secret", {"id": "s1", "text": "first"})
    commit(root, "all of it")
    main = git(root, "branch", "--show-current")
    git(root, "checkout", "-q", "-b", "topic")
    put(root, "Note", {"id": "n1", "text": "Ducks swim in lakes."}, merge=True)
    put(
        root,
        "Note",
        {"id": "evil", "title": EVIL, "text": MARKDOWN + EVIL, "tags": [EVIL]},
    )
    put(root, "Rule", {"id": "long", "text": "w " * 1_500_000})
    assert run_in(root, ["delete", "Note", "gone"]).code == 0
    assert run_in(root, ["rename", "Note", "n2", "n2b"]).code == 0
    commit(root, EVIL)
    git(root, "checkout", "-q", main)
    git(root, "checkout", "-q", "-b", "many")
    put(root, "Rule", *({"id": f"m{at}", "text": f"Many {at}"} for at in range(MANY)))
    commit(root, "many")
    git(root, "checkout", "-q", main)
    told = json.dumps({"id": "n1", "title": "Proposed"})
    assert run_in(root, ["propose", "--branch", "propose/title", "put", "Note", told, "--merge"]).code == 0
    put(root, "Note", {"id": "n2", "title": "Geese, not committed"})
    put(root, "Secret", {"id": "s2", "text": NEVER})
    return root


@pytest.fixture(scope="module")
def opened(base: Path) -> Iterator[Room]:
    with room(base) as found:
        found.token = tenant_changes.add(base, "boss", role="admin")[
            "token"
        ]  # a base that has tenants lets in no other
        yield found


def change(**more: str) -> tuple[str, dict[str, str]]:
    return "/web/change", {"branch": "topic", **more}


def get(opened: Room, page: str, given: dict[str, str], token: str = "") -> Any:
    return opened.signed_in(token).get(page, params=given)


def shown(page: str) -> list[tuple[str, str]]:
    """Type and identity of each record of a page."""
    return [
        (str(one["data-type"]), str(one["data-identity"])) for one in Elements(page).of("li") if "data-identity" in one
    ]


def test_what_is_to_be_reviewed_is_listed_with_how_much_of_what(opened: Room) -> None:
    page = harmless(get(opened, "/web/changes", {}).text)
    links = [str(one["href"]) for one in page.of("a") if "data-open" in one]
    assert links[0] == "/web/change" and sorted(links[1:]) == [
        "/web/change?branch=many", "/web/change?branch=propose%2Ftitle", "/web/change?branch=topic",
    ]  # fmt: skip
    assert (
        "proposal" in page.text
        and "2 added" in page.text
        and "1 removed" in page.text
        and f"{MANY:,} added" in page.text
    )


def test_a_change_is_shown_record_by_record_with_the_words_that_went_and_came(opened: Room) -> None:
    answer = get(opened, *change())
    page = harmless(answer.text)
    assert shown(answer.text)[:4] == [("Note", one) for one in ("evil", "gone", "n1", "n2b")]
    only = get(opened, *change(op="update")).text
    assert shown(only) == [("Note", "n1")] and "<del>ponds</del><ins>lakes</ins>" in only
    assert shown(get(opened, *change(op="rename")).text) == [("Note", "n2b")]
    assert shown(get(opened, *change(type="Note", op="delete")).text) == [("Note", "gone")]
    beside = get(opened, *change(op="update", view="beside")).text
    assert re.search(r"ponds</del>\.</div>\s*<div[^>]*>.*<ins>lakes</ins>", beside)
    assert page.of("section")[0]["data-part"] == "/web/change/findings?branch=topic"


@pytest.mark.long
def test_findings_are_those_of_check_and_impact_is_what_impact_says(base: Path, opened: Room) -> None:
    with duckkb.open(base) as kb:
        report = kb.run("check", {"branch": "topic"})
        moved = kb.run("impact", {"branch": "topic"})
    page = harmless(get(opened, "/web/change/findings", {"branch": "topic", "part": "1"}).text)
    assert report["findings"] and all(one["code"] in page.text for one in report["findings"])
    assert f"{len(report['findings'])} findings" in page.text
    page = harmless(get(opened, "/web/change/impact", {"branch": "topic", "part": "1"}).text)
    assert moved["questions"] == 1 and "1 judged question" in page.text
    assert f"{moved['ndcg']['before']:.4f}" in page.text and f"{moved['ndcg']['after']:.4f}" in page.text


@pytest.mark.long
def test_a_large_change_comes_a_page_at_a_time_and_all_of_it(opened: Room) -> None:
    client, address, found, pages = opened.signed_in(), "/web/change?branch=many", list[tuple[str, str]](), 0
    while address:
        page = client.get(address).text
        assert len(page) < 400_000 and f"{MANY:,} records" in page
        found += shown(page)
        address = next((str(one["href"]) for one in Elements(page).of("a") if one.get("rel") == "next"), "")
        pages += 1
    assert sorted(found) == sorted(("Rule", f"m{at}") for at in range(MANY)) and pages > 2


def test_what_stands_in_a_change_stays_in_its_box(opened: Room) -> None:
    for given in ({}, {"view": "beside"}, {"op": "insert"}):
        client, address = (
            opened.signed_in(),
            f"/web/change?branch=topic&{'&'.join(f'{k}={v}' for k, v in given.items())}",
        )
        while address:
            page = client.get(address).text
            found = harmless(page)
            assert len(page) < 300_000 and "‮" not in found.text
            address = next((str(one["href"]) for one in found.of("a") if one.get("rel") == "next"), "")


@pytest.mark.long
def test_who_sees_a_part_reviews_that_part_and_cannot_tell_that_there_are_others(base: Path, opened: Room) -> None:
    token = tenant_changes.add(base, "half", ["Note"])["token"]
    git(base, "stash", "-q")
    main = git(base, "branch", "--show-current")
    for name, note in (("only-others", None), ("mixed", {"id": "n1", "title": "Mixed"})):
        git(base, "checkout", "-q", "-b", name)
        put(base, "Secret", {"id": f"s-{name}", "text": NEVER})
        if note:
            put(base, "Note", note, merge=True)
        commit(base, NEVER)
        git(base, "checkout", "-q", main)
    git(base, "stash", "pop", "-q")
    page = get(opened, "/web/changes", {}, token).text
    links = [str(one["href"]) for one in Elements(page).of("a") if "data-open" in one]
    assert links == [
        "/web/change",
        *(f"/web/change?branch={name}" for name in ("mixed", "propose%2Ftitle", "topic")),
    ]
    pages = [page, get(opened, "/web/change", {}, token).text]
    pages += [
        get(opened, f"/web/change{part}", {"branch": "mixed"}, token).text for part in ("", "/findings", "/impact")
    ]
    assert [shown(one) for one in pages[1:3]] == [[("Note", "n2")], [("Note", "n1")]]
    commits = git(base, "rev-parse", "HEAD", "mixed").split()
    for one in pages:
        assert not [
            word for word in ("Secret", NEVER, "only-others", *(commit[:12] for commit in commits)) if word in one
        ]
    for part in ("", "/findings", "/impact"):
        hidden, none = (
            get(opened, f"/web/change{part}", {"branch": name}, token) for name in ("only-others", "nowhere")
        )
        assert hidden.status_code == none.status_code == 404
        bodies = [re.sub("[0-9a-f]{64}", "", one.text) for one in (hidden, none)]
        assert bodies[0].replace("only-others", "nowhere") == bodies[1]
    assert get(opened, "/web/conflicts", {}, token).status_code == 403
    assert get(opened, "/web/change", {"range": "HEAD~1"}, token).status_code == 403


def test_nothing_is_edited_where_nobody_asked_for_it(opened: Room) -> None:
    client = opened.signed_in()
    assert client.get("/web/edit", params={"type": "Rule", "id": "r1"}).status_code == 404
    assert client.post("/web/edit", data={"proof": proof(client, "/web/search")}, headers=OWN).status_code == 405
    assert "/web/edit" not in client.get("/web/record", params={"type": "Rule", "id": "r1"}).text


@pytest.fixture
def editing(tmp_path: Path) -> Iterator[Room]:
    root = make_base(tmp_path / "kb", CONFIG)
    put(root, "Rule", RULE)
    commit(root, "all of it")
    with room(root, edits=True) as found:
        yield found


class Typed(HTMLParser):
    """What a form would send if nobody touched it, but for its buttons and boxes."""

    def __init__(self, page: str, form: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.last = self.inside = ""
        self.feed("<form " + page[page.index(form) :])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given, name = dict(attrs), str(dict(attrs).get("name"))
        if tag in ("input", "textarea", "select") and "name" in given and not {"disabled", "checked"} & {*given}:
            self.last = name
            if given.get("type") not in ("checkbox", "radio"):
                self.found[name] = given.get("value") or ""
        self.inside = tag if tag == "textarea" or "selected" in given else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[self.last] += data.removeprefix("\n") if self.inside == "textarea" else data


def fields(page: str, form: str = 'class="edit"') -> dict[str, str]:
    return Typed(page, form).found


def send(client: Any, id: str, given: dict[str, str], step: str, type: str = "Rule") -> Any:
    query = {"type": type, **({"id": id} if id else {})}
    return client.post("/web/edit", params=query, data={**given, "step": step}, headers=OWN)


def rule(editing: Room, at: str = "") -> dict[str, Any]:
    with duckkb.open(editing.served._open_base().root, at=at or None) as kb:
        return kb.get("Rule", "r1")


def test_an_edit_is_shown_as_a_patch_and_then_becomes_a_proposal_and_never_truth(editing: Room) -> None:
    root, client = editing.served._open_base().root, editing.signed_in()
    before, branches = git(root, "rev-parse", "HEAD"), git(root, "branch", "--list")
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text)
    given |= {
        "f.text": "be kind\r\nalways",
        "f.grade": "4",
        "f.tags": "a\r\nc",
        "f.day": "2026-02-03",
        "f.is_old": "true",
        "f.kind": "",
    }
    preview = send(client, "r1", given, "propose")
    assert preview.status_code == 200 and git(root, "branch", "--list") == branches, (
        "nothing is proposed that was not shown"
    )
    page = harmless(preview.text)
    assert '+{"__id"' in page.text and "<ins>\nalways</ins>" in preview.text
    shown_now = fields(preview.text)
    assert {name: shown_now[name] for name in given if name.startswith("f.")} == {
        name: text.replace("\r\n", "\n") for name, text in given.items() if name.startswith("f.")
    }
    done = send(client, "r1", {**shown_now, "message": "Because"}, "propose")
    branch = git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/propose")
    assert branch and branch in done.text
    assert git(root, "log", "-1", "--format=%s", branch) == "Because"
    found = rule(editing, branch)
    wanted = RULE | {"text": "be kind\nalways", "grade": 4, "tags": ["a", "c"], "day": "2026-02-03", "is_old": True}
    assert {name: found.get(name) for name in (*wanted, "kind")} == wanted | {"kind": None}
    assert (
        git(root, "rev-parse", "HEAD") == before
        and git(root, "status", "--porcelain") == ""
        and rule(editing)["grade"] == 3
    )


def test_all_that_is_wrong_is_said_at_once_beside_its_field(editing: Room) -> None:
    client = editing.signed_in()
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text)
    given |= {"f.text": "x", "f.grade": "0", "f.more": "{bad", "f.kind": "neither"}
    answer = send(client, "r1", given, "preview")
    problems = re.findall(r'<p class="problem"[^>]*>([^<]*)', answer.text)
    assert answer.status_code == 400 and len(problems) >= 4 and any("no JSON" in one for one in problems)
    assert fields(answer.text)["f.more"] == "{bad" and "Propose this" not in answer.text
    for typed in ("[" * 100_000, '{"a": 1, "a": 2}', "NaN", "1e999"):
        refused = send(client, "r1", given | {"f.more": typed}, "preview")
        assert refused.status_code == 400 and "no JSON" in refused.text and "E_INTERNAL" not in refused.text


def test_what_changed_meanwhile_is_said_and_nothing_typed_is_lost(editing: Room) -> None:
    root, client = editing.served._open_base().root, editing.signed_in()
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text)
    put(root, "Rule", {"id": "r1", "text": "be fair", "grade": 9}, merge=True)
    commit(root, "somebody else")
    answer = send(client, "r1", given | {"f.text": "be kind, please"}, "preview")
    now = fields(answer.text)
    assert answer.status_code == 409 and "be fair" in answer.text
    assert now["f.text"] == "be kind, please" and now["f.grade"] == "9", "what nobody touched follows the record"
    done = send(client, "r1", now, "propose")
    branch = git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/propose")
    assert done.status_code == 200 and branch
    assert {name: rule(editing, branch)[name] for name in ("text", "grade")} == {"text": "be kind, please", "grade": 9}
    assert run_in(root, ["delete", "Rule", "r1"]).code == 0
    commit(root, "gone")


def test_a_field_that_the_record_lost_or_that_grew_meanwhile_keeps_what_was_typed(editing: Room) -> None:
    root, client = editing.served._open_base().root, editing.signed_in()
    put(root, "Rule", RULE | {"extra": "e", "more": {"a": 1}})
    commit(root, "more")
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text)
    put(root, "Rule", RULE | {"more": {"a": "x" * 300_000}})
    commit(root, "less")
    typed = {"f.extra": '"kept"', "f.more": '{"b": 2}'}
    answer = send(client, "r1", given | typed, "preview")
    assert answer.status_code == 409 and {name: fields(answer.text)[name] for name in typed} == typed


def test_the_reason_of_a_change_stays_while_its_fields_are_mended(editing: Room) -> None:
    client = editing.signed_in()
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text) | {"f.grade": "4"}
    previewed = fields(send(client, "r1", given, "preview").text) | {"message": "Because"}
    wrong = send(client, "r1", previewed | {"f.grade": "none"}, "propose")
    assert "no number" in wrong.text
    assert fields(send(client, "r1", fields(wrong.text) | {"f.grade": "5"}, "preview").text)["message"] == "Because"


def test_a_record_that_was_deleted_meanwhile_keeps_what_was_typed(editing: Room) -> None:
    root, client = editing.served._open_base().root, editing.signed_in()
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text)
    assert run_in(root, ["delete", "Rule", "r1"]).code == 0
    commit(root, "gone")
    answer = send(client, "r1", given | {"f.text": "be kind, please"}, "propose")
    assert fields(answer.text)["f.text"] == "be kind, please" and "deleted this record" in answer.text
    assert git(root, "for-each-ref", "refs/heads/propose") == ""


@pytest.mark.long
def test_a_record_is_made_and_deleted_by_proposals_and_takes_no_others_place(editing: Room) -> None:
    root, client = editing.served._open_base().root, editing.signed_in()
    empty = fields(client.get("/web/edit", params={"type": "Rule"}).text)
    taken = send(client, "", empty | {"f.id": "r1", "f.text": "another"}, "preview")
    assert taken.status_code == 409 and "E_EXISTS" in taken.text
    preview = send(client, "", empty | {"f.id": "r2", "f.text": "a new one"}, "preview")
    assert "Propose this" in preview.text
    assert "propose/" in send(client, "", fields(preview.text), "propose").text
    asked = send(client, "r1", fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text), "delete")
    assert "Propose deletion" in asked.text
    assert "propose/" in send(client, "r1", fields(asked.text), "propose-delete").text
    branch = git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/propose")
    assert "\n" not in branch, "one branch has all that one tenant proposes"
    with duckkb.open(root, at=branch) as kb:
        assert [one["id"] for one in kb.list("Rule").records] == ["r2"]
    assert rule(editing)["id"] == "r1"


def test_a_viewer_may_not_edit(editing: Room) -> None:
    token = tenant_changes.add(editing.served._open_base().root, "reader", ["Rule"])["token"]
    client = editing.signed_in(token)
    assert client.get("/web/edit", params={"type": "Rule", "id": "r1"}).status_code == 403
    assert "/web/edit" not in client.get("/web/record", params={"type": "Rule", "id": "r1"}).text


def test_an_editor_of_a_part_proposes_to_that_part_and_is_told_the_branch_alone(editing: Room) -> None:
    root = editing.served._open_base().root
    client = editing.signed_in(tenant_changes.add(root, "writer", ["Rule"], "editor")["token"])
    commits = [git(root, "rev-parse", "HEAD")[:12]]
    missing = client.get("/web/edit", params={"type": "Rule", "id": "nowhere"})
    unseen, unknown = (client.get("/web/edit", params={"type": name, "id": "s1"}) for name in ("Secret", "Nope"))
    assert missing.status_code == unseen.status_code == unknown.status_code == 404
    bodies = [re.sub("[0-9a-f]{64}", "", one.text) for one in (unseen, unknown)]
    assert bodies[0].replace("Secret", "Nope") == bodies[1]
    given = fields(client.get("/web/edit", params={"type": "Rule", "id": "r1"}).text) | {"f.text": "be fair"}
    done = send(client, "r1", fields(send(client, "r1", given, "preview").text), "propose")
    branch = git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/propose")
    assert branch in done.text and rule(editing, branch)["text"] == "be fair"
    commits.append(git(root, "rev-parse", branch)[:12])
    assert not [one for one in commits if one in missing.text + done.text]
    assert branch in client.get("/web/changes").text


def stopped_merge(root: Path) -> Path:
    """A base with a merge that stopped: three fields of one record are in conflict, and another record as a whole."""
    make_base(root, CONFIG)
    put(root, "Rule", RULE, {"id": "r2", "text": "second"})
    commit(root, "all of it")
    main = git(root, "branch", "--show-current")
    git(root, "checkout", "-q", "-b", "topic")
    put(root, "Rule", {"id": "r1", "text": "theirs " + EVIL, "grade": 5, "tags": ["t"]}, merge=True)
    assert run_in(root, ["delete", "Rule", "r2"]).code == 0
    commit(root, "theirs")
    git(root, "checkout", "-q", main)
    put(
        root,
        "Rule",
        {"id": "r1", "text": "ours", "grade": 7, "tags": ["o"]},
        {"id": "r2", "text": "changed"},
        merge=True,
    )
    commit(root, "ours")
    assert run_in(root, ["merge", "topic"]).code == 1
    return root


@pytest.fixture
def merging(tmp_path: Path) -> Iterator[Room]:
    root = stopped_merge(tmp_path / "kb")
    with room(root) as found:
        found.token = tenant_changes.add(root, "boss", role="admin")["token"]
        yield found


def conflicts(page: str) -> dict[str, tuple[str, str]]:
    """For each conflict of the page, by identity and field, its etag and the JSON that names it."""
    named = [
        (one["name"], one["value"]) for one in Elements(page).of("input") if (one.get("name") or "").startswith("name.")
    ]
    told = [(str(name).removeprefix("name."), str(value)) for name, value in named]
    return {
        f"{json.loads(value)['identity']} {json.loads(value)['field']}".strip(): (etag, value) for etag, value in told
    }


def test_a_merge_is_settled_field_by_field_through_resolve(merging: Room) -> None:
    root, client = merging.served._open_base().root, merging.signed_in()
    page = client.get("/web/conflicts").text
    harmless(page)
    found = conflicts(page)
    assert {*found} == {"r1 text", "r1 grade", "r1 tags", "r2"} and "E_UNREADABLE" in client.get("/web/search?q=x").text

    def choice(name: str, chosen: str, **more: str) -> dict[str, str]:
        etag, named = found[name]
        return {
            f"choose.{etag}": chosen,
            f"name.{etag}": named,
            **{f"{key}.{etag}": text for key, text in more.items()},
        }

    sent = {
        "proof": proof(client, "/web/conflicts"),
        **choice("r1 text", "theirs"),
        **choice("r1 tags", "value", value='["both"'),
    }
    wrong = client.post("/web/conflicts", data=sent, headers=OWN)
    assert wrong.status_code == 400 and "[&#34;both&#34;" in wrong.text, "what was typed is still there"
    for named in ("", "5", "[" * 100_000):
        assert (
            client.post("/web/conflicts", data=sent | {"name.x": named, "choose.x": "ours"}, headers=OWN).status_code
            == 400
        )
    sent |= {**choice("r1 tags", "value", value='["both", "是"]')}
    assert client.post("/web/conflicts", data=sent, headers=OWN).status_code == 303
    assert client.post("/web/conflicts", data=sent, headers=OWN).status_code in (404, 409), "that was settled already"
    found = conflicts(client.get("/web/conflicts").text)
    assert {*found} == {"r1 grade", "r2"}
    sent = {"proof": sent["proof"], **choice("r1 grade", "ours"), **choice("r2", "theirs")}
    assert client.post("/web/conflicts", data=sent, headers=OWN).status_code == 303
    assert (
        "git commit" in client.get("/web/conflicts").text and git(root, "diff", "--name-only", "--diff-filter=U") == ""
    )
    assert {name: rule(merging)[name] for name in ("text", "grade", "tags")} == {
        "text": "theirs " + EVIL,
        "grade": 7,
        "tags": ["both", "是"],
    }
    with duckkb.open(root) as kb:
        assert kb.list("Rule").total == 1


def test_a_value_that_was_typed_and_not_chosen_comes_back_with_the_form(merging: Room) -> None:
    client = merging.signed_in()
    page = client.get("/web/conflicts").text
    found = {name: etag for name, (etag, _) in conflicts(page).items()}
    choices = {found["r2"]: "theirs", found["r1 text"]: "theirs", found["r1 grade"]: "ours"}
    typed = {found["r1 tags"]: '["both",\n"是"]', found["r1 grade"]: "6"}
    sent = fields(page, 'id="conflicts"') | {"proof": proof(client, "/web/conflicts")}
    sent |= {f"choose.{etag}": side for etag, side in choices.items()}
    sent |= {f"value.{etag}": text.replace("\n", "\r\n") for etag, text in typed.items()}
    answer = client.post("/web/conflicts", data=sent, headers=OWN)
    alert = re.findall(r'<p class="problem" role="alert">(.*?)</p>', answer.text, re.DOTALL)
    assert answer.status_code == 400 and ["r1 tags" in one and "r1 grade" in one for one in alert] == [True]
    harmless(answer.text)
    assert {*conflicts(client.get("/web/conflicts").text)} == {*found}, "nothing was settled"
    again = fields(answer.text, 'id="conflicts"')
    assert {etag: again[f"value.{etag}"] for etag in typed} == typed
    ticked = [one for one in Elements(answer.text).of("input") if "checked" in one and one["value"]]
    assert {str(one["name"]).removeprefix("choose."): one["value"] for one in ticked} == choices
    sent |= again | {f"choose.{found['r1 tags']}": "value"}
    assert client.post("/web/conflicts", data=sent, headers=OWN).status_code == 303, "who was told may leave it out"
    assert {name: rule(merging)[name] for name in ("tags", "grade")} == {"tags": ["both", "是"], "grade": 7}


def test_what_was_typed_for_a_conflict_that_changed_meanwhile_is_shown(merging: Room) -> None:
    root, client = merging.served._open_base().root, merging.signed_in()
    page = client.get("/web/conflicts").text
    sent = fields(page, 'id="conflicts"') | {"proof": proof(client, "/web/conflicts")}
    etag = conflicts(page)["r1 text"][0]
    assert run_in(root, ["resolve", "--stage", "--ours", "Rule:r1:text"]).code in (0, 1)
    sent |= {f"value.{etag}": '"typed in vain"', f"choose.{etag}": "value"}
    answer = client.post("/web/conflicts?after=gone", data=sent, headers=OWN)
    assert answer.status_code in (404, 409) and "typed in vain" in harmless(answer.text).text
    assert "r1 grade" in conflicts(answer.text), "and the others are there to be settled"


def test_who_sees_a_part_settles_nothing_and_nobody_without_the_proof_of_the_page(merging: Room) -> None:
    root = merging.served._open_base().root
    etag, named = conflicts(merging.signed_in().get("/web/conflicts").text)["r1 grade"]
    client = merging.signed_in(tenant_changes.add(root, "writer", ["Rule"], "editor")["token"])
    sent = {"proof": proof(client, "/web/changes"), f"choose.{etag}": "ours", f"name.{etag}": named}
    assert client.get("/web/conflicts").status_code == 403
    assert client.post("/web/conflicts", data=sent, headers=OWN).status_code == 403
    admin = merging.signed_in()
    assert admin.post("/web/conflicts", data=sent | {"proof": "x"}, headers=OWN).status_code == 403
    assert "r1 grade" in conflicts(admin.get("/web/conflicts").text)
