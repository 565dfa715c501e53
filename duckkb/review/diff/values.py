"""Compares the values of a field on both sides: objects by key, lists by element, texts by word."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from duckkb.ontology.source import pointer
from duckkb.review.diff.words import Run, json_words
from duckkb.truth.files.source_text import elements, split

_MOST_STEPS = 1_000_000
"""Pairs of elements that are compared to find those of a list that kept their order."""

Keys = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A value that differs, and that is not an object, or a list, on both sides.

    It has the keys that lead to it (the last one is the index of a new or removed element), and its JSON text
    on both sides, None where a side lacks it.
    """

    keys: Keys
    before: str | None
    after: str | None

    @property
    def is_element(self) -> bool:
        """Return whether the value is a new or removed element of a list."""
        return (self.before is None or self.after is None) and bool(self.keys) and isinstance(self.keys[-1], int)

    @property
    def kind(self) -> Literal["gone", "new", "changed"]:
        """Return `gone`, `new`, or `changed` for a value that changed inside."""
        return "gone" if self.after is None else "new" if self.before is None else "changed"

    def runs(self) -> list[Run]:
        """The runs of words that are equal or differ."""
        return json_words(self.before, self.after)

    @property
    def pointer(self) -> str:
        """The JSON pointer of the value in the record."""
        return pointer(*self.keys)

    @property
    def name(self) -> str:
        """The pointer without its first slash; for an element that of its list."""
        return pointer(*(self.keys[:-1] if self.is_element else self.keys))[1:]


def leaves(name: str, before: str | None, after: str | None) -> Iterator[Leaf]:
    """Yield what differs between two values given as JSON text (None: absent), with its path.

    >>> [(leaf.pointer, leaf.before, leaf.after) for leaf in leaves("place", '{"a":1,"b":[1,2]}', '{"a":2,"b":[2,3]}')]
    [('/place/a', '1', '2'), ('/place/b/0', '1', None), ('/place/b/1', None, '3')]
    """
    return _compare_values((name,) if name else (), before, after)


def _compare_values(keys: Keys, before: str | None, after: str | None) -> Iterator[Leaf]:
    starts = (before or " ")[:1] + (after or " ")[:1]
    if before is None or after is None or starts not in ("{{", "[["):
        yield Leaf(keys, before, after)
    elif starts == "{{":
        old, new = ({key: text for key, (_, text) in split(side.encode()).items()} for side in (before, after))
        for key in {**new, **old}:
            if old.get(key) != new.get(key):
                yield from _compare_values((*keys, key), old.get(key), new.get(key))
    else:
        for index, old_text, new_text in _compare_elements(elements(before) or [], elements(after) or []):
            yield from _compare_values((*keys, index), old_text, new_text)


def _compare_elements(old: list[str], new: list[str]) -> Iterator[tuple[int, str | None, str | None]]:
    """Yield the removed and the new elements, in reading order; a moved element is both.

    An object or a list that replaces another at the same place counts as changed inside.
    """
    if len(old) * len(new) > _MOST_STEPS:
        yield from ((index, text, None) for index, text in _find_surplus(old, Counter(new)))
        yield from ((index, None, text) for index, text in _find_surplus(new, Counter(old)))
        return
    from difflib import SequenceMatcher

    for tag, start, end, to, goal in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        removed_texts, come = old[start:end], new[to:goal]
        if tag == "equal":
            continue
        if len(removed_texts) == len(come) and all(
            old_text[0] == new_text[0] in "{[" for old_text, new_text in zip(removed_texts, come, strict=True)
        ):
            yield from zip(range(to, goal), removed_texts, come, strict=True)
        else:
            yield from ((start + number, text, None) for number, text in enumerate(removed_texts))
            yield from ((to + number, None, text) for number, text in enumerate(come))


def _find_surplus(some: list[str], counts: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield the elements of which there are more than in the other list."""
    for index, text in enumerate(some):
        counts[text] -= 1
        if counts[text] < 0:
            yield index, text
