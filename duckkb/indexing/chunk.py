"""Chunks: pieces of at most a given size that cover a text, cut where a reader would pause."""

import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

from duckkb.entries import Chunk, Fingerprint

FINGERPRINT = Fingerprint("boundaries", "1")

_FILL = 0.9
"""A chunk aims at this share of its size, so that there is room to look for a boundary on both sides."""

_CLOSING = "[\"'”’」』）】》)\\]]*"
# Best first. A cut lies behind what matches. Where a space must follow, only the last sign of a row is looked for: a
# long row without one would be tried again from each of its signs.
_BOUNDARIES = (
    r"\r?\n[^\S\n]*\n\s*",  # paragraph
    r"\n\s*",  # line
    rf"[。！？；…]+{_CLOSING}\s*|[.!?;]{_CLOSING}\s+",  # sentence
    r"[，、：]+\s*|[,:]\s+",  # clause
    r"\s+",  # word
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]",  # scripts without spaces
)
_LINKED = frozenset("\u200d\ufe0e\ufe0f\u20e3" + "".join(map(chr, range(0x1F3FB, 0x1F400))))
"""Characters that belong to the one before them: joiners, variation selectors, keycaps, skin tones."""


def chunk(text: str, size: int) -> list[Chunk]:
    """Cut a text into chunks of at most `size` characters whose texts join to it; an empty text has none.

    Cuts behind paragraphs where there are any in reach, else lines, sentences, clauses, words; in the middle of a word
    only where it is longer than half a chunk. The chunks are of like length: no tiny one at the end.
    """
    if size < 1:
        raise ValueError(f"a chunk of {size} characters cannot be")
    if len(text) <= size:
        return [Chunk(0, 0, text)] if text else []
    cuts = [0, *_cuts(text, size), len(text)]
    return [Chunk(seq, start, text[start:end]) for seq, (start, end) in enumerate(pairwise(cuts))]


def field_text(value: Any) -> str:
    """A field's value as the text that is searched: lists item by item on lines of their own, nothing for null.

    >>> field_text(["内存", "DuckDB"]), field_text(3.5), field_text(None)
    ('内存\\nDuckDB', '3.5', '')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(filter(None, map(field_text, value)))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _cuts(text: str, size: int) -> Iterator[int]:
    start = 0
    while len(text) - start > size:
        left = len(text) - start
        pieces = max(2, -int(-left // (size * _FILL)))
        start = _cut(text, start, left / pieces, size)
        yield start


def _cut(text: str, start: int, target: float, size: int) -> int:
    """The end of the chunk at `start`: the best kind of boundary from half to one and a half of the target, the nearest."""
    first = start + max(1, int(target / 2))
    last = start + max(1, min(size, int(target * 1.5)))
    goal = start + target
    for boundary in map(
        re.compile, _BOUNDARIES
    ):  # kept by `re`; compiling them takes 8 ms, which short texts go without
        found = (match.end() for match in boundary.finditer(text, first, last))
        ends = [end for end in found if not _splits(text, start, end)]
        if ends:
            return min(ends, key=lambda end: abs(end - goal))
    anywhere = chain(range(int(goal), first, -1), range(int(goal) + 1, last + 1))
    return next((at for at in anywhere if not _splits(text, start, at)), last)


def _splits(text: str, start: int, at: int) -> bool:
    """True where a cut would tear a CR LF, a letter from its accents, or an emoji sequence."""
    before, after = text[at - 1], text[at]
    if after.isascii():
        return before == "\r" and after == "\n"
    if before == "\u200d" or after in _LINKED or unicodedata.category(after).startswith("M"):
        return True
    return _is_flag_half(after) and _flag_halves(text, start, at) % 2 == 1


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_halves(text: str, start: int, at: int) -> int:
    """How many halves of flags stand in a row before `at`; a chunk starts with a whole one."""
    first = at
    while first > start and _is_flag_half(text[first - 1]):
        first -= 1
    return at - first
