"""The judged sets of the folder in DUCKKB_EVAL_DATA, English and Chinese: what is published finds what a clone finds."""

import json
import os
from itertools import islice
from pathlib import Path

import pytest

from duckkb import app
from tests.conformance.test_published import TARGETS
from tests.conftest import commit, make_base
from tests.fakes import HashEmbedder

CONFIG = """\
global: {fold_chinese: simplified, word_forms: all, fusion: {method: minmax, weight: 0.5, gate: 0.2}}
nodes:
  Text:
    table: text
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, title: {type: string}, text: {type: string}, size: {type: integer}}
      required: [id]
    search: {full_text: [title, text], vectors: [text]}
"""
SETS = (
    "scifact",
    "cranfield",
    "cmrc2018",
    "drcd_dev",
    "dureader_demo",
    "xquad_en",
    "xquad_zh",
    "xquad_zh2en",
    "xquad_en2zh",
)
SAMPLE = (300, 12)
"""Records and questions of each."""


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("records", "asked"), [SAMPLE, pytest.param(10_000, 200, marks=pytest.mark.larger)])
def test_a_judged_set_is_answered_as_in_a_clone(
    name: str, target: str, records: int, asked: int, tmp_path: Path
) -> None:
    data = os.environ.get("DUCKKB_EVAL_DATA")
    folder = Path(data or "", "retrieval", name)
    if not data or not folder.is_dir():
        pytest.skip("DUCKKB_EVAL_DATA names no folder with retrieval/")
    root, url, model = make_base(tmp_path / "kb", CONFIG), TARGETS[target].address(tmp_path), HashEmbedder()
    with (folder / "corpus.jsonl").open("rb") as lines, app.open(root, embedder=model) as kb:
        rows = [json.loads(line) for line in islice(lines, records)]
        kb.put("Text", [_record(row) for row in rows])
        kb.index_build()
        commit(root)
        app.publish(root, to=url, embedder=model)
        questions = [json.loads(line)["text"] for line in islice((folder / "queries.jsonl").open("rb"), asked)]
        with app.open(root, embedder=model, backend=url) as published:
            for question in questions:
                for mode, where in (
                    ("match", None),
                    ("hybrid", None),
                    ("hybrid", "size > 400"),
                    ("similar", "size > 9000"),
                ):
                    here, there = (one.find("Text", question, mode=mode, where=where) for one in (kb, published))  # type: ignore[arg-type]
                    assert [hit.identity for hit in there] == [hit.identity for hit in here], (question, mode, where)
                    for one, other in zip(there, here, strict=True):
                        assert one.score == pytest.approx(other.score, rel=1e-6, abs=1e-6), (question, mode, where)
                        assert one.chunk == other.chunk


def _record(row: dict[str, str]) -> dict[str, object]:
    return {"id": row["_id"], "title": row.get("title", ""), "text": row["text"], "size": len(row["text"])}
