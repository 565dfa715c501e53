"""Embedders of callers, who know nothing of our errors: what they do wrong costs no record and no answer by words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import duckkb
from duckkb.types.errors import Unavailable
from tests.conftest import NOTES, make_base
from tests.fakes import HashEmbedder

CONFIG = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[title, text], vectors: [text]")


class _Odd(HashEmbedder):
    """Answers with a value or by raising an error."""

    def __init__(self, answer: Any) -> None:
        super().__init__(8)
        self.answer = answer

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        raise ZeroDivisionError


ODD = {
    "an error of its own": RuntimeError("boom: hello fox"),
    "no memory": MemoryError(),
    "nothing": None,
    "text": "no vectors",
    "too few rows": np.zeros((0, 8)),
    "another length": np.ones((1, 3)),
    "no numbers": np.full((1, 8), np.nan),
}


@pytest.mark.parametrize("how", ODD)
def test_a_record_is_stored_and_found_by_words_whatever_the_embedder_does(tmp_path: Path, how: str) -> None:
    with duckkb.open(make_base(tmp_path / "kb", CONFIG), embedder=_Odd(ODD[how])) as kb:
        receipt = kb.put("Note", {"id": "a", "text": "hello fox"})
        assert (receipt.inserted, receipt.pending, receipt.notices[0].code) == (1, 1, "W_PENDING")
        found = kb.find("Note", "fox", mode="hybrid")
        assert ([hit.identity for hit in found], found.degraded) == (["a"], True)
        assert "W_DEGRADED" in {notice.code for notice in found.notices}
        for ask in (lambda: kb.find("Note", "fox", mode="similar"), lambda: kb.embed("fox")):
            with pytest.raises(Unavailable) as caught:
                ask()
            assert caught.value.code == "E_MODEL" and "hello fox" not in str(caught.value)
