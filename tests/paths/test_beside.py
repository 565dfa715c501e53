"""The lanes of a first search, one of which a child makes: the same answers, whatever becomes of the child."""

import os
from pathlib import Path

import pytest

import duckkb
from duckkb.engine import text_vectors
from tests.conftest import make_base, store_of
from tests.fakes import HashEmbedder

CONFIG = """\
snapshot: {min_bytes: 0}
nodes:
  Note:
    table: notes
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}, required: [id]}
    search: {full_text: [text], vectors: [text]}
"""
WORDS = [
    "git",
    "keeps",
    "records",
    "in",
    "files",
    "and",
    "lanes",
    "find",
    "them",
    "by",
    "words",
    "or",
    "vectors",
    "内存",
    "数据库",
]
QUESTIONS = ("records in git", "vectors", "内存 数据库", "nothing of that kind")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", CONFIG)
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        for number in range(60):
            text = " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 6))
            kb.put("Note", {"id": f"n{number}", "text": text})
    return root


def _answers(root: Path, *, command: bool) -> list[list[tuple[str, float | None]]]:
    with duckkb.open(root, embedder=HashEmbedder(), command=command) as kb:
        found = [kb.find("Note", question, mode="hybrid") for question in QUESTIONS]
        assert not any(one.degraded for one in found)
        return [[(hit.identity, hit.score) for hit in one] for one in found]


def _forget_lanes(root: Path) -> Path:
    lanes = store_of(root) / "node-notes"
    for path in sorted(lanes.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return lanes


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no children here: the lanes are made one after the other")
@pytest.mark.parametrize("fate", ["makes it", "dies", "cannot be had"])
def test_a_child_makes_the_vectors_of_a_first_hybrid_search(
    base: Path, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_vectors, "MANY", 1)
    monkeypatch.setattr(text_vectors, "_count_cores", lambda: 2)
    expected = _answers(base, command=False)
    lanes, children, fork = _forget_lanes(base), list[int](), os.fork

    def forked() -> int:
        if fate == "cannot be had":
            raise BlockingIOError("no more processes")
        child = fork()
        if not child and fate == "dies":
            os._exit(1)
        children.append(child)
        return child

    monkeypatch.setattr(os, "fork", forked)
    assert _answers(base, command=True) == expected
    assert len(children) == (fate != "cannot be had")
    assert (lanes / "vectors" / "meta.json").exists()
    assert _answers(base, command=True) == expected
    assert len(children) <= 1, "what lies there is opened, and nobody is asked to make it"


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no children here")
def test_the_vectors_are_those_that_the_child_made(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_vectors, "MANY", 1)
    monkeypatch.setattr(text_vectors, "_count_cores", lambda: 2)
    lanes = _forget_lanes(base)
    with duckkb.open(base, embedder=HashEmbedder(), command=True) as kb:
        kinds = [kb._base.ontology.nodes["Note"]]
        with text_vectors.vectors_made_beside(kb._base, kinds):
            pass
        made = (lanes / "vectors" / "meta.json").read_bytes()
        kb.find("Note", QUESTIONS[0], mode="hybrid")
    assert (lanes / "vectors" / "meta.json").read_bytes() == made
