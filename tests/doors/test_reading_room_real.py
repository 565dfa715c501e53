"""Every page on real collections: the repository's own base, and ATT&CK where DUCKKB_EVAL_DATA names a folder with `graph/attack`; and
the sizes that a page meets at worst."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import yaml

from tests.conftest import ROOT, commit, make_base, run_in
from tests.doors.test_reading_room import NOTES
from tests.harness import attack
from tests.harness.reading_room import Elements, Room, harmless, hits, room

DATA = Path(os.environ.get("DUCKKB_EVAL_DATA") or ".", "graph", "attack")
_PARTS = (
    "record",
    "record/edges",
    "record/picture",
    "record/history",
    "record/compare",
    "record/origin",
    "record/citing",
)
_EDGES = ("relates_to", "explains", "uses", "raises", "mended_by", "configures", "cites")
_MOST_BYTES = 400_000


def walk(opened: Room, questions: list[str], names: list[tuple[str, str]]) -> int:
    """Ask each question, and show all of the records that it finds, and those that are named; how many were."""
    client, seen = opened.signed_in(), [*names]
    for question in questions:
        answer = client.get("/web/search", params={"q": question, "type": "all", "limit": "20"})
        page = harmless(answer.text)
        assert answer.status_code == 200, page.text[-400:]
        found = [dict(part.split("=", 1) for part in one.partition("?")[2].split("&")) for one in hits(answer.text)]
        seen += [(one["type"], one["id"]) for one in found[:3]]
    for type, id in dict.fromkeys(seen):
        for part in _PARTS if type not in _EDGES else _PARTS[:1]:
            answer = client.get(f"/web/{part}", params={"type": type, "id": id})
            assert answer.status_code == 200 and len(answer.content) < _MOST_BYTES, (part, type, id, answer.text[-400:])
            if part != "record/picture":
                harmless(answer.text)
        assert client.get("/web/records", params={"type": type}).status_code == 200
    return len(dict.fromkeys(seen))


@pytest.mark.model
@pytest.mark.long
def test_every_page_on_the_repositorys_own_base(own_base: Path) -> None:
    judged = yaml.safe_load((ROOT / "ontology/questions.yaml").read_text("utf-8"))
    questions = (
        [one["question"] for one in next(iter(judged.values()))]
        if isinstance(judged, dict)
        else [one["question"] for one in judged]
    )
    with room(own_base) as opened:
        assert (
            walk(opened, random.Random(3).sample(questions, 5), [("relates_to", '["changeset","write-journal"]')]) > 6
        )
        near = opened.signed_in().get("/web/record/near", params={"type": "Concept", "id": "write-journal"})
        assert len(hits(near.text)) == 10


@pytest.mark.long
@pytest.mark.skipif(not DATA.is_dir(), reason="DUCKKB_EVAL_DATA names no folder with graph/attack")
def test_every_page_on_attack(tmp_path: Path) -> None:
    counts = attack.build(DATA, tmp_path / "kb")
    with room(tmp_path / "kb") as opened:
        client = opened.signed_in()
        listed = Elements(client.get("/web/records").text).text
        assert all(f"{count:,}" in listed for count in counts.values())
        questions = [
            "credential dumping",
            "phishing",
            "lateral movement over remote desktop",
            "persistence registry run keys",
        ]
        assert walk(opened, questions, [("technique", "T1059"), ("tactic", "TA0005")]) > 5
        drawn = client.get(
            "/web/record/picture", params={"type": "tactic", "id": "TA0005", "limit": "500", "depth": "3"}
        ).json()
        assert 300 < len(drawn["nodes"]) <= 501 and drawn["cut"]


@pytest.mark.long
def test_a_hundred_thousand_edges_and_ten_megabytes_are_shown_by_pages(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES + "limits: {max_record_bytes: 20000000}\n")
    many = 100_000
    notes: list[dict[str, Any]] = [{"id": f"s{at}", "title": f"spoke {at}"} for at in range(many)]
    notes += [{"id": "hub", "title": "hub"}, {"id": "long", "title": "long", "text": "lorem <b> " * 1_000_000}]
    edges = [{"from": "hub", "to": f"s{at}"} for at in range(many)]
    for type, records in (("Note", notes), ("cites", edges)):
        assert run_in(root, ["put", type], stdin="\n".join(map(json.dumps, records))).code == 0
    commit(root)
    with room(root) as opened:
        client = opened.signed_in()
        shown, path = 0, "/web/record/edges?type=Note&id=hub"
        for _ in range(4):
            page = Elements(client.get(path).text)
            shown += len([one for one in page.of("a") if "data-open" in one])
            path = next(str(one["href"]) for one in page.of("a") if one.get("rel") == "next")
        assert shown == 100
        for address in (
            "record?type=Note&id=hub",
            "record?type=Note&id=long",
            "search?q=lorem&type=Note",
            "record/history?type=Note&id=long",
        ):
            answer = client.get(f"/web/{address}")
            assert answer.status_code == 200 and len(answer.content) < 300_000, address
        pieces = Elements(client.get("/web/record/field?type=Note&id=long&name=text").text)
        assert "10,000,000" in pieces.text
