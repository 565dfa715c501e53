"""What a write says of the fields that it was given, and that a text of a vector store has one key."""

from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.types.errors import Refused
from tests.conftest import commit, git, make_base

WORDS_ONLY = "global: {embedding_model: none}\n"


def codes(receipt: duckkb.Receipt) -> list[str]:
    return [notice.code for notice in receipt.notices]


def stored(kb: duckkb.KnowledgeBase) -> dict[str, Any]:
    """The fields of note a."""
    return {name: value for name, value in kb.get("Note", "a").items() if not name.startswith("_")}


def test_a_null_that_is_not_stored_is_said_and_one_that_removes_a_field_is_not(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        receipt = kb.put("Note", [{"id": "a", "title": None, "text": "x"}, {"id": "b", "title": None}])
        assert codes(receipt) == ["W_NULL"] and "title" in receipt.notices[0].message
        assert stored(kb) == {"id": "a", "text": "x"}
        merged = kb.put("Note", {"id": "a", "text": None}, merge=True)
        assert codes(merged) == [] and stored(kb) == {"id": "a"}


@pytest.mark.parametrize(
    ("record", "near"),
    [
        ({"id": "a", "titel": "x"}, "title"),
        ({"id": "a", "Title": "x"}, "title"),
        ({"id": "a", "tag": ["x"]}, "tags"),
        ({"id": "a", "title": "x", "titel": "y"}, ""),  # the one that is meant is there too
        ({"id": "a", "subtitle": "x"}, ""),
        ({"id": "a", "title_zh": "x"}, ""),
    ],
)
def test_a_field_that_nearly_has_the_name_of_another_is_said(notes: Path, record: dict[str, Any], near: str) -> None:
    with duckkb.open(notes) as kb:
        receipt = kb.put("Note", record)
        assert stored(kb) == record, "it is stored all the same"
    assert [f"did you mean {near}?" in notice.message for notice in receipt.notices] == ([True] if near else [])
    assert codes(receipt) == (["W_FIELD"] if near else [])


def test_a_collection_knows_the_names_that_its_records_have(tmp_path: Path) -> None:
    with duckkb.open(make_base(tmp_path / "kb", WORDS_ONLY)) as kb:
        kb.collections.init("logs", policy="structured-logs")
        assert codes(kb.put("logs", {"id": "1", "author": "ann", "field1": 1})) == [], "the first of all names them"
        assert codes(kb.put("logs", {"id": "2", "autor": "ann"})) == ["W_FIELD"]
        assert codes(kb.put("logs", {"id": "3", "autor": "ann"})) == [], "from then on there is such a field"
        assert codes(kb.put("logs", {"id": "4", "field2": 1})) == []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", WORDS_ONLY)
    with duckkb.open(root) as kb:
        kb.collections.init("vs", policy="vector-store")
        kb.put("vs", {"key": "mine", "embedding_text": "hello", "value": 1})
    return root


def test_a_text_comes_under_no_second_key(store: Path) -> None:
    with duckkb.open(store) as kb:
        with pytest.raises(Refused, match="the key mine has the same embedding_text") as refusal:
            kb.put("vs", {"key": "other", "embedding_text": "hello", "value": 2})
        assert refusal.value.code == "E_EXISTS"
        assert kb.put("vs", {"embedding_text": "hello", "value": 3}).identities == (("mine",),)
        made = kb.put("vs", {"embedding_text": "made", "value": 1}).identities[0]
        with pytest.raises(Refused, match=str(made[0])):
            kb.put("vs", {"key": "other", "embedding_text": "made", "value": 2})
        with pytest.raises(Refused):
            kb.put(
                "vs",
                [
                    {"key": "p", "embedding_text": "twice", "value": 1},
                    {"key": "q", "embedding_text": "twice", "value": 1},
                ],
            )
        kb.put(
            "vs",
            [
                {"key": "mine", "embedding_text": "bye", "value": 1},
                {"key": "other", "embedding_text": "hello", "value": 1},
            ],
        )
        assert {record["key"]: record["embedding_text"] for record in kb.list("vs")} == {
            "mine": "bye", "other": "hello", made[0]: "made",
        }  # fmt: skip


def test_a_text_that_two_branches_gave_two_keys_is_a_finding_and_its_records_can_be_written(store: Path) -> None:
    commit(store)
    git(store, "checkout", "-q", "-b", "theirs")
    with duckkb.open(store) as kb:
        kb.put("vs", {"key": "theirs", "embedding_text": "both", "value": 1})
    commit(store)
    git(store, "checkout", "-q", "main")
    with duckkb.open(store) as kb:
        kb.put("vs", {"key": "ours", "embedding_text": "both", "value": 1})
    commit(store)
    git(store, "merge", "-q", "--no-edit", "theirs")
    with duckkb.open(store) as kb:
        assert [(one.code, one.field) for one in kb.check().findings] == [("W_SAME_TEXT", "/embedding_text")]
        kb.put("vs", [{"key": key, "embedding_text": "both", "value": 2} for key in ("ours", "theirs")])
        kb.delete("vs", "theirs")
        assert kb.check().findings == ()


def test_a_note_type_without_keys_of_texts_may_say_things_twice(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a", "text": "same"}, {"id": "b", "text": "same"}])
        assert kb.check().findings == ()
