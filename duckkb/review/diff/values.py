"""The values of a field on both sides, as pieces: objects by key, lists by element, texts by word."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from duckkb.review.diff.words import Run, json_words
from duckkb.truth.merge import elements, split
from duckkb.values import dataclass

_MOST_STEPS = 1_000_000
"""Pairs of elements that are compared to find which of a list stayed in their order."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that is gone, new, or changed inside: its name (a field, with the keys below it behind slashes) and what
    of it is the same or not. `is_element` says that it stands in a list, and the name is the list's."""

    kind: Literal["gone", "new", "changed"]
    name: str
    runs: tuple[Run, ...]
    is_element: bool = False


def pieces(name: str, before: str | None, after: str | None, *, inside: bool = True) -> Iterator[Piece]:
    """What differs between two values given as JSON text; None where a side has none. `inside` is as in `words.words`.

    >>> [(piece.kind, piece.name) for piece in pieces("place", '{"a":1,"b":[1,2]}', '{"a":2,"b":[2,3]}')]
    [('changed', 'place/a'), ('gone', 'place/b'), ('new', 'place/b')]
    """
    if before is None or after is None:
        kind: Literal["gone", "new"] = "gone" if after is None else "new"
        yield Piece(kind, name, tuple(json_words(before, after)))
        return
    starts = before[:1] + after[:1]
    if starts == "{{":
        old, new = ({key: text for key, (_, text) in split(side.encode()).items()} for side in (before, after))
        for key in {**new, **old}:
            if old.get(key) != new.get(key):
                yield from pieces(f"{name}/{key}" if name else key, old.get(key), new.get(key), inside=inside)
    elif starts == "[[":
        for is_new, text in _elements(elements(before) or [], elements(after) or []):
            runs = json_words(None, text) if is_new else json_words(text, None)
            yield Piece("new" if is_new else "gone", name, tuple(runs), is_element=True)
    else:
        yield Piece("changed", name, tuple(json_words(before, after, inside=inside)))


def _elements(old: list[str], new: list[str]) -> Iterator[tuple[bool, str]]:
    """The elements that are gone (False) or new (True), in reading order; those that only moved are both."""
    if len(old) * len(new) > _MOST_STEPS:
        counts = Counter(old), Counter(new)
        yield from ((False, text) for text in (counts[0] - counts[1]).elements())
        yield from ((True, text) for text in (counts[1] - counts[0]).elements())
        return
    from difflib import SequenceMatcher

    for tag, start, end, to, goal in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from ((False, text) for text in old[start:end])
            yield from ((True, text) for text in new[to:goal])
