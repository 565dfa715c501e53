"""What `ask` refuses of judged questions over the repository's own base, before any model is asked (`bench/ask.py` prints them)."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

import duckkb
from duckkb.operations.ask import Declined, gather_evidence
from duckkb.review.history import parse
from tests.conftest import ROOT

QUESTIONS = yaml.safe_load((ROOT / "tests/quality/ask_questions.yaml").read_text("utf-8"))


@pytest.mark.long
@pytest.mark.model
def test_what_the_base_can_answer_is_asked_and_what_it_cannot_is_refused(own_base: Path) -> None:
    refused, asked = Counter[str](), Counter[str]()
    with duckkb.open(own_base) as kb, kb._now() as base:
        for one in QUESTIONS["answerable"]:
            found = gather_evidence(base, one["question"])
            refused["answerable"] += isinstance(found, Declined)
            packed = {parse(entry.uri).identity for entry in found.pack.entries}
            assert packed & set(one["records"]), one["question"]
        for one in QUESTIONS["unanswerable"]:
            asked[one["kind"]] += not isinstance(gather_evidence(base, one["question"]), Declined)
    assert refused["answerable"] <= 1 and asked["far"] == 0 and asked["near"] <= 1, (refused, asked)


def test_there_are_thirty_questions_with_an_answer_and_fifteen_without() -> None:
    assert (len(QUESTIONS["answerable"]), len(QUESTIONS["unanswerable"])) == (30, 15)
