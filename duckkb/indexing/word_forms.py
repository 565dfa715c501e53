"""Adds other forms of a word: without accents, the parts of `getUserName`, and `.NET` without its dot.

Folding removes marks only from Latin, Greek and Cyrillic letters: the dots of か and が are no accents. `й` is a
letter of its own, as are `л` and `м`, and stays.
"""

import re
import unicodedata
from collections.abc import Iterator

from duckkb.entries import FORM, VALUE, Tokens

VERSION = "forms 1"
_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_LETTERS = "a-z\u00df-\u02af\u0370-\u03ff\u0400-\u052f"
_MAY_FOLD = re.compile(f"[\u00df-\u02af\u0370-\u052f\u1e00-\u1fff{_MARKS}]")
_ACCENTED = re.compile(f"(?!и\u0306)([{_LETTERS}])[{_MARKS}]+")
_PLAIN = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)
"""Letters that Unicode does not decompose."""

_LONGEST_NAME = 64
"""The most characters of a name that is split into parts: a longer name is a key or a hash."""
_NAME = re.compile("[A-Za-z0-9]+")
_BORDER = re.compile("[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_PART = re.compile("[A-Z]+(?=[A-Z][a-z]{2})|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_DOTTED = re.compile(r"(?<![^\W\u3040-\u30ff\u3400-\u9fff])(?<![-./:@#+'&)\]}])\.[a-z][a-z0-9]{0,62}(?![a-z0-9])")
"""A name that begins with a dot, such as `.net` or `.env`; no Latin word precedes the dot."""


def with_forms(tokens: Tokens, composed: str, plain: str) -> Tokens:
    """Add the other forms to the tokens of a text; `composed` is the text in NFKC, `plain` the same in the case of the tokens.

    >>> with_forms(Tokens("café getuser", "café getuser"), "Café getUser", "café getuser")
    Tokens(words='cafe getuser', sequence='cafe|café getuser | get user')
    """
    words, sequence = tokens.words, tokens.sequence
    if _MAY_FOLD.search(words):
        words, folded_sequence = fold(words), fold(sequence)
        pairs = zip(folded_sequence.split(" "), sequence.split(" "), strict=True)
        sequence = " ".join(
            form if form == written_form else f"{form}{FORM}{written_form}" for form, written_form in pairs
        )
    words = " ".join([words, *_DOTTED.findall(plain)]) if "." in plain else words
    return Tokens(words, VALUE.join([sequence, *dict.fromkeys(_iter_name_parts(composed))]))


def fold(text: str) -> str:
    """Take the accents off a case-folded text in NFC; it has as many words as before.

    >>> fold("café zürich łódź θεός ёлка мой việt が")
    'cafe zurich lodz θεος елка мой viet が'
    """
    bare = _ACCENTED.sub(r"\1", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", bare).translate(_PLAIN)


def _iter_name_parts(text: str) -> Iterator[str]:
    """Yield the words of each name in which capitals begin them: `http server` of `HTTPServer`. A letter alone is no word."""
    if not _BORDER.search(text):
        return
    for name in _NAME.findall(text):
        if len(name) <= _LONGEST_NAME and _BORDER.search(name):
            parts = [part.lower() for part in _PART.findall(name) if len(part) > 1]
            if len(parts) > 1:
                yield " ".join(parts)
