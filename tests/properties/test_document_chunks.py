"""Laws of the chunks of documents, and their break points against a naive reading of the formula."""

import random
from fractions import Fraction
from zlib import crc32

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from duckkb.documents import document_chunks, markdown
from duckkb.documents.document_chunks import Marks, Size, Span, chunks, markdown_marks

LAW = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
SMALL = Size(40, 6, 20)

BLOCKS = st.sampled_from(
    [
        "# One\n",
        "## Two\n",
        "## Two again\n",
        "### Three\n",
        "###### Six\n",
        "\n",
        "\n",
        "---\n",
        "* * *\n",
        "- item of a list\n",
        "12. item with a number\n",
        "words of a line that stands here\n",
        "内存数据库存在文件里，可以重建。\n",
        "a paragraph. It has sentences. And one more, which is longer than the others are\n\n",
        "```\ncode = 1\n\n# not a heading\n```\n",
        "   ~~~~ python\nx\n~~~\n- y\n~~~~~\n",
        "```\n" + "line of a long program\n\n" * 12 + "```\n",
    ]
)
DOCUMENTS = st.lists(BLOCKS, max_size=60).map("".join)
ODD = st.sampled_from(
    [
        "a",
        " ",
        "\n",
        "\r\n",
        "\t",
        ". ",
        "。",
        "内存",
        "é",
        "\u0301",
        "👩‍💻",
        "👍🏽",
        "🇨🇳",
        "🇩🇪",
        "x" * 50,
        "```\n",
        "# h\n",
        "~~~",
        "\u200d",
    ]
)


def cut(text: str, size: Size = SMALL) -> list[Span]:
    return chunks(text, markdown_marks(text, markdown.headings(text)), size)


class Oracle:
    """The same by definition: every line looked at, every place tried, no cleverness. Of texts without odd characters."""

    def __init__(self, text: str, size: Size) -> None:
        self.text, self.size = text, size
        self.ends = [one.end() for one in document_chunks._TOKEN.finditer(text)]
        self.bases, self.sections, fences = {}, {}, []
        opened, at, above = None, 0, ""
        for line in text.splitlines(keepends=True):
            bare, base = line.strip(), 1 if not line.strip() else 20 if at and not above.strip() else 1
            if opened:
                self.bases[at] = base
                if bare and set(bare) == {opened[0]} and len(bare) >= len(opened):
                    fences[-1][1] = at + len(line)
                    opened = None
            elif bare.startswith(("```", "~~~")):
                self.bases[at], opened = 80, bare[: len(bare) - len(bare.lstrip(bare[0]))]
                fences.append([at, len(text)])
            else:
                if bare[:2] in ("- ", "12"):
                    base = max(base, 5)
                if bare in ("---", "* * *") and not (bare == "---" and above.strip() and not self._is_block(above)):
                    base = 60
                level = len(bare) - len(bare.lstrip("#"))
                if level or (bare == "---" and base != 60):
                    base = {0: base, 1: 100, 2: 90, 3: 80, 6: 50}[level]
                    if level:
                        self.sections[at] = base
                self.bases[at] = base
            at, above = at + len(line), line
        for fence in fences:
            if fence[1] < len(text):
                self.bases[fence[1]] = max(80, self.bases.get(fence[1], 0))
        self.whole = [fence for fence in fences if self.count(fence[1]) - self.count(fence[0]) <= size.target]

    def _is_block(self, line: str) -> bool:
        return line.startswith(("#", "-", "*", "```", "~~~", "12"))

    def count(self, at: int) -> int:
        return sum(end <= at for end in self.ends)

    def around(self, at: int) -> list[int] | None:
        return next((fence for fence in self.whole if fence[0] < at < fence[1]), None)

    def score(self, base: int, distance: int) -> Fraction:
        return base * (1 - Fraction(distance, self.size.window) ** 2 * Fraction(7, 10))

    def end(self, start: int, fresh: int, bound: int) -> int | None:
        """Where the piece ends; None where no line begins in its window, of which the formula says nothing."""
        target = self.count(start) + self.size.target
        if self.count(bound) <= target:
            return bound
        places = [
            (self.score(base, target - self.count(at)), at)
            for at, base in self.bases.items()
            if at > fresh and 0 <= target - self.count(at) <= self.size.window and not self.around(at)
        ]
        if places:
            return max(places)[1]
        whole = self.around(self.ends[target - 1])
        return None if whole is None else whole[0] if whole[0] > fresh else whole[1]

    def anchors(self) -> list[int]:
        """Headings apart from all others that are as good; of texts whose stretches without one are short."""
        reach, found = int(self.size.target * document_chunks.NEAR), []
        inside = [at for at in self.sections if at and not self.around(at)]
        keys = {at: (-self.sections[at], crc32(self.text[at : at + 64].encode())) for at in inside}
        for at in inside:
            rivals = [one for one in inside if one != at and keys[one] <= keys[at]]
            if all(abs(self.count(at) - self.count(one)) > reach for one in [0, len(self.text), *rivals]):
                found.append(at)
        return found


