"""Feedback: the vector lane runs once more, with the question moved towards its first hits."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import duckkb
from duckkb import Expansion
from duckkb.engine.rank_fusion import feedback
from tests.conftest import make_base
from tests.fakes import FrozenClock, HashEmbedder

ONTOLOGY = """\
global: {embedding_model: multilingual-e5-small, chunk_size: 200}
nodes:
  Doc:
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}, required: [id]}
    search: {full_text: [text], vectors: [text]}
    policy: fed
policies:
  fed: {expansion: {method: feedback}}
"""
WORDS = [
    "river",
    "stone",
    "cloud",
    "paper",
    "light",
    "garden",
    "winter",
    "signal",
    "market",
    "bridge",
    "河流",
    "石头",
    "云彩",
    "花园",
    "冬天",
]
VECTOR = st.lists(st.floats(-1, 1).map(lambda value: round(value, 6)), min_size=4, max_size=4)


@given(VECTOR, st.lists(VECTOR, max_size=4), st.floats(0, 1))
def test_feedback_is_the_weighted_sum_of_unit_vectors(
    question: list[float], found: list[list[float]], weight: float
) -> None:
    def unit(vector: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(vector)
        return vector / length if length else vector

    wanted = unit(np.array(question, np.float64))
    if found:
        wanted = (1 - weight) * wanted + weight * np.mean([unit(np.array(one, np.float64)) for one in found], axis=0)
    if found and np.linalg.norm(wanted) < 1e-6:
        return  # opposite vectors cancel out: what is left has no direction worth comparing
    assert np.allclose(feedback(question, found, weight), unit(wanted), atol=1e-9)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    rng = random.Random(7)
    root = make_base(tmp_path / "docs", ONTOLOGY)
    with _open(root) as kb:
        texts = [" ".join(rng.choices(WORDS, k=9)) for _ in range(120)]
        kb.put("Doc", [{"id": f"d{number:03}", "text": text} for number, text in enumerate(texts)])
    return root


def _open(root: Path) -> duckkb.KnowledgeBase:
    return duckkb.open(root, embedder=HashEmbedder(), clock=FrozenClock("2026-05-04T10:00:00.000000Z"))


def test_the_lane_ranks_by_the_moved_question(docs: Path) -> None:
    model, question = HashEmbedder(), "bridge over 河流"
    with _open(docs) as kb:
        texts = {record["id"]: record["text"] for record in kb.list("Doc", limit=1000)}
        stored = dict(zip(texts, model.embed_passages(list(texts.values())).astype(np.float64), strict=True))
        plain = kb.find("Doc", question, mode="similar", expansion=Expansion("none"), limit=3)
        moved = 0.7 * model.embed_queries([question])[0] + 0.3 * np.mean(
            [stored[hit.identity] for hit in plain], axis=0
        )
        cosines = {name: round(float(vector @ moved / np.linalg.norm(moved)), 6) for name, vector in stored.items()}
        found = kb.find("Doc", question, mode="similar", limit=20, explain=True)
        assert [hit.identity for hit in found] == sorted(cosines, key=lambda name: (-cosines[name], name))[:20]
        assert [hit.score for hit in found] == pytest.approx([cosines[hit.identity] for hit in found], abs=2e-6)
        assert found.explain is not None
        assert found.explain["expansion"] == {
            "method": "feedback",
            "weight": 0.3,
            "hits": 3,
            "moved_to": [hit.identity for hit in plain],
        }
        assert [hit.identity for hit in kb.find("Doc", question, mode="similar", limit=1)] == [found[0].identity]


def test_rrf_stays_the_fusion_of_the_two_single_lists(docs: Path) -> None:
    with _open(docs) as kb:
        for question in ("winter garden", "石头 signal", "paper"):
            lanes = [
                [hit.identity for hit in kb.find("Doc", question, mode=mode, limit=50)] for mode in ("similar", "match")
            ]
            score = {
                name: sum(1 / (61 + lane.index(name)) for lane in lanes if name in lane)
                for name in {*lanes[0], *lanes[1]}
            }
            found = kb.find("Doc", question, mode="hybrid", limit=10)
            assert [hit.identity for hit in found] == sorted(score, key=lambda name: (-score[name], name))[:10]
            assert all(abs(hit.score - score[hit.identity]) < 1e-9 for hit in found)


def test_a_vector_that_the_caller_gives_is_not_moved_and_words_have_no_vector(docs: Path) -> None:
    with _open(docs) as kb:
        vector = HashEmbedder().embed_queries(["cloud"])[0]
        given_vector = kb.find("Doc", vector=vector, limit=10, explain=True)
        assert given_vector.explain is not None and given_vector.explain["expansion"] is None
        assert [hit.identity for hit in given_vector] == [
            hit.identity for hit in kb.find("Doc", "cloud", mode="similar", expansion=Expansion("none"), limit=10)
        ]
        words = kb.find("Doc", "cloud", mode="match", explain=True)
        assert words.explain is not None and words.explain["expansion"] is None


def test_the_filter_holds_for_what_moves_the_question(docs: Path) -> None:
    with _open(docs) as kb:
        found = kb.find("Doc", "market", mode="similar", where="id < 'd010'", limit=50, explain=True)
        assert len(found) == 10 and found.explain is not None
        assert set(found.explain["expansion"]["moved_to"]) <= {hit.identity for hit in found}
        nothing = kb.find("Doc", "market", mode="similar", where="id = 'none'", explain=True)
        assert not nothing and nothing.explain is not None and nothing.explain["expansion"]["moved_to"] == []
