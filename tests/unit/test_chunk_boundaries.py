"""Where a text is cut."""

import pytest

from duckkb.index.text_chunks import chunk, field_text
from duckkb.types.records import Chunk


def texts(text: str, size: int) -> list[str]:
    return [piece.text for piece in chunk(text, size)]


def test_an_empty_text_has_no_chunks() -> None:
    assert chunk("", 800) == []


def test_a_text_of_the_size_is_one_chunk() -> None:
    assert chunk("x" * 800, 800) == [Chunk(0, 0, "x" * 800)]
    assert len(chunk("x" * 801, 800)) == 2


@pytest.mark.parametrize("size", [0, -5])
def test_a_size_below_one_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match="characters"):
        chunk("text", size)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One a. Two b.\n\nThree c. Four d.\nFive e.", "One a. Two b.\n\n"),
        ("One a. Two b.\r\n\r\nThree c. Four d.", "One a. Two b.\r\n\r\n"),
        ("One a two b\nthree c. Four d, five.", "One a two b\n"),
        ("One two, three. Four, five six seven", "One two, three. "),
        ('He said "no more." Then he went, silent', 'He said "no more." '),
        ("内存数据库，查询很快。数据在文件里，可以重建，不会丢失", "内存数据库，查询很快。"),
        ("他说：“可以重建。”然后离开，没有再说什么，也没有回来", "他说：“可以重建。”"),
        ("内存数据库查询很快，数据在文件里可以随时重建不丢失", "内存数据库查询很快，"),
        ("one-two-three-four five-six-seven-eight", "one-two-three-four "),
        ("version-3.14 and-2.0.1-is-out-as-of-now", "version-3.14 "),
        ("Words before it.\n\nMore.\n# Title\n\nText.", "Words before it.\n\nMore.\n"),
        ("```\nprogram\n# said\n```\n\nText that stands.", "```\nprogram\n# said\n```\n\n"),
    ],
)
def test_the_best_boundary_in_reach_is_taken(text: str, first: str) -> None:
    assert texts(text, len(text) - 2)[0] == first


def test_a_word_longer_than_a_chunk_is_cut_into_as_few_pieces_as_may_be() -> None:
    assert [len(piece) for piece in texts("x" * 2000, 800)] == [800, 800, 400]
    assert [len(piece) for piece in texts("x" * 1650, 800)] == [800, 425, 425]


@pytest.mark.parametrize("unit", ["e\u0301", "\r\n", "👩‍💻", "👍🏽", "🇨🇳", "❤️", "नि"])
@pytest.mark.parametrize("size", [7, 10, 33])
def test_what_is_one_character_to_a_reader_stays_whole(unit: str, size: int) -> None:
    pieces = texts(unit * 60, size)
    assert len(pieces) > 1
    assert all(piece == unit * (len(piece) // len(unit)) for piece in pieces)


def test_marks_without_end_are_cut_all_the_same() -> None:
    pieces = texts("e" + "\u0301" * 100, 30)
    assert max(map(len, pieces)) <= 30


def test_no_tiny_last_chunk() -> None:
    for length in range(801, 2500, 37):
        sizes = [len(piece) for piece in texts("word " * (length // 5) + "x" * (length % 5), 800)]
        assert min(sizes) >= 200


def test_a_chunk_starts_with_a_word() -> None:
    assert not [piece for piece in texts("Some words. " * 500, 100) if piece[0].isspace()]


def test_an_edit_at_the_end_leaves_the_first_chunks_alone() -> None:
    text = "".join(f"Paragraph {number} says something short.\n\n" for number in range(300))
    before, after = texts(text, 800), texts(text.replace("Paragraph 299", "Section 299"), 800)
    assert before[:5] == after[:5]
    assert len(before) == len(after)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (["内存", "", "DuckDB", None], "内存\nDuckDB"),
        ([], ""),
        (None, ""),
        (42, "42"),
        (True, "true"),
        ({"a": ["é"]}, '{"a": ["é"]}'),
    ],
)
def test_a_field_is_searched_as_text(value: object, text: str) -> None:
    assert field_text(value) == text