def lines(count: int, **others: str) -> str:
    """Lines of one token each, but for those that are given by number (`_7`)."""
    return "".join(others.get(f"_{number}", "ab") + "\n" for number in range(count))


@pytest.mark.parametrize(
    ("line", "beats_a_blank_line"),
    [
        ("# a", True),
        ("## a", True),
        ("### a", True),
        ("#### a", True),
        ("##### a", False),
        ("###### a", False),
        ("---", False),
    ],
)
def test_kx_06_a_heading_at_the_edge_of_the_window_has_three_tenths_of_its_score(
    line: str, beats_a_blank_line: bool
) -> None:
    """Of 100, 90, 80 and 70 that is more than the 20 of a blank line at the target, of 60 and 50 less."""
    before, tokens = lines(50) + "\n", document_chunks.estimate_tokens(line)
    blank = before + line + "\n" + lines(50 - tokens) + "\n"
    text = blank + lines(200)
    piece = chunks(text, markdown_marks(text, markdown.headings(text)), Size(100, 10, 50))[0]
    assert piece.end == len(before if beats_a_blank_line else blank)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({90: 30, 100: 8}, 90),  # 30 x (1 - 0.7) = 9
        ({90: 30, 100: 9}, 100),  # equal scores: the later
        ({90: 30, 100: 10}, 100),
        ({95: 20, 100: 16}, 95),  # 20 x (1 - 0.25 x 0.7) = 16.5
        ({95: 20, 100: 17}, 100),
        ({89: 100, 90: 4, 101: 100}, 90),  # outside of the window nothing counts
    ],
)
def test_kx_06_the_score_falls_by_the_square_of_the_distance(scores: dict[int, int], best: int) -> None:
    text = lines(300)
    marks = Marks({len(lines(number)): score for number, score in scores.items()})
    assert chunks(text, marks, Size(100, 10, 10))[0].end == len(lines(best))


def test_kx_06_an_item_of_a_list_is_better_than_a_line() -> None:
    text = lines(300, _93="- ab")
    assert chunks(text, Marks(is_markdown=True), Size(100, 10, 10))[0].end == len(lines(93))
    assert chunks(text, Marks(), Size(100, 10, 10))[0].end == len(lines(99, _93="- ab"))


@LAW
@given(DOCUMENTS)
@example("---\n" + "words of a line\n" * 30)
def test_kx_06_each_chunk_ends_at_the_break_point_of_the_best_score(text: str) -> None:
    oracle = Oracle(text, SMALL)
    pieces = cut(text)
    assert {*oracle.anchors()} <= {piece.end for piece in pieces}
    bounds = [*oracle.anchors(), len(text)]
    far = [at for at, base in oracle.bases.items() if at not in oracle.sections]
    for piece in pieces:
        bound = next(one for one in bounds if one > piece.fresh)
        expected = oracle.end(piece.start, piece.fresh, bound)
        is_far = piece.end in far and expected is not None and piece.end < expected  # an anchor far from any heading
        assert expected in (None, piece.end) or is_far, text[piece.fresh : piece.end]


@LAW
@given(DOCUMENTS)
def test_kx_06_a_chunk_begins_before_the_end_of_the_last_one_by_the_overlap(text: str) -> None:
    oracle = Oracle(text, SMALL)
    before = Span(0, 0, 0)
    for piece in cut(text):
        assert piece.fresh == before.end and before.start <= piece.start <= piece.fresh < piece.end
        common = oracle.count(piece.fresh) - oracle.count(piece.start)
        assert common <= SMALL.overlap
        if before.end and common < SMALL.overlap - 4:  # a word is longer than its tokens, or code was not to be cut
            near = [fence for fence in oracle.whole if before.start < fence[1] and fence[0] <= piece.fresh]
            assert near or piece.start == before.start
        before = piece


