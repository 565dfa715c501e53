"""Growth and quality, and the pages of the ontology, of health and of quality: held against plain git, JSON and arithmetic; and that who
sees a part of a base is told of that part alone."""

import json
import math
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from duckkb.engine import integrity
from duckkb.server import tenant_changes
from duckkb.server.web import base_pages
from duckkb.types.errors import Refused
from duckkb.types.request_context import Caller
from tests.conftest import commit, make_base, run_in
from tests.doors.test_reading_room import CONFIG, EVIL, NEVER
from tests.harness.reading_room import OWN, Elements, Room, harmless, proof, room

QUESTIONS = f"""
questions:
  - {{question: "ducks in ponds", type: Note, expected: {{n1: 2, n2: 1, gone: 1}}}}
  - {{question: "geese", type: Note, where: "size > 2", expected: [n2]}}
  - {{question: "ducks {NEVER}", type: Secret, expected: [s1]}}
"""
TABLES = {"nodes/note": "Note", "nodes/secret": "Secret", "edges/cites": "cites"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six commits: each with more records, less, or others."""
    root = make_base(tmp_path_factory.mktemp("overview") / "kb", CONFIG + QUESTIONS)

    def put(type: str, *records: dict[str, Any]) -> None:
        assert run_in(root, ["put", type], stdin="\n".join(map(json.dumps, records))).code == 0

    put("Note", {"id": "n1", "title": "Ducks swim", "text": "Ducks swim in ponds.", "size": 3})
    commit(root, "one")
    put(
        "Note",
        {"id": "n2", "title": "Geese", "text": "Geese and ducks.", "size": 9},
        {"id": "gone", "title": "ponds, ponds"},
    )
    put("Secret", {"id": "s1", "text": f"ducks {NEVER}"})
    commit(root, "two")
    put("cites", {"from": "n2", "to": "n1"})
    commit(root, "three")
    assert run_in(root, ["delete", "Note", "gone"]).code == 0
    commit(root, "four")
    put("Note", *({"id": f"m{at}", "title": f"{EVIL} ​ {at}", "text": "x" * at} for at in range(70)))
    commit(root, "five")
    put("Note", {"id": "n1", "title": "Ducks swim", "text": "Ducks swim in lakes, not in ponds.", "size": 3})
    commit(root, "six")
    return root


@pytest.fixture(scope="module")
def open_room(base: Path) -> Iterator[Room]:
    with room(base) as opened:
        yield opened


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout


def sizes_at(root: Path, at: str) -> dict[str, dict[str, int]]:
    """By type the records and bytes of a commit, each file read whole."""
    found: defaultdict[str, dict[str, int]] = defaultdict(lambda: {"records": 0, "bytes": 0})
    for path in git(root, "ls-tree", "-r", "--name-only", at).splitlines():
        if path.startswith("data/") and path.endswith(".jsonl"):
            data = git(root, "show", f"{at}:{path}")
            name = TABLES["/".join(path.split("/")[1:3])]
            found[name]["records"] += len([json.loads(line) for line in data.splitlines() if line])
            found[name]["bytes"] += len(data.encode())
    return {name: sizes for name, sizes in found.items() if sizes["records"]}


def test_growth_is_what_git_has_at_each_commit(base: Path) -> None:
    commits = git(base, "rev-list", "--reverse", "--first-parent", "HEAD", "--", "data/nodes", "data/edges").split()
    with duckkb.open(base) as kb:
        told = kb.run("growth", {})
        few = kb.run("growth", {"limit": 3})
        assert kb.run("growth", {}) == told
    assert [one["commit"] for one in told["commits"]] == commits and told["total"] == 6 == len(commits)
    for one in told["commits"]:
        assert one["types"] == sizes_at(base, one["commit"]), one["summary"]
    assert [one["number"] for one in few["commits"]] == [1, 5, 6] and few["commits"][1] == told["commits"][4]
    on_disk = {name: sorted((base / "data" / folder).rglob("*.jsonl")) for folder, name in TABLES.items()}
    for line in told["types"]:
        files = on_disk.get(line["name"], [])
        records = sum(len(path.read_text("utf-8").splitlines()) for path in files)
        assert line["bytes"] == sum(path.stat().st_size for path in files)
        assert (line["records"], line["parts"]) == (records, len(files))


def test_an_old_commit_tells_of_what_led_to_it(base: Path) -> None:
    older = git(base, "rev-parse", "HEAD~2").strip()
    told = json.loads(run_in(base, ["growth", "--at", older]).out)
    assert told["total"] == 4 and told["commits"][-1]["commit"] == older
    assert {one["name"]: one["records"] for one in told["types"]} | {"Person": 0} == {
        "Note": 2, "Secret": 1, "cites": 1, "Person": 0, "wrote": 0, "about": 0,
    }  # fmt: skip


def ndcg(ranked: list[str], grades: dict[str, int]) -> float:
    """Jarvelin and Kekalainen, the grade being the gain."""
    got = sum(grades.get(name, 0) / math.log2(place + 1) for place, name in enumerate(ranked[:10], 1))
    return got / sum(grade / math.log2(place + 1) for place, grade in enumerate(sorted(grades.values())[::-1], 1))


ASKED: list[tuple[list[str], dict[str, int]]] = [
    (["Note", "ducks in ponds"], {"n1": 2, "n2": 1, "gone": 1}),
    (["Note", "geese", "-w", "size > 2"], {"n2": 1}),
    (["Secret", f"ducks {NEVER}"], {"s1": 1}),
]


@pytest.mark.long
def test_quality_is_what_find_answers_now_and_then_and_each_commit_is_evaluated_once(base: Path) -> None:
    with duckkb.open(base) as kb:
        first = kb.run("quality", {})
        some = kb.run("quality", {"evaluate": 2})
        whole = kb.run("quality", {"evaluate": 100, "timeout": 600})
        assert kb.run("quality", {}) == whole  # nothing is evaluated, and all of it is known
    assert (first["commits"], first["commits_left"]) == ([], 6)
    assert [one["summary"] for one in some["commits"]] == ["five", "six"] and some["commits_left"] == 4
    assert some["commits"] == whole["commits"][4:]
    for line, (words, grades) in zip(whole["questions"], ASKED, strict=True):
        hits = [one["id"] for one in run_in(base, ["find", *words, "-m", "-l", "50"]).lines]
        match = line["lanes"]["match"]
        assert match["ranks"] == {name: hits.index(name) + 1 if name in hits else None for name in grades}
        assert match["ndcg"] == pytest.approx(ndcg(hits, grades))
        assert line["lanes"]["similar"]["ndcg"] is line["lanes"]["hybrid"]["ndcg"] is None
        assert line["lanes"]["similar"]["problem"] and line["expected"] == grades
    for one in whole["commits"]:
        scores = [
            ndcg([hit["id"] for hit in run_in(base, ["find", *words, "-m", "--at", one["commit"]]).lines], grades)
            for words, grades in ASKED
        ]
        assert one["ndcg"] == {"match": pytest.approx(sum(scores) / 3), "similar": None, "hybrid": None}, one["summary"]
    assert len({one["ndcg"]["match"] for one in whole["commits"]}) > 2


def test_only_admins_have_commits_evaluated(base: Path) -> None:
    with duckkb.open(base) as kb:
        with pytest.raises(Refused) as refused:
            kb.run("quality", {"evaluate": 1}, Caller(role="editor"))
        assert refused.value.code == "E_FORBIDDEN"


def test_who_sees_a_part_is_told_of_that_part_and_not_of_the_past(base: Path, tmp_path: Path) -> None:
    part = Caller("ann", "viewer", frozenset({"Note", "cites"}))
    with duckkb.open(base) as kb:
        grown, asked = kb.run("growth", {}, part), kb.run("quality", {}, part)
        hidden, none = (_failure(kb, name, part) for name in ("Secret", "Sicret"))
    assert [one["name"] for one in grown["types"]] == ["Note", "cites"] and grown["commits"] is asked["commits"] is None
    assert [one["type"] for one in asked["questions"]] == ["Note", "Note"] and (grown["total"], asked["total"]) == (
        0,
        0,
    )
    assert hidden.replace("Secret", "Sicret") == none
    root = shutil.copytree(base, tmp_path / "kb")
    token = str(tenant_changes.add(root, "bea", ["Note", "cites"])["token"])
    with room(root) as opened:
        client = opened.signed_in(token)
        for page in (
            "ontology",
            "ontology/picture",
            "health",
            "health/findings",
            "health/growth",
            "quality",
            "quality/report",
        ):
            answer = client.get(f"/web/{page}")
            assert answer.status_code == 200 and "Secret" not in answer.text and NEVER not in answer.text, page
            assert 'action="/web/quality' not in answer.text
        there, nowhere = (client.get("/web/ontology/type", params={"type": name}) for name in ("Secret", "Sicret"))
        assert there.status_code == nowhere.status_code == 404
        sent = client.post("/web/quality", data={"proof": proof(client, "/web/quality")}, headers=OWN)
        assert sent.status_code == 403 and "E_FORBIDDEN" in sent.text


def _failure(kb: Any, name: str, caller: Caller) -> str:
    with pytest.raises(duckkb.DuckkbError) as problem:
        kb.run("settings", {"type": name}, caller)
    return f"{problem.value.code} {problem.value.message}"


def test_the_pages_show_what_the_actions_answer(base: Path, open_room: Room) -> None:
    client = open_room.signed_in()
    drawn = client.get("/web/ontology/picture").json()
    places = [one["id"] for one in drawn["nodes"]]
    assert {one["title"] for one in drawn["nodes"]} == {"Note 72", "Person 0", "Secret 1"}
    joined = {(one["label"], places[one["from"]], places[one["to"]]) for one in drawn["edges"]}
    assert joined == {("cites +1", "Note", "Note"), ("about", "Note", "Person"), ("wrote", "Person", "Note")}
    shown = harmless(client.get("/web/ontology").text).text
    assert "72" in shown and "Secret" in shown
    of_type = harmless(client.get("/web/ontology/type", params={"type": "Note"}).text).text
    assert all(
        one in of_type for one in ("x-merge: set", '"draft" | "final"', "global.chunk_size", "800", "array of string")
    )
    found = client.get("/web/health/findings", params={"page": "2"})
    report = run_in(base, ["check", "--json"]).line
    assert Counter(finding["code"] for finding in report["findings"]) == {"W_INVISIBLE": 70, "W_QUESTION": 1}
    links = [str(one["href"]) for one in harmless(found.text).of("a") if "data-open" in one]
    assert len(links) == 20 and all(client.get(one).status_code == 200 for one in links[:2])
    few = client.get("/web/health/findings", params={"code": "E_SCHEMA", "type": ""})
    assert [one for one in Elements(few.text).of("a") if "data-open" in one] == []
    grown = harmless(client.get("/web/health/growth").text)
    assert len(grown.of("svg")) == 2 and "6 of 6 commits" in grown.text
    harmless(client.get("/web/health").text)


def test_a_state_is_looked_through_once_and_another_state_anew(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "kb"
    shutil.copytree(base, root)
    looked, look = [], integrity.findings

    def counted(view: Any, *given: Any) -> Any:
        looked.append([kind.name for kind in view.kinds])
        return look(view, *given)

    with room(root) as opened:
        monkeypatch.setattr("duckkb.review.change_findings.integrity.findings", counted)

        def found(*types: str) -> list[str]:
            who = Caller("t", "admin", frozenset(types) if types else None)
            return sorted(one["code"] for one in opened.served.run("check", {}, who)["findings"])

        assert found() == found() == ["W_INVISIBLE"] * 70 + ["W_QUESTION"] and len(looked) == 1
        assert found("Secret") == found("Secret") == [] and looked[1:] == [["Secret"]]
        part = next((root / "data/nodes/note").rglob("part_*.jsonl"))
        part.write_text(
            re.sub(r'"title":"(?:[^"\\]|\\.)*"', '"title":5', part.read_text("utf-8"), count=1), "utf-8", newline=""
        )
        assert "E_SCHEMA" in found() and found("Secret") == []
        assert found() == sorted(one["code"] for one in run_in(root, ["check", "--json"]).line["findings"])


def test_a_commit_is_evaluated_by_a_form_of_this_server_alone(base: Path, open_room: Room) -> None:
    client = open_room.signed_in()
    assert client.post("/web/quality", data={"proof": ""}, headers=OWN).status_code == 403
    answer = client.post("/web/quality", data={"proof": proof(client, "/web/quality")}, headers=OWN)
    assert answer.status_code == 303 and answer.headers["location"] == "/web/quality"
    report = harmless(client.get("/web/quality/report", params={"by": "match"}).text)
    assert "nDCG@10" in report.text and len(report.of("svg")) == 1
    asked = [str(one["href"]) for one in report.of("a") if "data-open" in one]
    assert asked and all(client.get(one).status_code == 200 for one in asked)


def test_one_type_and_a_hundred_are_drawn(tmp_path: Path) -> None:
    for count in (1, 100):
        nodes = {
            f"T{at}": {"identity": "id", "schema": {"type": "object", "properties": {"id": {"type": "string"}}}}
            for at in range(count)
        }
        edges = {f"e{at}": {"from": f"T{at}", "to": f"T{at + 1}"} for at in range(0, count - 1, 2)}
        root = make_base(
            tmp_path / str(count), json.dumps({"global": {"embedding_model": "none"}, "nodes": nodes, "edges": edges})
        )
        with room(root) as opened:
            client = opened.signed_in()
            drawn = client.get("/web/ontology/picture").json()
            assert (len(drawn["nodes"]), len(drawn["edges"])) == (count, len(edges))
            page = harmless(client.get("/web/ontology").text)
            assert len([one for one in page.of("a") if "data-open" in one]) == count + len(edges)
            assert client.get("/web/health/growth").status_code == client.get("/web/quality/report").status_code == 200


def test_areas_stand_upon_each_other_and_lines_break_where_nothing_is_known() -> None:
    low, high = base_pages.areas(
        [base_pages.Series("a", [10, 20, 0], 0), base_pages.Series("b", [30, 0, 40], 1)], ["x", "y", "z"]
    ).series

    def heights(path: str) -> list[float]:
        field = base_pages.HEIGHT - base_pages.TOP - base_pages.BOTTOM
        ends = [float(point.split()[1]) for point in path.removeprefix("M").removesuffix(" Z").split(" L")]
        return [round((base_pages.HEIGHT - base_pages.BOTTOM - y) / field * 40, 1) for y in ends]

    assert heights(low.path) == [10, 20, 0, 0, 0, 0] and heights(high.path) == [40, 20, 40, 0, 20, 10]
    (line,) = base_pages.lines([base_pages.Series("c", [0.5, 1.0, None, 0.25], 0)], list("wxyz"), 1.0).series
    assert (
        line.path.count("M") == 1
        and line.path.count("L") == 1
        and [one.value for one in line.marks] == [0.5, 1.0, 0.25]
    )
