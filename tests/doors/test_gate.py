"""The gate of a min-max fusion: where the words of a question hardly meet the records, the lexical lane does not count. The
share and the fused scores are held against the texts, with what the two single searches find."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

import duckkb
from duckkb import Fusion, config
from duckkb.ontology.presets import presets
from duckkb.types.queries import Mode
from duckkb.types.settings import Environment
from tests.conftest import make_base
from tests.fakes import HashEmbedder

TYPE = """\
  {name}:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, title: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [{{field: title, weight: 3}}, text], vectors: [text]}}
"""
SETTINGS = "global: {tokenizer: plain, language: none}\nnodes:\n" + TYPE.format(name="Doc") + TYPE.format(name="Other")
WORDS = [
    "storm",
    "river",
    "bridge",
    "garden",
    "winter",
    "market",
    "signal",
    "paper",
    "light",
    "stone",
    "cloud",
    "coast",
]
CLOSED = ["哪里有桥", "花园在冬天 storm", "unknown words alone"]
OPEN = ["storm river", "garden", "winter market paper 。", "signal coast coast"]


def texts() -> dict[str, tuple[str, str]]:
    draw = Random(5)
    return {
        f"d{number:02}": (draw.choice(WORDS), " ".join(draw.choices(WORDS[1:], k=draw.randint(4, 12))))
        for number in range(70)
    }


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[duckkb.KnowledgeBase]":
    root = make_base(tmp_path_factory.mktemp("gate") / "kb", SETTINGS)
    with duckkb.open(root, embedder=HashEmbedder(16)) as opened:
        opened.put("Doc", [{"id": name, "title": title, "text": text} for name, (title, text) in texts().items()])
        opened.put("Other", [{"id": "o1", "text": "桥在河上，花园在桥边"}, {"id": "o2", "title": "only words: 河上"}])
        yield opened


def asked_for(text: str) -> set[str]:
    """Latin words, and of each run of Chinese characters the pairs and the characters."""
    runs = re.findall("[\u4e00-\u9fff]+", text)
    pairs = {run[at : at + 2] + " pair" for run in runs for at in range(max(len(run) - 1, 1))}
    return set(re.findall("[a-z]+", text)) | pairs | {character for run in runs for character in run}


def share(question: str, best: str) -> float:
    """What one record has of the idf mass of a question, each thing once. A word counts as in the field that has it most."""
    every = texts()

    def idf(thing: str) -> float:
        most = max(sum(thing in asked_for(one[at]) for one in every.values()) for at in (0, 1))
        return math.log(1 + (len(every) - most + 0.5) / (most + 0.5))

    held = {thing for thing in asked_for(question) if thing in asked_for(" ".join(every[best]))}
    return sum(map(idf, held)) / sum(map(idf, asked_for(question)))


def lane(kb: "duckkb.KnowledgeBase", question: str, mode: Mode) -> dict[str, float]:
    return {hit.identity: hit.score or 0.0 for hit in kb.find("Doc", question, mode=mode, limit=50)}


def fused(vector: Mapping[str, float], words: Mapping[str, float], weight: float) -> list[tuple[str, float]]:
    total = dict.fromkeys([*vector, *words], 0.0)
    for scores, part in ((vector, weight), (words, 1 - weight)):
        for name, score in scores.items():
            low, high = min(scores.values()), max(scores.values())
            total[name] += part * ((score - low) / (high - low) if high > low else 0.5)
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))


@pytest.mark.parametrize("question", [*CLOSED, *OPEN])
@pytest.mark.parametrize("gate", [0.0, 0.2, 0.7])
def test_the_lexical_lane_counts_where_its_best_record_covers_enough(
    kb: "duckkb.KnowledgeBase", question: str, gate: float
) -> None:
    vector, words = lane(kb, question, "similar"), lane(kb, question, "match")
    covered = share(question, next(iter(words))) if words else 0.0
    is_closed = covered < gate
    assert gate != 0.2 or is_closed is (question in CLOSED)
    found = kb.find("Doc", question, mode="hybrid", fusion=Fusion("minmax", weight=0.5, gate=gate), explain=True)
    expected = fused(vector, {} if is_closed else words, 0.5)[:10]
    assert [hit.identity for hit in found] == [name for name, _ in expected]
    assert [hit.score for hit in found] == pytest.approx([score for _, score in expected], abs=1e-9)
    assert found.explain is not None
    account = {"least": gate, "share": pytest.approx(covered, abs=1e-9), "closed": is_closed}
    assert found.explain["fusion"] == {"method": "minmax", "weight": 0.5} | ({"gate": account} if gate else {})
    for hit in found:
        assert hit.trace is not None and hit.scores is not None
        assert hit.trace.get("gate") == (account if gate else None)
        assert not is_closed or (hit.trace["lanes"]["fts"]["rank"], hit.scores["sources"]) == (None, ["vector"])
    assert found == kb.find(
        "Doc", question, mode="hybrid", fusion=Fusion("minmax", weight=0.5, gate=gate), explain=True
    )


def test_a_quotation_counts_by_what_it_found_and_no_gate_closes_without_vectors(kb: "duckkb.KnowledgeBase") -> None:
    gate = Fusion("minmax", weight=0.5, gate=0.99)

    def told(type: str, question: str) -> object:
        explain = kb.find(type, question, mode="hybrid", fusion=gate, explain=True).explain
        return explain and explain["fusion"].get("gate")

    two = texts()["d00"][1].split()[:2]
    assert told("Doc", f'"{" ".join(two)}"') == {"least": 0.99, "share": 1.0, "closed": False}
    assert told("Doc", f'"{two[0]} {two[1]} {two[0]}" {two[1]}') == {"least": 0.99, "share": 1.0, "closed": False}
    assert told("Doc", f"{two[0][:3]}*") == {"least": 0.99, "share": 1.0, "closed": False}
    assert told("Doc", "-storm") == {"least": 0.99, "share": None, "closed": False}
    only = kb.find("Other", "河上", mode="hybrid", fusion=gate, where="id = 'o2'", explain=True)
    assert [hit.identity for hit in only] == ["o2"] and "gate" not in (only.explain or {})["fusion"]


def test_over_several_types_the_first_record_of_them_all_decides(kb: "duckkb.KnowledgeBase") -> None:
    for question, closed in (("桥在河上", False), ("storm", False), ("数据库在哪里 storm", True)):
        first = kb.find("all", question, mode="match", limit=1)[0]
        found = kb.find("all", question, mode="hybrid", fusion=Fusion("minmax", weight=0.5, gate=0.2), explain=True)
        gate = (found.explain or {})["fusion"]["gate"]
        assert gate["closed"] is closed
        assert (first.type == "Doc") is ("storm" in question)
        expected = share(question, first.identity) if first.type == "Doc" else 1.0
        assert gate["share"] == pytest.approx(expected, abs=1e-9)


def test_a_new_base_and_document_collections_have_a_gate(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    duckkb.init(root)
    assert config.load(root, Environment()).settings.fusion == Fusion("minmax", weight=0.5, gate=0.2)
    assert presets()["documents"].overrides["fusion"] == Fusion("minmax", weight=0.5, gate=0.2)
    (root / "config.yaml").write_text(SETTINGS.replace("global: {", "global: {fusion: {method: minmax, gate: 0.5}, "))
    with duckkb.open(root, embedder=HashEmbedder(16)) as opened:
        opened.put("Doc", {"id": "a", "text": "storm"})
        found = opened.why("Doc", "a", "桥 river", mode="hybrid")
    assert [said for said in found.notices if "less than the gate of 0.5" in said]
