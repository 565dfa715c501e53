"""Cuts text into chunks of at most a given size at natural boundaries.

The text around a border alone decides about it, so that an edit moves the borders near it and no others ([ADR
31](../../docs/adr/0031-chunk-borders.md)).
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any
from zlib import crc32

from duckkb.documents.document_chunks import splits
from duckkb.types.records import Chunk, Fingerprint

FINGERPRINT = Fingerprint("boundaries", "2")

_LEAST = 4
"""The size divided by this is the least size of a chunk."""
_AROUND = 32
"""Characters on both sides of a border that decide its rank among borders of the same kind."""

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

    Cuts before a Markdown heading, else after paragraphs, lines, sentences, clauses, words. Cuts inside a word
    only if the word is longer than a chunk. Of several chunks none has less than a quarter of `size`. Takes
    time in proportion to the text, except for sorting borders.
    """
    if size < 1:
        raise ValueError(f"a chunk of {size} characters cannot be")
    if len(text) <= size:
        return [Chunk(0, 0, text)] if text else []
    borders = _find_borders(text, size)
    cuts = _balance_chunks(text, _merge_pieces(text, borders, size), sorted(borders), size)
    return [Chunk(seq, start, text[start:end]) for seq, (start, end) in enumerate(pairwise(cuts))]


def field_text(value: Any) -> str:
    r"""Return a field's value as searchable text: list items on separate lines, nothing for null.

    >>> field_text(["内存", "DuckDB"]), field_text(3.5), field_text(None)
    ('内存\nDuckDB', '3.5', '')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(filter(None, map(field_text, value)))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def read_value_at(fields: Any, name: str) -> Any:
    """Return the value of the field with this name, else the value at its dotted path. A path through a list gives
    the values in each of its objects. Returns None if there is nothing.

    >>> ticket = {"ticket": {"subject": "Stuck"}, "comments": [{"body": "Why?"}, {"by": "Ann"}, {"body": "Wait."}]}
    >>> read_value_at(ticket, "ticket.subject"), read_value_at(ticket, "comments.body"), read_value_at(ticket,
    ... "ticket.no")
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
    """Yield the texts inside a field's objects and inside objects in lists, each with its dotted path.

    >>> [*iter_nested_texts("ticket", {"subject": "Stuck", "n": 1, "by": [{"name": "Ann"}], "tags": ["a"]}),
    ... *iter_nested_texts("tags", ["a"])]
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
    """Return where the text may be cut, and the rank of each border (0: inside a word). Spans that fit into a
    chunk are not searched: no border in them would remain.
    """
    headings = list(_find_headings(text))
    behind = {end for _, end in headings}  # a heading stays with its section
    borders = {start: len(_BOUNDARIES) + 1 for start, _ in headings if start}
    may_tear = not text.isascii() or "\r\n" in text
    for worse, boundary in enumerate(_BOUNDARIES):
        # `re` caches compiled patterns; short texts avoid the 8 ms of compiling
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
    """Yield where each heading begins and where its section's text begins; skip lines with # inside fenced code."""
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
    """Yield borders for text without any, as far apart as possible."""
    while last - first > size:
        goal = first + size
        first = next((at for at in range(goal, first, -1) if not splits(text, first, at)), goal)
        yield first


def _merge_pieces(text: str, borders: dict[int, int], size: int) -> list[int]:
    """Return the remaining cuts, with both ends. Removes a border whenever the text between its neighbours fits
    into one chunk, the worst border first. Borders of the same rank are removed in a pseudo-random order, so
    that each depends on few others, all of them near.
    """
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
    """Return a number for each place that depends only on the text around it."""
    if text.isascii():
        raw = text.encode()
        return [crc32(raw[at - _AROUND if at > _AROUND else 0 : at + _AROUND]) for at in places]
    around = (text[max(0, at - _AROUND) : at + _AROUND] for at in places)
    return [crc32(piece.encode("utf-8", "surrogatepass")) for piece in around]


def _balance_chunks(text: str, cuts: list[int], borders: list[int], size: int) -> list[int]:
    """Remove tiny chunks: join each with the next chunk, the last with the chunk before. If the result does not
    fit into one chunk, cut it in its middle.
    """
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
    """Return the border nearest to the middle of a span, or a place inside it if it has no border."""
    middle = (first + last) // 2
    near = borders[bisect_left(borders, first + least) : bisect_right(borders, last - least)]
    if near:
        return min(near, key=lambda at: abs(at - middle))
    return next((at for at in range(middle, first, -1) if not splits(text, first, at)), middle)
