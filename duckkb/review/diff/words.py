"""Compares two texts as runs of words: equal, removed and new.

The longest common sequence of words is computed with one bit a word in large integers, which costs little for
texts of some thousand words. Texts of more than some ten thousand are compared from their first to their last
difference. Nothing is lost: the runs without `new` are the old text, those without `gone` the new.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

Kind = Literal["same", "gone", "new", "cut"]

_WORD = re.compile(
    r"\d+(?:[.:-]\d+)*"  # a number, a date, a time
    "|[^\\W\\d_\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+(?:['\u2019][^\\W\\d_]+)?"  # a word
    r"|[^\S\n]+|.",  # blanks, and any other character by itself, Chinese ones among them
    re.DOTALL,
)
# Bits that the table of a comparison may have: 100 MB.
_MOST = 800_000_000


class Run(NamedTuple):
    """A piece of text: in both, only in the old (`gone`), only in the new; or of both and left out (`cut`)."""

    kind: Kind
    text: str


def words(old: str, new: str) -> list[Run]:
    """Return the difference of two texts in reading order; a `gone` run stands before the `new` run that replaces
    it.

    >>> words("the red fox", "the blue fox")
    [Run(kind='same', text='the '), Run(kind='gone', text='red'), Run(kind='new', text='blue'), Run(kind='same', text=' fox')]
    >>> words("知识库", "知识图")
    [Run(kind='same', text='知识'), Run(kind='gone', text='库'), Run(kind='new', text='图')]
    """
    if old == new:
        return [Run("same", old)] if old else []
    return _merge_runs(_iter_runs(_WORD.findall(old), _WORD.findall(new)))


def json_words(before: str | None, after: str | None) -> list[Run]:
    """Return the difference of two values as JSON text (None: absent); of their texts where both are strings.

    >>> json_words('"a"', None)
    [Run(kind='gone', text='a')]
    """
    if _classify_text(before) is _classify_text(after):
        return words(_decode_text(before), _decode_text(after))
    return words(before or "", after or "")


def keep_near_changes(runs: Sequence[Run], reach: int = 60) -> list[Run]:
    """Keep equal text only up to `reach` characters from a change; the rest becomes `cut`.

    Cuts fall between words, approximately; a text not much longer than twice the reach is kept whole.
    """
    shortened_runs: list[Run] = []
    for number, run in enumerate(runs):
        head = 0 if number == 0 else reach
        tail = 0 if number == len(runs) - 1 else reach
        if run.kind != "same" or len(run.text) <= head + tail + 20:
            shortened_runs.append(run)
            continue
        start, end = _find_word_boundary(run.text, head), _find_word_boundary(run.text, len(run.text) - tail)
        pieces = (Run("same", run.text[:start]), Run("cut", run.text[start:end]), Run("same", run.text[end:]))
        shortened_runs += [piece for piece in pieces if piece.text]
    return shortened_runs


def _classify_text(text: str | None) -> type:
    return str if text is None or text.startswith('"') else object


def _decode_text(text: str | None) -> str:
    return str(json.loads(text)) if text and text.startswith('"') else text or ""


def _find_word_boundary(text: str, at: int) -> int:
    """Return a position near `at` that cuts no word."""
    if at in (0, len(text)):
        return at
    match = re.compile(r"\s|[\u2e80-\u9fff]").search(text, at, at + 20)
    return match.end() if match else at


def _iter_runs(old_words: list[str], new_words: list[str]) -> Iterator[tuple[Kind, str]]:
    """Yield kinds and texts, none of them empty."""
    at, to = 0, 0
    for start, goal, length in _iter_matches(old_words, new_words):
        if at < start:
            yield "gone", "".join(old_words[at:start])
        if to < goal:
            yield "new", "".join(new_words[to:goal])
        at, to = start + length, goal + length
        yield "same", "".join(old_words[start:at])
    if at < len(old_words):
        yield "gone", "".join(old_words[at:])
    if to < len(new_words):
        yield "new", "".join(new_words[to:])


def _iter_matches(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the common pieces, in order: (place in old, place in new, length)."""
    head = _count_common(old, new)
    tail = _count_common(old[head:][::-1], new[head:][::-1])
    end, goal = len(old) - tail, len(new) - tail
    if head:
        yield 0, 0, head
    if (end - head) * (goal - head) <= _MOST:
        yield from _find_subsequence(old[head:end], new[head:goal], head, head)
    if tail:
        yield end, goal, tail


def _count_common(old: Sequence[str], new: Sequence[str]) -> int:
    """Count the equal words at the beginning."""
    return next(
        (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )


def _iter_rows(old: Sequence[str], new: Iterable[str]) -> Iterator[int]:
    """Yield one integer for each word of `new`: one bit a word of `old`, 0 where the common sequence grows (Hyyrö
    2004).
    """
    places = dict.fromkeys(old, 0)
    for number, word in enumerate(old):
        places[word] |= 1 << number
    row = full = (1 << len(old)) - 1
    yield row
    for word in new:
        same = row & places.get(word, 0)
        row = ((row + same) | (row - same)) & full
        yield row


def _find_subsequence(old: Sequence[str], new: Sequence[str], at: int, to: int) -> Iterator[tuple[int, int, int]]:
    """Yield a longest common sequence; all rows are stored for the walk back.

    A word that one side alone has would change no row and no bit.
    """
    both = {*old}.intersection(new)
    old_numbers = [number for number, word in enumerate(old) if word in both]
    new_numbers = [number for number, word in enumerate(new) if word in both]
    rows = list(_iter_rows([old[number] for number in old_numbers], (new[number] for number in new_numbers)))
    matches: list[list[int]] = []
    old_index, new_index = len(old_numbers) - 1, len(new_numbers)
    while old_index >= 0 and new_index > 0:
        if rows[new_index] >> old_index & 1:
            old_index -= 1
            continue
        new_index -= 1
        if rows[new_index] >> old_index & 1:
            start, goal = at + old_numbers[old_index], to + new_numbers[new_index]
            if matches and matches[-1][0] == start + 1 and matches[-1][1] == goal + 1:
                matches[-1] = [start, goal, matches[-1][2] + 1]
            else:
                matches.append([start, goal, 1])
            old_index -= 1
    yield from ((start, goal, length) for start, goal, length in reversed(matches))


def _merge_runs(runs: Iterable[tuple[Kind, str]]) -> list[Run]:
    """Join neighbours of one kind, and drop a lone blank or word between two longer changes."""
    groups: list[list[str]] = [["", "", ""]]  # gone, new, same after it
    for kind, text in runs:
        if kind == "same":
            groups[-1][2] += text
        else:
            if groups[-1][2]:
                groups.append(["", "", ""])
            groups[-1][kind == "new"] += text
    pieces: list[list[str]] = []
    for removed_text, new, same in groups:
        if pieces and _is_lost_between(pieces[-1], (removed_text, new)):
            between = pieces[-1][2]
            pieces[-1] = [pieces[-1][0] + between + removed_text, pieces[-1][1] + between + new, same]
        else:
            pieces.append([removed_text, new, same])
    kinds: tuple[Kind, ...] = ("gone", "new", "same")
    return [Run(kind, text) for piece in pieces for kind, text in zip(kinds, piece, strict=True) if text]


def _is_lost_between(before: Sequence[str], after: Sequence[str]) -> bool:
    between = before[2]
    least = min(max(len(before[0]), len(before[1])), max(len(after[0]), len(after[1])))
    if not least or "\n" in between:
        return False
    has_word = any(character.isalnum() for character in between)
    return len(between) * (3 if has_word else 1) <= least and len(between) <= 20
