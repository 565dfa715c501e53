"""Laws of the chunker."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckkb.index.text_chunks import chunk
from duckkb.types.records import Chunk

LAW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ENGLISH = [
    "the",
    "store",
    "index",
    "record",
    "field",
    "search",
    "vector",
    "word",
    "chunk",
    "file",
    "text",
    "line",
    "model",
    "value",
    "reader",
    "writer",
    "part",
    "lock",
    "commit",
    "branch",
    "merge",
    "change",
    "question",
    "answer",
    "because",
    "when",
    "after",
    "before",
    "under",
]
CHINESE = "数据库记录字段搜索向量词文件文本模型值读者写入部分锁提交分支合并改变问题答案因为当之后以前下面我们可以知道内存查询结果"
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


class Author:
    """Writes sections of paragraphs, in English or Chinese, with or without headings."""

    def __init__(self, draw: random.Random, language: str) -> None:
        self._draw, self._language = draw, language

    def sentence(self) -> str:
        draw = self._draw
        if self._language == "english":
            return " ".join(draw.choices(ENGLISH, k=draw.randint(5, 25))).capitalize() + ". "
        first, second = ("".join(draw.choices(CHINESE, k=draw.randint(6, 18))) for _ in range(2))
        return f"{first}，{second}。"

    def paragraph(self) -> str:
        return "".join(self.sentence() for _ in range(self._draw.randint(2, 6))).strip() + "\n\n"

    def sections(self, *, headed: bool) -> list[list[str]]:
        title = [f"## {self.sentence().strip()}\n\n"] if headed else []
        return [[*title, *(self.paragraph() for _ in range(self._draw.randint(2, 9)))] for _ in range(8)]


def edited(section: list[str], author: Author, draw: random.Random) -> list[str]:
    """The section with one paragraph inserted, deleted or replaced."""
    at = draw.randrange(1, len(section))
    new = [author.paragraph()] if (kind := draw.choice(["insert", "delete", "replace"])) != "delete" else []
    return [*section[:at], *new, *section[at + (kind != "insert") :]]


def touching(chunks: Sequence[Chunk], first: int, last: int) -> int:
    return sum(one.start < last and one.start + len(one.text) > first for one in chunks)


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("headed", [True, False])
def test_an_edit_changes_no_more_than_twice_the_chunks_of_its_section(language: str, headed: bool) -> None:
    """Fifty texts, four edits each; the bound holds over all of them, and no single edit is far above it."""
    draw = random.Random(f"{language} {headed}")
    changed, own = [], []
    for _ in range(50):
        author = Author(draw, language)
        text = author.sections(headed=headed)
        before = {one.text for one in chunk("".join(map("".join, text)), 800)}
        for number in draw.sample(range(8), 4):
            section = edited(text[number], author, draw)
            first = len("".join(map("".join, text[:number])))
            whole = "".join(map("".join, [*text[:number], section, *text[number + 1 :]]))
            after = chunk(whole, 800)
            changed.append(sum(one.text not in before for one in after))
            own.append(touching(after, first, first + len("".join(section))))
    assert sum(changed) <= sum(own), "half of what is promised"
    assert max(changed) <= 6
    assert sum(found > 2 * bound for found, bound in zip(changed, own, strict=True)) <= len(own) // 20


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_an_edit_in_one_long_paragraph_changes_few_chunks(language: str) -> None:
    """Nothing but sentences: a border is chosen among its like by what stands around it."""
    draw = random.Random(language)
    author = Author(draw, language)
    changed = []
    for _ in range(100):
        text = [author.sentence() for _ in range(120)]
        before = {one.text for one in chunk("".join(text), 800)}
        text.insert(draw.randrange(120), author.sentence())
        changed.append(sum(one.text not in before for one in chunk("".join(text), 800)))
    assert sum(changed) / len(changed) <= 2.5
    assert max(changed) <= 8


@LAW
@given(TEXTS, SIZES)
def test_none_of_several_chunks_is_tiny(text: str, size: int) -> None:
    """But where characters that belong together leave no other place to cut."""
    sizes = [len(piece.text) for piece in chunk(text, size)]
    assert len(sizes) < 2 or min(sizes) >= size // 4 - 4
