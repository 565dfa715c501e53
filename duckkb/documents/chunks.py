"""Cuts documents into chunks of about as many tokens as a model reads; each chunk repeats the end of the one
before.

The end of a chunk is chosen among the break points in a window before its target: `score = base x (1 -
(distance / window)^2 x 0.7)`. The best score wins; of equal scores the later place wins ([ADR
42](../../docs/adr/0042-chunks-of-documents.md)). Nothing here depends on a model, so the chunks of a file are
the same in every clone; a pattern estimates the tokens.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple
from zlib import crc32

from msgspec import Struct

from duckkb.documents import markdown
from duckkb.entries import Fingerprint

FINGERPRINT = Fingerprint("documents", "estimate-1")
"""The version of the break points and the estimator."""

TARGET, OVERLAP, WINDOW = 900, 135, 200
PREFIX = 64
"""The most tokens of the text before a chunk."""
_MARKS = 8  # tokens that a model adds around its input
NEAR, FAR = 0.5, 1.0
"""Distances as shares of the target: no equally good place lies that near to an anchor; for sections, and for text
between sections.
"""
_DRAWN_FROM = 64
HEADINGS = (100, 90, 80, 70, 60, 50)
FENCE_EDGE, RULE, BLANK, ITEM, LINE = 80, 60, 20, 5, 1

_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA_HANGUL = "\u1100-\u11ff\u3040-\u30ff\uac00-\ud7a3"
# Each match is a token with the white space before it, which models ignore. Fitted to multilingual-e5-small.
_TOKEN = re.compile(
    rf"\s{{0,16}}+(?:[A-Z]?[a-z]{{1,5}}|[A-Z]{{1,2}}|\d{{1,2}}|(?<![{_HAN}])[{_HAN}]{{3}}|[{_HAN}]|[{_KANA_HANGUL}]{{1,2}}"
    r"|[^\W\d_]{1,3}|([^\w\s]|_)\1?|\s)"
)
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*+){3,}+|(?:\*[ \t]*+){3,}+|(?:_[ \t]*+){3,}+)\r?$", re.MULTILINE)
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_EMPTY = re.compile(r"[^\S\n]*$", re.MULTILINE)
# Cuts in a window without line ends: after sentences, then after words.
_WITHIN_LINES = (re.compile(r"[。！？；…]+[\"'”’」』）】》)\]]?\s*|[.!?;]\s+"), re.compile(r"\s+"))
_PARAGRAPH, _STARTED = re.compile(r"\n(?:[^\S\n]*\n)++"), re.compile(r"\n(?=\S)")
_TO_NEXT_WORD = re.compile(r"(?:(?<=[A-Za-z0-9_])[A-Za-z0-9_]{1,64})?\s{0,16}")
_LINKED = frozenset("\u200d\ufe0e\ufe0f\u20e3" + "".join(map(chr, range(0x1F3FB, 0x1F400))))
"""Characters that belong to the one before them: joiners, variation selectors, keycaps, skin tones."""


class Span(NamedTuple):
    """The places of a chunk in its text: new text lies from `fresh` to `end`; `start` to `fresh` repeats the chunk
    before.
    """

    start: int
    fresh: int
    end: int


class Size(Struct, frozen=True):
    """The size of chunks, in estimated tokens."""

    target: int = TARGET
    overlap: int = OVERLAP
    window: int = WINDOW


class Marks(Struct, frozen=True):
    """The places that guide the cuts of a text: the base scores of places, and the places among them where
    sections begin (ascending); the spans that must not be cut (from, to); and whether the text is Markdown.
    """

    scores: Mapping[int, int] = {}
    sections: Sequence[int] = ()
    whole: Sequence[tuple[int, int]] = ()
    is_markdown: bool = False


def size_for(reads: int | None) -> Size:
    """Return the chunk size for a model that reads `reads` tokens at once; None if that is not known. A tenth of
    them stays free for errors of the estimate and for the text that precedes a chunk.

    >>> size_for(None).target, size_for(512).target
    (900, 396)
    """
    if reads is None:
        return Size()
    target = min(TARGET, (reads - PREFIX - _MARKS) * 9 // 10)
    return Size(target, target * OVERLAP // TARGET, min(WINDOW, target // 2))


def markdown_marks(text: str, headings: Sequence[markdown.Heading]) -> Marks:
    """Return the marks of a Markdown text: headings, fences and the edges of fences."""
    scores = {heading.start: HEADINGS[heading.level - 1] for heading in headings}
    sections = list(scores)
    fences = [(start, min(end + 1, len(text))) for start, end in markdown.fences(text)]
    for place in (place for fence in fences for place in fence):
        scores[place] = max(FENCE_EDGE, scores.get(place, 0))
    return Marks(scores, sections, fences, True)


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text has.

    >>> estimate_tokens("A knowledge base, in git."), estimate_tokens("知识库存在文件里")
    (8, 6)
    """
    return sum(1 for _ in _TOKEN.finditer(text))


