"""Parsing of an answer into sentences, list items, table rows, code and headings; English and Chinese.

A sentence has the citations inside it and right behind its end. Nothing inside a quotation or code ends a sentence.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal

from msgspec import Struct

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
