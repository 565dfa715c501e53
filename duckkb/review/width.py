"""How much of a terminal's line a text takes. Chinese and most emoji take two places, marks that combine take none."""

import unicodedata
from functools import cache


def places(text: str) -> int:
    """How many places of a terminal a text takes.

    >>> places("ab"), places("数据"), places("é"), places("🦆")
    (2, 4, 1, 2)
    """
    return len(text) if text.isascii() else sum(map(place, text))


@cache
def place(character: str) -> int:
    """How many places one character takes."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
