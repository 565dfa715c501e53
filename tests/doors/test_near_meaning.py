"""A new record that means what another means, told by vectors that are cached; no model runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import duckkb
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.types.records import Fingerprint
from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.fakes import HashEmbedder

SETTINGS = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[title, text], vectors: [text]")
SAME = {"One file holds all of it.": "Everything stands in a single file."}


class _KnowsOneMeaning(HashEmbedder):
    """Named as the offline model, so that the command line finds its vectors; two sentences mean nearly the same to it."""

    @property
    def fingerprint(self) -> Fingerprint:
        return LocalE5(Path("unused")).fingerprint

    def embed_passages(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed_passages([SAME.get(text, text) for text in texts])


def test_check_since_names_the_record_that_a_new_one_means(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", SETTINGS)
    with duckkb.open(root, embedder=_KnowsOneMeaning(384)) as kb:
        kb.put(
            "Note",
            [{"id": "old", "text": "Everything stands in a single file."}, {"id": "else", "text": "Bread is baked."}],
        )
        commit(root)
        git(root, "checkout", "-q", "-b", "topic")
        added = [{"id": "new", "text": "One file holds all of it."}, {"id": "own", "text": "The lake is deep."}]
        assert kb.put("Note", added).pending == 0
    ran = run_in(root, ["check", "--since", "main", "--json"])
    assert [(one["code"], one["identity"]) for one in ran.line["findings"]] == [("W_NEAR_DUPLICATE", "new")]
    assert ran.line["findings"][0]["message"].startswith("it means what Note old (data/nodes/note/")
    with duckkb.open(root, embedder=_KnowsOneMeaning(384)) as kb:
        kb.put("Note", [{"id": "late", "text": "Nobody has embedded this."}], embed=False)
    assert len(run_in(root, ["check", "--since", "main", "--json"]).line["findings"]) == 1
