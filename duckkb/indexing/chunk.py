"""Chunks: pieces of at most a given size that cover a text, cut where a reader would pause.

Where a border lies follows from the text around it alone, so that an edit moves the borders near it and no others
([ADR 31](../../docs/adr/0031-chunk-borders.md)).
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any
from zlib import crc32

from duckkb.documents.chunks import splits
from duckkb.entries import Chunk, Fingerprint

FINGERPRINT = Fingerprint("boundaries", "2")

_LEAST = 4
"""A chunk has at least the size divided by this."""
_AROUND = 32
"""Characters on both sides of a border by which it is ranked among its like."""

_CLOSING = "[\"'”’」』）】》)\\]]*"
# Best first, and before all of them where a heading begins. A border lies behind what matches. Where a space must follow,
# only the last sign of a row is looked for: a long row without one would be tried again from each of its signs.
_BOUNDARIES = (
    r"\r?\n[^\S\n]*\n\s*",  # paragraph
    r"\n\s*",  # line
    rf"[。！？；…]+{_CLOSING}\s*|[.!?;]{_CLOSING}\s+",  # sentence
    r"[，、：]+\s*|[,:]\s+",  # clause
    r"\s+",  # word
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]",  # scripts without spaces
)
_HEADING = r"(?m)^#{1,6}[^\S\n][^\n]*\n\s*"
_FENCED = r"(?ms)^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1|\Z)"


def chunk(text: str, size: int) -> list[Chunk]:
    """Cut a text into chunks of at most `size` characters whose texts join to it; an empty text has none.

    Cuts where a Markdown heading begins, else behind paragraphs, lines, sentences, clauses, words; in the middle of a word
    only where it is longer than a chunk. None of several has less than a quarter of `size`. Takes time in proportion to the
    text, but for sorting borders.
    """
    if size < 1:
        raise ValueError(f"a chunk of {size} characters cannot be")
    if len(text) <= size:
        return [Chunk(0, 0, text)] if text else []
    borders = _find_borders(text, size)
    cuts = _balance_chunks(text, _merge_pieces(text, borders, size), sorted(borders), size)
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


def read_value_at(fields: Any, name: str) -> Any:
    """The value of the field with this name, else what its dotted path leads to, of a list what it leads to in each of its
    objects; None where there is nothing.

    >>> ticket = {"ticket": {"subject": "Stuck"}, "comments": [{"body": "Why?"}, {"by": "Ann"}, {"body": "Wait."}]}
    >>> read_value_at(ticket, "ticket.subject"), read_value_at(ticket, "comments.body"), read_value_at(ticket, "ticket.no")
    ('Stuck', ['Why?', 'Wait.'], None)
    """
    if isinstance(fields, list):
        values = [value for item in fields if (value := read_value_at(item, name)) is not None]
        return [element for value in values for element in (value if isinstance(value, list) else [value])] or None
    if not isinstance(fields, Mapping):
        return None
    if name in fields or "." not in name:
        return fields.get(name)
    steps = name.split(".")
    heads = ((".".join(steps[:at]), ".".join(steps[at:])) for at in range(1, len(steps)))
    candidates = (read_value_at(fields[head], tail) for head, tail in heads if head in fields)
    return next((value for value in candidates if value is not None), None)


def iter_nested_texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The texts that lie inside a field's objects, and objects in lists, each with its dotted path.

    >>> [*iter_nested_texts("ticket", {"subject": "Stuck", "n": 1, "by": [{"name": "Ann"}], "tags": ["a"]}), *iter_nested_texts("tags", ["a"])]
    [('ticket.subject', 'Stuck'), ('ticket.by.name', 'Ann'), ('ticket.tags', 'a')]
    """
    for item in value if isinstance(value, list) else [value]:
        for key, inside in item.items() if isinstance(item, Mapping) else ():
            path = f"{name}.{key}"
            for text in inside if isinstance(inside, list) else [inside]:
                if isinstance(text, str):
                    yield path, text
            yield from iter_nested_texts(path, inside)