def clip_text(text: str, tokens: int) -> str:
    """Return the longest beginning of a text that has at most `tokens` estimated tokens."""
    ends = [token.end() for token in islice(_TOKEN.finditer(text), tokens + 1)]
    return text[: ends[-2]] if len(ends) > tokens else text


def chunks(text: str, marks: Marks, size: Size | None = None) -> list[Span]:
    """Cut a text into chunks; an empty text has none. No cut splits a visible character. No cut falls into a span
    that must stay whole, unless that span alone is longer than a chunk. Takes time in proportion to the text.
    """
    return list(_Cutter(text, marks, size or Size()).pieces())


def splits(text: str, start: int, at: int) -> bool:
    """Return True if a cut at `at` would split a CR LF, a letter from its accents, or an emoji sequence."""
    before, after = text[at - 1], text[at]
    if after.isascii():
        return before == "\r" and after == "\n"
    if before == "\u200d" or after in _LINKED or unicodedata.category(after).startswith("M"):
        return True
    return _is_flag_half(after) and _count_flag_halves(text, start, at) % 2 == 1


class _Cutter:
    def __init__(self, text: str, marks: Marks, size: Size) -> None:
        self._text, self._marks, self._size = text, marks, size
        self._ends = array("I", (token.end() for token in _TOKEN.finditer(text)))
        self._whole = [span for span in marks.whole if self._count_tokens(*span) <= size.target]
        self._starts = [start for start, _ in self._whole]

    def pieces(self) -> Iterator[Span]:
        start = end = 0
        for anchor in (*self._find_anchors(), len(self._text)):
            while end < anchor:
                piece = self._cut_piece(start, end, anchor)
                yield piece
                start, end = self._find_overlap(piece), piece.end

    def _count(self, at: int) -> int:
        """Count the tokens that end at or before a place."""
        return bisect_right(self._ends, at)

    def _count_tokens(self, start: int, end: int) -> int:
        return self._count(end) - self._count(start)

    def _cut_piece(self, start: int, fresh: int, anchor: int) -> Span:
        """Cut the first chunk of the text between `start` and an anchor."""
        target = self._count(start) + self._size.target
        if self._count(anchor) <= target:
            return Span(start, fresh, anchor)
        limit = self._ends[target - 1]
        low = max(self._ends[target - self._size.window - 1], fresh + 1)
        if best := self._best(low, self._ends[target] - 1, target):
            return Span(start, fresh, best)
        if whole := self._find_whole(limit):
            # too long for the rest of this chunk: it begins the next chunk, or fits into this chunk without the overlap
            return Span(start, fresh, whole[0]) if whole[0] > fresh else Span(fresh, fresh, whole[1])
        return Span(start, fresh, self._cut_within_line(start, low, limit))

    def _best(self, low: int, high: int, target: int) -> int:
        """Return the break point with the best score in a window, or 0 if there is none. `target` tokens lie
        before the window's end.
        """
        window, place, best = self._size.window, 0, 0
        for at in self._iter_line_starts(low, high):
            distance = target - self._count(at)
            # whole numbers, so that equal scores compare equal
            score = self._base(at) * (10 * window**2 - 7 * distance**2)
            if score >= best and not self._find_whole(at) and not splits(self._text, 0, at):
                place, best = at, score
        return place

    def _iter_line_starts(self, low: int, high: int) -> Iterator[int]:
        at = low - 1
        while (at := self._text.find("\n", at, high)) >= 0:
            at += 1
            if at < len(self._text):
                yield at

    def _base(self, at: int) -> int:
        if score := self._marks.scores.get(at):
            return score
        text = self._text
        if _EMPTY.match(text, at):
            return LINE
        if self._marks.is_markdown and _RULE.match(text, at):
            return RULE
        if not text[text.rfind("\n", 0, at - 1) + 1 : at].strip():
            return BLANK
        return ITEM if self._marks.is_markdown and _ITEM.match(text, at) else LINE

    def _cut_within_line(self, start: int, low: int, high: int) -> int:
        """Choose a cut in text without a line end: after a sentence, else after a word, else between two
        characters.
        """
        text = self._text
        for pattern in _WITHIN_LINES:
            places = [match.end() for match in pattern.finditer(text, low - 1, high)]
            if best := next((at for at in reversed(places) if at >= low and not splits(text, start, at)), 0):
                return best
        return next((at for at in range(high, low - 1, -1) if not splits(text, start, at)), high)

    def _find_overlap(self, piece: Span) -> int:
        """Return where the next chunk begins: at a word, as many tokens before the end of this chunk as the
        overlap has, and never inside a span that must not be cut.
        """
        text, end = self._text, piece.end
        last = self._count(end) - self._size.overlap
        at = max(self._ends[last - 1] if last > 0 else 0, piece.start)
        match = _TO_NEXT_WORD.match(text, at, end)
        at = match.end() if match else at
        while at < end and splits(text, piece.start, at):
            at += 1
        whole = self._find_whole(at)
        return min(whole[1], end) if whole else at

    def _find_whole(self, at: int) -> tuple[int, int] | None:
        """Return the uncuttable span that contains a place."""
        index = bisect_left(self._starts, at) - 1
        return self._whole[index] if index >= 0 and at < self._whole[index][1] else None

    def _find_anchors(self) -> list[int]:
        """Return the places where a chunk ends whatever text precedes. These are sections without an equally good
        section within `NEAR` tokens. Far from any section they are paragraphs, or lines, whose lot is the
        lowest within `FAR` tokens. The cuts between two anchors depend only on the text between them, so an
        edit moves only cuts near it.
        """
        text, target = self._text, self._size.target
        sections = [at for at in self._marks.sections if 0 < at < len(text) and not self._find_whole(at)]
        anchors = self._select_anchors(sections, 0, len(text), int(target * NEAR))
        far = int(target * FAR)
        for first, last in pairwise([0, *sections, len(text)]):
            if last - first > far and self._count_tokens(first, last) > 2 * far:
                for pattern in (_PARAGRAPH, _STARTED):
                    places = [
                        match.end() for match in pattern.finditer(text, first, last) if first < match.end() < last
                    ]
                    if places := [at for at in places if not self._find_whole(at)]:
                        anchors += self._select_anchors(places, first, last, far)
                        break
        return sorted(anchors)

    def _select_anchors(self, places: Sequence[int], first: int, last: int, reach: int) -> list[int]:
        """Select the places (ascending) that lie more than `reach` tokens from any place as good or better, and
        from both ends. A place is ranked by its score, then by a lot drawn from the text after it, so that an
        edit before it changes nothing.
        """
        counts = [self._count(at) for at in (first, *places, last)]
        if counts[-1] - counts[0] <= 2 * reach:
            return []
        keys = [(-self._marks.scores.get(at, 0), self._draw_lot(at)) for at in places]
        before = _measure_distances(keys, [at - counts[0] for at in counts[1:-1]])
        after = _measure_distances(keys[::-1], [counts[-1] - at for at in counts[-2:0:-1]])[::-1]
        return [at for at, *apart in zip(places, before, after, strict=True) if min(apart) > reach]

    def _draw_lot(self, at: int) -> int:
        return crc32(self._text[at : at + _DRAWN_FROM].encode("utf-8", "surrogatepass"))


def _measure_distances(keys: Sequence[tuple[int, int]], places: Sequence[int]) -> list[int]:
    """Measure how far each place lies after the last earlier place whose key is as good or better, or after the
    beginning.
    """
    better, distances = list[int](), list[int]()
    for at, key in enumerate(keys):
        while better and keys[better[-1]] > key:
            better.pop()
        distances.append(places[at] - (places[better[-1]] if better else 0))
        better.append(at)
    return distances


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _count_flag_halves(text: str, start: int, at: int) -> int:
    """Count the halves of flags in a row before `at`; a chunk starts with a whole flag."""
    first = at
    while first > start and _is_flag_half(text[first - 1]):
        first -= 1
    return at - first
