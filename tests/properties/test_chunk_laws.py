"""Laws of the chunker."""

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckkb.indexing.chunk import chunk

LAW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PIECES = st.sampled_from(
    [
        "word",
        "a",
        " ",
        "\n",
        "\n\n",
        "\r\n",
        ". ",
        "! ",
        "，",
        "。",
        "内存数据库",
        "\t",
        "é",
        "\u0301",
        "👩‍💻",
        "🇨🇳",
        "x" * 70,
        "”",
    ]
)
TEXTS = st.lists(PIECES, max_size=120).map("".join)
SIZES = st.integers(1, 120)


@LAW
@given(TEXTS, SIZES)
def test_chunks_cover_the_text_in_order_without_overlap(text: str, size: int) -> None:
    chunks = chunk(text, size)
    assert "".join(piece.text for piece in chunks) == text
    assert [piece.seq for piece in chunks] == list(range(len(chunks)))
    assert all(text[piece.start : piece.start + len(piece.text)] == piece.text for piece in chunks)


@LAW
@given(TEXTS, SIZES)
def test_a_chunk_is_never_empty_and_never_larger_than_the_size(text: str, size: int) -> None:
    assert all(1 <= len(piece.text) <= size for piece in chunk(text, size))


@LAW
@given(TEXTS, st.integers(8, 120))
def test_a_line_end_of_two_characters_is_never_torn(text: str, size: int) -> None:
    chunks = [piece.text for piece in chunk(text, size)]
    assert not [left for left, right in pairwise(chunks) if left[-1] == "\r" and right[0] == "\n"]


@LAW
@given(st.lists(st.sampled_from(["word ", "other. ", "内存数据库，", "\n\n"]), min_size=1, max_size=200).map("".join))
def test_chunks_are_of_like_length(text: str) -> None:
    sizes = [len(piece.text) for piece in chunk(text, 60)]
    assert len(sizes) == 1 or min(sizes) >= 60 // 4


@LAW
@given(TEXTS, SIZES)
def test_cutting_again_gives_the_same(text: str, size: int) -> None:
    assert chunk(text, size) == chunk(text, size)