@LAW
@given(DOCUMENTS)
def test_kx_06_no_chunk_begins_or_ends_inside_of_code_that_fits_into_one(text: str) -> None:
    whole = [(start, end) for start, end in markdown.fences(text)]
    for piece in cut(text, Size(60, 6, 12)):
        assert document_chunks.estimate_tokens(text[piece.start : piece.end]) <= 61
        for start, end in whole:
            if document_chunks.estimate_tokens(text[start : end + 1]) < 60:
                assert not start < piece.end < end and not start < piece.start < end


@LAW
@given(st.lists(st.one_of(ODD, BLOCKS), max_size=80).map("".join), st.integers(6, 80))
def test_kx_06_the_union_of_the_chunks_is_the_text(text: str, target: int) -> None:
    pieces = cut(text, Size(target, target // 6, max(1, target // 3)))
    assert "".join(text[piece.fresh : piece.end] for piece in pieces) == text
    assert all(piece.start <= piece.fresh < piece.end for piece in pieces)
    assert not [one for one in pieces if text[one.end - 1] == "\r" and text[one.end : one.end + 1] == "\n"]


@pytest.mark.parametrize("unit", ["e\u0301", "\r\n", "👩‍💻", "👍🏽", "🇨🇳", "❤️", "नि"])
@pytest.mark.parametrize("target", [13, 40, 41])
def test_kx_06_what_is_one_character_to_a_reader_stays_whole(unit: str, target: int) -> None:
    text = unit * 200
    pieces = chunks(text, Marks(), Size(target, 5, 7))
    assert len(pieces) > 1 or unit.isspace()
    assert not {(place % len(unit)) for piece in pieces for place in piece} - {0}


def document(draw: random.Random, words: list[str], tokens: int) -> list[list[str]]:
    """Twenty sections of about as many tokens each, as paragraphs."""
    made = []
    for number in range(20):
        section, left = [f"## Section {number} about {draw.choice(words)}"], int(tokens * draw.uniform(0.6, 1.4))
        while left > 0:
            section.append(" ".join(draw.choices(words, k=min(left, 40))) + ".")
            left -= 40
        made.append(section)
    return made


@pytest.mark.parametrize("tokens", [60, 150, 350, 700])
@pytest.mark.parametrize("reads", [None, 512])
def test_kx_07_an_edit_of_one_section_of_twenty_changes_three_chunks_at_most(tokens: int, reads: int | None) -> None:
    """Chunks from the start without anchors change two dozen in the worst of these."""
    draw = random.Random(f"{tokens} {reads}")
    words = ["store", "index", "record", "field", "search", "vector", "chunk", "file", "line", "model", "value", "lock"]
    size, changed = document_chunks.size_for(reads), []
    for _ in range(12):
        sections = document(draw, words, tokens)
        before = "# Title\n\n" + "\n\n".join("\n\n".join(section) for section in sections)
        sections[1].insert(draw.randrange(1, len(sections[1]) + 1), " ".join(draw.choices(words, k=50)))
        after = "# Title\n\n" + "\n\n".join("\n\n".join(section) for section in sections)
        known = {before[one.start : one.end] for one in cut(before, size)}
        changed.append(sum(after[one.start : one.end] not in known for one in cut(after, size)))
    assert sum(one <= 3 for one in changed) >= 11 and max(changed) <= 4, changed


def test_kx_06_a_long_text_takes_time_in_proportion() -> None:
    """Chunks of ten times the text take ten times the steps: counted, as clocks tell little."""
    steps = []
    for length in (2_000, 20_000):
        text, seen = "\n" * length + "# a\n" * length + "```\n" * length, 0

        class Counted(str):
            def find(self, *args: object) -> int:  # type: ignore[override]
                nonlocal seen
                seen += 1
                return str.find(self, *args)  # type: ignore[arg-type]

        chunks(Counted(text), markdown_marks(text, markdown.headings(text)), SMALL)
        steps.append(seen)
    assert 0 < steps[1] < 12 * steps[0]
