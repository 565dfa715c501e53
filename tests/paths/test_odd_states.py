"""Bases and processes in odd states: emptied on purpose, interrupted, edited where duckkb would compute."""

import _imp
import shutil
from pathlib import Path

import pytest

import duckkb
from duckkb.types.errors import StateError
from tests.conftest import commit, git, make_base
from tests.fakes import HashEmbedder


def test_a_base_that_was_emptied_on_purpose_is_no_base_whose_data_is_missing(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a"}, {"id": "b"}])
    commit(notes)
    with duckkb.open(notes) as kb:
        kb.delete("Note", "a", "b")
    with duckkb.open(notes) as kb:
        assert kb.list("Note").total == 0
        kb.put("Note", {"id": "c"})
    commit(notes)
    shutil.rmtree(notes / "data")
    with pytest.raises(StateError) as caught:
        duckkb.open(notes)
    assert caught.value.code == "E_DATA_MISSING", "what was on purpose before another commit is not on purpose now"
    git(notes, "checkout", "-q", "--", "data")
    with duckkb.open(notes) as kb:
        assert kb.list("Note").total == 1


def test_a_call_that_was_interrupted_leaves_no_import_lock_behind(tmp_path: Path) -> None:
    """As where Ctrl-C comes right after importlib took the lock: later every import of another thread would hang."""

    def interrupted(label: str, done: int, total: int) -> None:
        _imp.acquire_lock()
        _imp.acquire_lock()
        raise KeyboardInterrupt

    root = make_base(tmp_path / "kb", "global: {chunk_size: 200}\n")
    with duckkb.open(root, embedder=HashEmbedder(), progress=interrupted) as kb:
        kb.collections.init("texts", policy="knowledge-base")
        with pytest.raises(KeyboardInterrupt):
            kb.put("texts", {"id": "a", "content": "words that no other test has embedded"})
        assert not _imp.lock_held()
        _imp.acquire_lock()  # a lock that is held by right is left alone by calls that end well
        assert kb.list("texts").total == 0
        assert _imp.lock_held()
        _imp.release_lock()


def test_a_key_that_another_text_holds_is_not_overwritten(notes: Path) -> None:
    with duckkb.open(notes, embedder=HashEmbedder()) as kb:
        kb.collections.init("answers", policy="vector-store")
        (key,) = kb.put("answers", {"embedding_text": "cat", "value": 1}).identities[0]
        part = next((notes / "data" / "nodes" / "answers").rglob("part_*.jsonl"))
        part.write_text(part.read_text("utf-8").replace('"cat"', '"dog"'), "utf-8")
        (other,) = kb.put("answers", {"embedding_text": "cat", "value": 2}).identities[0]
        assert other != key and kb.put("answers", {"embedding_text": "cat", "value": 3}).identities[0] == (other,)
        values = {record["key"]: (record["embedding_text"], record["value"]) for record in kb.list("answers")}
        assert values == {key: ("dog", 1), other: ("cat", 3)}
