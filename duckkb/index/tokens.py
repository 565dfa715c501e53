"""Tokenizes texts and queries into words, identifiers, Chinese words and characters.

A text has two token lists. `words` feeds ranking: Latin words and the parts of identifiers, Chinese words,
pairs of characters in the other scripts without spaces, and at the end whole identifiers. `sequence` keeps the
order of the text for phrases: the same words and parts, and those scripts one character a token. The lexical
index does the stemming. ASCII text takes a faster path to the same tokens.

Adds other forms of a word: without accents, the parts of `getUserName`, and `.NET` without its dot.

Folding removes marks only from Latin, Greek and Cyrillic letters: the dots of か and が are no accents. `й` is a
letter of its own, as are `л` and `м`, and stays."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from duckkb.index.chinese import (
    Glossary,
    Segment,
    chinese_words,
    pairs,
    read_simplified_table,
    segmenter_version,
    table_version,
)
from duckkb.types.records import FORM, VALUE, Fingerprint, Tokens

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


RULES = "1"
LONGEST = 255
"""The most characters of a token. A longer word is cut into pieces, a longer identifier has only its parts: no
index takes terms without limit.
"""

Fold = Literal["none", "simplified"]
Forms = Literal["written", "all"]
"""Whether a word has only its written form, or its other forms too, as `word_forms` defines them."""

_JOINERS = frozenset("-_./:@#+'&")
_HAN = "\u4e00-\u9fd5"  # the characters that jieba cuts; it treats any other Han character as a separate word
_RARE_HAN = "\u3005-\u3007\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA_HANGUL = (
    "\u1100-\u11ff\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\ua960-\ua97f\uac00-\ud7ff"
)
_SOUTH_EAST = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"  # Thai, Lao, Burmese, Khmer
_EMOJI = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
_FLAG = "\U0001f1e6-\U0001f1ff"
_LETTER = rf"[^\W_{_HAN}{_RARE_HAN}{_KANA_HANGUL}{_SOUTH_EAST}]"

_BARE = frozenset(["", *(chr(code) for code in range(128) if not chr(code).isalnum())])
"""The usual text between two runs of Han characters, without a token."""
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_LOOKED_UP = 400
"""The number of Han characters up to which looking up their words takes less time than loading all words."""
_PILED = 64
"""Marks on one letter. Sorting them takes quadratic time; no language has ten."""
_PILE = re.compile(rf"[^\w\s\x00-\u02ff]{{{_PILED + 1}}}")
_POSSESSIVE = re.compile(r"'s(?![^\W_])")
_TYPOGRAPHIC = re.compile("[\u00ab\u00bb\u2012-\u2018\u201a-\u2022\u2032\u2033\u2039\u203a]")
_LOOKALIKES = (("\u2019", "'"), ("\u2010", "-"), ("\u2011", "-"), ("\u2043", "-"), ("\u2212", "-"))

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_ASCII_CANDIDATE = re.compile(r"[a-z0-9]+(?:[-_./:@#+'&]+[a-z0-9]+)*(?:\+\+?|#)?")
# Words of letters alone that a hyphen, slash or apostrophe joins are language, not identifiers. Keeping them whole too
# cost 0.006 of nDCG@10 on scifact and 0.003 on cranfield, as it makes such texts longer than they are.
_COMPOUND = re.compile(r"[^\W\d_]+(?:[-/'][^\W\d_]+)+")


def _build_byte_table(letter: int | None, joiner: int) -> bytes:
    """Build a table for `bytes.translate` of ASCII: the replacement of letters and digits (None: lower case) and
    of joiners.
    """
    return bytes(
        (ord(chr(code).lower()) if letter is None else letter)
        if chr(code).isalnum() and code < 128
        else joiner
        if chr(code) in _JOINERS
        else 32
        for code in range(256)
    )


_WORDS = _build_byte_table(None, ord(" "))
_SHAPE = _build_byte_table(ord("a"), ord("-"))
_JOINED, _SPACE, _TOO_LONG = b"-a", b" ", b"a" * (LONGEST + 1)
_spaces = re.compile(b"  +")
_has_joined = re.compile(_JOINED).search
"""Takes a third of the time of `in`, which stops at each letter."""
_has_suffix = re.compile(r"(?<=[a-z0-9])[+#]").search


class _Tokenizer(ABC):
    """A base of both tokenizers that does everything but cut a run of Han characters into words."""

    def __init__(self, name: str, fold: Fold, forms: Forms) -> None:
        self._name = name
        self._fold = fold
        self.has_forms = forms == "all"

    @cached_property
    def fingerprint(self) -> Fingerprint:
        table = table_version() if self._fold == "simplified" else ""
        forms = (VERSION,) if self.has_forms else ()
        shaped_by = (RULES, str(LONGEST), self._describe_segmenter(), table, unicodedata.unidata_version, *forms)
        return Fingerprint(self._name, blake2b("\0".join(shaped_by).encode(), digest_size=8).hexdigest())

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text; an empty text, or only punctuation, has none."""
        if self.has_forms:
            return [self._tokenize_forms(text) for text in texts]
        return [self._tokenize(_separate_words(normalise(text))) for text in texts]

    def _tokenize_forms(self, text: str) -> Tokens:
        nfkc_text = _compose_text(text)
        plain = _separate_words(_fold_case(nfkc_text))
        return with_forms(self._tokenize(plain), nfkc_text, plain)

    def _tokenize(self, text: str) -> Tokens:
        if text.isascii():
            sequence, wholes = _tokenize_ascii(text)
            return Tokens(" ".join([sequence, *wholes]) if wholes else sequence, sequence)
        if self._fold == "simplified":
            text = text.translate(read_simplified_table())
        words: list[str] = []
        parts: list[str] = []
        identifiers: list[str] = []
        for place, run in enumerate(_compile_han_run().split(text)):
            if place % 2:
                words += self._cut_han_words(run)
                parts += run
            elif run not in _BARE:
                for piece in _iter_pieces(run):
                    piece_words, piece_parts, wholes = _tokenize_piece(piece)
                    words += piece_words
                    parts += piece_parts
                    identifiers += wholes
        return Tokens(" ".join(words + identifiers), " ".join(parts))

    @abstractmethod
    def _cut_han_words(self, run: str) -> list[str]:
        """Return the words of a run of Han characters."""

    @abstractmethod
    def _describe_segmenter(self) -> str:
        """Return the name and version of the segmenter for the fingerprint."""


