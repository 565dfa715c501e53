"""Hits of an agent's size: long texts are the lines that fit, with their place, and the answer says how to have the whole."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.operations.dispatch import with_calls_in_notices
from duckkb.types.errors import Refused
from duckkb.types.request_context import Caller
from tests.conftest import commit, make_base, run_in

FILLER = "".join(f"Paragraph {number} tells of rivers and of stones.\n\n" for number in range(300))
PAGE = f"---\nowner: Mei\n---\n# Lanterns\n\n{FILLER}The kestrel nests at `gate --open 7`.\n\n{FILLER}"
LINE = PAGE.splitlines().index("The kestrel nests at `gate --open 7`.") + 1


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = make_base(tmp_path_factory.mktemp("brief") / "kb", "global: {embedding_model: none}\n")
    (root / "docs").mkdir()
    (root / "docs" / "lanterns.md").write_text(PAGE, "utf-8")
    (root / "docs" / "near.md").write_text("# Near\n\nSee [lanterns](lanterns.md).\n", "utf-8")
    assert run_in(root, ["collection", "add", "docs"]).code == 0
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="knowledge-base")
        kb.put(
            "notes",
            [
                {"id": "长", "content": "石头。" * 400 + "茶隼住在门上。" + "河流。" * 400, "list": [*range(900)]},
                {"id": "t", "content": "x", "ticket": {"note": f"{FILLER}The heron fishes at dawn.\n\n{FILLER}"}},
            ],
        )
    commit(root)
    return root


def test_a_hit_of_a_long_document_is_its_lines_that_fit_with_their_place(base: Path) -> None:
    ran = run_in(base, ["find", "all", "kestrel", "-m"])
    hit = ran.line
    assert hit["text"] == "…" + "\n".join(PAGE.splitlines()[LINE - 1 : LINE + 3]).rstrip() + "…"
    assert (hit["path"], hit["_line"], hit["owner"], hit["_partial"]) == ("lanterns.md", LINE, "Mei", ["text"])
    assert len(ran.out) < 700 < len(PAGE) / 30


def test_a_filter_gives_a_long_document_from_the_line_below_its_title_on(base: Path) -> None:
    hit = run_in(base, ["find", "docs", "-w", "owner = 'Mei'"]).line
    assert hit["text"].endswith("rivers and of stones.…") and hit["_line"] == 6 and len(hit["text"]) < 310


def test_a_page_of_records_gives_them_as_a_search_does_and_get_gives_the_whole(base: Path) -> None:
    line, whole = run_in(base, ["list", "notes", "-l", "1"]).line, run_in(base, ["get", "notes", "t"]).line
    assert line.keys() == whole.keys() - {"__id", "__created_at", "__updated_at"} | {"_partial"}
    assert len(line["ticket"]["note"]) < 310 and line["_etag"] == whole["_etag"] and line["_partial"] == ["ticket"]
    assert run_in(base, ["list", "notes", "-l", "1", "--full"]).line["ticket"] == whole["ticket"]
    page, hit = run_in(base, ["list", "docs"]).lines[0], run_in(base, ["find", "docs", "-w", "owner = 'Mei'"]).line
    assert page == {name: value for name, value in hit.items() if name != "_engine"}


def test_a_change_is_shown_by_the_fields_of_the_record_alone(base: Path) -> None:
    blamed = [line["field"] for line in run_in(base, ["blame", "notes", "t"]).lines]
    assert blamed == list(run_in(base, ["log", "notes", "t"]).line["fields"]) == ["id", "content", "ticket"]
    assert run_in(base, ["blame", "notes", "t", "__created_at"]).line["field"] == "__created_at"


def test_a_dry_run_shows_one_record_around_what_it_changes(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="simple-kv")
        kb.put("notes", [{"key": f"k{number}", "value": number} for number in range(9)])
    trial = ["put", "notes", '{"key": "k4", "value": 40}', "--dry-run", "--format", "patch"]
    shown = run_in(root, trial).out.splitlines()
    assert [line[0] for line in shown[5:]] == [" ", "-", "+", " "]


def test_a_long_text_of_a_record_is_cut_around_what_fits_and_a_long_list_behind_its_first_items(base: Path) -> None:
    hit = run_in(base, ["find", "notes", "茶隼", "-m"]).line
    assert "茶隼" in hit["content"] and hit["content"][0] == hit["content"][-1] == "…" and len(hit["content"]) <= 302
    assert hit["list"] == [*range(len(hit["list"]))] and 10 < len(hit["list"]) < 200
    assert sorted(hit["_partial"]) == ["content", "list"]
    ran = run_in(base, ["put", "notes"], stdin=json.dumps(hit))
    assert ran.code != 0, "what is printed in part does not replace the record"


def test_a_long_text_inside_an_object_is_cut_around_what_fits(base: Path) -> None:
    hit = run_in(base, ["find", "notes", "heron", "-m"]).line
    assert hit["ticket"]["note"].startswith("…The heron fishes") and hit["_chunk"]["field"] == "ticket.note"


def test_the_answer_says_once_how_to_have_the_whole_and_that_works(base: Path) -> None:
    ran = run_in(base, ["find", "all", "kestrel OR 茶隼", "-m"])
    (said,) = [line for line in ran.err.splitlines() if line.startswith("W_OMITTED")]
    command = said.split("`")[1]
    assert "--full prints all" in said
    got = run_in(base, shlex.split(command)[1:]).line
    assert max(len(str(value)) for value in got.values()) > 1_000
    whole = run_in(base, ["find", "all", "kestrel", "-m", "--full"])
    assert whole.line["text"] in PAGE and len(whole.line["text"]) > 20_000 and "W_OMITTED" not in whole.err
    alone = run_in(base, ["find", "all", "kestrel", "-m", "--fields", "text"])
    assert alone.line["text"] == whole.line["text"] and "W_OMITTED" not in alone.err


def test_who_calls_actions_is_told_the_call_that_gives_the_whole(base: Path) -> None:
    with duckkb.open(base) as kb:
        answer = with_calls_in_notices(kb.run("find", {"type": "docs", "query": "kestrel"}))
        (said,) = [one["remedy"] for one in answer["notices"] if one["code"] == "W_OMITTED"]
        name, _, given = said.split("`")[1].partition(" ")
        assert len(kb.run(name, json.loads(given))["text"]) > 20_000
        assert len(kb.run("find", {"type": "docs", "query": "kestrel", "full": True})["results"][0]["text"]) > 20_000


def test_a_walk_gives_long_texts_in_brief_too(base: Path) -> None:
    walk = ["graph", "neighbors", "docs", "near.md"]
    assert len(run_in(base, walk).line["text"]) < 310
    assert len(run_in(base, [*walk, "--full"]).line["text"]) > 20_000


def test_an_action_asks_the_base_as_it_was_unless_the_caller_sees_a_part_of_it(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="knowledge-base")
        kb.put("notes", [{"id": "a", "content": "a fox"}])
    commit(root)
    with duckkb.open(root) as kb:
        kb.put("notes", [{"id": "a", "content": "a heron"}])
        asked = {"type": "notes", "query": "fox", "mode": "match"}
        assert kb.run("find", asked)["results"] == []
        then = kb.run("find", {**asked, "at": "HEAD", "fields": ["content"]})
        assert then["results"] == [{"id": "a", "content": "a fox"}]
        assert kb.run("list", {"type": "notes", "at": "HEAD"})["records"][0]["content"] == "a fox"
        with pytest.raises(Refused):
            kb.run("find", {**asked, "at": "HEAD"}, Caller(types=frozenset({"notes"})))
