"""Checks of an answer against the texts that it cites, without asking a model.

A sentence with a claim has to cite existing entries. Its quotations must be in one of them literally, after
NFKC and white space; its numbers and names must be in them too. Failures are marked with the reason. A mark
says that the check failed, not that the sentence is wrong; a sentence without a mark is not proved.

The words of a sentence compared with its sources: whether they share any, and whether either denies the other.

Parsing of an answer into sentences, list items, table rows, code and headings; English and Chinese.

A sentence has the citations inside it and right behind its end. Nothing inside a quotation or code ends a sentence."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct

from duckkb.operations.quantities import Amounts, amounts, blank_amounts, normalize_digits_text

_LATIN = re.compile(r"[a-z\u00df-\u024f]+(?:['’]t\b)?")
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")
_STEM = 5
"""English words with this many equal first letters count as forms of one word: delete, deletes, deletion."""
_COMMON_WORDS = (
    "the and for are was were been being has have had does did this that these those with from into onto over under than then"
    " they them their its his her our your you who which what when where why how all any each both only also will would can"
    " could may might must should shall but because while after before more most less least such very just there here about"
)
_EMPTY = frozenset(_COMMON_WORDS.split())
_DENIES = re.compile(r"\b(?:not|never|no|none|nobody|nothing|neither|nor|without|cannot)\b|n['’]t\b")
_DENIES_HAN = re.compile(
    r"不(?![同仅但断过管论少久然妨足止])|没(?![收落])|未(?!来|必)|无(?![论线疑数锡])|勿|并非|(?<![特分区类级个性])别(?![人的名处])"
)
_CHOICE = re.compile(r"([\u3400-\u9fff])不\1")
_SENTENCE = re.compile(r"(?<=[^\s.])[.!?](?=\s|$)|[。！？]")
_CLAUSE = re.compile(r"[;；]|,\s(?=(?:and|but|because|so|while|or|which)\b)|，|:\s|：")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*+#|>\d])")
_NEAR_WORDS = 0.5
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
    if nearest < _NEAR_WORDS or any(statement.denies == said.denies for statement in same):
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


Form = Literal["claim", "code", "quotation", "frame"]
"""`quotation`: a line of a block marked as quoted. `frame`: a heading, a question, the lead-in of a list, the head
of a table; it needs no citation of its own."""

_NUMBERS = r"\d+(?:\s*[-–,，、;]\s*\d+)*"
CITATION = re.compile(rf"\[\s*\^?(?P<square>{_NUMBERS})\s*\](?!\()|[【［]\s*(?P<wide>{_NUMBERS})\s*[】］]")
_PAIRS = (
    r'"[^"\n]{1,2000}"',
    r"“[^”]{1,2000}”",
    r"‘[^’]{1,2000}’(?!\w)",
    "「[^」]{1,2000}」",
    "『[^』]{1,2000}』",
    "«[^»]{1,2000}»",
    "„[^“”\n]{1,2000}[“”]",
    r"(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,2000}'(?!\w)",
)
QUOTED = re.compile("|".join(_PAIRS))
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_CITED = rf"(?:\s*(?:\[\s*\^?{_NUMBERS}\s*\](?!\()|[【［]\s*{_NUMBERS}\s*[】］]))*"
_BEHIND_CODE = re.compile(rf"[ \t]+\[{_NUMBERS}\][ \t]*$", re.MULTILINE)
_CLOSING = r"[\"'”’」』）)\]】*_]*"
_END = re.compile(
    rf"[。！？]+{_CLOSING}{_CITED}[。]?|[.!?…]+{_CLOSING}{_CITED}[.]?(?=\s|$)"
    rf"|(?:\[\s*{_NUMBERS}\s*\]|[】］])[ \t]*(?=\n\s*[^a-z\s])"  # a citation at the end of a line, and a new line
)
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf|approx|ca|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Inc|Ltd)|\b[A-Z])\.$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}\s+")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)、])\s+|\s*\d{1,3}、")
_LEAD = {"item": _ITEM, "quotation": re.compile(r"\s*(?:>\s?)+")}
_RULE = re.compile(r"\s*(?:[-*_=]\s*){3,}$")
_TABLE_RULE = re.compile(r"\s*+\|?\s*+:?-{2,}+[\s|:-]*+$")
_LONG_HEADING = 8  # words; a longer heading makes a claim
_ALONE = frozenset(("yes", "no", "是", "是的", "不", "不是", "可以", "不可以", "能", "不能", "对"))


class Sentence(Struct, frozen=True):
    """A part of an answer as written, the entries that it cites (ascending), and its kind.

    A list item or code without citations has those of the sentence that leads to it.
    """

    text: str
    cites: tuple[int, ...]
    form: Form = "claim"

    @property
    def plain(self) -> str:
        """The text without its citations; brackets within code are code."""
        if self.form == "code":
            return _BEHIND_CODE.sub("", self.text)
        return _change_outside_code(self.text, lambda text: CITATION.sub(" ", text))


def sentences(answer: str) -> tuple[Sentence, ...]:
    """Return the sentences of an answer in their order.

    >>> parts = sentences("It holds 1.5 GB, e.g. on disk [1]. 默认为三。[2][3] Why?")
    >>> [(sentence.text, sentence.cites) for sentence in parts]
    [('It holds 1.5 GB, e.g. on disk [1].', (1,)), ('默认为三。[2][3]', (2, 3)), ('Why?', ())]
    """
    results: list[Sentence] = []
    lead: tuple[int, ...] = ()
    for kind, text in _iter_blocks(answer):
        if kind in ("text", "item"):
            block_sentences = list(_split(text))
            if kind == "item" and lead and not any(sentence.cites for sentence in block_sentences):
                block_sentences = [Sentence(sentence.text, lead, sentence.form) for sentence in block_sentences]
        elif kind == "code":
            code_cites = read_citations(" ".join(_BEHIND_CODE.findall(text)))
            block_sentences = [Sentence(text, code_cites or (results[-1].cites if results else ()), "code")]
        elif kind == "quotation":
            block_sentences = [Sentence(text, read_citations(text) or lead, "quotation")]
        else:
            block_sentences = [
                Sentence(text, read_citations(text), "claim" if kind == "row" else _pick_heading_form(text))
            ]
        results += block_sentences
        if kind == "text":
            lead = block_sentences[-1].cites if block_sentences and _is_lead(block_sentences[-1].text) else ()
        elif kind not in ("item", "quotation"):
            lead = ()
    return tuple(results)


def read_citations(text: str) -> tuple[int, ...]:
    """Return the numbers of the entries that a text cites, ascending.

    >>> read_citations("a [1, 3] b [5-7] 【２】 [text](url) [3](url) `list[9]`")
    (1, 2, 3, 5, 6, 7)
    """
    cites: set[int] = set()
    for match in CITATION.finditer(CODE.sub(_hide_match, text)):
        numbers = unicodedata.normalize("NFKC", match["square"] or match["wide"])
        for part in re.split(r"\s*[,、;]\s*", numbers):
            first, _, last = re.sub(r"\s*[-–]\s*", "-", part).partition("-")
            ends = int(first[:9]), int((last.rpartition("-")[2] or first)[:9])
            cites.update(range(ends[0], ends[1] + 1) if 0 <= ends[1] - ends[0] < 100 else ends)
    return tuple(sorted(cites))


def _iter_blocks(answer: str) -> Iterator[tuple[str, str]]:
    """Yield paragraphs, items and so on, each with its kind."""
    lines: list[str] = []
    kind, fence = "text", ""
    for line, following in pairwise([*answer.splitlines(), ""]):
        opens = _FENCE.match(line)
        if fence and not (opens and opens[1].startswith(fence) and line.strip() == opens[1]):
            lines.append(line)
            continue
        line_kind = "code" if opens else _classify_line(line, following)
        goes_on = line_kind == kind if "quotation" in (line_kind, kind) else line_kind == "text"
        if lines and not goes_on:
            yield kind, "\n".join(lines)
            lines = []
        if opens:
            kind, fence = ("text", "") if fence else ("code", opens[1])
        elif line_kind in ("heading", "row"):
            yield line_kind, _HEADING.sub("", line)
        elif line_kind != "none":
            kind = line_kind if not lines else kind
            lines.append(_LEAD[line_kind].sub("", line, count=1) if line_kind in _LEAD else line)
    if lines:
        yield kind, "\n".join(lines)


def _classify_line(line: str, following: str) -> str:
    if not line.strip() or _RULE.match(line) or (_TABLE_RULE.match(line) and "|" in line):
        return "none"
    if _HEADING.match(line) or (line.lstrip().startswith("|") and _TABLE_RULE.match(following)):
        return "heading"
    if line.lstrip().startswith("|"):
        return "row"
    return next((kind for kind, lead in _LEAD.items() if lead.match(line)), "text")


def _split(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a paragraph."""
    masked_text = QUOTED.sub(_hide_match, CODE.sub(_hide_match, text))
    start = 0
    for end in _END.finditer(masked_text):
        if _ABBREVIATED.search(masked_text[start : end.end()]) or not text[start : end.end()].strip():
            continue
        yield _build_sentence(text[start : end.end()].strip())
        start = end.end()
    if text[start:].strip(" \n*_"):
        yield _build_sentence(text[start:].strip())


def _change_outside_code(text: str, change: Callable[[str], str]) -> str:
    parts, start = list[str](), 0
    for code in CODE.finditer(text):
        parts += change(text[start : code.start()]), code[0]
        start = code.end()
    return "".join([*parts, change(text[start:])])


def _hide_match(match: re.Match[str]) -> str:
    """Return a text of the same length that ends no sentence."""
    return "x" * len(match[0])


def _build_sentence(text: str) -> Sentence:
    bare = _change_outside_code(text, lambda part: CITATION.sub("", part)).strip().rstrip("*_ ")
    is_frame = bare.endswith(("?", "？")) or _is_lead(text) or bare.rstrip(".。!！,，").casefold() in _ALONE
    return Sentence(text, read_citations(text), "frame" if is_frame or not re.search(r"\w", bare) else "claim")


def _is_lead(text: str) -> bool:
    return CITATION.sub("", text).strip().rstrip("*_ ").endswith((":", "："))


def _pick_heading_form(text: str) -> Form:
    return "claim" if len(text.split()) > _LONG_HEADING and "|" not in text else "frame"


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