class JiebaTokenizer(_Tokenizer):
    """A tokenizer that cuts Chinese text in jieba's search mode. `cache_dir` is the user's folder, where jieba may
    keep its dictionary.

    A `Glossary` cuts the first few runs of Han characters; the dictionary is loaded when more follow.
    """

    def __init__(self, fold: Fold = "none", cache_dir: Path | None = None, forms: Forms = "written") -> None:
        super().__init__("jieba", fold, forms)
        self._cache_dir = cache_dir
        self._looked_up = 0
        self._words: Segment = self._look_up_words

    def _cut_han_words(self, run: str) -> list[str]:
        return self._words(run)

    def _look_up_words(self, run: str) -> list[str]:
        self._looked_up += len(run)
        glossary = self._glossary if self._looked_up <= _LOOKED_UP else None
        if glossary is None:
            self._words = chinese_words(self._cache_dir)
            return self._words(run)
        return glossary.words(run)

    @cached_property
    def _glossary(self) -> Glossary | None:
        return Glossary.open()

    def _describe_segmenter(self) -> str:
        return segmenter_version()


class PlainTokenizer(_Tokenizer):
    """A tokenizer that cuts Chinese text into pairs of neighbouring characters, without a dictionary."""

    def __init__(self, fold: Fold = "none", forms: Forms = "written") -> None:
        super().__init__("plain", fold, forms)

    def _cut_han_words(self, run: str) -> list[str]:
        return pairs(run)

    def _describe_segmenter(self) -> str:
        return ""


def normalise(text: str) -> str:
    """Apply NFKC and case folding and remove invisible characters. Idempotent.

    >>> normalise("ＤｕｃｋＤＢ")
    'duckdb'
    """
    return _fold_case(_compose_text(text))


def _compose_text(text: str) -> str:
    """Apply NFKC and remove invisible characters."""
    if text.isascii():
        return text
    text = _INVISIBLE.sub("", text)
    if _PILE.search(text):
        text = _compile_marks().sub(lambda pile: pile[0][:_PILED], text)
    return unicodedata.normalize("NFKC", text)


def _fold_case(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())


def _separate_words(text: str) -> str:
    """Replace typographic quotes and hyphens by ASCII, rows of dots and dashes by spaces; remove the possessive s."""
    if not text.isascii():
        for odd, plain in _LOOKALIKES:
            if odd in text:
                text = text.replace(odd, plain)
        text = _TYPOGRAPHIC.sub(" ", text)
    if "'" in text:
        text = _POSSESSIVE.sub("", text)
    for sign, separator in (("-", "--"), (".", "..")):
        if sign in text and separator in text:  # checking for a character first takes a twentieth of the time
            text = text.replace(separator, " ")
    return text


