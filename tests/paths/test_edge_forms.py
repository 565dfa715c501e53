"""An end is written with its type where it would be ambiguous without. Nodes come and go; an edge stays the record that it was."""

from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.types.errors import Conflict, NotFound, Refused

CONFIG = """
global: {embedding_model: none}
nodes:
  A: {table: a, identity: id, schema: {type: object, properties: {id: {type: string}}, required: [id]}}
  B: {table: b, identity: id, schema: {type: object, properties: {id: {type: string}}, required: [id]}}
edges:
  L: {from: [A, B], to: [A, B], schema: {type: object, properties: {w: {type: integer}}}}
"""
TYPED = [{"type": "A", "id": "1"}, "2"]


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    """A 1 and B 1, and an edge from the first, which has to be named with its type."""
    (tmp_path / "config.yaml").write_text(CONFIG, "utf-8")
    opened = duckkb.open(tmp_path)
    opened.put("A", [{"id": "1"}, {"id": "2"}])
    opened.put("B", {"id": "1"})
    opened.put("L", {"from": TYPED[0], "to": "2", "w": 1})
    return opened


def edges(kb: KnowledgeBase) -> list[dict[str, Any]]:
    return [{name: one[name] for name in ("from", "to", "w") if name in one} for one in kb.list("L").records]


@pytest.mark.parametrize("named", [TYPED, ["1", "2"]], ids=["typed", "bare"])
@pytest.mark.parametrize("change", ["delete", "rename"])
def test_an_edge_that_was_stored_with_a_type_is_the_same_one_once_that_is_not_needed(
    kb: KnowledgeBase, change: str, named: list[Any]
) -> None:
    kb.delete("B", "1") if change == "delete" else kb.rename("B", "1", "other")
    assert kb.get("L", named)["w"] == 1
    receipt = kb.put("L", {"from": named[0], "to": named[1], "w": 2})
    assert (receipt.inserted, receipt.updated) == (0, 1)
    assert kb.put_batch("L", b'{"from": "1", "to": "2", "w": 3}\n').updated == 1
    assert edges(kb) == [{"from": TYPED[0], "to": "2", "w": 3}]
    exported = list(kb.export("L"))
    assert kb.put("L", exported).unchanged == 1
    kb.delete("L", named)
    assert not edges(kb)


def test_an_edge_of_a_node_that_was_renamed_answers_to_its_new_name(kb: KnowledgeBase) -> None:
    kb.rename("A", "1", "7")
    for named in ([{"type": "A", "id": "7"}, "2"], ["7", "2"]):
        assert kb.get("L", named)["w"] == 1
    assert kb.put("L", {"from": "7", "to": "2", "w": 5}).updated == 1
    with pytest.raises(NotFound):
        kb.get("L", TYPED)


def test_pages_go_on_behind_an_edge_in_whichever_form_it_is_named(kb: KnowledgeBase) -> None:
    kb.put("A", [{"id": str(number)} for number in range(3, 8)])
    kb.put("L", [{"from": "2", "to": str(number)} for number in range(3, 8)])
    assert [one["to"] for one in kb.list("L", after=["2", "4"]).records][:3] == ["5", "6", "7"]
    assert kb.list("L", after=[{"type": "A", "id": "2"}, "4"]) == kb.list("L", after=["2", "4"])


def test_a_node_is_not_renamed_under_an_edge_that_may_mean_another_one(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, "utf-8")
    kb = duckkb.open(tmp_path)
    kb.put("A", {"id": "x"})
    kb.put("B", {"id": "g"})
    kb.put("L", {"from": "x", "to": "g"})
    kb.put("A", {"id": "g"})
    before = kb.list("L").records
    with pytest.raises(Refused) as refused:
        kb.rename("B", "g", "h")
    assert refused.value.code == "E_AMBIGUOUS_END" and kb.list("L").records == before
    assert kb.get("B", "g")


def test_each_version_that_is_merged_is_held_to_the_version_that_it_names(kb: KnowledgeBase) -> None:
    stale = [{"id": "1", "n": 1, "_etag": "0" * 16}, {"id": "1", "k": 2}]
    with pytest.raises(Conflict):
        kb.put("A", stale, merge=True)
    receipt = kb.put_batch("A", b'{"id": "1", "n": 1, "_etag": "0000000000000000"}\n{"id": "1", "k": 2}\n', merge=True)
    assert receipt.updated == 1 and [one.line for (one,) in receipt.errors] == [1]
    assert kb.get("A", "1").get("n") is None and kb.get("A", "1")["k"] == 2
