"""The words of a sentence compared with its sources: whether they share any, and whether either denies the other."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

_LATIN = re.compile(r"[a-z\u00df-\u024f]+(?:['’]t\b)?")
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")
_STEM = 5
"""English words with this many equal first letters count as forms of one word: delete, deletes, deletion."""
_COMMON = (
    "the and for are was were been being has have had does did this that these those with from into onto over under than then"
    " they them their its his her our your you who which what when where why how all any each both only also will would can"
    " could may might must should shall but because while after before more most less least such very just there here about"
)
_EMPTY = frozenset(_COMMON.split())
_DENIES = re.compile(r"\b(?:not|never|no|none|nobody|nothing|neither|nor|without|cannot)\b|n['’]t\b")
_DENIES_HAN = re.compile(
    r"不(?![同仅但断过管论少久然妨足止])|没(?![收落])|未(?!来|必)|无(?![论线疑数锡])|勿|并非|(?<![特分区类级个性])别(?![人的名处])"
)
_CHOICE = re.compile(r"([\u3400-\u9fff])不\1")
_SENTENCE = re.compile(r"(?<=[^\s.])[.!?](?=\s|$)|[。！？]")
_CLAUSE = re.compile(r"[;；]|,\s(?=(?:and|but|because|so|while|or|which)\b)|，|:\s|：")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*+#|>\d])")
_NEAR = 0.5
"""The share of common words from which a sentence and a statement count as being about the same."""
_FEWEST = 4
"""A text with fewer words is not judged, since it may be worded differently."""
_HARDLY = 6
"""One common word among this many may be chance."""
_ENOUGH_WORDS = 8
"""A text with fewer words of a script was not written in it."""


class Wording:
    """A text as a set of words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded = _CHOICE.sub(r"\1", unicodedata.normalize("NFKC", text).casefold())

    @cached_property
    def words(self) -> frozenset[str]:
        """The content words: stems, and pairs of Chinese characters, without negations and stop words."""
        plain_text = _DENIES_HAN.sub("", _DENIES.sub(" ", self._folded))
        latin = (word for word in _LATIN.findall(plain_text) if len(word) > 2 and word not in _EMPTY)
        pairs = (run[at : at + 2] for run in _HAN_RUN.findall(plain_text) for at in range(len(run) - 1))
        return frozenset((*map(_reduce_word, latin), *pairs))

    @property
    def denies(self) -> bool:
        """Whether the text denies something; a double negation does not."""
        return (len(_DENIES.findall(self._folded)) + len(_DENIES_HAN.findall(self._folded))) % 2 == 1

    def statements(self) -> "Iterator[Wording]":
        """Yield the text's sentences, and the parts of them that could stand alone."""
        for paragraph in _PARAGRAPH.split(self.text):
            for sentence in _SENTENCE.split(paragraph):
                for part in dict.fromkeys((sentence, *_CLAUSE.split(sentence))):
                    if plain := " ".join(part.split()):
                        yield Wording(plain)


def is_unrelated(said: Wording, sources: "Sequence[Wording]") -> bool:
    """Return whether a sentence shares hardly any word with its sources, though in the same script."""
    han, latin = _split_scripts(said.words)
    if max(len(han), len(latin)) < _FEWEST:
        return False
    there = frozenset[str]().union(*(source.words for source in sources))
    ours = max(han, latin, key=len)
    same_script = _split_scripts(there)[ours is latin]
    return len(same_script) >= _ENOUGH_WORDS and len(said.words & there) * _HARDLY <= len(ours)


def find_denied_statement(said: Wording, statements: "Iterable[Wording]") -> str:
    """Return the nearest statement that differs from the sentence only by a negation; empty without one."""
    near = [(_measure_nearness(said.words, statement.words), statement) for statement in statements]
    nearest = max((share for share, _ in near), default=0.0)
    same = [statement for share, statement in near if share == nearest]
    if nearest < _NEAR or any(statement.denies == said.denies for statement in same):
        return ""
    return same[0].text


def _measure_nearness(claim_words: frozenset[str], statement_words: frozenset[str]) -> float:
    """Return the share of all words of two statements that both have; 0 where these are too few."""
    common = len(claim_words & statement_words)
    return common / len(claim_words | statement_words) if common >= 2 else 0.0


def _split_scripts(words: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    han = frozenset(word for word in words if _HAN_RUN.match(word))
    return han, words - han


def _reduce_word(word: str) -> str:
    return re.sub(r"(?:ies|es|s|ed|ing|y|e)$", "", word)[:_STEM] if len(word) > 4 else word.removesuffix("s")