def _iter_pieces(text: str) -> Iterator[str]:
    """Yield stretches of the text, cut at spaces: ASCII stretches for the fast path, and others."""
    position = 0
    for match in _NOT_ASCII.finditer(text):
        if match.start() < position:
            continue
        start = max(position, text.rfind(" ", position, match.start()) + 1)
        end = text.find(" ", match.end())
        end = len(text) if end < 0 else end
        yield text[position:start]
        yield text[start:end]
        position = end
    yield text[position:]


def _tokenize_piece(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return (words, sequence, identifiers) of a stretch without the Han characters that jieba cuts."""
    if text.isascii():
        sequence, wholes = _tokenize_ascii(text)
        word_list = [sequence] if sequence else []
        return word_list, word_list, wholes
    words: list[str] = []
    parts: list[str] = []
    identifiers: list[str] = []
    for token in _compile_scanner().finditer(text):
        run = token[0]
        match token.lastgroup:
            case "candidate":
                run_words = _limit_words(_compile_word().findall(run))
                words += run_words
                parts += run_words
                identifiers += filter(_is_identifier, [run])
            case "unspaced":
                words += pairs(run)
                parts += run
            case _:
                words.append(run)
                parts.append(run)
    return words, parts, identifiers


def _tokenize_ascii(text: str) -> tuple[str, list[str]]:
    """Return (words in order joined by spaces, identifiers), computed on the bytes: ten times as fast as the
    scanner.
    """
    raw = text.encode()
    words, shape = raw.translate(_WORDS).strip(_SPACE), raw.translate(_SHAPE)
    sequence = _spaces.sub(_SPACE, words).decode()
    if _TOO_LONG in shape:
        sequence = " ".join(_limit_words(sequence.split()))
    if ("+" in text or "#" in text) and _has_suffix(text):
        runs: Iterable[str] = [text]
    elif _has_joined(shape):
        runs = _iter_joined_runs(text, shape)
    else:
        return sequence, []
    return sequence, [
        candidate for run in runs for candidate in _ASCII_CANDIDATE.findall(run) if _is_identifier(candidate)
    ]


def _iter_joined_runs(text: str, shape: bytes) -> Iterator[str]:
    """Yield the stretches between spaces that have a joiner before a letter; the regular expression then sees few
    words.
    """
    at = shape.find(_JOINED)
    while at >= 0:
        end = shape.find(_SPACE, at)
        end = len(shape) if end < 0 else end
        yield text[shape.rfind(_SPACE, 0, at) + 1 : end]
        at = shape.find(_JOINED, end)


def _is_identifier(candidate: str) -> bool:
    """Return True for more than plain words: `text-embedding-3-small`, `e_dup_id`, `v2.0.1`, `c++`; False for
    `full-text`.
    """
    return not (
        candidate.isalnum()
        or _JOINERS.isdisjoint(candidate)
        or len(candidate) > LONGEST
        or _COMPOUND.fullmatch(candidate)
    )


def _limit_words(words: list[str]) -> list[str]:
    if not words or max(map(len, words)) <= LONGEST:
        return words
    return [word[at : at + LONGEST] for word in words for at in range(0, len(word), LONGEST)]


@cache
def _compile_han_run() -> re.Pattern[str]:
    return re.compile(f"([{_HAN}]+)")


@cache
def _compile_marks() -> re.Pattern[str]:
    """Compile a pattern of marks in a row, when first needed: finding all marks takes 12 ms."""
    mark_characters = "".join(
        chr(code) for code in range(0x300, 0x1E950) if unicodedata.category(chr(code)).startswith("M")
    )
    return re.compile(f"[{mark_characters}]+")


@cache
def _compile_word() -> re.Pattern[str]:
    """Compile a pattern of letters and digits with their marks."""
    return re.compile(rf"{_LETTER}+(?:{_compile_marks().pattern}{_LETTER}*)*")


@cache
def _compile_candidate() -> re.Pattern[str]:
    """Compile a pattern of a word, or of words joined into an identifier, with the tail of `c++` or `c#`."""
    joiner = f"[{re.escape(''.join(sorted(_JOINERS)))}]"
    return re.compile(rf"{_compile_word().pattern}(?:{joiner}+{_compile_word().pattern})*(?:\+\+?|#)?")


@cache
def _compile_scanner() -> re.Pattern[str]:
    """Compile a pattern of every token but Chinese words, by kind; text between matches is not a token."""
    kinds = (
        f"(?P<candidate>{_compile_candidate().pattern})",
        f"(?P<unspaced>[{_KANA_HANGUL}{_SOUTH_EAST}]+)",
        f"(?P<single>[{_RARE_HAN}{_EMOJI}]|[{_FLAG}]{{2}})",
    )
    return re.compile("|".join(kinds))
