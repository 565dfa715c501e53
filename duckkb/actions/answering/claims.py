"""Checks of an answer against the texts that it cites, without asking a model.

A sentence with a claim has to cite existing entries. Its quotations must be in one of them literally, after
NFKC and white space; its numbers and names must be in them too. Failures are marked with the reason. A mark
says that the check failed, not that the sentence is wrong; a sentence without a mark is not proved.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from duckkb.actions.answering.amounts import Amounts, amounts, blank_amounts, normalize_digits_text
from duckkb.actions.answering.sentences import CODE, QUOTED, Sentence, sentences
from duckkb.actions.answering.wording import Wording, find_denied_statement, is_unrelated

Fault = Literal["uncited", "no_entry", "quotation", "code", "number", "name", "denial", "unrelated"]

_WORD = re.compile(r"[A-Za-z\u00c0-\u024f0-9_]+(?:['’][A-Za-z]+)?")
_NAME = re.compile(r"[A-Z\u00c0-\u00de]|.*(?:[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]|_)")
_INITIAL = re.compile(r"[\"“‘'(*_\s>-]*$|.*[:：]\s*$", re.DOTALL)
_COMMON = (
    "i a an the this that these those it its they them their we our you your he she his her there here what which who when where"
    " why how if unless while as because since so thus therefore hence however although though but and or nor yet also then"
    " finally first second third next last once before after during until to for from in on at by with without within of off"
    " over under between among into through per about against each every all both either neither some many most any no not none"
    " only one two three yes note example summary answer overview conclusion steps step instead otherwise rather such like unlike"
    " overall generally usually often always never sometimes see use using set run make add call give take let do don't"
    " is are was were be can cannot may might must should would will has have had does did"
)
_NO_NAMES = frozenset(_COMMON.split())
_ENDINGS = ("ing", "ly", "tion", "ment", "ness", "ed", "able")
_OBJECTS = "the a an your its their this that these those it all any each every to for from in on with"
_NOT_AFTER_NAMES = frozenset(_OBJECTS.split())
"""A capital at the start of a sentence behind these words begins an order or an adverb, not a name."""
_SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘蔡蒋余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
_HAN_NAME = re.compile(
    rf"(?<![\u4e00-\u9fff])([{_SURNAMES}][\u4e00-\u9fff]{{1,2}}?)(?=先生|女士|博士|教授|经理|主任|工程师|说|表示|认为|指出|批准|决定|负责|提出|发现|撰写|编写|创建|创立|开发|担任|发明|于\d)"
)
_MARKUP = re.compile(r"[*`]+")
_SPACE = re.compile(r"\s+")
_SAME: Mapping[int, str] = {
    ord(one): as_one for some, as_one in (("“”„«»", '"'), ("‘’‚", "'"), ("–—−", "-")) for one in some
}
_LETTER = "A-Za-z_\u00c0-\u024f"
_WITHIN = re.compile(rf"[{_LETTER}]\0[{_LETTER}]|\d\0\d|\d[.,]\0\d|\d\0[.,]\d")
"""A place (NUL) in the middle of a word or a number."""
_NEAR = 40  # characters before a word that show whether it begins a sentence
_ELLIPSIS = re.compile(r"\s*(?:\[?…+\]?|\[?\.{3,}\]?)\s*")


class Mark(Struct, frozen=True):
    """The reason why a sentence counts as unsupported, and the part concerned."""

    fault: Fault
    part: str = ""

    def __str__(self) -> str:
        reasons = {
            "uncited": "cites nothing",
            "no_entry": "there is no entry",
            "quotation": "quotes text that the source lacks:",
            "code": "has code that the source lacks:",
            "number": "has a number that the source lacks:",
            "name": "has a name that the source lacks:",
            "denial": "says the opposite of:",
            "unrelated": "shares hardly a word with the cited text",
        }
        return f"{reasons[self.fault]} {self.part}".strip()


class CheckedSentence(Struct, frozen=True):
    """A sentence with its marks; none where the checks found it supported."""

    sentence: Sentence
    marks: tuple[Mark, ...] = ()


def check_sentences(answer: str, sources: Mapping[int, str]) -> tuple[CheckedSentence, ...]:
    """Check each sentence of an answer against the texts of the entries (by number) that it cites.

    A sentence that needs no citation and has none is checked against all of them.
    """
    texts = {number: _Source(text) for number, text in sources.items()}
    return tuple(_check_sentence(sentence, texts) for sentence in sentences(answer))


def _check_sentence(sentence: Sentence, texts: "Mapping[int, _Source]") -> CheckedSentence:
    """Check a sentence; where all else passes, compare its words as a whole."""
    marks = tuple(dict.fromkeys(_find_marks(sentence, texts)))
    sources = [texts[number] for number in sentence.cites if number in texts]
    if not marks and sources and sentence.form == "claim":
        marks = tuple(_check_words(Wording(sentence.plain), sources))
    return CheckedSentence(sentence, marks)


def _find_marks(sentence: Sentence, texts: "Mapping[int, _Source]") -> Iterator[Mark]:
    unknown = [number for number in sentence.cites if number not in texts]
    yield from (Mark("no_entry", f"[{number}]") for number in unknown)
    sources = [texts[number] for number in sentence.cites if number in texts]
    if not sentence.cites and sentence.form == "frame":
        sources = list(texts.values())
    elif not sentence.cites:
        yield Mark("uncited")
    if not sources:
        return
    if sentence.form == "code":
        lines = (line.strip() for line in sentence.plain.splitlines())
        yield from (Mark("code", line) for line in lines if line and not any(text.has(line) for text in sources))
        return
    if sentence.form == "quotation":
        whole = sentence.plain.strip()
        if not any(text.quotes(whole) for text in sources):
            yield Mark("quotation", whole)
        return
    yield from _check_quotations(sentence.plain, sources)
    plain_text = normalize_digits_text(_strip_quotations(sentence.plain))
    numbers = amounts(plain_text)
    for number in numbers:
        is_meant = number.is_sure and not (number.is_spelled and sentence.form == "frame")
        if is_meant and not any(text.amounts.have(number) for text in sources):
            yield Mark("number", number.shown)
    yield from _check_names(blank_amounts(plain_text, numbers), sources)


def _check_words(wording: Wording, sources: "list[_Source]") -> Iterator[Mark]:
    if is_unrelated(wording, [text.wording for text in sources]):
        yield Mark("unrelated")
    elif opposite := find_denied_statement(wording, [statement for text in sources for statement in text.statements]):
        yield Mark("denial", opposite)


def _check_quotations(plain_text: str, sources: "list[_Source]") -> Iterator[Mark]:
    """Yield marks for quotations and inline code that no source has."""
    for match in CODE.finditer(plain_text):
        if not any(text.has(match[2]) for text in sources):
            yield Mark("code", match[2].strip())
    for match in QUOTED.finditer(CODE.sub(" ", plain_text)):
        inner = match[0][1:-1].strip()
        if (len(inner) > 1 or inner.isalnum()) and not any(text.quotes(inner) for text in sources):
            yield Mark("quotation", inner)


def _strip_quotations(plain_text: str) -> str:
    return QUOTED.sub(" ", CODE.sub(" ", plain_text))


def _check_names(plain_text: str, sources: "list[_Source]") -> Iterator[Mark]:
    """Yield marks for names that no source has.

    Names are words with a capital, letters among digits, and Chinese names before a title or verb.
    """
    matches = list(_WORD.finditer(plain_text))
    for at, match in enumerate(matches):
        word = re.sub(r"['’]s$", "", match[0])
        following = matches[at + 1][0] if at + 1 < len(matches) else ""
        if _is_name(word, plain_text[max(match.start() - _NEAR, 0) : match.start()], following) and not any(
            text.names(word) for text in sources
        ):
            yield Mark("name", word)
    for match in _HAN_NAME.finditer(plain_text):
        if not any(match[1] in text.folded for text in sources):
            yield Mark("name", match[1])


def _is_name(word: str, before: str, following: str) -> bool:
    if not _NAME.match(word) or word.isdigit() or word.casefold() in _NO_NAMES:
        return False
    if not _INITIAL.match(before) or not word[1:].islower():
        return True
    return not (word.casefold().endswith(_ENDINGS) or following.casefold() in _NOT_AFTER_NAMES) and len(word) > 1


class _Source(Struct, frozen=True, dict=True):
    """A quoted text, prepared for look-ups."""

    text: str

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """The text as it is; for a record in JSON also its values without escapes and signs."""
        return tuple(dict.fromkeys((_fold_text(self.text), _fold_text(self._said))))

    @cached_property
    def folded(self) -> str:
        return "\n".join(self.forms)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(word.casefold() for word in _WORD.findall(self.folded))

    @cached_property
    def amounts(self) -> Amounts:
        return Amounts(self.folded)

    @cached_property
    def wording(self) -> Wording:
        return Wording(self.folded)

    @cached_property
    def statements(self) -> tuple[Wording, ...]:
        return tuple(Wording(self._said).statements())

    @cached_property
    def _said(self) -> str:
        """The text in lines; for a record in JSON the values of its fields."""
        try:
            value = json.loads(self.text)
        except ValueError:
            value = None
        return "\n\n".join(_iter_texts(value)) if isinstance(value, dict) else self.text

    def has(self, code: str) -> bool:
        return any(_place(form, _fold_text(code)) >= 0 for form in self.forms)

    def quotes(self, quotation: str) -> bool:
        """Return whether the text has a quotation; parts around an omission must come in their order.

        A full stop before the closing quotation mark may belong to the sentence around it.
        """
        parts = [_fold_text(part) for part in _ELLIPSIS.split(quotation) if part]
        return any(_has_parts(form, parts) for form in self.forms)

    def names(self, word: str) -> bool:
        """Return whether the text has a word: as it is, among several, or as a part of a word with signs."""
        lower_word = word.casefold()
        forms = {lower_word, lower_word.removesuffix("s"), lower_word + "s"}
        return not forms.isdisjoint(self.words) or lower_word.replace("_", "") in self.words


def _has_parts(text: str, parts: Sequence[str]) -> bool:
    at = 0
    for part in parts:
        places = (_place(text, form, at) for form in (part, part.rstrip(".,;:。，、；：")))
        at = min((place for place in places if place >= 0), default=-1)
        if at < 0:
            return False
        at += 1
    return True


def _place(text: str, part: str, at: int = 0) -> int:
    """Return the place of `part` in a text from `at` on, at boundaries of words and numbers; -1 without one.

    A plural s may follow.

    >>> [_place("port 8080, unable lanes", part) for part in ("80", "able", "lane", "8080, un", "8080")]
    [-1, -1, 18, -1, 5]
    """
    while (at := text.find(part, at)) >= 0 and part:
        end = at + len(part)
        is_plural = text[end : end + 1] == "s" and part[-1].isalpha() and not _is_within(text, end + 1)
        if not _is_within(text, at) and (is_plural or not _is_within(text, end)):
            return at
        at += 1
    return at


def _is_within(text: str, at: int) -> bool:
    return _WITHIN.search(f"{text[max(at - 2, 0) : at]}\0{text[at : at + 2]}") is not None


def _fold_text(text: str) -> str:
    """Fold a text for comparison: NFKC, uniform quotation marks, dashes and spaces, no Markdown signs."""
    plain = unicodedata.normalize("NFKC", _MARKUP.sub("", text)).translate(_SAME)
    return _SPACE.sub(" ", plain).strip()


def _iter_texts(value: Any) -> Iterable[str]:
    """Yield the texts, numbers and field names of a JSON value."""
    if isinstance(value, str | int | float):
        yield str(value)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _iter_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iter_texts(item)
