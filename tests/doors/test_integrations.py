"""The retrievers of other frameworks, each with its real library, over records, over documents, and outside of git."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckkb
from tests.conftest import NOTES, CopyOf, commit, git, make_base, run_in

_Found = list[tuple[str, dict[str, Any], float]]
"""Text, metadata and score of what a retriever gives."""


def _langchain(base: Any, question: str, **how: Any) -> _Found:
    pytest.importorskip("langchain_core", reason="needs the extra `langchain`")
    from duckkb.integrations.langchain import LangChainRetriever

    retriever = LangChainRetriever(base=base, **how)
    found = retriever.invoke(question)
    retriever.close()
    assert [one.id for one in found] == [one.metadata["uri"] for one in found]
    return [(one.page_content, one.metadata, one.metadata["score"]) for one in found]


def _llamaindex(base: Any, question: str, **how: Any) -> _Found:
    pytest.importorskip("llama_index.core", reason="needs the extra `llamaindex`: make test-llamaindex")
    from duckkb.integrations.llamaindex import LlamaIndexRetriever

    retriever = LlamaIndexRetriever(base, **how)
    found = retriever.retrieve(question)
    retriever.close()
    assert [one.node.node_id for one in found] == [one.node.metadata["uri"] for one in found]
    return [(one.node.get_content(), one.node.metadata, one.score or 0.0) for one in found]


@pytest.fixture(params=[_langchain, _llamaindex])
def retrieve(request: pytest.FixtureRequest) -> Callable[..., _Found]:
    found: Callable[..., _Found] = request.param
    return found


def make_ducks(root: Path) -> None:
    """Notes of ducks, a person and a long document, committed."""
    make_base(root, NOTES)
    (root / "guide").mkdir()
    (root / "guide/install.md").write_text(
        "---\ntitle: Install\n---\n# Before\n\n"
        + "\n".join(map("Read {}.".format, range(900)))
        + "\n\n# Ducks\n\nHow to install ducks.\n",
        "utf-8",
    )
    for number in range(4):
        note = {"id": f"n {number}", "title": f"ducks {number}", "text": "鸭子 swim", "size": number}
        assert run_in(root, ["put", "Note", json.dumps(note)]).code == 0
    assert run_in(root, ["put", "Person", '{"country": "cn", "number": 1, "name": "Ann Ducks"}']).code == 0
    assert run_in(root, ["collection", "add", "guide"]).code == 0
    assert run_in(root, ["update"]).code == 0
    commit(root)


@pytest.fixture
def base(tmp_path: Path, copy_of: CopyOf) -> Path:
    return copy_of(make_ducks, tmp_path / "kb")


@pytest.mark.long
def test_passages_tell_where_they_stand(base: Path, retrieve: Callable[..., _Found]) -> None:
    found = retrieve(base, "ducks", type="Note", mode="match", where="size > 0", limit=2)
    printed = run_in(base, ["find", "Note", "ducks", "-m", "-w", "size > 0", "-l", "2", "--provenance", "--json"])
    hits = printed.lines[0]["results"]
    assert [(meta["identity"], score, meta["uri"]) for _, meta, score in found] == [
        (hit["id"], hit["_score"], hit["_provenance"]["uri"]) for hit in hits
    ]
    for text, meta, _ in found:
        assert "ducks" in text and meta["commit"] == git(base, "rev-parse", "HEAD").strip()
        stored = (base / meta["path"]).read_text("utf-8").splitlines()[meta["line"] - 1]
        assert json.loads(stored)["id"] == meta["identity"]
        assert run_in(base, ["get", meta["uri"]]).lines[0]["id"] == meta["identity"]


def test_passages_of_documents_and_of_all_types(base: Path, retrieve: Callable[..., _Found]) -> None:
    with duckkb.open(base) as kb:
        every = {(meta["type"], json.dumps(meta["identity"])) for _, meta, _ in retrieve(kb, "ducks", mode="match")}
        ((text, meta, _),) = retrieve(kb, "install ducks", type="guide", mode="match")
        assert kb.find("Note", "ducks", mode="match")  # who gave it goes on with it
    assert {name for name, _ in every} == {"Note", "Person", "guide"} and ("Person", '["cn", 1]') in every
    assert meta["path"] == "guide/install.md" and "How to install ducks" in text
    lines = (base / meta["path"]).read_text("utf-8").splitlines()
    assert lines[meta["line"] - 1].endswith(text.splitlines()[0]) and meta["line"] > 400  # it begins within a line


def test_a_base_outside_of_git_cites_without_commits(base: Path, retrieve: Callable[..., _Found]) -> None:
    shutil.rmtree(base / ".git")
    found = retrieve(str(base), "ducks", type="Person", mode="match")
    ((_, meta, _),) = found
    assert "commit" not in meta and run_in(base, ["get", meta["uri"]]).lines[0]["name"] == "Ann Ducks"


def test_what_an_answer_went_without_is_said(tmp_path: Path, retrieve: Callable[..., _Found]) -> None:
    root = make_base(tmp_path / "kb", NOTES.replace("[title, text]}", "[title, text], vectors: [text]}", 1))
    assert run_in(root, ["put", "Note", '{"id": "n1", "text": "ducks swim"}']).code == 0
    with pytest.warns(UserWarning, match="answered without vectors"):
        assert not retrieve(root, "geese", type="Note", mode="hybrid")
    with pytest.warns(UserWarning, match="answered without vectors"):
        ((_, meta, _),) = retrieve(root, "ducks", type="Note", mode="hybrid")
    assert "answered without vectors" in meta["degraded"][0]
