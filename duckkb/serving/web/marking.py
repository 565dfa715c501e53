"""Marks the terms of a question in a text that it matched, and cuts the part of a long text with them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from markupsafe import Markup, escape

from duckkb.indexing.word_forms import fold

_WORD = re.compile(r"[^\W_]+")
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LEAST_STEM = 3
_MOST_TERMS = 64
_BEFORE = 80


def terms_of(question: str, tokens: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the terms to mark, longest first, folded.

    These are words of the question, and the tokens by which the lexical lane found a record (stems, or runs of
    Chinese characters).
    """
    words = {word.casefold() for word in (*_WORD.findall(question[:2_000]), *tokens)}
    return tuple(sorted((word for word in words if word), key=lambda word: (-len(word), word))[:_MOST_TERMS])


def mark_terms(text: str, terms: Sequence[str]) -> Markup:
    """Return the text as markup, with <mark> around words that are a term, or begin with one of at least three
    letters.

    Accents do not matter.

    >>> mark_terms("Atomic <writes> write", ["write", "atom"])
    Markup('<mark>Atomic</mark> &lt;<mark>writes</mark>&gt; <mark>write</mark>')
    >>> mark_terms("le Café", ["cafe"]), mark_terms("the cafe", ["café"])
    (Markup('le <mark>Café</mark>'), Markup('the <mark>cafe</mark>'))
    """
    pattern = _compile_pattern(terms)
    if pattern is None:
        return escape(text)
    pieces, at = [], 0
    for match in pattern.finditer(text):
        pieces += [escape(text[at : match.start()]), Markup("<mark>%s</mark>") % match[0]]
        at = match.end()
    return Markup("").join([*pieces, escape(text[at:])])


def place_of(text: str, terms: Sequence[str]) -> int:
    """Return the place of the first term; 0 where there is none."""
    pattern = _compile_pattern(terms)
    first = pattern.search(text) if pattern else None
    return first.start() if first else 0


def excerpt(text: str, place: int, length: int = 320) -> str:
    """Return about `length` characters of a text, from shortly before a place on."""
    if len(text) <= length:
        return text
    start = max(0, place - _BEFORE)
    start = text.rfind(" ", max(0, start - 20), start) + 1 if start else 0
    cut = text[start : start + length]
    return ("…" if start else "") + cut + ("…" if start + length < len(text) else "")


def _compile_pattern(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Compile a pattern of the terms: Chinese runs anywhere; other words from their beginning."""
    alternatives = []
    for term in terms:
        body = "".join(_map_accents().get(letter) or re.escape(letter) for letter in fold(term))
        if _HAN.search(term):
            alternatives.append(body)
        else:
            alternatives.append(
                rf"(?<![^\W_]){body}[^\W_]*" if len(term) >= _LEAST_STEM else rf"(?<![^\W_]){body}(?![^\W_])"
            )
    return re.compile("|".join(alternatives), re.IGNORECASE) if alternatives else None


@cache
def _map_accents() -> Mapping[str, str]:
    """Return for each letter a pattern of it with and without accents."""
    forms: dict[str, str] = {}
    for letter in map(chr, (*range(0xC0, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x2000))):
        plain = fold(letter.casefold())
        if plain != letter.casefold() and len(plain) == 1:
            forms[plain] = forms.get(plain, plain) + letter
    return {plain: f"[{letters}]" for plain, letters in forms.items()}
