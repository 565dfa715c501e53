"""The line that is cited of a document has a word of the question wherever any of its lines has one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duckkb
from duckkb.engine.rank_fusion import LONGEST, fitting_span
from duckkb.operations.document_search import SearchOptions
from tests.conftest import make_base, run_in
from tests.fakes import HashEmbedder

PLACES = {
    "disclosing": "They disclose it to nobody.",
    "内存": "内存很快。",
    "断电时数据": "断电时数据不会丢失。",
    "データ": "大きなデータベースです",
    "🦆": "one 🦆 there",
    "E_DUP_ID": "it says e_dup_id and stops",
    "Zürich": f"{'from there to somewhere ' * 60}Zürich {'and back again ' * 40}",
}
"""By what is asked for the only line that holds it, in other words of the same stem or run."""
FILLER = ("nothing of that stands here", "这里没有什么", "それはここにはない", "plain words alone, again and again")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[tuple[duckkb.KnowledgeBase, Path]]":
    root = make_base(tmp_path_factory.mktemp("cited") / "kb", "global: {embedding_model: none}\n")
    (root / "docs").mkdir()
    lines = list(PLACES.values())
    for number in range(14):
        some = lines[number % len(lines) :: 1 + number % 3]
        filled = [FILLER[(number + at) % len(FILLER)] for at in range(240)]
        for at, line in enumerate(some):
            filled.insert((at + 1) * 211 * (number + 1) % 230, line)
        head = "---\ntitle: Kept\n---\n" if number % 2 else "# A title with disclosing in it\n"
        (root / "docs" / f"{number}.md").write_text(head + "\n".join(filled) + "\n", "utf-8")
    assert run_in(root, ["collection", "add", "docs"]).code == 0
    with duckkb.open(root, embedder=HashEmbedder(16)) as opened:
        opened.index_build()
        yield opened, root / "docs"


@pytest.mark.long
@pytest.mark.parametrize("how", ["search", "query"])
@given(asked=st.sets(st.sampled_from(sorted(PLACES)), min_size=1, max_size=3), typed=st.booleans())
def test_the_cited_line_has_a_word_of_the_question_wherever_a_line_has_one(
    documents: "tuple[duckkb.KnowledgeBase, Path]", how: str, asked: set[str], typed: bool
) -> None:
    kb, folder = documents
    question = " ".join(sorted(asked))
    if typed and how == "query":
        question = f"vec: {question}\nlex: {sorted(asked)[0]}"
    for hit in kb.search_documents(question, "query" if how == "query" else "search", SearchOptions(limit=None)):
        lines = (folder / hit["file"].rpartition("/")[2]).read_text("utf-8").split("\n")
        fitting = {PLACES[one] for one in asked} | {
            line for line in lines if "disclosing" in asked and "disclosing" in line
        }
        if fitting.isdisjoint(lines):
            continue
        assert lines[hit["line"] - 1] in fitting, (question, hit)
        forms = ("disclos", "内存", "断电", "数据", "データ", "🦆", "e_dup_id", "Zürich")
        assert any(form in hit["snippet"] for form in forms), hit["snippet"]


@given(before=st.integers(0, 900), after=st.integers(0, 900), breaks=st.sampled_from([" ", "，", ""]))
def test_of_a_long_line_the_stretch_that_holds_the_word_is_taken(before: int, after: int, breaks: str) -> None:
    text = f"first\n{('字' + breaks) * before}needle{breaks}{('字' + breaks) * after}\nlast"
    start, end = fitting_span(text, lambda texts: [("needle" in one, 0.0) for one in texts])
    assert "needle" in text[start : start + LONGEST] and text[start:end] in text.split("\n")[1]


def test_where_nothing_fits_the_first_line_with_anything_is_taken() -> None:
    nothing = lambda texts: [(False, 0.0)] * len(texts)  # noqa: E731
    assert fitting_span("\n\n  \nfirst\nsecond", nothing) == (5, 10)
    assert fitting_span(" \n", nothing) == (0, 0)