def _find_borders(text: str, size: int) -> dict[int, int]:
    """Where the text may be cut, and how good that is (0: in the middle of a word). What fits into a chunk is not looked
    into: no border in it would be left."""
    headings = list(_find_headings(text))
    behind = {end for _, end in headings}  # a heading is not cut off from what it is the heading of
    borders = {start: len(_BOUNDARIES) + 1 for start, _ in headings if start}
    may_tear = not text.isascii() or "\r\n" in text
    for worse, boundary in enumerate(_BOUNDARIES):
        # `re` keeps what is compiled; compiling takes 8 ms, which short texts go without
        for first, last in _find_long_pieces(text, borders, size):
            ends = [match.end() for match in re.compile(boundary).finditer(text, first, last)]
            if ends and ends[-1] == last:
                del ends[-1]
            if behind or may_tear:
                ends = [end for end in ends if end not in behind and not splits(text, first, end)]
            borders |= dict.fromkeys(ends, len(_BOUNDARIES) - worse)
    for first, last in _find_long_pieces(text, borders, size):
        borders |= dict.fromkeys(_cut_evenly(text, first, last, size), 0)
    return borders


def _find_headings(text: str) -> Iterator[tuple[int, int]]:
    """Where each heading begins and where what it stands over does; the # of a fenced program are none."""
    if "#" not in text:
        return
    fences = [match.span() for match in re.finditer(_FENCED, text)]
    starts = [start for start, _ in fences]
    for match in re.finditer(_HEADING, text):
        fence = bisect_right(starts, match.start()) - 1
        if fence < 0 or match.start() >= fences[fence][1]:
            yield match.span()


def _find_long_pieces(text: str, borders: Iterable[int], size: int) -> list[tuple[int, int]]:
    places = [0, *sorted(borders), len(text)]
    return [(first, last) for first, last in pairwise(places) if last - first > size]


def _cut_evenly(text: str, first: int, last: int, size: int) -> Iterator[int]:
    """Borders for what has none, as far apart as may be."""
    while last - first > size:
        goal = first + size
        first = next((at for at in range(goal, first, -1) if not splits(text, first, at)), goal)
        yield first


def _merge_pieces(text: str, borders: dict[int, int], size: int) -> list[int]:
    """The cuts that are left, with both ends: borders are taken away wherever what lies between their neighbours fits into
    one chunk, the worst first, those of one kind in an order that is as good as drawn by lot. So what becomes of a border
    hangs on few others, all of them near."""
    places = [0, *sorted(borders), len(text)]
    before, after = list(range(-1, len(places) - 1)), list(range(1, len(places) + 1))
    keep_flags = [True] * len(places)
    ranks = [(borders.get(at, 0) << 32) + lot for at, lot in zip(places, _compute_lots(text, places), strict=True)]
    for at in sorted(range(1, len(places) - 1), key=ranks.__getitem__):
        left, right = before[at], after[at]
        if places[right] - places[left] <= size:
            after[left], before[right], keep_flags[at] = right, left, False
    return [place for place, is_kept in zip(places, keep_flags, strict=True) if is_kept]


def _compute_lots(text: str, places: list[int]) -> list[int]:
    """A number for each place that hangs on the text around it alone."""
    if text.isascii():
        raw = text.encode()
        return [crc32(raw[at - _AROUND if at > _AROUND else 0 : at + _AROUND]) for at in places]
    around = (text[max(0, at - _AROUND) : at + _AROUND] for at in places)
    return [crc32(piece.encode("utf-8", "surrogatepass")) for piece in around]


def _balance_chunks(text: str, cuts: list[int], borders: list[int], size: int) -> list[int]:
    """The cuts without tiny chunks: one is joined with the next, the last with the one before; what does not fit into one
    chunk then is cut in its middle."""
    least, new_cuts, pending_cuts = size // _LEAST, [0], deque(cuts[1:])
    while pending_cuts:
        end = pending_cuts.popleft()
        if end - new_cuts[-1] < least and (pending_cuts or len(new_cuts) > 1):
            if pending_cuts:
                end = pending_cuts.popleft()
            else:
                new_cuts.pop()
            if end - new_cuts[-1] > size:
                new_cuts.append(_find_middle(text, new_cuts[-1], end, borders, least))
        new_cuts.append(end)
    return new_cuts


def _find_middle(text: str, first: int, last: int, borders: list[int], least: int) -> int:
    """The border next to the middle of what is between, or a place in a piece that has none."""
    middle = (first + last) // 2
    near = borders[bisect_left(borders, first + least) : bisect_right(borders, last - least)]
    if near:
        return min(near, key=lambda at: abs(at - middle))
    return next((at for at in range(middle, first, -1) if not splits(text, first, at)), middle)
