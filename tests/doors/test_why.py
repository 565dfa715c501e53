"""why: each thing that can keep a record from an answer is named, and the ranks are those of find."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import duckkb
from tests.conftest import NOTES, commit, make_base, run_in
from tests.fakes import HashEmbedder

CONFIG = (
    NOTES.replace(
        "  Person:\n",
        "  Log:\n    table: log\n    identity: id\n    policy: quiet\n    schema: {type: object, properties: {id: {type: string}, text: {type: string}}}\n    search: {full_text: [text]}\n  Person:\n",
        1,
    )
    + "policies:\n  quiet:\n    intents: {allowed: [where], default: where}\n    refuse: {match: 'filter by id instead'}\n"
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty notes about storms, the later the fewer words about it, and one of another kind."""
    root = make_base(tmp_path_factory.mktemp("why") / "kb", CONFIG)
    notes = [{"id": f"n{at:02d}", "title": "storm", "text": "rain " * at, "size": at} for at in range(30)]
    notes += [{"id": "tide", "title": "moon", "text": "潮汐", "tags": ["storm"], "status": "final"}]
    assert run_in(root, ["put", "Note"], stdin="\n".join(map(json.dumps, notes))).code == 0
    assert run_in(root, ["put", "Log", '{"id":"l1","text":"storm"}']).code == 0
    commit(root)
    return root


def _why(root: Path, *args: str) -> dict[str, Any]:
    ran = run_in(root, ["why", *args, "--json"])
    assert ran.code == 0, ran.err
    return ran.line


def test_a_record_below_the_cut_is_told_its_rank(many: Path) -> None:
    ranked = [one["id"] for one in run_in(many, ["find", "Note", "storm", "-l", "100"]).lines]
    for place in (1, 10, 11, 30):
        found = _why(many, "Note", ranked[place - 1], "storm")
        assert (found["found"], found["lanes"]["fts"]["rank"], found["lanes"]["fts"]["ranked"]) == (
            place <= 10,
            place,
            30,
        )
        assert found["first"] == ranked[:10]
    assert _why(many, "Note", ranked[10], "storm", "-l", "11")["found"]


def test_words_are_named_that_the_record_lacks_or_has_elsewhere(many: Path) -> None:
    found = _why(many, "Note", "tide", "moon tide final")
    assert [(one["token"], one["score"] > 0, one["elsewhere"]) for one in found["tokens"]] == [
        ("moon", True, []),
        ("tide", False, ["id"]),
        ("final", False, ["status"]),
    ]
    lacking = _why(many, "Note", "n00", "moon")
    assert lacking["rank"] is None and "none of the words" in lacking["reasons"][0]
    assert _why(many, "Note", "tide", '"潮汐"')["tokens"][0]["score"] > 0


def test_what_a_filter_or_a_negation_removed_is_said(many: Path) -> None:
    filtered = _why(many, "Note", "n05", "storm", "-w", "size > 10")
    assert (
        filtered["filter"] == {"where": "size > 10", "passes": False} and "filter removed it" in filtered["reasons"][0]
    )
    assert _why(many, "Note", "n15", "storm", "-w", "size > 10")["filter"]["passes"] is True
    negated = _why(many, "Note", "n05", "storm -rain", "-l", "1")
    assert negated["excluded"] == ["rain"] and not negated["found"] and "removed it" in negated["reasons"][0]
    assert _why(many, "Note", "n00", "storm -rain")["excluded"] == []


def test_a_policy_that_refuses_is_quoted(many: Path) -> None:
    found = _why(many, "Log", "l1", "storm", "-m")
    assert not found["found"] and "filter by id instead" in found["reasons"][0]
    assert found["policy"]["intents"] == ["where"]


def test_a_missing_vector_is_named(many: Path, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    shutil.copytree(many, root)
    config = CONFIG.replace("global: {embedding_model: none}\n", "search: {embed_wait_s: 0}\n")
    (root / "config.yaml").write_text(
        config.replace("full_text: [title, text]}", "full_text: [title], vectors: [text]}")
    )
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        found = kb.why("Note", "n05", "rain", mode="similar")
        assert (found.chunks, found.pending, found.rank) == (1, 1, None)
        assert any("vector yet" in said for said in found.reasons)
        kb.index_refresh()
        found = kb.why("Note", "n05", "rain", mode="similar", limit=31)
        hits = [hit.identity for hit in kb.find("Note", "rain", mode="similar", limit=31)]
        assert (found.pending, found.rank) == (0, hits.index("n05") + 1)
        assert not kb.why("Note", "n00", "rain", mode="similar").chunks


def test_a_page_of_text_says_it_in_words(many: Path) -> None:
    out = run_in(many, ["why", "Note", "tide", "storm"]).out
    assert out.startswith("Note tide: not found by 'storm'\n") and len(out.splitlines()) < 20


def test_what_cannot_be_asked_is_refused(many: Path) -> None:
    assert run_in(many, ["why", "Note", "nobody", "storm"]).code == 1
    assert run_in(many, ["why", "Note", "n01", " "]).code == 2
    assert run_in(many, ["why", "Note", "n01", "storm", "-w", "nofield = 1"]).code == 2
